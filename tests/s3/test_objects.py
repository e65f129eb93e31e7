"""Put, get, head, copy and delete of single objects, as boto3 does them."""

import datetime
import hashlib
import os
import socket
import urllib.parse

import pytest

from harness.clients import md5_base64, refused, send_signed, sign
from harness.servers import eventually

METADATA = {"colour": "blue", "note": "two words, and a comma"}
HEADERS = {
    "ContentType": "text/x-forebay",
    "CacheControl": "max-age=60",
    "ContentDisposition": 'attachment; filename="a.txt"',
    "ContentEncoding": "identity",
    "ContentLanguage": "en",
}


@pytest.mark.parametrize("size", [0, 1, 10 << 10, 1 << 20, 5 << 20, (5 << 20) + 1])
def test_an_object_comes_back_as_it_went(s3, bucket, size):
    body = os.urandom(size)
    written = s3.put_object(Bucket=bucket, Key="object", Body=body)
    assert written["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    read = s3.get_object(Bucket=bucket, Key="object")
    assert read["Body"].read() == body
    assert (read["ETag"], read["ContentLength"]) == (written["ETag"], size)
    head = s3.head_object(Bucket=bucket, Key="object")
    assert (head["ETag"], head["ContentLength"], head["AcceptRanges"]) == (written["ETag"], size, "bytes")


def test_metadata_and_headers_come_back(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Metadata=METADATA, **HEADERS)
    for answer in (s3.head_object(Bucket=bucket, Key="object"), s3.get_object(Bucket=bucket, Key="object")):
        assert answer["Metadata"] == METADATA
        assert {name: answer[name] for name in HEADERS} == HEADERS


def test_an_expires_header_comes_back(s3, bucket):
    moment = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Expires=moment)
    head = s3.head_object(Bucket=bucket, Key="object")
    assert head["ResponseMetadata"]["HTTPHeaders"]["expires"] == "Tue, 06 May 2031 07:08:09 GMT"


def test_content_type_defaults_to_octet_stream(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    assert s3.head_object(Bucket=bucket, Key="object")["ContentType"] == "binary/octet-stream"


def test_the_answer_headers_can_be_overridden_by_the_query(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    read = s3.get_object(Bucket=bucket, Key="object", ResponseContentType="text/plain", ResponseCacheControl="no-store")
    assert (read["ContentType"], read["CacheControl"]) == ("text/plain", "no-store")


def test_an_overwrite_replaces_bytes_and_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"first", Metadata={"a": "1"})
    s3.put_object(Bucket=bucket, Key="object", Body=b"the second", ContentType="text/plain")
    read = s3.get_object(Bucket=bucket, Key="object")
    assert (read["Body"].read(), read["Metadata"], read["ContentType"]) == (b"the second", {}, "text/plain")


@pytest.mark.parametrize(
    ("key"),
    [
        "with space",
        "plus+and%20percent",
        "per%2Fcent",
        "ünïcödé-日本語",
        "emoji-🌊",
        "a&b=c?d#e",
        "quote'\"back\\slash",
        "deep/er/and/deep/er",
        "(paren)*star!~tilde",
        "a.b..c...",
        "semi;colon:comma,at@dollar$",
    ],
)
def test_odd_keys_are_kept_as_they_are(s3, bucket, key):
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    refused("404", s3.head_object, Bucket=bucket, Key=key)


@pytest.mark.beyond_reference("its objects are files under their own names")
@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("directory", "WRITE_BACK"), ("directory", "NO_CACHE"))
@pytest.mark.parametrize("key", ["double//slash", "/leading", "trailing/", "k" * 1024, "a/./b", "long/" + "n" * 300])
def test_keys_that_are_no_paths_are_kept_as_they_are(s3, bucket, key):
    s3.put_object(Bucket=bucket, Key=key, Body=b"kept")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"kept"
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]


