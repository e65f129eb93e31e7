"""What others have recorded of Amazon S3, in requests to it or in issues of their clients. Each test names its sources."""

import datetime
import http.client
import urllib.parse

import botocore.crt.auth
import pytest

from harness.clients import refused, send, send_signed, sign

pytestmark = pytest.mark.beyond_reference("it was not recorded from the real S3 server of the tests")


def target_of(url):
    parts = urllib.parse.urlsplit(url)
    return f"{parts.path}?{parts.query}"


def is_error(answer, status, code, *texts):
    assert answer.status == status and f"<Code>{code}</Code>".encode() in answer.body, answer
    for text in texts:
        assert text.encode() in answer.body, answer


@pytest.mark.parametrize("mode", ["GET", "HEAD"])
def test_the_end_of_an_empty_object_is_empty(server, s3, bucket, mode):
    """apache/arrow-rs-object-store#846; floci-io/floci#1141: Trino reads the tails of files so."""
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    for text in ("bytes=-5", "bytes=-1"):
        answer = send_signed(server, mode, f"/{bucket}/empty", {"Range": text})
        assert (answer.status, answer.headers["content-length"], "content-range" in answer.headers) == (200, "0", False), answer
    for text in ("bytes=0-", "bytes=0-0", "bytes=-0"):
        assert send_signed(server, mode, f"/{bucket}/empty", {"Range": text}).status == 416


def test_a_suffix_without_a_length_is_no_range(server, s3, bucket):
    """RFC 9110, section 14.2; versity/versitygw#1120."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"0123456789")
    answer = send_signed(server, "GET", f"/{bucket}/object", {"Range": "bytes=-"})
    assert (answer.status, answer.body) == (200, b"0123456789"), answer


def test_metadata_of_one_name_is_a_list(server, s3, bucket):
    """ "Working with object metadata", Amazon S3 User Guide; suitenumerique/docs#2242."""
    target = f"/{bucket}/object"
    headers = sign(server, "PUT", target, {"x-amz-meta-a": "1,2"}, b"body")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("PUT", target)
    for name, value in [*((n, v) for n, v in headers.items() if n != "x-amz-meta-a"), ("x-amz-meta-a", "1"), ("X-Amz-Meta-A", "2")]:
        connection.putheader(name, value)
    connection.putheader("Content-Length", "4")
    connection.endheaders(b"body")
    assert connection.getresponse().status == 200
    connection.close()
    assert s3.head_object(Bucket=bucket, Key="object")["Metadata"] == {"a": "1,2"}


def test_an_unknown_canned_list_is_a_wrong_argument(server, s3, bucket):
    """versity/versitygw#1367 and #1379; taskcat/taskcat#492."""
    named = ("<ArgumentName>x-amz-acl</ArgumentName>", "<ArgumentValue>foo</ArgumentValue>")
    for target in (f"/{bucket}/object", f"/{bucket}-new", f"/{bucket}?acl="):
        is_error(send_signed(server, "PUT", target, {"x-amz-acl": "foo"}), 400, "InvalidArgument", *named)
    is_error(send_signed(server, "PUT", f"/{bucket}/object", {"x-amz-acl": "public-read"}), 400, "AccessControlListNotSupported")


def test_a_presigned_url_of_the_future_is_not_valid_yet(server, s3, bucket, monkeypatch):
    """minio/minio#2638."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    monkeypatch.setattr(botocore.crt.auth, "get_current_datetime", lambda **_: moment, raising=True)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "object"}, ExpiresIn=60)
    is_error(send(server, "GET", target_of(url)), 403, "AccessDenied", "<Message>Request is not yet valid</Message>")


def test_the_time_of_a_presigned_url_has_one_form(server, s3, bucket):
    """JustinM1/S3SignerAWS#12."""
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "object"}, ExpiresIn=60)
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
    target = target_of(url).replace(query["X-Amz-Date"][0], "2026")
    is_error(send(server, "GET", target), 400, "AuthorizationQueryParametersError", "ISO8601 Long Format")


def test_an_empty_digest_is_invalid(server, s3, bucket):
    """scality/cloudserver#281; ceph/s3-tests, `test_object_create_bad_md5_empty`."""
    is_error(send_signed(server, "PUT", f"/{bucket}/object", {"Content-MD5": ""}, b"body"), 400, "InvalidDigest")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_the_source_of_a_copy_is_percent_encoded(server, s3, bucket):
    """paws-r/paws#819; versity/versitygw#1401."""
    for source in (f"{bucket}/%ZZ", f"{bucket}/a%", f"{bucket}/%%%%"):
        answer = send_signed(server, "PUT", f"/{bucket}/object", {"x-amz-copy-source": source})
        is_error(answer, 400, "InvalidArgument", "Invalid copy source encoding")


