"""What others have recorded of Amazon S3, in requests to it or in issues of their clients. Each test names its sources."""

import datetime
import http.client
import urllib.parse

import botocore.crt.auth
import pytest

from harness.clients import Answer, boto, md5_base64, refused, send, send_signed, sign

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


GROUPED = ["folder/aSubfolder/subFile1", "folder/aSubfolder/subFile2", "folder/file1", "folder/file2"]


@pytest.mark.each_deployment
@pytest.mark.deployments(("directory", "WRITE_BACK"), ("directory", "WRITE_THROUGH"), ("s3", "WRITE_THROUGH"), ("s3", "NO_CACHE"))
def test_a_marker_in_a_common_prefix_is_behind_it(server, s3, bucket):
    """localstack, `test_list_objects_marker_common_prefixes` and `test_list_object_versions_pagination_common_prefixes`."""
    for key in GROUPED:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    asked = {"Bucket": bucket, "Prefix": "folder/", "Delimiter": "/", "MaxKeys": 1}
    first = s3.list_objects(**asked)
    assert ([found["Prefix"] for found in first["CommonPrefixes"]], first["NextMarker"]) == (["folder/aSubfolder/"], "folder/aSubfolder/")
    first = s3.list_object_versions(**asked)
    assert first["NextKeyMarker"] == "folder/aSubfolder/" and "NextVersionIdMarker" not in first
    for marker in ("folder/aSubfolder/", "folder/aSubfolder/subFile1", "folder/aSubfolder/z"):
        page = s3.list_objects(**asked, Marker=marker)
        assert ([found["Key"] for found in page["Contents"]], page["NextMarker"]) == (["folder/file1"], "folder/file1"), marker
        assert "CommonPrefixes" not in page and page["Marker"] == marker
        page = s3.list_object_versions(**asked, KeyMarker=marker)
        assert [found["Key"] for found in page["Versions"]] == ["folder/file1"] and "CommonPrefixes" not in page, marker
        assert (page["NextKeyMarker"], page["NextVersionIdMarker"]) == ("folder/file1", "null")
    # Without a delimiter there is nothing to skip.
    page = s3.list_objects(Bucket=bucket, MaxKeys=1, Marker="folder/aSubfolder/subFile1")
    assert [found["Key"] for found in page["Contents"]] == ["folder/aSubfolder/subFile2"]


@pytest.mark.deployments(("directory", "WRITE_BACK"))
def test_a_part_is_shown_with_the_kind_of_its_object(server, s3, bucket):
    """localstack, `test_get_object_part_checksum` and `test_complete_multipart_parts_checksum_composite`."""
    for kind in ("COMPOSITE", "FULL_OBJECT"):
        key = {"Bucket": bucket, "Key": kind}
        upload = s3.create_multipart_upload(**key, ChecksumAlgorithm="CRC32C", ChecksumType=kind)["UploadId"]
        part = s3.upload_part(**key, UploadId=upload, PartNumber=1, Body=b"test content 123", ChecksumAlgorithm="CRC32C")
        listed = {"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32C": part["ChecksumCRC32C"]}
        s3.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": [listed]})
        for read in (s3.head_object, s3.get_object):
            found = read(**key, PartNumber=1, ChecksumMode="ENABLED")
            assert (found["ChecksumCRC32C"], found["ChecksumType"], found["PartsCount"]) == ("fwuu0Q==", kind, 1)


def test_a_part_shows_no_checksum_that_nobody_has_asked_for(server, s3, bucket):
    """localstack, `test_upload_part_copy_range`, `test_multipart_complete_multipart_too_small` and `test_complete_multipart_parts_checksum_default`."""
    plain = boto(server, request_checksum_calculation="when_required")
    s3.put_object(Bucket=bucket, Key="source", Body=b"0123456789")
    key = {"Bucket": bucket, "Key": "object"}
    upload = s3.create_multipart_upload(**key)["UploadId"]

    def shown(answer):
        return sorted(name for name in answer if name.startswith("Checksum"))

    copied = s3.upload_part_copy(**key, UploadId=upload, PartNumber=1, CopySource=f"{bucket}/source", CopySourceRange="bytes=0-8")
    assert shown(copied["CopyPartResult"]) == []
    assert shown(plain.upload_part(**key, UploadId=upload, PartNumber=2, Body=b"x")) == []
    sent = s3.upload_part(**key, UploadId=upload, PartNumber=3, Body=b"test", ChecksumAlgorithm="CRC32")
    assert shown(sent) == ["ChecksumCRC32"]
    assert [shown(part) for part in s3.list_parts(**key, UploadId=upload)["Parts"]] == [[], [], []]
    s3.abort_multipart_upload(**key, UploadId=upload)
    named = s3.create_multipart_upload(**key, ChecksumAlgorithm="CRC64NVME", ChecksumType="FULL_OBJECT")["UploadId"]
    copied = s3.upload_part_copy(**key, UploadId=named, PartNumber=1, CopySource=f"{bucket}/source")
    assert shown(copied["CopyPartResult"]) == ["ChecksumCRC64NVME"]
    assert shown(plain.upload_part(**key, UploadId=named, PartNumber=2, Body=b"x")) == ["ChecksumCRC64NVME"]


