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
from xml.sax.saxutils import escape

import boto3
import pytest

import test_admin_routes as admin
from fake_store import EMPTY_LIST, FakeStore
from guarded import READER, STRANGER, WRITER, Guarded
from harness import chunks, signing
from harness.clients import boto, send, send_signed
from harness.servers import REGION, S3Server, eventually, fresh_keys
from test_hostile_under_store import IMPATIENT, QUESTIONS

NOBODY = 65534
BEHIND_TOKEN = "token-of-the-under-store-5e1f"
COLLECTOR = "authorization=Bearer%20collector-secret-77b2"
CLIENT_TOKEN = "token-of-a-client-91cd"
MISTYPED = "mistyped-secret-5e0b"


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
        for method, target in (("GET", "/bucket/object"), ("PUT", "/bucket/own/k"), ("GET", "/bucket?cors="), ("GET", "/mounted/k"), ("GET", "/")):
            for sign in signing.WAYS.values():
                signed = sign(server, signing.Request(method, target, {}, b""), access_key, secret_key)
                made += re.findall(r"Signature=([^&]+)", signed.target + signed.headers.get("Authorization", ""))
                answers.append(send(server, signed.method, signed.target, signed.headers, signed.body).body)
    for request, signatures in failing_requests(server):
        made += signatures
        answers.append(send(server, request.method, request.target, request.headers, request.body).body)
    # A secret that a client puts where it does not belong is in no log either.
    answers.append(send_signed(server, "GET", f"/bucket/object?X-Amz-Security-Token={server.secret_key}").body)
    root = admin.basic(server.access_key, server.secret_key)
    login = json.dumps({"accessKey": server.access_key, "secretKey": server.secret_key}).encode()
    status, session = admin.ask(server, "POST", "/api/v1/session", body=login)
    assert status == 200
    wrong = json.dumps({"accessKey": server.access_key, "secretKey": MISTYPED})
    for method, page, headers, body in (
        ("POST", "/api/v1/session", {}, wrong),
        ("POST", "/api/v1/session", {}, wrong[:-1]),
        ("POST", "/api/v1/session", {}, wrong.replace(f'"{MISTYPED}"', f'["{MISTYPED}"]')),
        ("GET", "/api/v1/status", admin.basic(server.access_key, MISTYPED), "{}"),
        ("GET", "/api/v1/status", {"Authorization": f"Bearer {MISTYPED}"}, "{}"),
        ("GET", "/api/v1/status", {"Cookie": f"forebay_session={MISTYPED}", "x-forebay-csrf": MISTYPED}, "{}"),
        ("PUT", "/api/v1/policies", root, wrong),
    ):
        answers.append(admin.ask(server, method, page, headers, body.encode())[1])
    made.append(json.loads(session)["csrf"])
    made.append(root["Authorization"].removeprefix("Basic "))
    for page in pages(server):
        answers.append(admin.ask(server, "GET", page, root)[1])
    return answers, made


def version_2(server, access_key, secret_key):
    """boto3 as it is without a setting, which signs forms so."""
    keys = {"aws_access_key_id": access_key, "aws_secret_access_key": secret_key}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name=REGION, **keys)


