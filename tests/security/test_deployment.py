"""What deploy/ gives to those who install Forebay: valid, as tight as it says, and not too tight for the server."""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import pytest

from harness.clients import boto
from harness.servers import ROOT, Forebay, answers, eventually

UNIT = ROOT / "deploy/systemd/forebay.service"
CONTAINERFILE = ROOT / "deploy/container/Containerfile"
# On systemd's scale of 0 to 100: it calls up to 20 "OK".
EXPOSURE_MAX = 15


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def unit(tmp_path):
    """The unit, with the binary of the tests."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/forebay", str(Forebay.binary.resolve())))
    return copy


def settings(text):
    """The lines of a unit; a setting may come more than once."""
    found = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_is_valid(unit):
    verified = run("systemd-analyze", "verify", unit)
    assert verified.returncode == 0 and not verified.stderr, verified


def test_the_unit_is_tight(unit):
    rated = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit)
    assert rated.returncode == 0, rated.stdout[-3000:] + rated.stderr
    found = settings(UNIT.read_text())
    for name, value in (("LimitCORE", "0"), ("StateDirectoryMode", "0700"), ("UMask", "0077"), ("NoNewPrivileges", "yes"), ("DynamicUser", "yes")):
        assert found[name] == [value]


def test_the_unit_waits_for_a_stop(unit):
    """Requests in flight, then uploads, take `cache.drain_timeout` each."""
    reference = (ROOT / "docs/configuration-reference.md").read_text()
    drain = int(re.search(r"\| `drain_timeout` \| period \| `(\d+) s`", reference).group(1))
    assert int(settings(unit.read_text())["TimeoutStopSec"][0].removesuffix("s")) >= 2 * drain + 15


def system_calls(group):
    """The names in a group of systemd's."""
    listed = run("systemd-analyze", "syscall-filter", group).stdout.splitlines()[1:]
    names = {line.strip() for line in listed if line.strip() and not line.strip().startswith("#")}
    nested = {name for name in names if name.startswith("@")}
    return (names - nested).union(*(system_calls(name) for name in nested))


def allowed(lines):
    """What SystemCallFilter leaves, read as systemd.exec(5) says: a first line that allows, later ones that add and take away."""
    names = set()
    for line in lines:
        takes_away = line.startswith("~")
        for word in line.removeprefix("~").split():
            group = system_calls(word) if word.startswith("@") else {word}
            names = names - group if takes_away else names | group
    return names


class Traced(Forebay):
    """Runs under strace, which writes down every system call; `-D` leaves the server the process that was started."""

    def command(self):
        return ["strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", str(self.directory / "calls"), *super().command()]


def test_the_unit_allows_what_the_server_calls(tmp_path, unit):
    server = Traced(tmp_path, mode="WRITE_BACK").start()
    s3 = boto(server)
    s3.create_bucket(Bucket="bucket")
    for size in (1, 3 << 20):
        s3.put_object(Bucket="bucket", Key=f"object-{size}", Body=bytes(size))
        s3.get_object(Bucket="bucket", Key=f"object-{size}")["Body"].read()
    s3.list_objects_v2(Bucket="bucket")
    s3.delete_object(Bucket="bucket", Key="object-1")
    server.wait_until_drained()
    assert server.stop() == 0
    calls = tmp_path / "calls"
    text = eventually("the last call", lambda: "exit_group(" in calls.read_text() and calls.read_text())
    called = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    assert {"fdatasync", "accept4", "prctl"} <= called, called
    assert called - allowed(settings(unit.read_text())["SystemCallFilter"]) == set()
    # MemoryDenyWriteExecute: no memory is both, and none that was written becomes a program.
    assert not re.search(r"mmap\(.*PROT_WRITE\|PROT_EXEC|(?<!p)mprotect\(.*PROT_EXEC", text)
    families = set(re.findall(r"socket\((AF_\w+)", text))
    assert families <= set(settings(unit.read_text())["RestrictAddressFamilies"][0].split()), families


