"""The audit log: every change and every refusal, with who and how it ended, and no secret."""

import base64
import itertools
import json
import os
import re
import socket
import urllib.error
import urllib.request

from harness.clients import boto, refused, send
from harness.servers import eventually

USERS = """
[[user]]
name = "reader"
access_key = "READERKEY"
secret_key = "reader-secret"
grants = [{ path = "/box/", allow = ["read", "list"] }]
"""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def admin(server, method, path, body=None, keys=None, headers=None):
    """Calls the admin API; returns the status and the headers."""
    access_key, secret_key = keys or (server.access_key, server.secret_key)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.admin}{path}", method=method, data=data)
    credentials = base64.b64encode(f"{access_key}:{secret_key}".encode()).decode()
    own = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    for name, value in (own | (headers or {})).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_changes_are_told_with_who_and_what(start_logged):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    answer = s3.put_object(Bucket="box", Key="k", Body=b"four")
    s3.get_object(Bucket="box", Key="k")["Body"].read()
    s3.copy_object(Bucket="box", Key="copy", CopySource="box/k")
    s3.delete_object(Bucket="box", Key="k")
    entry = server.audit_entry(operation="PutObject")
    assert TIME.fullmatch(entry["time"])
    assert entry["requestId"] == answer["ResponseMetadata"]["RequestId"]
    assert (entry["source"], entry["user"], entry["accessKey"]) == ("s3", "root", server.access_key)
    assert (entry["bucket"], entry["key"], entry["address"]) == ("box", "k", "127.0.0.1")
    assert (entry["status"], entry["details"]["size"]) == (200, 4)
    assert "error" not in entry
    assert server.audit_entry(operation="CopyObject")["details"]["copySource"] == "box/k"
    assert server.audit_entry(operation="DeleteObject")["status"] == 204
    assert server.audit_entry(operation="CreateBucket")["bucket"] == "box"
    # A read changes nothing.
    assert server.audit(operation="GetObject") == []
    assert os.stat(server.audit_log).st_mode & 0o777 == 0o600


