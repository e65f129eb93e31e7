"""Ranges, and conditions on reads and writes."""

import concurrent.futures
import datetime

import pytest
from botocore.exceptions import ClientError, ResponseStreamingError

from harness import chunks
from harness.clients import boto, refused, send, send_signed, sign

BODY = bytes(range(256)) * 8000
OTHER = '"00000000000000000000000000000000"'
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def etag(s3, bucket):
    """The tag of an object named `object`."""
    return s3.put_object(Bucket=bucket, Key="object", Body=BODY)["ETag"]


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=100-", 100, len(BODY) - 1),
        ("bytes=-100", len(BODY) - 100, len(BODY) - 1),
        (f"bytes={(1 << 20) - 5}-{(1 << 20) + 5}", (1 << 20) - 5, (1 << 20) + 5),
        ("bytes=2000000-99999999", 2000000, len(BODY) - 1),
        ("bytes=-99999999", 0, len(BODY) - 1),
    ],
)
def test_a_range_is_what_was_asked(s3, bucket, etag, asked, first, last):
    read = s3.get_object(Bucket=bucket, Key="object", Range=asked)
    assert read["Body"].read() == BODY[first : last + 1]
    assert read["ContentRange"] == f"bytes {first}-{last}/{len(BODY)}"
    assert (read["ResponseMetadata"]["HTTPStatusCode"], read["ETag"]) == (206, etag)


def test_a_range_past_the_end_is_refused(s3, bucket, etag):
    error = refused("InvalidRange", s3.get_object, Bucket=bucket, Key="object", Range=f"bytes={len(BODY)}-")
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 416
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    refused("InvalidRange", s3.get_object, Bucket=bucket, Key="empty", Range="bytes=0-0")


@pytest.mark.parametrize("asked", ["bytes=5-2", "pages=1-2", "bytes=a-b"])
def test_a_range_that_is_none_is_ignored(s3, bucket, etag, asked):
    read = s3.get_object(Bucket=bucket, Key="object", Range=asked)
    assert read["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert read["Body"].read() == BODY


@pytest.mark.beyond_reference("it ignores the header")
def test_a_range_is_of_the_version_that_the_client_has(server, s3, bucket, etag):
    modified = s3.head_object(Bucket=bucket, Key="object")["LastModified"]
    date, later = ((modified + datetime.timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT") for seconds in (0, 60))
    for version, whole in ((etag, False), (date, False), (OTHER, True), (later, True), (f"W/{etag}", True), ("x", True)):
        for method in ("GET", "HEAD"):
            answer = send_signed(server, method, f"/{bucket}/object", {"Range": "bytes=2-5", "If-Range": version})
            assert answer.status == (200 if whole else 206), (version, answer)
            assert answer.headers["content-length"] == (str(len(BODY)) if whole else "4")
            assert ("content-range" in answer.headers) != whole


def test_reads_with_conditions(s3, bucket, etag):
    modified = s3.head_object(Bucket=bucket, Key="object")["LastModified"]
    for read in (s3.get_object, s3.head_object):
        for passing in (
            {"IfMatch": etag},
            {"IfNoneMatch": OTHER},
            {"IfModifiedSince": modified - HOUR},
            {"IfUnmodifiedSince": modified + HOUR},
            {"IfMatch": etag, "IfUnmodifiedSince": modified - HOUR},
            {"IfNoneMatch": OTHER, "IfModifiedSince": modified},
        ):
            assert read(Bucket=bucket, Key="object", **passing)["ETag"] == etag
        for failing in ({"IfMatch": OTHER}, {"IfUnmodifiedSince": modified - HOUR}):
            refused("PreconditionFailed|412", read, Bucket=bucket, Key="object", **failing)
        for unchanged in ({"IfNoneMatch": etag}, {"IfNoneMatch": etag, "IfModifiedSince": modified - HOUR}):
            refused("304", read, Bucket=bucket, Key="object", **unchanged)


@pytest.mark.beyond_reference("its times have fractions that the header does not show")
def test_what_was_seen_is_not_modified_since(s3, bucket, etag):
    modified = s3.head_object(Bucket=bucket, Key="object")["LastModified"]
    refused("304", s3.get_object, Bucket=bucket, Key="object", IfModifiedSince=modified)


@pytest.mark.beyond_reference("its 304 has no ETag, which RFC 9110 wants")
def test_an_unchanged_answer_carries_the_tag(server, bucket, etag):
    answer = send_signed(server, "GET", f"/{bucket}/object", {"If-None-Match": etag})
    assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", etag)


def test_writes_only_if_absent(s3, bucket, etag):
    refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="object", Body=b"new", IfNoneMatch="*")
    assert s3.head_object(Bucket=bucket, Key="object")["ETag"] == etag
    s3.put_object(Bucket=bucket, Key="other", Body=b"new", IfNoneMatch="*")
    s3.delete_object(Bucket=bucket, Key="other")
    s3.put_object(Bucket=bucket, Key="other", Body=b"again", IfNoneMatch="*")
    assert s3.get_object(Bucket=bucket, Key="other")["Body"].read() == b"again"


def test_writes_only_over_what_was_seen(s3, bucket, etag):
    refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="object", Body=b"new", IfMatch=OTHER)
    refused("NoSuchKey", s3.put_object, Bucket=bucket, Key="absent", Body=b"new", IfMatch=etag)
    s3.put_object(Bucket=bucket, Key="object", Body=b"new", IfMatch=etag)
    refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="object", Body=b"newer", IfMatch=etag)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"new"


