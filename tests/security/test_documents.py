"""Documents and bodies that are bombs: refused in little memory, and nothing is unpacked."""

import gzip
import http.server
import json
import threading
import zlib

import pytest

from harness import raw
from harness.clients import boto, md5_base64, send, sign

KEY = "<Object><Key>kept</Key></Object>"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
# What a document that is refused may cost the process, in bytes: less than the smallest of them would take unpacked.
MEMORY_BYTES_MAX = 100 << 20


def entity(declaration, use="&x;"):
    return f"<!DOCTYPE d [{declaration}]><Delete><Object><Key>{use}</Key></Object></Delete>".encode()


BOMBS = {
    "laughs": f'<!DOCTYPE d [<!ENTITY l0 "ha">{LAUGHS}]><Delete><Object><Key>&l9;</Key></Object></Delete>'.encode(),
    "quadratic": entity(f'<!ENTITY x "{"a" * 100_000}">', "&x;" * 10_000),
    "a file": entity('<!ENTITY x SYSTEM "file:///etc/passwd">'),
    "parameters": entity('<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;', "kept"),
    "a document type": f"<!DOCTYPE d><Delete>{KEY}</Delete>".encode(),
    "nested": b"<Delete>" * 100_000,
    "nested and closed": b"<Delete>" * 100_000 + b"</Delete>" * 100_000,
    "nested in a key": b"<Delete><Object><Key>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</Key></Object></Delete>",
    "10 MiB": f"<Delete>{KEY}<Quiet>{' ' * (10 << 20)}</Quiet></Delete>".encode(),
    "10 MiB of comment": f"<Delete><!--{'c' * (10 << 20)}-->{KEY}</Delete>".encode(),
    "bad UTF-8": b"<Delete><Object><Key>\xff\xfe</Key></Object></Delete>",
    "overlong UTF-8": b"<Delete><Object><Key>\xc1\xab\xc1\xa5pt</Key></Object></Delete>",
    "UTF-16": f"<Delete>{KEY}</Delete>".encode("utf-16"),
    "another encoding": f'<?xml version="1.0" encoding="UTF-7"?><Delete>{KEY}</Delete>'.encode(),
    "a key twice": b"<Delete><Object><Key>kept</Key><Key>other</Key></Object></Delete>",
    "quiet twice": f"<Delete><Quiet>true</Quiet><Quiet>false</Quiet>{KEY}</Delete>".encode(),
    "a version twice": b"<Delete><Object><Key>kept</Key><VersionId>null</VersionId><VersionId>7</VersionId></Object></Delete>",
    "NUL by reference": b"<Delete><Object><Key>a&#0;b</Key></Object></Delete>",
    "no character": b"<Delete><Object><Key>&#x110000;</Key></Object></Delete>",
    "half a pair": b"<Delete><Object><Key>&#xD800;</Key></Object></Delete>",
    "unknown entity": b"<Delete><Object><Key>&nbsp;</Key></Object></Delete>",
    "100,000 keys": b"<Delete>" + b"<Object><Key>k</Key></Object>" * 100_000 + b"</Delete>",
}


@pytest.fixture(scope="module")
def worker(guarded):
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="kept", Body=b"kept", Tagging="a=1")
    return guarded


def post(server, method, target, body, headers=None):
    headers = {"Content-MD5": md5_base64(body)} | (headers or {})
    try:
        return send(server, method, target, sign(server, method, target, headers, body), body)
    except ConnectionError:
        # It closes when it has seen enough.
        return None


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_and_costs_little(worker, bomb):
    before = worker.metrics()["process_resident_memory_bytes"]
    upload = boto(worker).create_multipart_upload(Bucket="bucket", Key="kept")["UploadId"]
    for method, target, root in (
        ("POST", "/bucket?delete=", b"Delete"),
        ("PUT", "/bucket/kept?tagging=", b"Tagging"),
        ("POST", f"/bucket/kept?uploadId={upload}", b"CompleteMultipartUpload"),
    ):
        answer = post(worker, method, target, bomb.replace(b"Delete", root))
        refused = answer is None or 400 <= answer.status < 500
        assert refused and (answer is None or b"root:" not in answer.body), (target, answer)
    boto(worker).abort_multipart_upload(Bucket="bucket", Key="kept", UploadId=upload)
    answer = post(worker, "PUT", "/another-bucket", bomb.replace(b"Delete", b"CreateBucketConfiguration"))
    assert answer is None or 400 <= answer.status < 500, answer
    assert worker.metrics()["process_resident_memory_bytes"] - before < MEMORY_BYTES_MAX
    s3 = boto(worker)
    assert s3.get_object(Bucket="bucket", Key="kept")["Body"].read() == b"kept"
    assert s3.get_object_tagging(Bucket="bucket", Key="kept")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert [found["Name"] for found in s3.list_buckets()["Buckets"]] == ["bucket"]


