"""Multipart uploads."""

import datetime
import hashlib
import os

import pytest

from harness.clients import refused, send_signed

MIB = 1 << 20


def create(s3, bucket, key="object", **options):
    return s3.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]


def put_parts(s3, bucket, upload, bodies, key="object"):
    """Uploads parts 1, 2, …; returns them as Complete wants them."""
    parts = []
    for number, body in enumerate(bodies, 1):
        answer = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    return parts


def complete(s3, bucket, upload, parts, key="object", **options):
    return s3.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, **options
    )


def multipart_etag(bodies):
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"'


@pytest.fixture
def bodies():
    return [os.urandom(5 * MIB), os.urandom(5 * MIB + 7), os.urandom(1000)]


def test_parts_become_one_object(s3, bucket, bodies):
    metadata = {"Metadata": {"k": "v"}, "ContentType": "text/x-forebay", "Tagging": "a=1"}
    upload = create(s3, bucket, **metadata)
    parts = put_parts(s3, bucket, upload, bodies)
    refused("404", s3.head_object, Bucket=bucket, Key="object")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    answer = complete(s3, bucket, upload, parts)
    assert (answer["ETag"], answer["Key"], answer["Bucket"]) == (multipart_etag(bodies), "object", bucket)
    read = s3.get_object(Bucket=bucket, Key="object")
    assert read["Body"].read() == b"".join(bodies)
    assert (read["ETag"], read["Metadata"], read["ContentType"]) == (answer["ETag"], {"k": "v"}, "text/x-forebay")
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_a_range_across_parts(s3, bucket, bodies):
    upload = create(s3, bucket)
    complete(s3, bucket, upload, put_parts(s3, bucket, upload, bodies))
    first = 5 * MIB - 10
    read = s3.get_object(Bucket=bucket, Key="object", Range=f"bytes={first}-{first + 19}")
    assert read["Body"].read() == b"".join(bodies)[first : first + 20]


def test_a_part_can_be_read_by_its_number(s3, bucket, bodies):
    upload = create(s3, bucket)
    complete(s3, bucket, upload, put_parts(s3, bucket, upload, bodies))
    read = s3.get_object(Bucket=bucket, Key="object", PartNumber=2)
    assert read["Body"].read() == bodies[1]
    assert read["PartsCount"] == 3


def test_parts_are_listed_page_by_page(s3, bucket):
    upload = create(s3, bucket)
    sizes = [100, 200, 300]
    parts = put_parts(s3, bucket, upload, [b"x" * size for size in sizes])
    page = s3.list_parts(Bucket=bucket, Key="object", UploadId=upload, MaxParts=2)
    assert [(part["PartNumber"], part["Size"]) for part in page["Parts"]] == [(1, 100), (2, 200)]
    assert (page["IsTruncated"], page["NextPartNumberMarker"]) == (True, 2)
    rest = s3.list_parts(Bucket=bucket, Key="object", UploadId=upload, PartNumberMarker=2)
    assert [(part["PartNumber"], part["ETag"]) for part in rest["Parts"]] == [(3, parts[2]["ETag"])]
    assert rest["IsTruncated"] is False


def test_uploads_under_way_are_listed(s3, bucket):
    uploads = {create(s3, bucket, key): key for key in ("a/1", "a/2", "b")}
    listed = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert {upload["UploadId"]: upload["Key"] for upload in listed} == uploads
    listed = s3.list_multipart_uploads(Bucket=bucket, Prefix="a/")["Uploads"]
    assert [upload["Key"] for upload in listed] == ["a/1", "a/2"]
    grouped = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [prefix["Prefix"] for prefix in grouped["CommonPrefixes"]] == ["a/"]
    assert [upload["Key"] for upload in grouped["Uploads"]] == ["b"]


def test_an_aborted_upload_is_gone(s3, bucket):
    upload = create(s3, bucket)
    parts = put_parts(s3, bucket, upload, [b"x"])
    s3.abort_multipart_upload(Bucket=bucket, Key="object", UploadId=upload)
    refused("NoSuchUpload", s3.list_parts, Bucket=bucket, Key="object", UploadId=upload)
    refused("NoSuchUpload", s3.upload_part, Bucket=bucket, Key="object", UploadId=upload, PartNumber=1, Body=b"x")
    refused("NoSuchUpload", complete, s3, bucket, upload, parts)
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_part_sent_again_replaces_the_first(s3, bucket):
    upload = create(s3, bucket)
    put_parts(s3, bucket, upload, [b"first"])
    parts = put_parts(s3, bucket, upload, [b"second"])
    complete(s3, bucket, upload, parts)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"second"


