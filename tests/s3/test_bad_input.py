"""Input that no good client sends: each gets a clear S3 error, and the server keeps running."""

import socket
import urllib.parse

import pytest

from harness.clients import md5_base64, refused, send, send_signed, sign


def code(answer):
    text = answer.body.decode()
    return text.split("<Code>")[1].split("</Code>")[0] if "<Code>" in text else ""


@pytest.fixture(autouse=True)
def still_serves(s3, bucket):
    yield
    s3.put_object(Bucket=bucket, Key="afterwards", Body=b"still here")
    assert s3.get_object(Bucket=bucket, Key="afterwards")["Body"].read() == b"still here"


def test_a_key_that_is_too_long(s3, bucket):
    refused("KeyTooLongError", s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"x")


@pytest.mark.deployments(("s3", "WRITE_THROUGH"), ("s3", "WRITE_BACK"), ("s3", "NO_CACHE"))
@pytest.mark.each_deployment("the modes ask the under store at different moments")
@pytest.mark.beyond_reference
def test_a_key_that_the_under_store_would_never_take(server, s3, bucket):
    refused("InvalidArgument", s3.put_object, Bucket=bucket, Key=" ", Body=b"x")
    refused("InvalidArgument", s3.create_multipart_upload, Bucket=bucket, Key=" ")
    refused("InvalidArgument", s3.delete_object, Bucket=bucket, Key=" ")
    refused("InvalidArgument", s3.put_object, Bucket=bucket, Key="a/../../b", Body=b"x")
    server.wait_until_drained()


def test_metadata_that_is_too_large(s3, bucket):
    refused("MetadataTooLarge", s3.put_object, Bucket=bucket, Key="object", Body=b"x", Metadata={"k": "v" * 2100})
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.parametrize(
    "tags",
    [
        [{"Key": f"k{n}", "Value": "v"} for n in range(11)],
        [{"Key": "k" * 129, "Value": "v"}],
        [{"Key": "k", "Value": "v" * 257}],
        [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}],
    ],
    ids=["too-many", "long-key", "long-value", "twice"],
)
def test_tags_that_cannot_be(s3, bucket, tags):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    refused("InvalidTag|BadRequest", s3.put_object_tagging, Bucket=bucket, Key="object", Tagging={"TagSet": tags})
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<",
        b"<Delete>",
        b"<Delete></Wrong>",
        b"\xff\xfe\x00",
        b"<Delete>" + b"<a>" * 100_000,
        b'<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><Delete><Object><Key>&b;</Key></Object></Delete>',
    ],
    ids=["empty", "open", "unclosed", "mismatched", "binary", "deep", "entities"],
)
def test_xml_that_is_none(server, s3, bucket, body):
    s3.put_object(Bucket=bucket, Key="aaaaaaaa", Body=b"kept")
    answer = send_signed(server, "POST", f"/{bucket}?delete=", {"Content-MD5": md5_base64(body)}, body)
    assert 400 <= answer.status < 500, answer
    assert s3.head_object(Bucket=bucket, Key="aaaaaaaa")


@pytest.mark.beyond_reference("it has no such limit")
def test_more_than_a_thousand_deletes_at_once(s3, bucket):
    names = [{"Key": f"k{number}"} for number in range(1001)]
    refused("MalformedXML", s3.delete_objects, Bucket=bucket, Delete={"Objects": names})


def test_an_upload_that_never_was(s3, bucket):
    upload = {"Bucket": bucket, "Key": "object", "UploadId": "nonsense"}
    refused("NoSuchUpload", s3.list_parts, **upload)
    refused("NoSuchUpload", s3.abort_multipart_upload, **upload)
    refused("NoSuchUpload", s3.upload_part, PartNumber=1, Body=b"x", **upload)


@pytest.mark.parametrize(
    "key", ["../../escape", "..%2f..%2fescape", "%2e%2e/%2e%2e/escape", "a/../../../escape", "./../escape", "..\\..\\escape"]
)
def test_a_key_with_dots_stays_in_its_bucket(server, s3, bucket, key):
    def outside():
        found = server.directory.parent.rglob("escape*")
        in_bucket = lambda path: any(part.startswith("test-bucket-") for part in path.parent.parts)  # noqa: E731
        return {path: path.lstat().st_mtime_ns for path in found if not in_bucket(path) and "data" not in path.parts}

    before = outside()
    answer = send_signed(server, "PUT", f"/{bucket}/{key}", body=b"here")
    assert answer.status == 200 or 400 <= answer.status < 500, answer
    assert outside() == before
    buckets = [found["Name"] for found in s3.list_buckets()["Buckets"]]
    assert not any("escape" in name for name in buckets)


