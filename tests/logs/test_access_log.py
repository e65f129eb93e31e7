"""The access log: what Amazon's would say, in the same words, whatever a client does."""

import os
import signal
import socket
import threading
import time
import urllib.parse

import pytest

from harness.clients import boto, refused, send, send_signed, sign
from harness.fill import fill
from harness.servers import REGION, eventually
from records import parse_access

BODY = b"0123456789" * 100


def test_every_kind_of_operation_has_amazons_name(start_logged):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    s3.put_object(Bucket="box", Key="k", Body=BODY)
    s3.get_object(Bucket="box", Key="k")["Body"].read()
    s3.head_object(Bucket="box", Key="k")
    s3.put_object_tagging(Bucket="box", Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    s3.get_object_tagging(Bucket="box", Key="k")
    s3.delete_object_tagging(Bucket="box", Key="k")
    s3.get_object_attributes(Bucket="box", Key="k", ObjectAttributes=["ETag"])
    s3.copy_object(Bucket="box", Key="copy", CopySource="box/k")
    upload = s3.create_multipart_upload(Bucket="box", Key="parts")["UploadId"]
    part = s3.upload_part(Bucket="box", Key="parts", UploadId=upload, PartNumber=1, Body=BODY)
    s3.upload_part_copy(Bucket="box", Key="parts", UploadId=upload, PartNumber=2, CopySource="box/k")
    s3.list_parts(Bucket="box", Key="parts", UploadId=upload)
    s3.list_multipart_uploads(Bucket="box")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket="box", Key="parts", UploadId=upload, MultipartUpload=parts)
    upload = s3.create_multipart_upload(Bucket="box", Key="aborted")["UploadId"]
    s3.abort_multipart_upload(Bucket="box", Key="aborted", UploadId=upload)
    s3.list_objects_v2(Bucket="box")
    s3.list_object_versions(Bucket="box")
    s3.list_buckets()
    s3.head_bucket(Bucket="box")
    s3.get_bucket_location(Bucket="box")
    s3.delete_objects(Bucket="box", Delete={"Objects": [{"Key": "copy"}, {"Key": "parts"}]})
    s3.delete_object(Bucket="box", Key="k")
    s3.delete_bucket(Bucket="box")
    server.access_line(operation="REST.DELETE.BUCKET")
    lines = server.access()
    assert [line["operation"] for line in lines] == [
        "REST.PUT.BUCKET",
        "REST.PUT.OBJECT",
        "REST.GET.OBJECT",
        "REST.HEAD.OBJECT",
        "REST.PUT.OBJECT_TAGGING",
        "REST.GET.OBJECT_TAGGING",
        "REST.DELETE.OBJECT_TAGGING",
        "REST.GET.OBJECT_ATTRIBUTES",
        "REST.COPY.OBJECT",
        "REST.POST.UPLOADS",
        "REST.PUT.PART",
        "REST.COPY.PART",
        "REST.GET.UPLOAD",
        "REST.GET.UPLOADS",
        "REST.POST.UPLOAD",
        "REST.POST.UPLOADS",
        "REST.DELETE.UPLOAD",
        "REST.GET.BUCKET",
        "REST.GET.BUCKETVERSIONS",
        "REST.GET.SERVICE",
        "REST.HEAD.BUCKET",
        "REST.GET.LOCATION",
        "REST.POST.MULTI_OBJECT_DELETE",
        "BATCH.DELETE.OBJECT",
        "BATCH.DELETE.OBJECT",
        "REST.DELETE.OBJECT",
        "REST.DELETE.BUCKET",
    ]
    assert all(line["error_code"] == "-" for line in lines)
    assert {line["status"] for line in lines} == {"200", "204"}
    owner = next(line["requester"] for line in lines)
    assert all(line["requester"] == owner and line["signature_version"] == "SigV4" for line in lines)
    assert {line["key"] for line in lines if line["operation"] == "BATCH.DELETE.OBJECT"} == {"copy", "parts"}