def test_parts_left_out_of_the_list_are_not_in_the_object(s3, bucket, bodies):
    upload = create(s3, bucket)
    parts = put_parts(s3, bucket, upload, bodies)
    complete(s3, bucket, upload, [parts[0], parts[2]])
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == bodies[0] + bodies[2]


def test_complete_refuses_what_does_not_fit(s3, bucket, bodies):
    upload = create(s3, bucket)
    parts = put_parts(s3, bucket, upload, [bodies[0], b"small", b"last"])
    wrong_tag = {"PartNumber": 1, "ETag": '"00000000000000000000000000000000"'}
    refused("InvalidPart", complete, s3, bucket, upload, [wrong_tag])
    refused("InvalidPart", complete, s3, bucket, upload, [{"PartNumber": 9, "ETag": parts[0]["ETag"]}])
    refused("EntityTooSmall", complete, s3, bucket, upload, parts)
    refused("404", s3.head_object, Bucket=bucket, Key="object")
    complete(s3, bucket, upload, parts[:2])
    assert s3.head_object(Bucket=bucket, Key="object")["ContentLength"] == len(bodies[0]) + 5


def test_parts_out_of_order_are_refused(s3, bucket, bodies):
    upload = create(s3, bucket)
    parts = put_parts(s3, bucket, upload, bodies[:2])
    refused("InvalidPartOrder", complete, s3, bucket, upload, parts[::-1])
    complete(s3, bucket, upload, parts)


def test_complete_with_conditions(s3, bucket):
    existing = s3.put_object(Bucket=bucket, Key="object", Body=b"existing")["ETag"]
    upload = create(s3, bucket)
    parts = put_parts(s3, bucket, upload, [b"part"])
    refused("PreconditionFailed", complete, s3, bucket, upload, parts, IfNoneMatch="*")
    refused("PreconditionFailed", complete, s3, bucket, upload, parts, IfMatch='"0123456789abcdef0123456789abcdef"')
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"existing"
    complete(s3, bucket, upload, parts, IfMatch=existing)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"part"


def test_part_numbers_have_limits(s3, bucket):
    upload = create(s3, bucket)
    for number in (0, 10001):
        refused("InvalidArgument", s3.upload_part, Bucket=bucket, Key="object", UploadId=upload, PartNumber=number, Body=b"x")
    s3.upload_part(Bucket=bucket, Key="object", UploadId=upload, PartNumber=10000, Body=b"x")


@pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "NO_CACHE"))
@pytest.mark.beyond_reference("it has no such limit")
def test_an_object_has_no_more_than_10000_parts(server, s3, bucket):
    """A list that is longer is none; one of 10,000 is read to its end."""
    upload = create(s3, bucket)
    (part,) = put_parts(s3, bucket, upload, [b"x"])

    def answer_to(numbers):
        listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{part['ETag']}</ETag></Part>" for number in numbers)
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        return send_signed(server, "POST", f"/{bucket}/object?uploadId={upload}", body=body)

    for numbers, code in ((range(1, 10_002), b"MalformedXML"), ([1] * 10_001, b"MalformedXML"), (range(1, 10_001), b"InvalidPart")):
        answer = answer_to(numbers)
        assert answer.status == 400 and b"<Code>" + code + b"<" in answer.body, (len(numbers), answer)
    refused("404", s3.head_object, Bucket=bucket, Key="object")
    assert answer_to([1]).status == 200
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"x"