def test_a_body_shorter_than_announced_stores_nothing(server, s3, bucket):
    headers = sign(server, "PUT", f"/{bucket}/object", body=b"0123456789")
    headers |= {"Host": f"127.0.0.1:{server.port}", "Content-Length": "10"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"PUT /{bucket}/object HTTP/1.1\r\n{lines}\r\n".encode() + b"01234")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_length_that_is_missing_or_no_number(server, bucket):
    answer = send_signed(server, "PUT", f"/{bucket}/object", {"Content-Length": "many"}, b"")
    assert 400 <= answer.status < 500, answer


def test_a_method_that_s3_does_not_know(server, bucket):
    answer = send_signed(server, "PATCH", f"/{bucket}/object")
    assert (answer.status, code(answer)) in ((405, "MethodNotAllowed"), (501, "NotImplemented")), answer


def test_an_error_is_s3s_xml(server, bucket):
    answer = send_signed(server, "GET", f"/{bucket}/absent")
    assert (answer.status, code(answer), answer.headers["content-type"]) == (404, "NoSuchKey", "application/xml")
    assert answer.headers["x-amz-request-id"]


MISREAD = {
    "cdata": "<Delete><Object><Key>kept<![CDATA[more]]></Key></Object></Delete>",
    "junk": "<Delete><Object><Key>kept</Key></Object></Delete>junk",
    "two": "<Delete><Object><Key>kept</Key></Object></Delete><Delete/>",
    "unknown": "<Delete><Object><Key>kept</Key></Object><All>true</All></Delete>",
    "encoding": '<?xml version="1.0" encoding="ISO-8859-1"?><Delete><Object><Key>kept</Key></Object></Delete>',
}


@pytest.mark.parametrize("body", MISREAD.values(), ids=MISREAD.keys())
@pytest.mark.beyond_reference("it reads some of them")
def test_a_list_of_deletes_that_could_be_misread_deletes_nothing(server, s3, bucket, body):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept")
    body = body.encode()
    answer = send_signed(server, "POST", f"/{bucket}?delete=", {"Content-MD5": md5_base64(body)}, body)
    assert answer.status == 400 and b"<Code>MalformedXML<" in answer.body, answer
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"kept"


@pytest.mark.beyond_reference("it takes them")
def test_tags_that_could_be_misread_change_nothing(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Tagging="a=1")
    for inner in ("<tag><Key>b</Key><Value>2</Value></tag>", "<Foo/>", "<Tag><Key>b</Key><Value>v<![CDATA[w]]></Value></Tag>"):
        body = f"<Tagging><TagSet>{inner}</TagSet></Tagging>".encode()
        answer = send_signed(server, "PUT", f"/{bucket}/object?tagging=", body=body)
        assert answer.status == 400 and b"<Code>MalformedXML<" in answer.body, answer
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == [{"Key": "a", "Value": "1"}]