def failing_requests(server):
    """Requests with something wrong in them, and the signatures and keys that they carry."""
    for kind in chunks.PAYLOADS:
        for keys in ((server.access_key, server.secret_key), WRITER, (server.access_key, "not-the-secret")):
            for wrong in ({"damage": "byte"}, {"trailer": lambda _, lines: [*lines[:1], (chunks.SIGNATURE, "5e" * 32)]}):
                request = signing.Request("PUT", "/bucket/own/chunks", {}, b"x" * 5000)
                headers, body = chunks.request(server, request.target, request.body, kind, keys=keys, **wrong)
                found = re.findall(r"signature[=:](\w{64})", body.decode("latin-1") + headers["authorization"], re.IGNORECASE)
                yield signing.Request("PUT", request.target, headers, body), found
    for keys in ((server.access_key, server.secret_key), WRITER, STRANGER, (server.access_key, "not-the-secret")):
        for client in (boto(server, *keys), version_2(server, *keys)):
            fields = client.generate_presigned_post("bucket", "own/form")["fields"]
            signature = fields.get("x-amz-signature") or fields["signature"]
            yield signing.form("/bucket", fields | {"key": "elsewhere"}, b"x"), [signature]
            yield signing.form("/bucket?acl", fields, b"x"), [signature]
    good = signing.in_query(server, signing.Request("GET", "/bucket/object", {}, b""), server.access_key, server.secret_key)
    signature = re.findall("X-Amz-Signature=(.*)", good.target)
    for target, headers in (
        (good.target + "&x=1", {}),
        (good.target.replace("X-Amz-Signature", "x-amz-signature"), {}),
        (good.target.replace("X-Amz-Signature", "X-Amz-Si%67nature"), {}),
        (good.target.replace("X-Amz-Expires=60", "X-Amz-Expires=60000000"), {}),
        (good.target, {"Authorization": f"AWS {server.access_key}:{signature[0]}"}),
        (good.target, {"x-amz-security-token": CLIENT_TOKEN}),
        (f"{good.target}&X-Amz-Security-Token={CLIENT_TOKEN}", {}),
        ("/bucket/absent", {"Referer": f"http://127.0.0.1{good.target}"}),
        ("/bucket/absent", {"Authorization": f"Bearer {MISTYPED}"}),
        ("/bucket/absent", admin.basic(server.access_key, server.secret_key)),
        ("/bucket/absent", {"Authorization": f"AWS4-HMAC-SHA256 Credential={server.access_key}/{MISTYPED}, SignedHeaders=host, Signature={signature[0]}"}),
        ("/bucket/absent", {"Cookie": f"session={MISTYPED}"}),
    ):
        yield signing.Request("GET", target, headers, b""), [*signature, CLIENT_TOKEN, MISTYPED]


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
        # A signature that does not match is shown to who has sent it.
        repeated = re.sub(rb"<SignatureProvided>[^<]*</SignatureProvided>", b"", answer if isinstance(answer, bytes) else answer.encode())
        for secret in secrets + made:
            assert secret.encode() not in repeated, (secret, answer)
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


SAID = "The request signature we calculated does not match the signature you provided. Check your key and signing method."


def as_amazon_refuses(store, sent):
    """An answer to wrong keys in the words of Amazon S3, which repeats all that was signed. `sent` gets the signatures."""
    _, path, headers = store.asked[-1]
    authorization = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
    (signature,) = re.findall(r"Signature=(\w{64})", authorization + path)
    sent.add(signature)
    told = {"Code": "SignatureDoesNotMatch", "Message": SAID, "AWSAccessKeyId": store.access_key, "SignatureProvided": signature}
    told |= {"StringToSign": f"AWS4-HMAC-SHA256\n{authorization}", "CanonicalRequest": f"GET\n{path}\n{authorization}", "HostId": "host"}
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in told.items())
    return 403, {}, f"<Error>{body}</Error>".encode()


def test_what_an_under_store_says_of_wrong_keys_is_told_without_them(tmp_path):
    """Neither the keys nor a signature, which the store repeats: not to clients, and in no log that is read."""
    with FakeStore() as behind:
        server = Guarded(tmp_path, mode="WRITE_BACK", behind=behind, config=IMPATIENT + '[log]\nlevel = "debug"\n').start()
        assert send_signed(server, "GET", "/bucket?list-type=2").status == 200
        behind.asked.clear()
        sent, told = set(), []
        behind.answer = lambda *_: as_amazon_refuses(behind, sent)
        for method, path, body in (*QUESTIONS, ("PUT", "/bucket/kept", b"x")):
            told.append(str(send_signed(server, method, path, body=body).__dict__))
        eventually("a line about what is not persisted", lambda: "could not persist" in server.log.read_text())
        root = admin.basic(server.access_key, server.secret_key)
        told += [str(admin.ask(server, "GET", page, root)[1]) for page in pages(server)]
        behind.answer = (200, {}, EMPTY_LIST)
        server.kill()
    told += [path.read_text() for path in (server.log, server.access_log, server.audit_log)]
    assert len(sent) > 8 and "SignatureDoesNotMatch" in server.log.read_text()
    for text in told:
        for secret in (behind.secret_key, server.secret_key, *sent):
            lines = [line for line in text.splitlines() if secret in line]
            assert not lines, lines[0][:500]


