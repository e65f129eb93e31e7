"""Hadoop's own tests of s3a, as they are published with it, against a Forebay: the contract of a file system, and commits.

programs/java/s3a/pom.xml says which. Left out are those that need AWS itself (KMS, roles, session tokens, requester pays,
public data sets, regions), those of DistCp and of MapReduce and YARN clusters, and for their time the scale tests and those
that count requests. Everything has its default setting but for those below and those of Hadoop's own core-site.xml for tests.
"""

import concurrent.futures
import itertools
import subprocess
import xml.etree.ElementTree
import xml.sax.saxutils

import pytest

from adapters.java_program import OPTIONS, built
from harness.clients import boto
from harness.servers import REGION, Forebay

BUCKET = "s3a-contract"
# At least this many tests run.
TESTS = 400
# For one class of tests; the longest takes half a minute.
CLASS_SECONDS = 300
# They delete all that is in the bucket.
ALONE = ["ITestS3AContractRootDir"]
# What a test says when it skips itself -> why it does.
SKIPPED = {
    "Multi-object delete is disabled": "is about another setting of bulk deletion",
    "Test requires paths size less than or equal to page size: 1": "is about another setting of bulk deletion",
    "newly created files are not immediately visible": "objects appear when they are closed",
    "This Filesystem delays visibility of newly created files": "objects appear when they are closed",
    "This filesystem supports creating files under files": "s3a does not look at the parents",
    "Filesystem does not declare that etags are preserved across renames": "s3a renames by copying",
    "S3 always return false when non-recursively remove root dir": "s3a never does that",
    "Assumption failed: assumption is not true": "needs Hadoop's native library with OpenSSL",
    "Not supported": "s3a has no permissions",
    "does not fail": "s3a creates the parents",
    "Skipping as conditional create is enabled": "is about another setting of conditional creation",
    "conditional_write statistics not yet fully implemented": "Hadoop leaves it out itself",
    "skipped for speed": "Hadoop leaves it out itself",
    "TestAbortedException: Unsupported": "s3a does not look for a directory of the same name",
}


@pytest.fixture
def hadoop(tmp_path):
    """A directory with auth-keys.xml, where Hadoop's tests look for the file system under test."""
    server = Forebay(tmp_path / "server", "WRITE_BACK").start()
    boto(server).create_bucket(Bucket=BUCKET)
    settings = {
        "test.fs.s3a.name": f"s3a://{BUCKET}/",
        "fs.contract.test.fs.s3a": f"s3a://{BUCKET}/",
        "fs.s3a.endpoint": server.endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": server.access_key,
        "fs.s3a.secret.key": server.secret_key,
    }
    properties = [
        f"<property><name>{name}</name><value>{xml.sax.saxutils.escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    (tmp_path / "auth-keys.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    yield tmp_path
    code = server.stop()
    assert code == 0, server.log.read_text()[-4000:]


def run_class(hadoop, name, number):
    """Runs one class in a process of its own, as Hadoop does: file systems are cached in it. Returns its test cases."""
    module, short = built("java-s3a"), name.split(".")[-1]
    reports = hadoop / "reports" / short
    # The paths of each class begin with this id. What the multipart uploader's test calls scale is 8 MiB.
    properties = [f"-Dtest.unique.fork.id=fork-{number:04}", "-Dfs.s3a.scale.test.enabled=true"]
    class_path = f"{hadoop}:{module / 'test-classes'}:{module / 'lib'}/*"
    runner = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--disable-ansi-colors", "--details=none"]
    with open(hadoop / f"{short}.log", "wb") as output:
        subprocess.run(
            ["java", *OPTIONS, *properties, "-cp", class_path, *runner, f"--reports-dir={reports}", f"--select-class={name}"],
            cwd=hadoop,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=CLASS_SECONDS,
        )
    cases = xml.etree.ElementTree.parse(reports / "TEST-junit-jupiter.xml").findall("testcase")
    assert cases, (hadoop / f"{short}.log").read_text(errors="replace")[-4000:]
    return [(f"{short}.{case.get('name')}", case) for case in cases]


def said(case, *outcomes):
    """What a test case says of its outcome when that is one of these, or None."""
    found = [outcome for outcome in map(case.find, outcomes) if outcome is not None]
    return f"{found[0].get('message')} {found[0].text}"[:2000] if found else None


@pytest.mark.slow("minutes of Hadoop's own tests")
def test_s3a_contract(hadoop):
    compiled = built("java-s3a") / "test-classes"
    classes = [
        ".".join(path.relative_to(compiled).with_suffix("").parts)
        for path in sorted(compiled.glob("**/ITest*.class"))
        if "$" not in path.name
    ]
    alone = [name for name in classes if name.split(".")[-1] in ALONE]
    classes = [name for name in classes if name not in alone]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(run_class, itertools.repeat(hadoop), classes, itertools.count(1)))
    cases = [case for run in runs + [run_class(hadoop, name, 0) for name in alone] for case in run]
    failed = {name: said(case, "failure", "error") for name, case in cases if said(case, "failure", "error")}
    skipped = {name: said(case, "skipped") for name, case in cases if said(case, "skipped")}
    print(f"{len(cases)} tests, {len(failed)} failed, {len(skipped)} skipped")
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
    unknown = {name: why for name, why in skipped.items() if not any(known in why for known in SKIPPED)}
    assert not unknown, "\n".join(f"{name}: {why}" for name, why in unknown.items())
    assert len(cases) >= TESTS