def complete(parts):
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


def tagging(tags):
    return f"<Tagging><TagSet>{tags}</TagSet></Tagging>".encode()


def create(inner):
    return f"<CreateBucketConfiguration>{inner}</CreateBucketConfiguration>".encode()


PART = "<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
TAG = "<Tag><Key>a</Key><Value>2</Value></Tag>"
PLACE = "<LocationConstraint>us-east-1</LocationConstraint>"
# What only the elements of one kind of document can be made into: most of them would be a good one, less something.
OWN_BOMBS = {
    "10,001 parts": complete("".join(PART.replace("1", str(number), 1) for number in range(1, 10_002))),
    "100,000 empty parts": complete("<Part/>" * 100_000),
    "parts in parts": complete("<Part>" * 50_000 + "</Part>" * 50_000),
    "a part of two numbers": complete(PART.replace("<ETag>", "<PartNumber>1</PartNumber><ETag>")),
    "a part of two tags": complete(PART.replace("<ETag>", "<ETag>x</ETag><ETag>")),
    "a part of two checksums": complete(PART.replace("</Part>", "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>" * 2 + "</Part>")),
    "a part twice": complete(PART * 2),
    "a part in bad UTF-8": complete(PART).replace(b"</ETag>", b"\xff</ETag>"),
    "a part of a number without end": complete(PART.replace(">1<", f">{'1' * 100_000}<")),
    "10 MiB of parts": complete(PART * (10 << 14)),
    "10 MiB in a part": complete(PART.replace("</ETag>", "0" * (10 << 20) + "</ETag>")),
    "100,000 tags": tagging(TAG * 100_000),
    "tags in tags": tagging("<Tag>" * 50_000 + "</Tag>" * 50_000),
    "a tag of two keys": tagging(TAG.replace("<Value>", "<Key>b</Key><Value>")),
    "a tag of two values": tagging(TAG.replace("<Value>", "<Value>1</Value><Value>")),
    "two sets of tags": tagging(f"</TagSet><TagSet>{TAG}"),
    "a tag in bad UTF-8": tagging(TAG).replace(b"2", b"\xff"),
    "10 MiB in a tag": tagging(TAG.replace("2", "2" * (10 << 20))),
    "a bucket in two places": create(PLACE * 2),
    "places in places": create("<LocationConstraint>" * 50_000 + "</LocationConstraint>" * 50_000),
    "a place in bad UTF-8": create(PLACE).replace(b"us-", b"\xff"),
    "a place of 10 MiB": create(PLACE + " " * (10 << 20)),
    "1,001 keys": f"<Delete>{KEY * 1001}</Delete>".encode(),
    "keys in keys": b"<Delete>" + b"<Object><Key>" * 50_000 + b"</Key></Object>" * 50_000 + b"</Delete>",
}
TARGETS = {
    b"<CompleteMultipartUpload>": ("POST", "/bucket/parts?uploadId={upload}"),
    b"<Tagging>": ("PUT", "/bucket/kept?tagging="),
    b"<CreateBucketConfiguration>": ("PUT", "/another-bucket"),
    b"<Delete>": ("POST", "/bucket?delete="),
}


def test_a_bomb_that_is_almost_a_document_changes_nothing(worker):
    """It is refused as what it is, and all that it was about stays as it was."""
    s3 = boto(worker)
    place = {"Bucket": "bucket", "Key": "parts"}
    upload = s3.create_multipart_upload(**place)["UploadId"]
    etag = s3.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
    before = worker.metrics()["process_resident_memory_bytes"]
    let_in = []
    for name, bomb in OWN_BOMBS.items():
        (method, target), = (asked for root, asked in TARGETS.items() if bomb.startswith(root))
        answer = post(worker, method, target.format(upload=upload), bomb.replace(b"{etag}", etag.encode()))
        if answer is not None and not 400 <= answer.status < 500:
            let_in.append(f"{name}: {answer}")
    assert not let_in, "\n".join(let_in)
    assert worker.metrics()["process_resident_memory_bytes"] - before < MEMORY_BYTES_MAX
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="bucket")["Contents"]] == ["kept"]
    assert s3.get_object_tagging(Bucket="bucket", Key="kept")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert [found["Name"] for found in s3.list_buckets()["Buckets"]] == ["bucket"]
    # The upload is still there, and the good document that those were made from makes the object.
    answer = post(worker, "POST", f"/bucket/parts?uploadId={upload}", complete(PART.format(etag=etag)))
    assert answer.status == 200, answer
    s3.delete_object(**place)