def test_markers_of_versions(server, s3, bucket):
    """versity/versitygw#1811 and #2178."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    wrong = send_signed(server, "GET", f"/{bucket}?key-marker=a&version-id-marker=x&versions=")
    is_error(wrong, 400, "InvalidArgument", "Invalid version id specified")
    answer = send_signed(server, "GET", f"/{bucket}?versions=")
    assert b"<VersionIdMarker></VersionIdMarker>" in answer.body or b"<VersionIdMarker/>" in answer.body, answer
    page = s3.list_object_versions(Bucket=bucket, KeyMarker="a", VersionIdMarker="null")
    assert [found["Key"] for found in page["Versions"]] == ["object"]


def test_a_listing_names_its_next_marker_with_a_delimiter_alone(server, s3, bucket):
    """`ListObjectsOutput.NextMarker` of the API reference; `Owner` of it: no DisplayName since November 2025."""
    for key in ("a/1", "b/1", "c"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    page = s3.list_objects(Bucket=bucket, MaxKeys=1)
    assert page["IsTruncated"] and "NextMarker" not in page
    assert "DisplayName" not in page["Contents"][0]["Owner"] and "DisplayName" not in s3.list_buckets()["Owner"]
    assert s3.list_objects(Bucket=bucket, MaxKeys=1, Delimiter="/")["NextMarker"] == "a/"


@pytest.mark.deployments(("directory", "WRITE_BACK"))
def test_parts_are_shown_with_checksums_of_their_own(server, s3, bucket):
    """localstack/localstack#12764 and #12842."""
    for kind, parts_shown in (("COMPOSITE", True), ("FULL_OBJECT", False)):
        # Also in lower case, as names of algorithms are: versity/versitygw, `CreateMultipartUpload_valid_algo_type`.
        key = {"Bucket": bucket, "Key": kind}
        upload = s3.create_multipart_upload(**key, ChecksumAlgorithm="CRC32", ChecksumType=kind.lower())["UploadId"]
        sent = [
            s3.upload_part(**key, UploadId=upload, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
            for number, body in ((1, b"x" * (5 << 20)), (2, b"end"))
        ]
        parts = [{"PartNumber": n, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]} for n, part in enumerate(sent, 1)]
        s3.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": parts}, ChecksumType=kind)
        found = s3.get_object_attributes(**key, ObjectAttributes=["ObjectParts", "Checksum"])
        assert (found["ObjectParts"]["TotalPartsCount"], "Parts" in found["ObjectParts"]) == (2, parts_shown), kind
        assert found["Checksum"]["ChecksumType"] == kind
        part = s3.head_object(**key, PartNumber=2, ChecksumMode="ENABLED")
        assert ("ChecksumCRC32" in part) == parts_shown, (kind, part)


def test_pages_of_uploads_and_parts_say_where_they_end(server, s3, bucket):
    """localstack/localstack, `test_list_multiparts_next_marker` and `test_list_parts_pagination`: also when nothing follows."""
    empty = s3.list_multipart_uploads(Bucket=bucket)
    assert (empty["NextKeyMarker"], empty["NextUploadIdMarker"], empty["UploadIdMarker"]) == ("", "", "")
    uploads = [s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in ("a", "b")]
    page = s3.list_multipart_uploads(Bucket=bucket)
    assert (page["IsTruncated"], page["NextKeyMarker"], page["NextUploadIdMarker"]) == (False, "b", uploads[1])
    page = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=1, UploadIdMarker=uploads[0])
    assert (page["IsTruncated"], page["NextKeyMarker"], page["UploadIdMarker"]) == (True, "a", "")
    call = {"Bucket": bucket, "Key": "a", "UploadId": uploads[0]}
    assert s3.list_parts(**call)["NextPartNumberMarker"] == 0
    s3.upload_part(PartNumber=3, Body=b"x", **call)
    assert s3.list_parts(**call)["NextPartNumberMarker"] == 3
    assert s3.list_parts(PartNumberMarker=10, **call)["NextPartNumberMarker"] == 0


def test_a_range_of_a_copy_that_begins_behind_the_source(server, s3, bucket):
    """localstack/localstack, `test_upload_part_copy_range`."""
    s3.put_object(Bucket=bucket, Key="source", Body=b"0123456789")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
    target = f"/{bucket}/upload?partNumber=1&uploadId={upload}"
    for text, code, message in (
        ("bytes=0-100", "InvalidArgument", "Range specified is not valid for source object of size: 10"),
        ("bytes=100-200", "InvalidRequest", "The specified copy range is invalid for the source object size"),
    ):
        headers = {"x-amz-copy-source": f"/{bucket}/source", "x-amz-copy-source-range": text}
        is_error(send_signed(server, "PUT", target, headers), 400, code, message)


def test_parts_without_checksums_of_their_own_are_counted(server, s3, bucket):
    """localstack/localstack, `test_get_object_attributes`."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    etag = s3.upload_part(Bucket=bucket, Key="object", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    s3.complete_multipart_upload(Bucket=bucket, Key="object", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    found = s3.get_object_attributes(Bucket=bucket, Key="object", ObjectAttributes=["ObjectParts"], MaxParts=1)
    assert found["ObjectParts"] == {"TotalPartsCount": 1}