def test_a_list_of_parts_that_could_be_misread_makes_no_object(server, s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    tag = s3.upload_part(Bucket=bucket, Key="object", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = f"<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>junk".encode()
    answer = send_signed(server, "POST", f"/{bucket}/object?uploadId={upload}", body=body)
    assert answer.status == 400 and b"<Code>MalformedXML<" in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_part_number_that_is_none_is_not_read_as_another(server, s3, bucket):
    """Its first digits are a part, and it has that part's tag."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    tag = s3.upload_part(Bucket=bucket, Key="object", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    answers = {}
    for number in ("1,000", "1.5", "1e4", "1x", "1 2", "1-2", "0x1", "one", ""):
        body = f"<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>".encode()
        answer = send_signed(server, "POST", f"/{bucket}/object?uploadId={upload}", body=body)
        answers[number] = (answer.status, code(answer))
    assert {status for status, _ in answers.values()} == {400}, answers
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.beyond_reference("it answers InternalError")
def test_a_document_that_was_not_the_one_signed(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept")
    body = b"<Delete><Object><Key>kept</Key></Object></Delete>"
    other = b"<Delete><Object><Key>else</Key></Object></Delete>"
    headers = sign(server, "POST", f"/{bucket}?delete=", {"Content-MD5": md5_base64(body)}, other)
    answer = send(server, "POST", f"/{bucket}?delete=", headers, body)
    assert answer.status == 400 and b"<Code>XAmzContentSHA256Mismatch<" in answer.body, answer
    assert s3.head_object(Bucket=bucket, Key="kept")


def test_deletes_in_a_bucket_that_is_not_there(s3):
    refused("NoSuchBucket", s3.delete_objects, Bucket="there-is-no-such-bucket", Delete={"Objects": [{"Key": "a"}]})


@pytest.mark.beyond_reference("it has them, in its way")
def test_a_bucket_that_cannot_be_made_as_asked(server, s3):
    for headers, status in (({"x-amz-grant-read": "id=1"}, 400), ({"x-amz-object-ownership": "ObjectWriter"}, 501)):
        answer = send_signed(server, "PUT", "/cannot-be-made", headers)
        assert answer.status == status, answer
    elsewhere = {"LocationConstraint": "eu-west-1"}
    refused("IllegalLocationConstraintException", s3.create_bucket, Bucket="cannot-be-made", CreateBucketConfiguration=elsewhere)
    refused("404", s3.head_bucket, Bucket="cannot-be-made")


@pytest.mark.beyond_reference("it takes them, or breaks off")
def test_attributes_that_would_not_fit_into_a_request_to_s3(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=b"x")
    copy = {"Bucket": bucket, "Key": "object", "CopySource": f"{bucket}/source"}
    for wrong in ({"CacheControl": "x" * 9000}, {"ContentType": "a/" + "b" * 6200}, {"ContentDisposition": "x" * 7000}):
        refused("RequestHeaderSectionTooLarge", s3.put_object, Bucket=bucket, Key="object", Body=b"x", **wrong)
        refused("RequestHeaderSectionTooLarge", s3.create_multipart_upload, Bucket=bucket, Key="object", **wrong)
        refused("RequestHeaderSectionTooLarge", s3.copy_object, MetadataDirective="REPLACE", **copy, **wrong)
    tags = "&".join(f"k{n}={urllib.parse.quote('é' * 200)}" for n in range(10))
    refused("RequestHeaderSectionTooLarge", s3.put_object, Bucket=bucket, Key="object", Body=b"x", Tagging=tags)
    refused("RequestHeaderSectionTooLarge", s3.copy_object, TaggingDirective="REPLACE", Tagging=tags, **copy)
    refused("404", s3.head_object, Bucket=bucket, Key="object")
    # Less than S3 takes: the S3 server of the tests breaks off at 4 KiB.
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", CacheControl="x" * 1000, Metadata={"a": "b" * 1000})
    assert s3.head_object(Bucket=bucket, Key="object")["CacheControl"] == "x" * 1000


def test_a_body_that_nobody_waits_for(server, s3, bucket):
    """botocore asks before it sends even an empty body, and must not take the next answer for this one's."""
    for _ in range(5):
        s3.put_object(Bucket=bucket, Key="empty", Body=b"")
        assert s3.put_object(Bucket=bucket, Key="full", Body=b"x" * 100_000)["ETag"]
    headers = sign(server, "PUT", f"/{bucket}/empty", {"Content-Length": "0"}) | {"Expect": "100-continue"}
    answer = send(server, "PUT", f"/{bucket}/empty", headers)
    assert answer.status == 200 and answer.headers["connection"] == "close", answer


def test_a_large_request_that_is_refused_at_once(server, bucket):
    """The client sends all of its body before it reads the answer, as many do."""
    body = bytes(32 << 20)
    headers = sign(server, "PUT", f"/{bucket}/large", body=body)
    headers["Authorization"] = headers["Authorization"][:-1] + ("0" if headers["Authorization"][-1] != "0" else "1")
    # Through other workers, too, where there are some.
    for _ in range(6):
        answer = send(server, "PUT", f"/{bucket}/large", headers, body)
        assert (answer.status, code(answer)) == (403, "SignatureDoesNotMatch")
