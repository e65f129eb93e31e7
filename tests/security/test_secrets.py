"""Secrets stay where they belong: in no log, no error, no metric, no page, no core file, and in the memory of no other process."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import urllib.parse

import pytest

import test_admin_routes as admin
from guarded import READER, STRANGER, WRITER, Guarded
from harness import signing
from harness.clients import boto, send, send_signed
from harness.servers import S3Server, eventually, fresh_keys

NOBODY = 65534
BEHIND_TOKEN = "token-of-the-under-store-5e1f"
COLLECTOR = "authorization=Bearer%20collector-secret-77b2"


class Busy(Guarded):
    """With a secret of each kind, and a log that says as much as it can."""

    def __init__(self, directory, behind):
        self.mounted = fresh_keys()
        mount = f'[mounts.mounted]\nurl = "s3://elsewhere?endpoint={behind.endpoint}&region=us-east-1"\naccess_key = "{self.mounted[0]}"\n'
        config = f'[log]\nlevel = "trace"\n{mount}secret_key = "{self.mounted[1]}"\nsession_token = "{BEHIND_TOKEN}"\n'
        config += f'[trace]\notlp_endpoint = "http://127.0.0.1:9"\nheaders = "{COLLECTOR}"\n'
        super().__init__(directory, mode="WRITE_BACK", behind=behind, config=config)

    def secrets(self):
        own = [self.secret_key, self.behind.secret_key, self.mounted[1], BEHIND_TOKEN, "collector-secret-77b2"]
        return own + [secret for _, secret in (STRANGER, READER, WRITER)]


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    behind = S3Server(tmp_path_factory.mktemp("behind")).start()
    server = Busy(tmp_path_factory.mktemp("busy"), behind).start()
    yield server
    server.kill()
    behind.kill()


def work(server):
    """Requests of all kinds, good and bad, by everybody. Returns what was answered, and the secrets that came up on the way."""
    s3 = boto(server)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="object", Body=b"x" * 100_000)
    s3.get_object(Bucket="bucket", Key="object")["Body"].read()
    server.wait_until_drained()
    answers, made = [], []
    for access_key, secret_key in (STRANGER, READER, WRITER, (server.access_key, "not-the-secret"), ("AKNOBODY", server.secret_key)):
        for method, target in (("GET", "/bucket/object"), ("PUT", "/bucket/own/k"), ("GET", "/bucket?acl="), ("GET", "/mounted/k"), ("GET", "/")):
            for sign in signing.WAYS.values():
                signed = sign(server, signing.Request(method, target, {}, b""), access_key, secret_key)
                made += re.findall(r"Signature=([^&]+)", signed.target + signed.headers.get("Authorization", ""))
                answers.append(send(server, signed.method, signed.target, signed.headers, signed.body).body)
    # Whoever puts secrets where they do not belong has them in no log either.
    answers.append(send_signed(server, "GET", f"/bucket/object?X-Amz-Security-Token={server.secret_key}").body)
    root = admin.basic(server.access_key, server.secret_key)
    login = json.dumps({"accessKey": server.access_key, "secretKey": server.secret_key}).encode()
    status, session = admin.ask(server, "POST", "/api/v1/session", body=login)
    assert status == 200
    made.append(json.loads(session)["csrf"])
    made.append(root["Authorization"].removeprefix("Basic "))
    for page in pages(server):
        answers.append(admin.ask(server, "GET", page, root)[1])
    return answers, made


def pages(server):
    paths = json.loads(admin.ask(server, "GET", "/api/v1/openapi.json")[1])["paths"]
    for path, item in paths.items():
        operation = item.get("get")
        # The session shows the token that goes with its own cookie.
        if operation and path != "/api/v1/session":
            needed = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query" and p["required"]]
            yield path.format(id="1", version="1") + "?" * bool(needed) + "&".join(f"{name}=/bucket/object" for name in needed)
    yield from ("/metrics", "/healthz", "/readyz", "/console/", "/console/app.js", "/", "/api/v1/no-such-page")


def test_no_secret_is_told_anywhere(busy):
    answers, made = work(busy)
    assert len(made) > 20 and len(answers) > 90
    secrets = busy.secrets()
    for answer in answers:
        for secret in secrets:
            assert secret.encode() not in answer, answer
    configuration = json.loads(admin.ask(busy, "GET", "/api/v1/configuration", admin.basic(busy.access_key, busy.secret_key))[1])
    shown = {entry["name"]: entry["value"] for entry in configuration}
    assert shown["server.root_secret_key"] == shown["trace.headers"] == "…"
    told = {path.name: path.read_text() for path in (busy.log, busy.access_log, busy.audit_log)}
    assert all(len(text) > 1000 for text in told.values())
    for name, text in told.items():
        for secret in secrets + made:
            spellings = {secret, urllib.parse.unquote(secret), urllib.parse.quote(secret, safe="")}
            assert not [spelling for spelling in spellings if spelling in text], (name, secret)


def test_the_command_line_and_its_files_show_none(busy):
    command = pathlib.Path(f"/proc/{busy.process.pid}/cmdline").read_text()
    checked = subprocess.run([str(busy.binary), "config", "check", "--config", busy.config, "--output", "json"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    for secret in busy.secrets():
        assert secret not in command and secret not in checked.stdout + checked.stderr
    # The data directory holds objects, and none of the keys.
    for path in busy.data.rglob("*"):
        assert not path.is_file() or busy.secret_key.encode() not in path.read_bytes(), path


def test_a_file_that_cannot_be_read_shows_no_secret(tmp_path):
    """A mistake in a line with a secret is told without the line."""
    for text in ('[server]\nroot_secret_key = "the-root-secret', '[under_store]\nsecret_key = ["the-root-secret"]\n', '[server]\nroot_secret_key = 7\n'):
        file = tmp_path / "wrong.toml"
        file.write_text(text)
        done = subprocess.run([str(Guarded.binary), "config", "check", "--config", file], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "the-root-secret" not in done.stdout + done.stderr, done


@pytest.fixture
def public_directory():
    """One that other users reach: pytest's own are out of their reach."""
    with tempfile.TemporaryDirectory(prefix="forebay-test-") as name:
        os.chmod(name, 0o711)
        yield pathlib.Path(name)


