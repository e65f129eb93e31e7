"""Ranges, and conditions on reads and writes."""

import concurrent.futures
import datetime

import pytest
from botocore.exceptions import ClientError, ResponseStreamingError

from harness.clients import refused, send_signed

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


@pytest.mark.xfail(strict=True, reason="s3s refuses the header before Forebay sees it: see crates/s3/src/s3s_fixes.rs")
@pytest.mark.parametrize("asked", ["bytes=5-2", "pages=1-2", "bytes=a-b"])
def test_a_range_that_is_none_is_ignored(s3, bucket, etag, asked):
    read = s3.get_object(Bucket=bucket, Key="object", Range=asked)
    assert read["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert read["Body"].read() == BODY


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


def test_a_read_is_of_one_version_while_others_overwrite(s3, bucket):
    """Each body repeats one number: a mix of two versions would show. A body may break off instead."""
    size = 2 << 20

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