def test_deletes_only_what_was_seen(s3, bucket, etag):
    refused("PreconditionFailed", s3.delete_object, Bucket=bucket, Key="object", IfMatch=OTHER)
    assert s3.head_object(Bucket=bucket, Key="object")["ETag"] == etag
    s3.delete_object(Bucket=bucket, Key="object", IfMatch=etag)
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.beyond_reference("it answers 304 to a copy")
def test_copies_with_conditions_on_the_source(s3, bucket, etag):
    source = {"Bucket": bucket, "Key": "object"}
    for failing in ({"CopySourceIfMatch": OTHER}, {"CopySourceIfNoneMatch": etag}):
        refused("PreconditionFailed", s3.copy_object, Bucket=bucket, Key="copy", CopySource=source, **failing)
    refused("404", s3.head_object, Bucket=bucket, Key="copy")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=source, CopySourceIfMatch=etag)
    assert s3.head_object(Bucket=bucket, Key="copy")["ETag"] == etag


def test_of_many_first_writers_one_wins(s3, bucket):
    def write(number):
        try:
            s3.put_object(Bucket=bucket, Key="contended", Body=f"writer {number}".encode(), IfNoneMatch="*")
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412), error
            return None
        return number

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        winners = [number for number in pool.map(write, range(50)) if number is not None]
    assert len(winners) == 1
    assert s3.get_object(Bucket=bucket, Key="contended")["Body"].read() == f"writer {winners[0]}".encode()


def test_a_read_is_of_one_version_while_others_overwrite(server, bucket):
    """Each body repeats one number: a mix of two versions would show. A body may break off instead."""
    size = 2 << 20
    # The S3 server reads an object's tag and checksum one after the other, so that they may be of two versions.
    s3 = boto(server, response_checksum_validation="when_required")

    def write(number):
        s3.put_object(Bucket=bucket, Key="hot", Body=bytes([number]) * size)

    def read(_):
        for _ in range(10):
            try:
                body = s3.get_object(Bucket=bucket, Key="hot")["Body"].read()
            except ResponseStreamingError:
                continue
            return len(body) == size and body == body[:1] * size
        return False

    write(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write, number) for number in range(1, 12)]
        assert all(pool.map(read, range(24)))
        for done in writes:
            done.result()


OLD_FORMS = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]