def instructions():
    """The Containerfile's, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", CONTAINERFILE.read_text())
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_container_is_built_from_fixed_versions_and_runs_as_nobody():
    arguments = dict(value.split("=", 1) for name, value in instructions() if name == "ARG")
    images = [value.split(" ")[0] for name, value in instructions() if name == "FROM"]
    assert images == ["${RUST_IMAGE}", "${BASE_IMAGE}"]
    minimum = re.search(r"^RUST_MINIMUM=(.+)$", (ROOT / "scripts/versions.env").read_text(), re.MULTILINE).group(1)
    assert arguments["RUST_IMAGE"].split(":")[1].startswith(f"{minimum}-")
    assert all(re.search(r":\d+\.\d+[-.\w]*$|@sha256:[0-9a-f]{64}$", image) for image in arguments.values()), arguments
    user = [value for name, value in instructions() if name == "USER"]
    assert user == ["65532:65532"]
    names = [name for name, _ in instructions()]
    assert "HEALTHCHECK" in names and "STOPSIGNAL" in names and "ADD" not in names
    assert all("--locked" in value for name, value in instructions() if name == "RUN" and "cargo build" in value)
    text = CONTAINERFILE.read_text()
    assert not re.search(r"(SECRET|ACCESS)_KEY\s*=", text) and "curl" not in text and "http:" not in text


def test_the_container_gets_what_its_build_needs_and_no_more(tmp_path):
    """What .dockerignore lets through is a whole workspace to cargo, and holds neither history nor tools."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        source = ROOT / name
        assert source.exists(), name
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    left_out = [line for line in lines[1:] if not line.startswith("!")]
    sent = [path for path in tmp_path.rglob("*") if not any(fnmatch.fnmatch(path.name, line.removeprefix("**/")) for line in left_out)]
    assert not [path for path in sent if path.name in (".git", ".tools", "target", "node_modules") or path.suffix in (".pem", ".env")]
    metadata = run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1", cwd=tmp_path)
    assert metadata.returncode == 0, metadata.stderr
    assert len(json.loads(metadata.stdout)["packages"]) > 12
    for source in tmp_path.glob("crates/*/src/**/*.rs"):
        for included in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
            assert (source.parent / included).exists(), (source, included)


def test_the_container_s_server_needs_no_more_than_it_gets():
    """As nobody, with the environment of the Containerfile alone, in a directory that cannot be written."""
    environment = dict(pair.split("=", 1) for name, value in instructions() if name == "ENV" for pair in value.split())
    assert environment["STATE_DIRECTORY"] == "/var/lib/forebay", "store.data_dirs of a mounted file comes first"
    with tempfile.TemporaryDirectory(prefix="forebay-test-") as name:
        place = pathlib.Path(name)
        server = Forebay(place / "server")
        os.chmod(place, 0o711)
        os.chmod(place / "server", 0o711)
        data = place / "server" / "volume"
        data.mkdir(mode=0o700)
        program = shutil.copy(server.binary, place / "forebay")
        identity = {"user": 65532, "group": 65532, "extra_groups": []} if os.geteuid() == 0 else {}
        if identity:
            os.chown(data, 65532, 65532)
        ports = {"FOREBAY_SERVER_LISTEN": f"0.0.0.0:{server.port}", "FOREBAY_SERVER_ADMIN_LISTEN": f"127.0.0.1:{server.admin_port}"}
        environment |= ports | {"STATE_DIRECTORY": str(data), "FOREBAY_UNDER_STORE_URL": "s3://?endpoint=http://127.0.0.1:9&region=us-east-1"}
        refused = run(program, "serve", env=environment, cwd="/", **identity)
        assert refused.returncode == 2 and "FOREBAY_ROOT_ACCESS_KEY" in refused.stderr, "without keys nobody from outside is served"
        environment |= {"FOREBAY_ROOT_ACCESS_KEY": server.access_key, "FOREBAY_ROOT_SECRET_KEY": server.secret_key}
        with open(place / "log", "w") as log:
            process = subprocess.Popen([program, "serve"], env=environment, cwd="/", stdout=log, stderr=log, **identity)
        try:
            eventually("start", lambda: answers(f"{server.admin}/readyz") or process.poll() is not None, 60)
            assert process.poll() is None, (place / "log").read_text()
            (check,) = (value for name, value in instructions() if name == "HEALTHCHECK")
            probe = json.loads(check[check.index("CMD ") + 4 :])
            probe = [word.replace("9701", str(server.admin_port)) for word in probe]
            assert run(*probe).returncode == 0, shlex.join(probe)
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
        assert run(*probe).returncode != 0
        assert {path.stat().st_mode & 0o077 for path in data.rglob("*")} == {0}
