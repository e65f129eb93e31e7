"""`forebay doctor`: what it measures, what it finds, and that it leaves nothing behind."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

from harness.clients import boto
from harness.servers import REGION, Forebay, S3Server, eventually, free_port

MEMORY = pathlib.Path("/dev/shm")
MEASURED = {
    "disk-write": "B/s",
    "disk-read": "B/s",
    "disk-sync-p50": "s",
    "disk-sync-p99": "s",
    "disk-group-sync-p99": "s",
    "md5": "B/s",
    "memory": "B",
    "processors": "1",
    "under-store-list": "s",
    "under-store-put": "s",
    "under-store-get": "s",
    "under-store-upload": "B/s",
    "under-store-download": "B/s",
}


def command(directory, *arguments):
    defaults = []
    for flag, value in (("--data-dir", directory / "data"), ("--size", "256 MiB"), ("--output", "json")):
        if flag not in arguments:
            defaults += [flag, str(value)]
    return [str(Forebay.binary), "doctor", *arguments, *defaults]


def doctor(directory, *arguments, keys=None):
    """Exit code, standard error and the report."""
    done = subprocess.run(
        command(directory, *arguments), capture_output=True, text=True, env=environment(keys), cwd=directory
    )
    return done.returncode, done.stderr, json.loads(done.stdout or "{}")


def environment(keys):
    access_key, secret_key = keys or ("", "")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FOREBAY_"))}
    return own | {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key, "AWS_EC2_METADATA_DISABLED": "true"}


def s3_url(server, bucket=""):
    return f"s3://{bucket}?endpoint={server.endpoint}&region={REGION}"


def found(report, severity=None):
    return {finding["id"] for finding in report["findings"] if severity in (None, finding["severity"])}


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_a_good_machine_is_measured_and_nothing_is_left(tmp_path):
    (tmp_path / "under").mkdir()
    code, complaint, report = doctor(tmp_path, "--under-store", f"file://{tmp_path}/under")
    assert (code, found(report, "critical")) == (0, set()), complaint
    measured = {measurement["name"]: measurement for measurement in report["measurements"]}
    assert {name: measured[name]["unit"] for name in MEASURED} == MEASURED
    assert all(measurement["value"] > 0 for measurement in report["measurements"])
    assert measured["disk-sync-p50"]["value"] <= measured["disk-sync-p99"]["value"]
    assert len(report["bottlenecks"]) == 2
    for finding in report["findings"]:
        assert set(finding) == {"id", "severity", "subject", "what", "measured", "why", "cure"}
    assert list(tmp_path.iterdir()) == [tmp_path / "under"]
    assert list((tmp_path / "under").iterdir()) == []


def test_an_s3_server_is_tried_with_everything_that_forebay_asks_of_one(tmp_path, s3_server):
    client = boto(s3_server)
    client.create_bucket(Bucket="examined")
    keys = (s3_server.access_key, s3_server.secret_key)
    code, complaint, report = doctor(tmp_path, "--under-store", s3_url(s3_server, "examined"), keys=keys)
    assert (code, found(report, "critical")) == (0, set()), complaint
    assert "conditions-missing" not in found(report)
    names = {measurement["name"] for measurement in report["measurements"]}
    assert set(MEASURED) | {"under-store-resolve", "under-store-connect"} <= names
    assert "Contents" not in client.list_objects_v2(Bucket="examined")
    assert "Uploads" not in client.list_multipart_uploads(Bucket="examined")


def test_a_server_on_the_same_directory_is_not_disturbed(tmp_path):
    server = Forebay(tmp_path, mode="WRITE_BACK").start()
    s3 = boto(server)
    s3.create_bucket(Bucket="served")
    s3.put_object(Bucket="served", Key="object", Body=b"x")
    server.wait_until_drained()
    before = files(server.under)
    code, complaint, report = doctor(tmp_path, "--under-store", server.under_store_url())
    assert code == 0, complaint
    assert "disk-write" in {measurement["name"] for measurement in report["measurements"]}
    assert s3.get_object(Bucket="served", Key="object")["Body"].read() == b"x"
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["served"]
    assert files(server.under) == before
    assert server.stop() == 0


@pytest.fixture
def guarded(tmp_path):
    """A versitygw with a user who may read a bucket and not write."""
    server = S3Server(tmp_path / "s3")
    users = tmp_path / "users"
    users.mkdir()
    arguments = server.command()
    position = arguments.index("posix")
    server.command = lambda: [*arguments[:position], "--iam-dir", str(users), *arguments[position:]]
    server.start()
    root = ["--access", server.access_key, "--secret", server.secret_key, "--endpoint-url", server.endpoint]
    user = ["--access", "reader", "--secret", "readersecret", "--role", "user"]
    done = subprocess.run([str(server.binary), "admin", *root, "create-user", *user], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    boto(server).create_bucket(Bucket="guarded")
    yield server
    server.kill()


def allow(server, *actions):
    resources = ["arn:aws:s3:::guarded", "arn:aws:s3:::guarded/*"]
    statements = [
        {"Effect": "Allow", "Principal": "reader", "Action": action, "Resource": resources[0 if action.endswith("Bucket") else 1]}
        for action in actions
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    boto(server).put_bucket_policy(Bucket="guarded", Policy=json.dumps(policy))


@pytest.mark.parametrize(
    "allowed, missing",
    [
        ((), "s3:ListBucket"),
        (("s3:ListBucket", "s3:GetObject"), "s3:PutObject"),
        (("s3:ListBucket", "s3:PutObject"), "s3:GetObject"),
        (("s3:ListBucket", "s3:GetObject", "s3:PutObject"), "s3:DeleteObject"),
    ],
)
def test_a_missing_permission_is_named(tmp_path, guarded, allowed, missing):
    if allowed:
        allow(guarded, *allowed)
    code, _, report = doctor(tmp_path, "--under-store", s3_url(guarded, "guarded"), keys=("reader", "readersecret"))
    named = {finding["measured"].split(":")[1] for finding in report["findings"] if finding["id"] == "permission-missing"}
    assert code == 1
    assert missing.split(":")[1] in {name.split(" ")[0] for name in named}, report["findings"]
    left = boto(guarded).list_objects_v2(Bucket="guarded").get("Contents", [])
    assert bool(left) == ("probe-left" in found(report)), "doctor reports what it cannot remove"


def test_read_only_paths_need_no_permission_to_write(tmp_path, guarded):
    allow(guarded, "s3:ListBucket", "s3:GetObject")
    url = s3_url(guarded, "guarded")
    code, complaint, report = doctor(tmp_path, "--under-store", url, "--mode", "READ_ONLY", keys=("reader", "readersecret"))
    assert (code, found(report, "critical")) == (0, set()), complaint
    assert "under-store-not-written" in found(report)


def test_wrong_keys_are_told(tmp_path, s3_server):
    boto(s3_server).create_bucket(Bucket="wrong-keys")
    code, _, report = doctor(tmp_path, "--under-store", s3_url(s3_server, "wrong-keys"), keys=(s3_server.access_key, "nothing"))
    assert code == 1
    (told,) = [finding for finding in report["findings"] if finding["id"] == "credentials-refused"]
    assert "SignatureDoesNotMatch" in told["measured"] and "secret key" in told["cure"], told


def test_a_missing_bucket_is_told(tmp_path, s3_server):
    code, _, report = doctor(tmp_path, "--under-store", s3_url(s3_server, "no-such-bucket-at-all"), keys=(s3_server.access_key, s3_server.secret_key))
    assert code == 1
    (told,) = [finding for finding in report["findings"] if finding["id"] == "bucket-missing"]
    assert "NoSuchBucket" in told["measured"] and "Make the bucket" in told["cure"], told


def test_an_endpoint_out_of_reach_is_told(tmp_path):
    port = free_port()
    url = f"s3://bucket?endpoint=http://127.0.0.1:{port}"
    code, complaint, report = doctor(tmp_path, "--under-store", url, keys=("a", "b"))
    assert code == 1
    assert complaint == "forebay: 1 critical finding\n"
    [finding] = [finding for finding in report["findings"] if finding["id"] == "under-store-unreachable"]
    assert (finding["severity"], finding["subject"]) == ("critical", url)
    assert f"127.0.0.1:{port}" in finding["measured"]


def test_memory_is_no_place_for_a_cache(tmp_path):
    code, _, report = doctor(tmp_path, "--quick", "--data-dir", str(MEMORY / "forebay-doctor"))
    assert code == 1
    assert "filesystem-in-memory" in found(report, "critical")


def test_quick_looks_and_measures_nothing(tmp_path):
    code, complaint, report = doctor(tmp_path, "--quick", "--under-store", "s3://bucket?endpoint=http://127.0.0.1:1")
    assert code == 0, complaint
    names = {measurement["name"] for measurement in report["measurements"]}
    assert names == {"space", "memory", "processors"}


def test_settings_that_do_not_fit_the_machine_are_told(tmp_path):
    code, _, report = doctor(tmp_path, "--quick", "--size", "8000 TiB")
    assert code == 1
    assert "space-missing" in found(report, "critical")


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--size", "bogus"], "--size"),
        (["--nonsense"], "--nonsense"),
        (["--output", "xml"], "xml"),
        (["--under-store", "ftp://host"], "file://, s3:// or hdfs://"),
        (["--config", "/nonexistent.toml"], "/nonexistent.toml"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(tmp_path, arguments, named):
    code, complaint, report = doctor(tmp_path, *arguments)
    assert (code, report) == (2, {})
    assert complaint.startswith("forebay: ") and complaint.count("\n") == 1 and named in complaint


def test_an_interrupted_examination_leaves_nothing(tmp_path, s3_server):
    client = boto(s3_server)
    client.create_bucket(Bucket="interrupted")
    arguments = command(tmp_path, "--under-store", s3_url(s3_server, "interrupted"))
    process = subprocess.Popen(
        arguments, env=environment((s3_server.access_key, s3_server.secret_key)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    eventually("an object of the examination", lambda: "Contents" in client.list_objects_v2(Bucket="interrupted"))
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (1, b"forebay: interrupted\n")
    assert "Contents" not in client.list_objects_v2(Bucket="interrupted")
    assert not (tmp_path / "data").exists()


def test_a_server_tells_at_its_start_what_the_quick_part_finds(tmp_path):
    server = Forebay(tmp_path, arguments=["--size", "100%"]).start()
    eventually("a line about the space", lambda: "space-less-than-asked" in server.log.read_text())
    assert server.stop() == 0