class Crashing(Guarded):
    """Runs in a directory of its own, where a core file would be, and where nothing forbids one; as a user without rights."""

    def __init__(self, directory, config=""):
        super().__init__(directory, config=config)
        # Of its own, so that any user may run it.
        self.program = directory / "forebay"
        shutil.copy(self.binary, self.program)
        if os.geteuid() == 0:
            for path in (directory, self.under, self.config, directory / "users.toml"):
                os.chown(path, NOBODY, NOBODY)

    def start(self):
        allow_core = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # noqa: E731
        command = [str(self.program), *self.command()[1:]]
        with open(self.log, "ab") as log:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
            self.process = subprocess.Popen(
                command, env=os.environ | self.environment(), cwd=self.directory, stdout=log, stderr=log, preexec_fn=allow_core, **user
            )
        eventually("start", self._is_ready_or_dead, 60)
        return self


def as_the_same_user(command):
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(command, capture_output=True, timeout=60, **user)


def test_a_crash_leaves_no_memory_behind(public_directory):
    server = Crashing(public_directory).start()
    assert limit_of_core(server) == ["0", "0"]
    for file in ("environ", "mem", "maps"):
        read = as_the_same_user(["cat", f"/proc/{server.process.pid}/{file}"])
        assert read.returncode != 0 and server.secret_key.encode() not in read.stdout, file
    # What it says of itself it still can.
    metrics = server.metrics()
    assert metrics["process_open_fds"] > 5 and metrics["process_resident_memory_bytes"] > 1 << 20
    server.process.send_signal(signal.SIGABRT)
    server.process.wait(timeout=60)
    assert list(public_directory.glob("*core*")) == []


def test_core_files_are_there_for_those_who_want_them(public_directory):
    server = Crashing(public_directory, config="core_dumps = true\n").start()
    assert limit_of_core(server) == ["unlimited", "unlimited"]
    assert as_the_same_user(["cat", f"/proc/{server.process.pid}/environ"]).returncode == 0
    assert server.stop() == 0


def limit_of_core(server):
    lines = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Max core file size"))
    return line.split()[4:6]