def test_each_key_of_a_list_has_an_entry_of_its_own(start_logged, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    server = start_logged(mode="TRANSIENT", config=f'[server]\nusers_file = "{users}"\n')
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    s3.put_object(Bucket="box", Key="kept", Body=b"x")
    s3.delete_objects(Bucket="box", Delete={"Objects": [{"Key": "one"}, {"Key": "two"}], "Quiet": True})
    boto(server, "READERKEY", "reader-secret").delete_objects(Bucket="box", Delete={"Objects": [{"Key": "kept"}]})
    eventually("all entries", lambda: len(server.audit(operation="DeleteObjects")) == 5)
    first, one, two, second, kept = server.audit(operation="DeleteObjects")
    assert first["details"]["keys"] == 2 and "key" not in first
    assert [(entry["key"], entry["status"]) for entry in (one, two)] == [("one", 204), ("two", 204)]
    assert (kept["key"], kept["status"], kept["error"], kept["user"]) == ("kept", 403, "AccessDenied", "reader")
    assert second["status"] == 200


def test_who_was_refused_is_told_even_for_reads(start_logged, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    server = start_logged(mode="TRANSIENT", config=f'[server]\nusers_file = "{users}"\n')
    boto(server).create_bucket(Bucket="box")
    reader = boto(server, "READERKEY", "reader-secret")
    refused("AccessDenied", reader.get_object, Bucket="other", Key="read")
    refused("AccessDenied", reader.put_object, Bucket="box", Key="write", Body=b"x")
    refused("NoSuchKey", reader.get_object, Bucket="box", Key="absent")
    refused("SignatureDoesNotMatch", boto(server, secret_key="wrong").get_object, Bucket="box", Key="wrong")
    assert send(server, "GET", "/box/anonymous").status == 403
    entry = server.audit_entry(key="read")
    assert (entry["operation"], entry["user"], entry["status"]) == ("GetObject", "reader", 403)
    entry = server.audit_entry(key="write")
    assert (entry["accessKey"], entry["error"]) == ("READERKEY", "AccessDenied")
    entry = server.audit_entry(key="wrong")
    assert (entry["accessKey"], entry["error"]) == (server.access_key, "SignatureDoesNotMatch")
    assert "user" not in entry
    entry = server.audit_entry(key="anonymous")
    assert "accessKey" not in entry and entry["status"] == 403
    # Not found is not denied.
    assert server.audit(key="absent") == []


def test_all_includes_reads(start_logged):
    server = start_logged(mode="TRANSIENT", audit='include = "all"')
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    refused("NoSuchKey", s3.get_object, Bucket="box", Key="absent")
    s3.list_objects_v2(Bucket="box")
    assert admin(server, "GET", "/api/v1/status")[0] == 200
    assert server.audit_entry(operation="GetObject")["error"] == "NoSuchKey"
    assert server.audit_entry(operation="ListObjectsV2")["status"] == 200
    assert server.audit_entry(operation="GET /api/v1/status")["user"] == "root"


def test_changes_by_the_admin_api_are_told_with_versions(start_logged, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    server = start_logged(mode="TRANSIENT", config=f'[server]\nusers_file = "{users}"\n')
    status, headers = admin(server, "GET", "/api/v1/policies")
    before = int(headers["ETag"].strip('"'))
    rules = [{"path": "/", "writeMode": "WRITE_BACK"}]
    status, headers = admin(server, "PUT", "/api/v1/policies", rules)
    assert status == 200
    entry = server.audit_entry(operation="PUT /api/v1/policies", status=200)
    assert (entry["source"], entry["user"], entry["address"]) == ("admin", "root", "127.0.0.1")
    assert entry["details"]["versionBefore"] == before
    assert entry["details"]["versionAfter"] == int(headers["ETag"].strip('"')) > before
    assert admin(server, "PUT", "/api/v1/policies", [{"path": "nowhere"}])[0] == 400
    entry = server.audit_entry(operation="PUT /api/v1/policies", status=400)
    assert "nowhere" in entry["error"]
    assert admin(server, "PUT", "/api/v1/policies", rules, keys=("READERKEY", "reader-secret"))[0] == 403
    assert server.audit_entry(operation="PUT /api/v1/policies", status=403)["user"] == "reader"
    assert admin(server, "GET", "/api/v1/policies", keys=(server.access_key, "wrong-secret"))[0] == 401
    entry = server.audit_entry(operation="GET /api/v1/policies", status=401)
    assert entry["accessKey"] == server.access_key and "user" not in entry
    assert admin(server, "POST", "/api/v1/persist?prefix=/")[0] == 204
    assert server.audit_entry(operation="POST /api/v1/persist")["details"]["parameters"] == "prefix=/"
    text = server.audit_log.read_text()
    assert not any(secret in text for secret in (server.secret_key, "wrong-secret", "reader-secret"))


def test_a_change_is_told_though_the_admin_has_gone_away(start_logged):
    server = start_logged(mode="WRITE_BACK")
    credentials = base64.b64encode(f"{server.access_key}:{server.secret_key}".encode()).decode()
    version = lambda: int(admin(server, "GET", "/api/v1/policies")[1]["ETag"].strip('"'))  # noqa: E731
    before, numbers = version(), itertools.count()

    def change_and_go():
        # Rules that are no others change nothing.
        body = json.dumps([{"path": f"/gone-{next(numbers)}", "writeMode": "READ_ONLY"}]).encode()
        head = (
            f"PUT /api/v1/policies HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {credentials}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.admin_port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
        return server.audit(operation="PUT /api/v1/policies", status=200)

    # A request that is cut off before it was begun changes nothing; some get further.
    eventually("a change by somebody who has gone", change_and_go)
    told = lambda: server.audit(operation="PUT /api/v1/policies", status=200)  # noqa: E731
    eventually("an entry for the last change", lambda: told()[-1]["details"]["versionAfter"] == version())
    assert version() > before and all(entry["user"] == "root" for entry in told())


def test_start_and_stop_are_told_with_what_was_configured(start_logged):
    server = start_logged(mode="TRANSIENT", config='[trace]\nheaders = "authorization=hunter2"\n')
    start = server.audit_entry(operation="server.start")
    assert start["source"] == "server" and re.match(r"\d+\.\d+\.\d+", start["details"]["version"])
    assert start["details"]["configuration"]["audit_log.file"] == str(server.audit_log)
    assert start["details"]["configuration"]["trace.headers"] == "\u2026"
    assert server.stop() == 0
    entries = server.audit()
    assert [entry["operation"] for entry in entries] == ["server.start", "server.stop"]
    text = server.audit_log.read_text()
    assert "hunter2" not in text and server.secret_key not in text


def test_service_goes_on_when_the_log_cannot_be_renamed(start_logged):
    server = start_logged(mode="TRANSIENT", audit='max_size = "1 KiB"\nmax_files = 1')
    # A directory with something in it cannot be replaced by a file.
    (server.directory / "audit.log.1" / "full").mkdir(parents=True)
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    for number in range(20):
        s3.put_object(Bucket="box", Key=f"k{number}", Body=b"x")
    eventually("all entries", lambda: len(server.audit(operation="PutObject")) == 20)
    told = [line for line in server.log.read_text().splitlines() if " ERROR " in line]
    assert len([line for line in told if "a log cannot be written" in line]) == 1, told