def test_parts_are_copied_from_other_objects(s3, bucket, bodies):
    s3.put_object(Bucket=bucket, Key="source", Body=bodies[0] + bodies[2])
    source = {"Bucket": bucket, "Key": "source"}
    upload = create(s3, bucket)
    parts = []
    for number, asked in ((1, f"bytes=0-{5 * MIB - 1}"), (2, f"bytes={5 * MIB}-{5 * MIB + 99}")):
        answer = s3.upload_part_copy(
            Bucket=bucket, Key="object", UploadId=upload, PartNumber=number, CopySource=source, CopySourceRange=asked
        )
        parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    complete(s3, bucket, upload, parts)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == bodies[0] + bodies[2][:100]
    missing = {"Bucket": bucket, "Key": "absent"}
    upload = create(s3, bucket)
    call = {"Bucket": bucket, "Key": "object", "UploadId": upload, "PartNumber": 1}
    refused("NoSuchKey", s3.upload_part_copy, CopySource=missing, **call)
    refused("InvalidArgument|InvalidRange", s3.upload_part_copy, CopySource=source, CopySourceRange="bytes=0-99999999", **call)


def test_a_transfer_manager_uploads_and_downloads(s3, bucket, tmp_path):
    body = os.urandom(20 * MIB + 3)
    (tmp_path / "up").write_bytes(body)
    s3.upload_file(str(tmp_path / "up"), bucket, "object")
    s3.download_file(bucket, "object", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == body


def test_a_completion_says_where_the_object_is(server, s3, bucket):
    upload = create(s3, bucket)
    location = complete(s3, bucket, upload, put_parts(s3, bucket, upload, [b"x"]))["Location"]
    assert location == f"{server.endpoint}/{bucket}/object"


@pytest.mark.beyond_reference("it does not know the header")
def test_an_upload_is_aborted_by_the_time_that_it_began(s3, bucket):
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_AbortMultipartUpload.html: 412 for another time, 204 for that one, or for no upload."""
    names = [{"Bucket": bucket, "Key": "object"} for _ in range(3)]
    for upload in names:
        upload["UploadId"] = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    began = {listed["UploadId"]: listed["Initiated"] for listed in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]}
    for upload in names:
        time = began[upload["UploadId"]]
        wrong = time - datetime.timedelta(seconds=1)
        refused("PreconditionFailed", s3.abort_multipart_upload, IfMatchInitiatedTime=wrong, **upload)
        assert s3.list_parts(**upload)["UploadId"] == upload["UploadId"]
        s3.abort_multipart_upload(IfMatchInitiatedTime=time, **upload)
        refused("NoSuchUpload", s3.list_parts, **upload)
        s3.abort_multipart_upload(IfMatchInitiatedTime=time, **upload)
        refused("NoSuchUpload", s3.abort_multipart_upload, **upload)


@pytest.mark.beyond_reference("it lists them otherwise")
def test_pages_of_uploads_have_both_markers(s3, bucket):
    """As versitygw found it in Amazon S3: tests/integration/ListMultipartUploads.go, ListMultipartUploads_delimiter_truncated."""
    keys = ["abc/something", "foo/bar/baz", "foo/quxx", "plain", "some/very/nested/object", "zzz"]
    ids = [s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in keys]
    page = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/", MaxUploads=2)
    assert [prefix["Prefix"] for prefix in page["CommonPrefixes"]] == ["abc/", "foo/"] and page["IsTruncated"]
    assert page["NextKeyMarker"] == "foo/" and page["NextUploadIdMarker"] in ids[1:3]
    markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    page = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/", MaxUploads=2, **markers)
    assert page["UploadIdMarker"] == markers["UploadIdMarker"]
    assert [prefix["Prefix"] for prefix in page["CommonPrefixes"]] == ["some/"] and [upload["Key"] for upload in page["Uploads"]] == ["plain"]
    assert page["NextKeyMarker"] == "some/" and page["NextUploadIdMarker"] == ids[4]
    markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    page = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/", MaxUploads=2, **markers)
    assert [upload["UploadId"] for upload in page["Uploads"]] == [ids[5]] and not page["IsTruncated"]
    assert (page["NextKeyMarker"], page["NextUploadIdMarker"]) == ("zzz", ids[5])
    refused("InvalidArgument", s3.list_multipart_uploads, Bucket=bucket, KeyMarker="foo/", UploadIdMarker="nonsense")
    # Without a key to begin at it says nothing.
    assert len(s3.list_multipart_uploads(Bucket=bucket, UploadIdMarker="nonsense")["Uploads"]) == len(keys)
