"""Listing objects and versions, checked against a sorted list of what was put."""

import pytest

from harness.clients import refused, send, send_signed, sign
from harness.fill import fill

KEYS = sorted(
    ["a", "a-b", "a.txt", "b/1", "b/2", "b/c/1", "b/c/2", "b/d", "b0", "c/", "c/x", "d e/f+g", "ü/1", "z"],
    key=lambda key: key.encode(),
)


@pytest.fixture
def filled(s3, bucket):
    """A bucket with an object under each of KEYS."""
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=b"" if key.endswith("/") else key.encode())
    return bucket


def expected(prefix="", delimiter="", after=""):
    """What a listing must hold: ('key', name) and ('prefix', name) in order."""
    entries = []
    for key in KEYS:
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = ("prefix", key[: cut + len(delimiter)]) if cut >= 0 else ("key", key)
        if entry not in entries and entry != ("prefix", after):
            entries.append(entry)
    return entries


def entries(page):
    """A page's entries in the same form, in byte order."""
    found = [("key", item["Key"]) for item in page.get("Contents", [])]
    found += [("prefix", item["Prefix"]) for item in page.get("CommonPrefixes", [])]
    return sorted(found, key=lambda entry: entry[1].encode())


CASES = [("", ""), ("", "/"), ("b/", ""), ("b/", "/"), ("b", "/"), ("b/c", "/"), ("a", ""), ("", "-"), ("nothing", "/"), ("c/", "/"), ("ü", "/")]


@pytest.mark.parametrize("page_size", [1, 2, 3, 1000])
@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
def test_pages_hold_every_key_once_and_in_order(s3, filled, operation, page_size):
    for prefix, delimiter in CASES:
        pages = s3.get_paginator(operation).paginate(
            Bucket=filled, Prefix=prefix, Delimiter=delimiter, PaginationConfig={"PageSize": page_size}
        )
        found = [entry for page in pages for entry in entries(page)]
        assert found == expected(prefix, delimiter), (prefix, delimiter)


def test_a_listing_tells_of_each_object(s3, filled):
    page = s3.list_objects_v2(Bucket=filled, FetchOwner=True)
    assert (page["KeyCount"], page["IsTruncated"], page["MaxKeys"], page["Name"]) == (len(KEYS), False, 1000, filled)
    for item in page["Contents"]:
        head = s3.head_object(Bucket=filled, Key=item["Key"])
        assert (item["ETag"], item["Size"]) == (head["ETag"], head["ContentLength"])
        assert abs((item["LastModified"] - head["LastModified"]).total_seconds()) <= 1
        assert item["Owner"]["ID"] and item["StorageClass"] == "STANDARD"
    assert "Owner" not in s3.list_objects_v2(Bucket=filled)["Contents"][0]
    assert "Owner" in s3.list_objects(Bucket=filled)["Contents"][0]


@pytest.mark.parametrize("after", ["", "a", "a0", "b/", "b/c/1", "zz"])
def test_start_after_and_marker(s3, filled, after):
    assert entries(s3.list_objects_v2(Bucket=filled, StartAfter=after)) == expected(after=after)
    assert entries(s3.list_objects(Bucket=filled, Marker=after)) == expected(after=after)


def test_a_page_of_no_keys(s3, filled):
    page = s3.list_objects_v2(Bucket=filled, MaxKeys=0)
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)


def test_a_listing_follows_writes_and_deletes_at_once(s3, filled):
    s3.put_object(Bucket=filled, Key="b/1x", Body=b"new")
    s3.delete_object(Bucket=filled, Key="b/2")
    found = [item["Key"] for item in s3.list_objects_v2(Bucket=filled, Prefix="b/", Delimiter="/")["Contents"]]
    assert found == ["b/1", "b/1x", "b/d"]
    for key in ("b/c/1", "b/c/2"):
        s3.delete_object(Bucket=filled, Key=key)
    assert "CommonPrefixes" not in s3.list_objects_v2(Bucket=filled, Prefix="b/", Delimiter="/")


def test_bad_parameters_are_refused(s3, filled):
    refused("InvalidArgument", s3.list_objects_v2, Bucket=filled, MaxKeys=-1)
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="no-such-bucket-here")


@pytest.mark.beyond_reference("its continuation tokens are plain keys")
def test_a_continuation_token_of_ones_own_is_refused(s3, filled):
    refused("InvalidArgument", s3.list_objects_v2, Bucket=filled, ContinuationToken="nonsense")


@pytest.mark.beyond_reference("its listing of versions is in the order of directories")
def test_versions_of_an_unversioned_bucket_are_null(s3, filled):
    answer = s3.list_object_versions(Bucket=filled)
    assert [version["Key"] for version in answer["Versions"]] == KEYS
    assert all(version["VersionId"] == "null" and version["IsLatest"] for version in answer["Versions"])
    assert "DeleteMarkers" not in answer
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=filled, PaginationConfig={"PageSize": 3})
    assert [version["Key"] for page in pages for version in page["Versions"]] == KEYS


def test_more_than_a_page_of_objects(server, s3, bucket):
    keys = [f"object-{number:04}" for number in range(1005)]
    fill(server, bucket, keys, b"")
    first = s3.list_objects_v2(Bucket=bucket)
    assert (first["KeyCount"], first["IsTruncated"]) == (1000, True)
    rest = s3.list_objects_v2(Bucket=bucket, ContinuationToken=first["NextContinuationToken"])
    assert [item["Key"] for item in first["Contents"] + rest["Contents"]] == keys
    for start in (0, 1000):
        names = [{"Key": key} for key in keys[start : start + 1000]]
        assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": names})["Deleted"]) == len(names)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


@pytest.mark.beyond_reference("it takes them for numbers")
def test_an_empty_limit_is_not_given(server, s3, filled):
    for query in ("list-type=2&max-keys=", "max-keys=", "versions&max-keys=", "uploads&max-uploads=", "list-type=2&max-keys"):
        answer = send_signed(server, "GET", f"/{filled}?{query}")
        assert answer.status == 200 and b"<IsTruncated>false<" in answer.body, (query, answer)
        assert b"1000</Max" in answer.body, (query, answer)
    assert send_signed(server, "GET", "/?max-buckets=").status == 200
    upload = s3.create_multipart_upload(Bucket=filled, Key="parts")["UploadId"]
    s3.upload_part(Bucket=filled, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    answer = send_signed(server, "GET", f"/{filled}/parts?uploadId={upload}&max-parts=&part-number-marker=")
    assert answer.status == 200 and b"<PartNumber>1<" in answer.body, answer
    # What is signed is signed as it stands.
    signed = sign(server, "GET", f"/{filled}?max-keys=")
    assert send(server, "GET", f"/{filled}?max-keys=1", signed).status == 403
    assert send(server, "GET", f"/{filled}?max-keys=").status == 403


@pytest.mark.deployments(("directory", "WRITE_BACK"), ("directory", "WRITE_THROUGH"))
@pytest.mark.beyond_reference("it takes no such keys")
def test_control_characters_in_keys_are_references(server, s3, bucket):
    """As in Amazon S3: aws/aws-sdk-php#169, pfig/net-amazon-s3#67. XML has no way to write them; `encoding-type=url` is for all readers."""
    s3.put_object(Bucket=bucket, Key="a\x01b\x1f\r\tc", Body=b"x")
    answer = send_signed(server, "GET", f"/{bucket}?list-type=2")
    assert b"<Key>a&#x1;b&#x1f;&#13;\tc</Key>" in answer.body, answer
    assert [listed["Key"] for listed in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["a\x01b\x1f\r\tc"]