def test_nothing_that_a_document_names_is_fetched(worker):
    asked = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_port}/evil"
        for body in (
            f'<!DOCTYPE d SYSTEM "{url}.dtd"><Delete>{KEY}</Delete>'.encode(),
            entity(f'<!ENTITY x SYSTEM "{url}">'),
            entity(f'<!ENTITY % x SYSTEM "{url}"> %x;', "kept"),
            f'<?xml-stylesheet href="{url}"?><!DOCTYPE d><Delete xmlns="{url}" xmlns:i="{url}" i:schemaLocation="{url} {url}">{KEY}</Delete>'.encode(),
        ):
            answer = post(worker, "POST", "/bucket?delete=", body)
            assert answer.status == 400, answer
        listener.shutdown()
    assert asked == []


PACKED = {
    "gzip": lambda data: gzip.compress(data),
    "deflate": lambda data: zlib.compress(data),
    "br": lambda data: data[:1000],
    "zstd": lambda data: data[:1000],
}


@pytest.mark.parametrize("coding", PACKED)
def test_nothing_is_unpacked(worker, coding):
    """The encoding of an object is a word that is stored with it."""
    packed = PACKED[coding](bytes(50 << 20))
    s3 = boto(worker)
    before = worker.metrics()["process_resident_memory_bytes"]
    s3.put_object(Bucket="bucket", Key="packed", Body=packed, ContentEncoding=coding)
    head = s3.head_object(Bucket="bucket", Key="packed")
    assert (head["ContentLength"], head["ContentEncoding"]) == (len(packed), coding)
    answer = send(worker, "GET", "/bucket/packed", sign(worker, "GET", "/bucket/packed", {"Accept-Encoding": "identity"}))
    assert answer.body == packed
    assert worker.metrics()["process_resident_memory_bytes"] - before < 40 << 20
    # Nor is anything packed on its way out.
    answer = send(worker, "GET", "/bucket/kept", sign(worker, "GET", "/bucket/kept", {"Accept-Encoding": "gzip, br"}))
    assert answer.body == b"kept" and "content-encoding" not in answer.headers
    s3.delete_object(Bucket="bucket", Key="packed")


def test_a_packed_document_is_no_document(worker):
    packed = gzip.compress(f"<Delete>{KEY}</Delete>".encode())
    answer = post(worker, "POST", "/bucket?delete=", packed, {"Content-Encoding": "gzip"})
    assert answer.status == 400 and b"<Code>MalformedXML<" in answer.body, answer
    assert boto(worker).head_object(Bucket="bucket", Key="kept")


def test_a_bomb_of_json_is_refused(worker):
    import test_admin_routes as admin

    root = admin.basic(worker.access_key, worker.secret_key)
    for body in (
        b"[" * 100_000 + b"]" * 100_000,
        b'[{"path":' * 50_000,
        b'[{"path":"/","path":"/a","writeMode":"READ_ONLY"}]',
        b'[{"path":"/a","cacheQuota":1e400}]',
        b'[{"path":"/a","cacheQuota":-1}]',
        b'[{"path":"/a","writeBackMaxSize":1e400}]',
        b'[{"path":"/a","readCacheMaxSize":-1}]',
        b'[{"path":"/a","writeMode":"TRANSIENT","writeBackMaxSize":1}]',
        b'[{"path":"/\xff"}]',
        json.dumps([{"path": "/a"}]).encode("utf-16"),
        b" " * (2 << 20) + b"[]",
        gzip.compress(b"[]"),
    ):
        status, _ = admin.ask(worker, "PUT", "/api/v1/policies", root, body)
        assert 400 <= status < 500, (status, body[:50])


ANONYMOUS = {
    "a parameter that looks like a signature": ("POST", "/bucket?delete=&x-Signature=1", {}),
    "a header that is put right": ("POST", "/bucket?delete=", {"Expires": "0"}),
    "tags and a header that is put right": ("PUT", "/bucket/kept?tagging=", {"Expires": "0"}),
    "tags": ("PUT", "/bucket/kept?tagging=", {}),
    "a bucket": ("PUT", "/bucket", {}),
    "a completion": ("POST", "/bucket/kept?uploadId=x&Signature=1", {}),
}


@pytest.mark.parametrize("method,target,headers", ANONYMOUS.values(), ids=ANONYMOUS.keys())
def test_nothing_is_read_of_a_document_of_who_has_no_keys(worker, method, target, headers):
    """The refusal comes before the document: of thousands of connections it would be held as long as they like."""
    headers = {"Host": f"127.0.0.1:{worker.port}", "Content-Length": str(4 << 20), "Content-MD5": md5_base64(b"")} | headers
    got = raw.exchange(worker, raw.request(method, target, headers, b"<Delete>"))
    assert got.statuses == [403] and b"<Code>AccessDenied<" in got.said, got
