"""Nothing that a client or an under store says begins a line of a log, ends a field, or commands a terminal."""

import http.client
import json
import re
import urllib.parse

import pytest

import test_admin_routes as admin
from fake_store import FakeStore, error
from guarded import Guarded
from harness import raw
from harness.clients import boto, send, send_signed, sign
from harness.servers import eventually
from records import parse_access, parse_audit

FORGED = "2026-01-01T00:00:00.000000Z ERROR forged"
# With what ends lines, fields and strings, commands a terminal, or turns text around.
EVILS = [
    f"a\n{FORGED}\n",
    f"a\r\n{FORGED}",
    f'a" 200 - 1 1 1 1 "-" "-" -\n{FORGED}',
    'a","status":200,"user":"root"}\n{"forged":true,"x":"',
    "\x1b[2J\x1b]0;title\x07\x1b[31m",
    "a\x7f\x08\x0b\x0c",
    f"a\u2028{FORGED}\u2029\u0085{FORGED}",
    "\u202egnp.exe",
    "%0a%0d%250a",
    "\\n\\r\\u000a",
    "{}{path}%s%n${jndi:ldap://x/a}",
]
TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +(TRACE|DEBUG|INFO|WARN|ERROR) \S.*")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def provoke(server):
    """Every evil in every place where a client has a say."""
    s3 = boto(server)
    s3.create_bucket(Bucket="bucket")
    root = admin.basic(server.access_key, server.secret_key)
    for evil in EVILS:
        quoted = urllib.parse.quote(evil, safe="")
        header = re.sub("[\r\n\0]", "\t", evil).encode()
        for method in ("PUT", "GET", "DELETE", "POST"):
            send_signed(server, method, f"/bucket/{quoted}", body=b"x" if method == "PUT" else b"")
            send(server, method, f"/{quoted}/{quoted}?{quoted}={quoted}", {"User-Agent": header, "Referer": header, "X-A": header})
            send(server, method, f"/bucket/{quoted}", {"Authorization": b"AWS4-HMAC-SHA256 Credential=" + header})
        send_signed(server, "GET", f"/bucket?prefix={quoted}&delimiter={quoted}&marker={quoted}")
        send_signed(server, "GET", f"/bucket/{quoted}?uploadId={quoted}")
        send_signed(server, "PUT", f"/bucket/copy?x-id={quoted}", {"x-amz-copy-source": f"/bucket/{quoted}"})
        send(server, "GET", f"/bucket/k?X-Amz-Credential={quoted}&X-Amz-Signature={quoted}&AWSAccessKeyId={quoted}")
        raw.exchange(server, raw.request("GET", "/bucket", {"Host": header.decode("latin-1")}), wait=0.2)
        raw.exchange(server, f"{evil} /bucket HTTP/1.1\r\nHost: h\r\n\r\n".encode(), wait=0.2)
        for target in (f"objects?path=/bucket/{quoted}", f"{quoted}", f"objects/detail?path=/{quoted}/{quoted}"):
            admin.ask(server, "GET", f"/api/v1/{target}", root | {"User-Agent": header.decode("latin-1")})
        admin.ask(server, "PUT", "/api/v1/policies", root, json.dumps([{"path": evil, "writeMode": evil}]).encode())
        admin.ask(server, "POST", "/api/v1/jobs", root, json.dumps({"kind": "free", "path": f"/bucket/{evil}"}).encode())
        admin.ask(server, "POST", "/api/v1/session", {}, json.dumps({"accessKey": evil, "secretKey": evil}).encode())


@pytest.mark.parametrize("kind", ["text", "json"])
def test_lines_of_all_logs_are_whole_whatever_clients_say(tmp_path, kind):
    config = f'[log]\nformat = "{kind}"\nlevel = "debug"\n'
    server = Guarded(tmp_path, mode="WRITE_BACK", config=config).start()
    provoke(server)
    assert server.stop() == 0
    check_server_log(server, kind)
    lines = parse_access(server.access_log.read_text())
    entries = parse_audit(server.audit_log.read_text())
    assert len(lines) > 100 and len(entries) > 100
    assert not [entry for entry in entries if "forged" in entry or entry.get("status") == 200 and entry.get("user") not in ("root", None)]
    # What was said is still there, in a form that says what it was.
    keys = {entry.get("key") for entry in entries}
    assert EVILS[0] in keys and EVILS[4] in keys


def check_server_log(server, kind):
    text = server.log.read_text()
    assert not UNSAFE.search(text), repr(text[UNSAFE.search(text).start() - 200 :][:400])
    lines = [line for line in text.splitlines() if not line.startswith("forebay is ready: ")]
    assert len(lines) > 50
    for line in lines:
        if kind == "json":
            assert "forged" not in json.loads(line).keys(), line
        else:
            assert TEXT.fullmatch(line) and not line.startswith(FORGED), line


@pytest.mark.parametrize("kind", ["text", "json"])
def test_lines_are_whole_whatever_an_under_store_says(tmp_path, kind):
    with FakeStore() as behind:
        evil = error("InternalError", f"down\n{FORGED}\n\u009b2J\u2028x")
        behind.answer = lambda command, _: (200, {}, b"") if command == "HEAD" else (500, {}, evil)
        config = f'[log]\nformat = "{kind}"\nlevel = "debug"\n'
        server = Guarded(tmp_path, mode="WRITE_BACK", behind=behind, config=config).start()
        assert send_signed(server, "GET", "/bucket?versions=").status >= 500
        assert send_signed(server, "GET", "/bucket/key%0A2026").status >= 500
        eventually("a line about it", lambda: "forged" in server.log.read_text())
        server.kill()
    check_server_log(server, kind)


def test_no_answer_has_a_header_that_a_client_made_up(guarded):
    """Metadata and parameters that would begin a header or end the head."""
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="object", Body=b"x", Metadata={"a": "b"})
    for evil in ("a\r\nSet-Cookie: x=y", "a\nX-Evil: 1", "a\r\n\r\n<script>", "a\0b", "=?UTF-8?B?YQ0KU2V0LUNvb2tpZTogeD15?=", "\u010d\u010aSet-Cookie: x"):
        quoted = urllib.parse.quote(evil)
        for name in ("content-type", "content-disposition", "cache-control", "expires", "content-language", "content-encoding"):
            answer = send_signed(guarded, "GET", f"/bucket/object?response-{name}={quoted}")
            assert not {"set-cookie", "x-evil"} & answer.headers.keys() and b"<script>" not in answer.body, (name, answer)
        for name in ("content-type", "x-amz-meta-a", "x-amz-website-redirect-location", "cache-control"):
            try:
                headers = sign(guarded, "PUT", "/bucket/evil", {name: evil.encode("utf-8").decode("latin-1")}, b"x")
                send(guarded, "PUT", "/bucket/evil", headers, b"x")
            except (ValueError, http.client.HTTPException):
                # No client sends it so; test_framing.py sends the bytes.
                continue
            answer = send_signed(guarded, "GET", "/bucket/evil")
            assert not {"set-cookie", "x-evil"} & answer.headers.keys(), (name, answer)
    assert send(guarded, "GET", "/bucket/object?response-content-type=text/html").status in (400, 403)
    nosniff = send_signed(guarded, "GET", "/bucket/object").headers
    assert nosniff["x-content-type-options"] == "nosniff"