def test_a_missing_object_is_no_such_key(s3, bucket):
    refused("NoSuchKey", s3.get_object, Bucket=bucket, Key="absent")
    refused("404", s3.head_object, Bucket=bucket, Key="absent")
    refused("NoSuchKey", s3.get_object_tagging, Bucket=bucket, Key="absent")
    refused("NoSuchKey", s3.get_object_attributes, Bucket=bucket, Key="absent", ObjectAttributes=["ETag"])


def test_deleting_is_idempotent(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    for _ in range(2):
        answer = s3.delete_object(Bucket=bucket, Key="object")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 204
        refused("NoSuchKey", s3.get_object, Bucket=bucket, Key="object")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_many_objects_are_deleted_at_once(s3, bucket):
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"object-{number}", Body=b"x")
    names = [{"Key": f"object-{number}"} for number in range(4)] + [{"Key": "absent"}]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": names})
    assert sorted(deleted["Key"] for deleted in answer["Deleted"]) == sorted(name["Key"] for name in names)
    assert "Errors" not in answer
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["object-4"]


@pytest.mark.beyond_reference("it does not know Quiet")
def test_a_quiet_delete_says_nothing_of_success(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "object"}], "Quiet": True})
    assert "Deleted" not in answer and "Errors" not in answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.beyond_reference
@pytest.mark.deployments(("directory", "WRITE_BACK"), ("directory", "WRITE_THROUGH"), ("s3", "WRITE_BACK"))
@pytest.mark.each_deployment("the modes are interrupted in different places")
def test_a_client_that_does_not_wait_for_the_answer(server, s3, bucket):
    """What it asked for is done or not, here and in the under store alike."""
    for n in range(200):
        method, body = ("DELETE", b"") if n % 3 == 2 else ("PUT", f"{n}".encode())
        target = f"/{bucket}/{n % 10}"
        lines = [f"{method} {target} HTTP/1.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in sign(server, method, target, body=body).items()]
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall("\r\n".join([*lines, f"Host: 127.0.0.1:{server.port}", "", ""]).encode() + body)
    behind = (server.under if server.behind is None else server.behind.objects) / bucket

    def here():
        listed = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {item["Key"]: s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read() for item in listed}

    def there():
        return {path.name: path.read_bytes() for path in behind.iterdir() if path.is_file()}

    def same():
        try:
            return server.is_drained() and here() == there()
        except (s3.exceptions.NoSuchKey, FileNotFoundError):
            return False  # a request is still in flight

    eventually("both have the same", same)


def test_a_copy_takes_metadata_along_or_replaces_it(s3, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=b"bytes", Metadata=METADATA, Tagging="a=1", **HEADERS)
    s3.copy_object(Bucket=bucket, Key="same", CopySource={"Bucket": bucket, "Key": "source"})
    same = s3.get_object(Bucket=bucket, Key="same")
    assert (same["Body"].read(), same["Metadata"], same["ContentType"]) == (b"bytes", METADATA, HEADERS["ContentType"])
    assert s3.get_object_tagging(Bucket=bucket, Key="same")["TagSet"] == [{"Key": "a", "Value": "1"}]
    changes = {"MetadataDirective": "REPLACE", "Metadata": {"new": "1"}, "ContentType": "text/plain"}
    s3.copy_object(Bucket=bucket, Key="other", CopySource={"Bucket": bucket, "Key": "source"}, **changes)
    other = s3.get_object(Bucket=bucket, Key="other")
    assert (other["Body"].read(), other["Metadata"], other["ContentType"]) == (b"bytes", {"new": "1"}, "text/plain")


def test_a_copy_onto_itself_must_change_something(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Metadata={"a": "1"})
    source = {"Bucket": bucket, "Key": "object"}
    refused("InvalidRequest", s3.copy_object, Bucket=bucket, Key="object", CopySource=source)
    s3.copy_object(Bucket=bucket, Key="object", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert s3.head_object(Bucket=bucket, Key="object")["Metadata"] == {"b": "2"}


def test_a_copy_of_an_odd_key_and_of_a_missing_one(s3, bucket):
    s3.put_object(Bucket=bucket, Key="ü +%2F", Body=b"odd")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "ü +%2F"})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == b"odd"
    refused("NoSuchKey", s3.copy_object, Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "absent"})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == b"odd"