SECRET = "the-root-secret"
# One that somebody has left without quotes.
NUMBER = "918273645546372819"
# Mistakes in lines that hold a secret, or that hold it where it does not belong.
WRONG_FILES = [
    f'[server]\nroot_secret_key = "{SECRET}',
    f'[under_store]\nsecret_key = ["{SECRET}"]\n',
    f"[server]\nroot_secret_key = {NUMBER}\n",
    f'[mounts.bucket]\nurl = "s3://bucket"\naccess_key = "AK"\nsecret_key = {NUMBER}\n',
    f'[server]\nroot_secret = "{SECRET}"\n',
    f'[server]\nroot_secret_key = "{SECRET}"\nroot_secret_key = "{SECRET}"\n',
    f'[server.root_secret_key]\nvalue = "{SECRET}"\n',
    f'[server]\nroot_secret_key = "{SECRET}\\q"\n',
    f'[server]\nroot_secret_key = "{SECRET}"\n',
    f'[under_store]\nurl = "s3://bucket"\nsecret_key = "{SECRET}"\n',
    f'[under_store]\nurl = "s3://bucket"\nsession_token = "{SECRET}"\n',
    f'[mounts.bucket]\nurl = "s3://bucket"\nsecret = "{SECRET}"\n',
    f'[mounts.bucket]\nurl = "s3://bucket"\nsecret_key = "{SECRET}"\n',
    f'[mounts.bucket]\nurl = "s3://bucket"\naccess_key = "AK"\nsecret_key = ["{SECRET}"]\n',
    f'[trace]\notlp_endpoint = "http://127.0.0.1:9"\nheaders = ["{SECRET}"]\n',
]
# The same for what is in a URL.
WRONG_URLS = [
    f"s3://bucket?endpoint=http://127.0.0.1:9&secret_key={SECRET}",
    f"s3://bucket?endpoint=http://user:{SECRET}@127.0.0.1:9&regoin=us-east-1",
    f"s3://bucket?endpoint=http%3A%2F%2Fuser%3A{SECRET}%40127.0.0.1%3A9&region",
    f"s3://bucket?endpoint=user:{SECRET}@127.0.0.1:9",
    f"https://user:{SECRET}@127.0.0.1:9/bucket",
]
WRONG_USERS = [
    f'secret_key = ["{SECRET}"]\n',
    f'secret_key = "{SECRET}\n',
    f'secret_key = "{SECRET}\\q"\n',
    f'secret_key = {{ value = "{SECRET}" }}\n',
    f'secret_key = "{SECRET}"\nsecret_key = "{SECRET}"\n',
    f'secret_key = "{SECRET}"\nsecret = "{SECRET}"\n',
    f'secret_key = "{SECRET}"\ngrants = [{{ path = "/", allow = ["everything"] }}]\n',
    f"secret_key = {NUMBER}\n",
    f"secret_key = -{NUMBER}.5\n",
    f'secret_key = "{SECRET}"\n[[user]]\nname = "other"\naccess_key = "USERKEY"\nsecret_key = "{SECRET}"\n',
]


def check_file(text, *arguments, **variables):
    """All that is said of a configuration that must not be taken."""
    command = [str(Guarded.binary), "config", "check", "--config", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | variables)
    assert done.returncode == 2, (text.read_text(), done)
    return done.stdout + done.stderr


def test_a_file_that_cannot_be_read_shows_no_secret(tmp_path):
    """The report of a mistake in a line with a secret does not show the line: in the configuration, in the file of the users, and in variables."""
    file, users = tmp_path / "forebay.toml", tmp_path / "users.toml"
    told = {}
    for text in WRONG_FILES:
        file.write_text(text)
        told[text] = check_file(file)
    file.write_text(f'[server]\nusers_file = "{users}"\n')
    for text in WRONG_USERS:
        users.write_text(f'[[user]]\nname = "user"\naccess_key = "USERKEY"\n{text}')
        told[text] = check_file(file)
    file.write_text("")
    for name in ("FOREBAY_ROOT_SECRET_KEY", "FOREBAY_UNDER_STORE_SECRET_KEY", "FOREBAY_UNDER_STORE_SESSION_TOKEN"):
        told[name] = check_file(file, **{name: SECRET})
    assert not {text: said for text, said in told.items() if SECRET in said or NUMBER in said}


def test_a_mistake_in_a_url_is_told_without_what_is_secret_in_it(tmp_path):
    file = tmp_path / "forebay.toml"
    told = {}
    for url in WRONG_URLS:
        file.write_text(f'[under_store]\nurl = "{url}"\n')
        told[url] = check_file(file)
        file.write_text(f'[mounts]\nbucket = "{url}"\n')
        told[f"mount {url}"] = check_file(file)
        file.write_text("")
        told[f"variable {url}"] = check_file(file, FOREBAY_UNDER_STORE_URL=url)
    assert not {url: said for url, said in told.items() if SECRET in said}


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