@pytest.mark.beyond_reference("it reads one form only")
@pytest.mark.parametrize("form", OLD_FORMS, ids=["rfc-850", "asctime"])
@pytest.mark.parametrize("presigned", [False, True])
def test_dates_in_older_forms(server, s3, bucket, etag, form, presigned):
    modified = s3.head_object(Bucket=bucket, Key="object")["LastModified"]

    def get(headers):
        if presigned:
            url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "object"})
            return send(server, "GET", url.removeprefix(server.endpoint), headers)
        return send_signed(server, "GET", f"/{bucket}/object", headers)

    before, after = ((modified + datetime.timedelta(days=days)).strftime(form) for days in (-1, 1))
    now = modified.strftime(form)
    assert get({"If-Modified-Since": now}).status == 304
    assert get({"If-Modified-Since": before}).body == BODY
    assert get({"If-Unmodified-Since": before}).status == 412
    assert get({"If-Unmodified-Since": after}).body == BODY
    for ignored in ("yesterday", "0", ""):
        assert get({"If-Modified-Since": ignored, "Range": "bytes=0-1,4-5"}).body == BODY, ignored


@pytest.mark.beyond_reference("it has no such users")
def test_what_is_put_right_is_authorized_as_ever(server, s3, bucket, etag):
    for headers in ({"Range": "bytes=x"}, {"If-Modified-Since": "yesterday"}):
        assert send(server, "GET", f"/{bucket}/object", headers).status == 403
        signed = sign(server, "GET", f"/{bucket}/object", headers)
        assert send(server, "GET", f"/{bucket}/object", signed | {"Authorization": signed["Authorization"][:-1] + "x"}).status == 403
        assert send(server, "GET", f"/{bucket}/object", signed | {"Range": "bytes=y", "If-Modified-Since": "now"}).status == 403
    assert send(server, "PUT", f"/{bucket}/new", {"Expires": "0"}, b"x").status == 403
    wrong = sign(server, "PUT", f"/{bucket}/new", {"Expires": "0"}, b"other")
    assert send(server, "PUT", f"/{bucket}/new", wrong, b"x").status == 400
    refused("404", s3.head_object, Bucket=bucket, Key="new")


@pytest.mark.parametrize("expires", ["0", "-1", "2030-01-01", "Wed, 01 Jan 2020 00:00:00 GMT"])
@pytest.mark.beyond_reference("it takes dates only")
def test_expires_is_stored_as_it_was_given(server, s3, bucket, expires):
    assert send_signed(server, "PUT", f"/{bucket}/object", {"Expires": expires}, b"body").status == 200
    for kind in ("signed", "signed-trailer", "unsigned-trailer"):
        headers, body = chunks.request(server, f"/{bucket}/{kind}", b"body", kind, extra={"expires": expires})
        assert send(server, "PUT", f"/{bucket}/{kind}", headers, body).status == 200, kind
    headers, body = chunks.request(server, f"/{bucket}/damaged", b"body", "unsigned-trailer", "trailer", {"expires": expires})
    assert send(server, "PUT", f"/{bucket}/damaged", headers, body).status == 400
    for key in ("object", "signed", "signed-trailer", "unsigned-trailer"):
        for method in ("GET", "HEAD"):
            assert send_signed(server, method, f"/{bucket}/{key}").headers["expires"] == expires
    refused("404", s3.head_object, Bucket=bucket, Key="damaged")
    server.wait_until_drained()