def test_a_line_says_who_what_how_much_and_how_long(start_logged):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    s3.put_object(Bucket="box", Key="a b/\u00e9+%", Body=BODY)
    answer = s3.get_object(Bucket="box", Key="a b/\u00e9+%", Range="bytes=0-9")
    answer["Body"].read()
    line = server.access_line(operation="REST.GET.OBJECT")
    encoded = urllib.parse.quote("a b/\u00e9+%", safe="/-_.~")
    assert line["key"] == urllib.parse.quote(encoded, safe="/-_.~")
    assert line["request_uri"] == f'"GET /box/{encoded} HTTP/1.1"'
    assert line["request_id"] == answer["ResponseMetadata"]["RequestId"]
    assert (line["bucket"], line["remote_ip"], line["status"]) == ("box", "127.0.0.1", "206")
    assert (line["bytes_sent"], line["object_size"]) == ("10", "1000")
    assert line["host"] == f"127.0.0.1:{server.port}"
    assert "Boto3/" in line["user_agent"]
    assert int(line["total_time"]) >= 0 and int(line["turn_around_time"]) >= 0
    moment = time.strptime(line["time"], "%d/%b/%Y:%H:%M:%S +0000")
    assert abs(time.mktime(moment) - time.timezone - time.time()) < 300
    put = server.access_line(operation="REST.PUT.OBJECT")
    assert (put["bytes_sent"], put["object_size"]) == ("-", "1000")
    mode = os.stat(server.access_log).st_mode & 0o777
    assert mode == 0o600


def test_what_is_refused_is_logged_with_its_code(start_logged):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    refused("NoSuchKey", s3.get_object, Bucket="box", Key="absent")
    refused("404", s3.head_object, Bucket="box", Key="absent")
    refused("SignatureDoesNotMatch", boto(server, secret_key="wrong").get_object, Bucket="box", Key="wrong")
    assert send(server, "PUT", "/box/anonymous", body=b"x").status == 403
    assert send(server, "PATCH", "/box/odd").status == 405
    line = server.access_line(operation="REST.GET.OBJECT", key="absent")
    assert (line["status"], line["error_code"]) == ("404", "NoSuchKey")
    line = server.access_line(operation="REST.HEAD.OBJECT")
    assert (line["status"], line["bytes_sent"]) == ("404", "-")
    line = server.access_line(key="wrong")
    assert (line["status"], line["error_code"], line["requester"]) == ("403", "SignatureDoesNotMatch", "-")
    assert line["signature_version"] == "SigV4"
    line = server.access_line(key="anonymous")
    assert (line["status"], line["error_code"], line["requester"]) == ("403", "AccessDenied", "-")
    assert (line["signature_version"], line["authentication_type"]) == ("-", "-")
    assert server.access_line(key="odd")["operation"] == "REST.PATCH.OBJECT"


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_a_presigned_url_cannot_be_used_by_who_reads_the_log(start_logged, version):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    s3.put_object(Bucket="box", Key="k", Body=BODY)
    signer = boto(server) if version == "s3v4" else _version_2(server)
    url = signer.generate_presigned_url("get_object", Params={"Bucket": "box", "Key": "k"})
    target = url.removeprefix(server.endpoint)
    assert send(server, "GET", target, {"Referer": f"http://x{target}"}).body == BODY
    line = server.access_line(operation="REST.GET.OBJECT")
    parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
    signature = parameters["X-Amz-Signature" if version == "s3v4" else "Signature"]
    assert line["authentication_type"] == "QueryString"
    assert line["signature_version"] == ("SigV4" if version == "s3v4" else "SigV2")
    assert server.access_key in line["request_uri"]
    for text in (server.access_log.read_text(), server.audit_log.read_text()):
        assert signature not in text and urllib.parse.quote(signature, safe="") not in text
    assert "Signature=REDACTED" in line["request_uri"] and "Signature=REDACTED" in line["referer"]


def _version_2(server):
    import boto3
    from botocore.config import Config

    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=REGION, config=Config(signature_version="s3"), **keys
    )


def test_nothing_that_a_client_sends_begins_a_line_or_a_field(start_logged):
    server = start_logged(mode="TRANSIENT")
    boto(server).create_bucket(Bucket="box")
    evil = 'x" 200 - - - - "-" "forged'
    keys = ['quote"in key', "line\nfeed", "tab\tand blank ", "\u00e9\u4e2d \x7f", "[bracket] - -", "%0A%22"]
    for key in keys:
        target = "/box/" + urllib.parse.quote(key, safe="")
        headers = {"User-Agent": evil, "Referer": evil + "\t\u00e9".encode().decode("latin-1")}
        headers |= sign(server, "PUT", target, body=b"x")
        assert send(server, "PUT", target, headers, b"x").status == 200
    # A key that is no text, and a query that is no query.
    assert send_signed(server, "GET", '/box/%ff%0a?%22&%0a=%22').status >= 400
    eventually("all lines", lambda: len(server.access()) == len(keys) + 2)
    lines = server.access(operation="REST.PUT.OBJECT")
    decode = urllib.parse.unquote
    assert [decode(decode(line["key"])) for line in lines] == keys
    assert all(decode(line["user_agent"]) == f'"{evil}"' for line in lines)
    eventually("all entries", lambda: len(server.audit(operation="PutObject")) == len(keys))
    entries = server.audit(operation="PutObject")
    assert [entry["key"] for entry in entries] == keys
    assert all(entry["userAgent"] == evil for entry in entries)