def test_tags_are_set_read_and_deleted(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Tagging="team=water&empty=")
    tags = s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"]
    assert sorted((tag["Key"], tag["Value"]) for tag in tags) == [("empty", ""), ("team", "water")]
    # Without a copy of its own, Forebay would have to ask an S3 under store for the tags on every GET.
    if server.mode != "NO_CACHE":
        assert s3.get_object(Bucket=bucket, Key="object")["TagCount"] == 2
        assert s3.head_object(Bucket=bucket, Key="object")["TagCount"] == 2
    s3.put_object_tagging(Bucket=bucket, Key="object", Tagging={"TagSet": [{"Key": "k", "Value": "v w"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == [{"Key": "k", "Value": "v w"}]
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"x"
    s3.delete_object_tagging(Bucket=bucket, Key="object")
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == []


def test_a_right_content_md5_is_accepted_and_a_wrong_one_refused(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"right", ContentMD5=md5_base64(b"right"))
    refused("BadDigest", s3.put_object, Bucket=bucket, Key="object", Body=b"wrong", ContentMD5=md5_base64(b"right"))
    refused("InvalidDigest", s3.put_object, Bucket=bucket, Key="object", Body=b"wrong", ContentMD5="nonsense")
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"right"


def test_head_describes_what_get_would_answer(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"0123456789", ContentType="text/plain")
    for headers, query in (({"Range": "bytes=2-4"}, ""), ({}, "?partNumber=1"), ({}, "")):
        get = send_signed(server, "GET", f"/{bucket}/object{query}", headers)
        head = send_signed(server, "HEAD", f"/{bucket}/object{query}", headers)
        assert (head.status, get.status) == ((206, 206) if headers or query else (200, 200)), (head, get)
        for name in ("content-range", "content-length", "etag", "content-type"):
            assert head.headers.get(name) == get.headers.get(name), name
    wanted = {
        "ResponseContentType": "text/html",
        "ResponseContentDisposition": "attachment",
        "ResponseContentEncoding": "x",
        "ResponseContentLanguage": "de",
        "ResponseCacheControl": "no-store",
    }
    found = s3.head_object(Bucket=bucket, Key="object", **wanted)
    assert {f"Response{name}": found[name] for name in (key.removeprefix("Response") for key in wanted)} == wanted


def test_a_part_that_is_not_there(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"one part")
    refused("InvalidPartNumber", s3.get_object, Bucket=bucket, Key="object", PartNumber=2)
    assert s3.get_object(Bucket=bucket, Key="object", PartNumber=1)["Body"].read() == b"one part"


@pytest.mark.beyond_reference("keys are files there")
def test_a_key_with_a_carriage_return_is_read_back(server, s3, bucket):
    key = "a\rb\r\nc"
    s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
    assert upload["Key"] == key
    assert s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Key"] == key
    assert s3.list_parts(Bucket=bucket, Key=key, UploadId=upload["UploadId"])["Key"] == key
    listing = send_signed(server, "GET", f"/{bucket}?list-type=2")
    assert b"<Key>a&#13;b&#13;\nc</Key>" in listing.body, listing.body
    assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Key"] == key
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})["Deleted"]
    assert [one["Key"] for one in deleted] == [key]
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_an_object_that_is_xml_is_left_as_it_is(s3, bucket):
    body = b"<a>\r\n</a>"
    s3.put_object(Bucket=bucket, Key="object", Body=body, ContentType="application/xml")
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == body


@pytest.mark.parametrize(
    "wrong, code",
    [
        ({"Tagging": "a!=1"}, "InvalidTag"),
        ({"Tagging": "a=%3C%3E"}, "InvalidTag"),
        ({"Tagging": "aws:a=1"}, "InvalidTag"),
        ({"WebsiteRedirectLocation": "elsewhere"}, "InvalidRedirectLocation"),
        ({"StorageClass": "FOO"}, "InvalidStorageClass"),
    ],
)
@pytest.mark.beyond_reference("it takes them")
def test_what_s3_never_takes_is_not_acknowledged(s3, bucket, wrong, code):
    refused(code, s3.put_object, Bucket=bucket, Key="object", Body=b"x", **wrong)
    refused(code, s3.create_multipart_upload, Bucket=bucket, Key="object", **wrong)
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_copy_has_the_class_and_redirect_of_its_request(s3, bucket):
    """Neither is ever taken over from the source."""
    s3.put_object(Bucket=bucket, Key="source", Body=b"x", WebsiteRedirectLocation="/old", Metadata={"a": "b"})

    def copied(target, **options):
        s3.copy_object(Bucket=bucket, Key=target, CopySource={"Bucket": bucket, "Key": "source"}, **options)
        found = s3.head_object(Bucket=bucket, Key=target)
        assert found["Metadata"] == {"a": "b"}
        return found.get("WebsiteRedirectLocation")

    assert copied("target") is None
    assert copied("target", WebsiteRedirectLocation="/new") == "/new"
    assert copied("source", WebsiteRedirectLocation="/newer") == "/newer"
    refused("InvalidRequest", copied, "source")
    refused("InvalidRequest", copied, "source", TaggingDirective="REPLACE", Tagging="a=1")
    for wrong, code in (({"StorageClass": "FOO"}, "InvalidStorageClass"), ({"WebsiteRedirectLocation": "x"}, "InvalidRedirectLocation")):
        refused(code, copied, "target", **wrong)


@pytest.mark.deployments(("directory", "WRITE_BACK"), ("directory", "WRITE_THROUGH"), ("directory", "NO_CACHE"))
@pytest.mark.beyond_reference("it has no classes")
def test_a_class_is_changed_by_a_copy(s3, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=b"x", StorageClass="STANDARD_IA")
    source = {"Bucket": bucket, "Key": "source"}
    s3.copy_object(Bucket=bucket, Key="plain", CopySource=source)
    assert "StorageClass" not in s3.head_object(Bucket=bucket, Key="plain")
    s3.copy_object(Bucket=bucket, Key="source", CopySource=source, StorageClass="GLACIER_IR")
    assert s3.head_object(Bucket=bucket, Key="source")["StorageClass"] == "GLACIER_IR"


@pytest.mark.beyond_reference("it encrypts, in its way")
def test_encryption_is_refused_however_it_is_asked_for(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    for name in ("customer-key", "customer-key-md5", "customer-algorithm", "context", "aws-kms-key-id"):
        headers = {f"x-amz-server-side-encryption-{name}": "AAAA"}
        for method, path, body in (("PUT", "new", b"x"), ("GET", "object", b""), ("POST", "new?uploads=", b"")):
            answer = send_signed(server, method, f"/{bucket}/{path}", headers, body)
            assert answer.status == 501, answer
    refused("404", s3.head_object, Bucket=bucket, Key="new")


@pytest.mark.beyond_reference("it takes it as empty")
def test_a_put_must_say_how_long_it_is(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    headers = sign(server, "PUT", f"/{bucket}/object")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() != "content-length")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        request = f"PUT /{bucket}/object HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{head}Connection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 411 ") and b"<Code>MissingContentLength<" in answer, answer
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"


@pytest.mark.beyond_reference("it refuses what is no date")
@pytest.mark.parametrize("text", ["Thu, 01 Dec 1994 16:00:00 GMT", "in two days", "0", "-1", "1994-12-01T16:00:00Z"])
def test_an_answer_expires_as_it_was_asked_to(server, s3, bucket, text):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Expires=datetime.datetime(2040, 1, 1))
    for method in ("GET", "HEAD"):
        answer = send_signed(server, method, f"/{bucket}/object?response-expires={urllib.parse.quote(text)}")
        assert answer.status == 200 and answer.headers["expires"] == text, answer
    assert send_signed(server, "GET", f"/{bucket}/object?response-expires=a%0Ab").status == 400