@pytest.mark.deployments(("s3", "WRITE_BACK"), ("s3", "WRITE_THROUGH"), ("s3", "NO_CACHE"))
@pytest.mark.beyond_reference("there is nothing behind it")
@pytest.mark.parametrize("in_parts", [True, False], ids=["in-parts", "in-one-piece"])
def test_the_tag_of_a_listing_names_the_object(server, s3, bucket, in_parts):
    """`aws s3 sync` asks for what it has found in a listing by the tag that it saw there."""
    body = b"x" * (6 << 20 if in_parts else 65 << 20)
    if in_parts:
        upload = {"Bucket": bucket, "Key": "object", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]}
        pieces = {1: body[: 5 << 20], 2: body[5 << 20 :]}
        tags = {number: s3.upload_part(PartNumber=number, Body=piece, **upload)["ETag"] for number, piece in pieces.items()}
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in tags.items()]
        s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    else:
        s3.put_object(Bucket=bucket, Key="object", Body=body)
    server.wait_until_drained()
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["ETag"]
    behind = boto(server.behind).head_object(Bucket=bucket, Key="object")["ETag"]
    told = s3.head_object(Bucket=bucket, Key="object")["ETag"]
    assert (told == behind) == in_parts
    for tag in {listed, behind, told}:
        assert s3.get_object(Bucket=bucket, Key="object", IfMatch=tag)["ContentLength"] == len(body)
        refused("304", s3.get_object, Bucket=bucket, Key="object", IfNoneMatch=tag)
        s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/object", CopySourceIfMatch=tag)
    refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="object", Body=b"new", IfMatch='"0"')
    s3.put_object(Bucket=bucket, Key="object", Body=b"new", IfMatch=listed)


@pytest.mark.beyond_reference("it refuses some of them")
@pytest.mark.parametrize("text", ["no tag at all", '"open', "open\"", "a/b=c", "W/x", "", ",", "a, b c"])
def test_any_text_in_a_condition_is_a_tag_that_nothing_has(server, s3, bucket, etag, text):
    target = f"/{bucket}/object"

    def ask(method, name, body=b"", target=target, **more):
        answer = send_signed(server, method, target, {name: text} | more, body)
        return answer.status

    for method in ("GET", "HEAD", "DELETE"):
        assert ask(method, "If-Match") == 412, method
    assert ask("PUT", "If-Match", b"x") == 412
    for method in ("GET", "HEAD"):
        assert ask(method, "If-None-Match") == 200, method
    source = {"x-amz-copy-source": target}
    assert ask("PUT", "x-amz-copy-source-if-match", target=f"/{bucket}/copy", **source) == 412
    assert ask("PUT", "x-amz-copy-source-if-none-match", target=f"/{bucket}/copy", **source) == 200
    assert s3.head_object(Bucket=bucket, Key="object")["ETag"] == etag


@pytest.mark.beyond_reference("it replaces the object")
def test_a_write_on_a_condition_that_s3_does_not_have_replaces_nothing(server, s3, bucket, etag):
    """Of Amazon S3: aws/aws-sdk-ruby#3144, versity/versitygw#1708 and #2108. A client that sends such a condition means to replace nothing."""
    target, source = f"/{bucket}/object", {"x-amz-copy-source": f"/{bucket}/source"}
    s3.put_object(Bucket=bucket, Key="source", Body=b"new")
    upload = {"Bucket": bucket, "Key": "object", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]}
    part = s3.upload_part(PartNumber=1, Body=b"new", **upload)["ETag"]
    document = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>".encode()
    writes = {
        "put": ("PUT", target, {}, b"new"),
        "copy": ("PUT", target, source, b""),
        "completion": ("POST", f"{target}?uploadId={upload['UploadId']}", {}, document),
        "new": ("PUT", f"/{bucket}/other", {}, b"new"),
    }
    conditions = [({"If-None-Match": tag}, "If-None-Match") for tag in (OTHER, etag, '"*"', "x", f"*, {OTHER}", "")]
    conditions += [({"If-None-Match": tag, "If-Match": etag}, "If-Match,If-None-Match") for tag in ("*", OTHER)]
    for headers, refused_header in conditions:
        for name, (method, path, more, body) in writes.items():
            answer = send_signed(server, method, path, headers | more, body)
            assert answer.status == 501 and b"<Code>NotImplemented</Code>" in answer.body, (name, headers, answer)
            assert b"<Message>A header you provided implies functionality that is not implemented</Message>" in answer.body, answer
            assert f"<Header>{refused_header}</Header>".encode() in answer.body, (name, headers, answer)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == BODY
    refused("404", s3.head_object, Bucket=bucket, Key="other")
    assert len(s3.list_parts(**upload)["Parts"]) == 1