def test_a_client_that_goes_away_in_a_body_leaves_what_was_sent(start_logged):
    server = start_logged(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="box")
    size = 64 << 20
    s3.put_object(Bucket="box", Key="large", Body=bytes(size))
    with _connected(server) as connection:
        connection.sendall(_request(server, "GET", "/box/large"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    line = server.access_line(operation="REST.GET.OBJECT")
    assert (line["status"], line["object_size"]) == ("200", str(size))
    assert int(line["bytes_sent"]) < size


def test_a_client_that_goes_away_before_its_body_is_there_is_in_both_logs(start_logged):
    server = start_logged(mode="TRANSIENT")
    boto(server).create_bucket(Bucket="box")
    with _connected(server) as connection:
        head = _request(server, "PUT", "/box/half", {"Content-Length": "1000000", "x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
        connection.sendall(head + bytes(1000))
    line = server.access_line(operation="REST.PUT.OBJECT")
    assert line["status"] in ("400", "403", "499") and line["error_code"] != "-"
    entry = server.audit_entry(key="half")
    assert (str(entry["status"]), entry["error"]) == (line["status"], line["error_code"])
    assert entry["requestId"] == line["request_id"]


def _connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def _request(server, method, target, headers=None):
    signed = sign(server, method, target, headers) | {"Host": f"127.0.0.1:{server.port}"} | (headers or {})
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in signed.items()), "", ""]
    return "\r\n".join(lines).encode()


def test_rotation_under_load_loses_and_tears_no_line(start_logged):
    server = start_logged(mode="TRANSIENT", access='max_size = "64 KiB"\nmax_files = 1000')
    boto(server).create_bucket(Bucket="box")
    keys = [f"key-{number}" for number in range(2000)]
    fill(server, "box", keys)
    assert server.stop() == 0
    files = [server.access_log, *server.directory.glob("access.log.*")]
    assert len(files) > 5
    assert all(file.stat().st_size <= 64 << 10 for file in files)
    lines = [line for file in files for line in parse_access(file.read_text())]
    written = [line["key"] for line in lines if line["operation"] == "REST.PUT.OBJECT"]
    assert sorted(written) == sorted(keys)
    assert len({line["request_id"] for line in lines}) == len(lines)
    newest = [line["key"] for line in parse_access(server.access_log.read_text())]
    oldest = max(files, key=lambda file: int(file.suffix[1:]) if file.suffix != ".log" else 0)
    assert newest and server.access_log != oldest


def test_hangup_under_load_goes_on_in_a_new_file(start_logged):
    server = start_logged(mode="TRANSIENT", access='max_size = "0 B"')
    boto(server).create_bucket(Bucket="box")
    keys = [f"key-{number}" for number in range(1500)]
    filling = threading.Thread(target=fill, args=(server, "box", keys))
    filling.start()
    renamed = []
    for number in range(5):
        eventually("lines", lambda: server.access_log.exists() and server.access_log.stat().st_size > 0)
        renamed.append(server.directory / f"renamed-{number}")
        server.access_log.rename(renamed[-1])
        server.process.send_signal(signal.SIGHUP)
        eventually("a new file", server.access_log.exists)
        if not filling.is_alive():
            break
    filling.join()
    assert server.stop() == 0
    lines = [line for file in [*renamed, server.access_log] for line in parse_access(file.read_text())]
    assert sorted(line["key"] for line in lines if line["operation"] == "REST.PUT.OBJECT") == sorted(keys)


def test_without_a_file_there_is_no_log_and_a_hangup_does_no_harm(tmp_path):
    from harness.servers import Forebay

    server = Forebay(tmp_path / "forebay", mode="TRANSIENT").start()
    server.process.send_signal(signal.SIGHUP)
    boto(server).create_bucket(Bucket="box")
    assert not list(server.directory.glob("*.log"))
    assert server.stop() == 0


@pytest.mark.parametrize("section", ["access_log", "audit_log"])
def test_a_file_that_cannot_be_opened_is_told_at_the_start(tmp_path, section):
    import subprocess

    from harness.servers import Forebay

    config = f'[{section}]\nfile = "{tmp_path}/absent/log"\n'
    server = Forebay(tmp_path / "forebay", config=config)
    for command in (server.command(), [str(server.binary), "config", "check", "--config", str(server.config)]):
        done = subprocess.run(command, env=os.environ | server.environment(), capture_output=True, timeout=60)
        assert done.returncode == 2
        assert f"{section}.file" in done.stderr.decode() and done.stderr.decode().count("\n") == 1, done.stderr