def test_a_copy_has_no_body(server, s3, bucket):
    """versity/versitygw, `ErrNonEmptyRequestBody`; openstack/swift, `check_copy_source`."""
    s3.put_object(Bucket=bucket, Key="source", Body=b"x")
    answer = send_signed(server, "PUT", f"/{bucket}/object", {"x-amz-copy-source": f"{bucket}/source"}, b"body")
    is_error(answer, 400, "InvalidRequest", "The request included a body. Requests of this type must not include a non-empty body.")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "POST"])
def test_only_a_copy_has_a_source(server, s3, bucket, method):
    """versity/versitygw, s3err."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    target = f"/{bucket}/kept" + ("?uploads=" if method == "POST" else "")
    answer = send_signed(server, method, target, {"x-amz-copy-source": f"{bucket}/kept"})
    assert answer.status == 400, answer
    if method != "HEAD":
        named = "<ArgumentName>x-amz-copy-source</ArgumentName>"
        is_error(answer, 400, "InvalidArgument", "You can only specify a copy source header for copy requests.", named)
    s3.head_object(Bucket=bucket, Key="kept")


@pytest.mark.parametrize("beside", [{}, {"x-amz-decoded-content-length": "4"}])
def test_chunks_of_http_are_not_implemented(server, s3, bucket, beside):
    """Automattic/knox#43, irods/irods_resource_plugin_s3#2301."""
    target = f"/{bucket}/object"
    headers = sign(server, "PUT", target, beside, b"body") | {"Transfer-Encoding": "chunked"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("PUT", target, iter([b"bo", b"dy"]), headers, encode_chunked=True)
    answer = Answer(connection.getresponse())
    connection.close()
    told = "A header you provided implies functionality that is not implemented"
    is_error(answer, 501, "NotImplemented", told, "<Header>Transfer-Encoding</Header>")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_completion_without_a_list_is_told_so(server, s3, bucket):
    """localstack, `test_multipart_complete_multipart_too_small`."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    error = refused("InvalidRequest", s3.complete_multipart_upload, Bucket=bucket, Key="object", UploadId=upload)
    assert error["Error"]["Message"] == "You must specify at least one part"


def test_pages_of_buckets(server, s3, bucket):
    """localstack, `test_list_buckets_region_validation` and `test_list_buckets_when_continuation_token_is_empty`."""
    answer = send_signed(server, "GET", "/?bucket-region=eu-east-1")
    is_error(answer, 400, "InvalidArgument", "Argument value eu-east-1 is not a valid AWS Region", "<ArgumentName>bucket-region</ArgumentName>")
    assert b"ArgumentValue" not in answer.body
    for region in ("us-east-1", "eu-west-1", "ap-southeast-7"):
        assert send_signed(server, "GET", f"/?bucket-region={region}").status == 200
    answer = send_signed(server, "GET", "/?continuation-token=&max-buckets=1")
    assert answer.status == 200 and answer.body.count(b"<Bucket>") == 1, answer


def test_a_bucket_has_an_arn(server, s3, bucket):
    """localstack, `test_create_bucket_head_bucket` and `test_list_buckets_with_max_buckets`."""
    made = s3.create_bucket(Bucket=f"{bucket}-arn")["ResponseMetadata"]["HTTPHeaders"]
    assert made["x-amz-bucket-arn"] == f"arn:aws:s3:::{bucket}-arn"
    found = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    shown = {name: found.get(name) for name in ("x-amz-bucket-arn", "x-amz-access-point-alias", "x-amz-bucket-region")}
    assert list(shown.values()) == [f"arn:aws:s3:::{bucket}", "false", "us-east-1"], shown
    listed = {listed["Name"]: listed["BucketArn"] for listed in s3.list_buckets()["Buckets"]}
    assert listed[bucket] == f"arn:aws:s3:::{bucket}" and listed[f"{bucket}-arn"] == f"arn:aws:s3:::{bucket}-arn"


def test_a_key_that_is_listed_twice_is_deleted_once(server, s3, bucket):
    """The answer has one result for each key, however often the list names it."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    listed = b"<Delete><Object><Key>object</Key></Object><Object><Key>other</Key></Object><Object><Key>object</Key></Object></Delete>"
    answer = send_signed(server, "POST", f"/{bucket}?delete=", {"Content-MD5": md5_base64(listed)}, listed)
    assert answer.status == 200 and (answer.body.count(b"<Deleted>"), answer.body.count(b"<Key>object<")) == (2, 1), answer


def test_a_response_header_is_in_latin_1(server, s3, bucket):
    """localstack, `test_get_response_overrides_unicode_metadata_with_sig_s3`."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    wrong = "non-ascii-%E2%80%94_\u2014_\u00e9_"
    answer = send_signed(server, "GET", f"/{bucket}/object?response-cache-control={urllib.parse.quote(wrong)}")
    told = "Header value cannot be represented using ISO-8859-1."
    named = ("<ArgumentName>response-cache-control</ArgumentName>", f"<ArgumentValue>{wrong}</ArgumentValue>")
    is_error(answer, 400, "InvalidArgument", told, *named)
    answer = send_signed(server, "GET", f"/{bucket}/object?response-cache-control=caf%C3%A9")
    # Python reads headers in Latin-1, too.
    assert (answer.status, answer.headers["cache-control"]) == (200, "caf\u00e9"), answer


def test_who_may_not_know_a_bucket_is_told_its_region(server, bucket):
    """`x-amz-bucket-region` in "Response Elements" of HeadBucket, Amazon S3 API Reference."""
    answer = send(server, "HEAD", f"/{bucket}")
    assert (answer.status, answer.headers.get("x-amz-bucket-region")) == (403, "us-east-1"), answer


def test_a_new_bucket_and_a_list_of_all_expect_no_owner(server, s3, bucket):
    """CreateBucket and ListBuckets of the API Reference have no ExpectedBucketOwner."""
    other = {"x-amz-expected-bucket-owner": "999999999999"}
    assert send_signed(server, "PUT", f"/{bucket}-owner", other).status == 200
    assert send_signed(server, "GET", "/", other).status == 200
    assert send_signed(server, "HEAD", f"/{bucket}", other).status == 403


def test_uploads_of_one_key_are_listed_in_the_order_in_which_they_began(server, s3, bucket):
    """ "Sorting of multipart uploads in response", ListMultipartUploads, Amazon S3 API Reference."""
    begun = [s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"] for _ in range(8)]
    assert [upload["UploadId"] for upload in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == begun
    page = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="key", UploadIdMarker=begun[2], MaxUploads=2)
    assert [upload["UploadId"] for upload in page["Uploads"]] == begun[3:5]


@pytest.mark.parametrize(("algorithm", "numbers", "is_refused"), [
    ("SHA256", (1, 3), True), ("CRC32", (2,), True), ("CRC32C", (1, 2), False), (None, (2, 4), False),
])  # fmt: skip
def test_parts_with_checksums_are_numbered_without_gaps(server, s3, bucket, algorithm, numbers, is_refused):
    """`PartNumber` of CompletedPart, Amazon S3 API Reference."""
    upload = {"Bucket": bucket, "Key": "key"}
    upload["UploadId"] = s3.create_multipart_upload(**upload, **({"ChecksumAlgorithm": algorithm} if algorithm else {}))["UploadId"]
    parts = []
    for number in numbers:
        checksum = {"ChecksumAlgorithm": algorithm} if algorithm else {}
        answer = s3.upload_part(**upload, PartNumber=number, Body=b"x" * (5 << 20 if number != numbers[-1] else 1), **checksum)
        given = {name: answer[name] for name in [f"Checksum{algorithm}"] if name in answer}
        parts.append({"PartNumber": number, "ETag": answer["ETag"]} | given)
    if is_refused:
        refused("InvalidPartOrder", s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
    else:
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def test_listings_tell_their_region_and_no_empty_delimiter(server, s3, bucket):
    """versity/versitygw#1814; versity/versitygw#812 and apache/ozone#10586."""
    for answer in (s3.list_objects(Bucket=bucket, Delimiter=""), s3.list_objects_v2(Bucket=bucket, Delimiter="")):
        assert answer["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"] == s3.meta.region_name
        assert "Delimiter" not in answer
