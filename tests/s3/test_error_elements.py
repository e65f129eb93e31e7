"""The elements that errors have beside their code and message, which tell a client in which part of its request the error is.

Most are from requests to Amazon S3 that localstack/localstack has recorded (tests/aws/services/s3, *.snapshot.json); each test names its own.
"""

import base64
import datetime
import hashlib
import re

import boto3
import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from harness import signing
from harness.clients import md5_base64, refused, send, send_signed, sign
from harness.servers import REGION
from test_errors import elements

pytestmark = pytest.mark.beyond_reference("its documents have other elements")

KEPT = b"kept as it is"


@pytest.fixture
def kept(s3, bucket):
    s3.put_object(Bucket=bucket, Key="kept", Body=KEPT)
    return f"/{bucket}/kept"


def has(answer, code, **expected):
    found = elements(answer)
    assert found["Code"] == code, answer
    for name, value in expected.items():
        assert found.get(name.replace("_", "-")) == value, (name, answer.body)
    return found


def bytes_of(text):
    return " ".join(f"{byte:02x}" for byte in text.encode())


@pytest.mark.parametrize("way", ["header", "query"])
def test_a_wrong_signature_shows_what_was_signed(server, kept, way):
    """localstack, `test_presigned_url_signature_authentication`. What the server has read is what botocore has signed, so only the key differs."""
    target = kept + "?response-content-type=text%2Fplain&x-id=a%20b"
    request = AWSRequest("PUT", f"http://127.0.0.1:{server.port}{target}", {"x-amz-meta-a": "  two   words "}, b"x" if way == "header" else b"")
    request.context["client_config"] = Config(s3={"payload_signing_enabled": True})
    kind = S3SigV4Auth if way == "header" else S3SigV4QueryAuth
    signer = kind(Credentials(server.access_key, "not the key"), "s3", REGION)
    seen = {}
    for name in ("canonical_request", "string_to_sign"):
        make = getattr(signer, name)
        setattr(signer, name, lambda *arguments, name=name, make=make: seen.setdefault(name, make(*arguments)))
    signer.add_auth(request)
    url = request.prepare().url
    answer = send(server, "PUT", url.removeprefix(server.endpoint), dict(request.headers.items()), b"x")
    assert answer.status == 403
    found = has(answer, "SignatureDoesNotMatch", AWSAccessKeyId=server.access_key, StringToSign=seen["string_to_sign"])
    assert found["CanonicalRequest"] == seen["canonical_request"]
    assert found["CanonicalRequestBytes"] == bytes_of(seen["canonical_request"])
    assert found["StringToSignBytes"] == bytes_of(seen["string_to_sign"])
    provided = re.search(r"Signature=([0-9a-f]{64})", str(request.headers.get("Authorization")) + url)[1]
    assert found["SignatureProvided"] == provided
    # Nothing in it is made with the right key.
    right = sign(server, "PUT", target, {"x-amz-meta-a": "  two   words "}, b"x")["Authorization"].partition("Signature=")[2]
    assert right.encode() not in answer.body and server.secret_key.encode() not in answer.body


def test_a_wrong_signature_of_version_2_shows_what_was_signed(server, kept):
    request = signing.Request("GET", kept, {}, b"")
    signed = signing.in_query_version_2(server, request, server.access_key, "not the key")
    expires = re.search(r"Expires=(\d+)", signed.target)[1]
    text = f"GET\n\n\n{expires}\n{kept}"
    answer = send(server, "GET", signed.target, signed.headers)
    found = has(answer, "SignatureDoesNotMatch", AWSAccessKeyId=server.access_key, StringToSign=text, StringToSignBytes=bytes_of(text))
    assert found["SignatureProvided"] and "CanonicalRequest" not in found


def test_headers_that_are_too_long_are_not_repeated(server, kept):
    headers = sign(server, "PUT", kept, {"x-amz-meta-a": "v" * 20_000}, b"x")
    headers["Authorization"] = headers["Authorization"].replace("Signature=", "Signature=0")[:-1]
    found = has(send(server, "PUT", kept, headers, b"x"), "SignatureDoesNotMatch", AWSAccessKeyId=server.access_key)
    assert "SignatureProvided" in found and "CanonicalRequest" not in found and "StringToSign" not in found


@pytest.mark.parametrize("way", signing.WAYS)
def test_an_unknown_key_is_repeated(server, kept, way):
    """furaiev/amazon-cognito-identity-dart-2#1, aws/aws-sdk-js#3878."""
    signed = signing.WAYS[way](server, signing.Request("GET", kept, {}, b""), "AKNOBODY", "no")
    has(send(server, "GET", signed.target, signed.headers), "InvalidAccessKeyId", AWSAccessKeyId="AKNOBODY")


def instant(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)


def test_a_url_that_is_over_tells_when(server, kept, monkeypatch):
    """localstack, `test_s3_presigned_url_expired`."""
    monkeypatch.setattr(signing, "SECONDS", "0")
    request = signing.Request("GET", kept, {}, b"")
    signed = signing.in_query(server, request, server.access_key, server.secret_key)
    found = has(send(server, "GET", signed.target), "AccessDenied", Message="Request has expired", X_Amz_Expires="0")
    begun = re.search(r"X-Amz-Date=(\w+)", signed.target)[1]
    assert found["Expires"].replace("-", "").replace(":", "") == begun
    assert abs(datetime.datetime.now(datetime.UTC) - instant(found["ServerTime"])) < datetime.timedelta(seconds=60)
    monkeypatch.setattr(signing, "SECONDS", -1000)
    signed = signing.in_query_version_2(server, request, server.access_key, server.secret_key)
    found = has(send(server, "GET", signed.target), "AccessDenied", Message="Request has expired")
    assert instant(found["Expires"]).timestamp() == int(re.search(r"Expires=(\d+)", signed.target)[1])
    assert instant(found["ServerTime"]) > instant(found["Expires"]) and "X-Amz-Expires" not in found


def test_a_clock_that_is_off_is_told_the_time(server, kept, monkeypatch):
    """ "Error responses" of the Amazon S3 API Reference; aws/aws-sdk-js#527."""
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: moment)
    answer = send_signed(server, "GET", kept)
    found = has(answer, "RequestTimeTooSkewed", RequestTime="20200101T000000Z", MaxAllowedSkewMilliseconds="900000")
    assert abs(datetime.datetime.now(datetime.UTC) - instant(found["ServerTime"])) < datetime.timedelta(seconds=60)


def test_a_range_or_a_part_that_is_not_there(server, s3, bucket, kept):
    """localstack, `test_invalid_range_error` and `test_get_object_part`."""
    # With a header that goes the short way, and with one that does not.
    for more in ({}, {"If-Match": "*"}):
        for text in ("bytes=13-", "bytes=100-200", "bytes=-0"):
            answer = send_signed(server, "GET", kept, {"Range": text} | more)
            has(answer, "InvalidRange", RangeRequested=text, ActualObjectSize="13")
    has(send_signed(server, "GET", f"{kept}?partNumber=7"), "InvalidPartNumber", PartNumberRequested="7", ActualPartCount="1")


def test_a_body_with_another_digest(server, s3, bucket, kept):
    """localstack, `test_s3_invalid_content_md5`: PutObject tells the given one in hex, UploadPart in base64."""
    other = hashlib.md5(b"other")
    hexadecimal, given, calculated = other.hexdigest(), base64.b64encode(other.digest()).decode(), md5_base64(b"body")
    answer = send_signed(server, "PUT", kept, {"Content-MD5": given}, b"body")
    has(answer, "BadDigest", ExpectedDigest=hexadecimal, CalculatedDigest=calculated)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
    part = f"/{bucket}/upload?partNumber=1&uploadId={upload}"
    has(send_signed(server, "PUT", part, {"Content-MD5": given}, b"body"), "BadDigest", ExpectedDigest=given, CalculatedDigest=calculated)
    document = b"<Delete><Object><Key>kept</Key></Object></Delete>"
    answer = send_signed(server, "POST", f"/{bucket}?delete=", {"Content-MD5": given}, document)
    has(answer, "BadDigest", ExpectedDigest=given, CalculatedDigest=md5_base64(document))
    for wrong in ("__invalid__", "000", "not base64", "MTIz"):
        has(send_signed(server, "PUT", kept, {"Content-MD5": wrong}, b"x"), "InvalidDigest", Content_MD5=wrong)
    headers = sign(server, "PUT", kept, body=b"body")
    answer = send(server, "PUT", kept, headers, b"ydob")
    has(answer, "XAmzContentSHA256Mismatch", ClientComputedContentSHA256=hashlib.sha256(b"body").hexdigest())


def complete(server, target, *parts):
    listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in parts)
    return send_signed(server, "POST", target, body=f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode())


def test_an_upload_and_its_parts(server, s3, bucket):
    """localstack, `test_multipart_no_such_upload`, `test_multipart_complete_multipart_wrong_part`, `test_multipart_complete_multipart_too_small` and
    `test_complete_multipart_parts_order`."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
    call = {"Bucket": bucket, "Key": "upload", "UploadId": upload}
    etags = [s3.upload_part(PartNumber=number, Body=b"four", **call)["ETag"] for number in (1, 2)]
    target, plain = f"/{bucket}/upload?uploadId={upload}", etags[0].strip('"')
    has(complete(server, target, (1, etags[0]), (7, etags[1])), "InvalidPart", UploadId=upload, PartNumber="7", ETag=plain)
    has(complete(server, target, (1, "0" * 32)), "InvalidPart", UploadId=upload, PartNumber="1", ETag="0" * 32)
    has(complete(server, target, (2, etags[1]), (1, etags[0])), "InvalidPartOrder", UploadId=upload)
    small = complete(server, target, (1, etags[0]), (2, etags[1]))
    has(small, "EntityTooSmall", ProposedSize="4", MinSizeAllowed="5242880", PartNumber="1", ETag=plain)
    has(complete(server, target, (0, etags[0])), "InvalidArgument", Message="PartNumber must be >= 1", ArgumentName="PartNumber", ArgumentValue="0")
    for method, query in (("GET", ""), ("DELETE", ""), ("PUT", "&partNumber=1")):
        answer = send_signed(server, method, f"/{bucket}/upload?uploadId=fakeid{query}", body=b"x" if method == "PUT" else b"")
        has(answer, "NoSuchUpload", UploadId="fakeid")


def test_what_a_copy_does_not_find(server, s3, bucket, kept):
    """localstack, `test_s3_copy_object_src_not_exists`."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
    for target in (f"/{bucket}/copy", f"/{bucket}/upload?partNumber=1&uploadId={upload}"):
        has(send_signed(server, "PUT", target, {"x-amz-copy-source": f"/{bucket}/absent"}), "NoSuchKey", Key="absent")
        source = {"x-amz-copy-source": "/no-such-bucket-here/key"}
        has(send_signed(server, "PUT", target, source), "NoSuchBucket", BucketName="no-such-bucket-here")
    has(send_signed(server, "PUT", "/no-such-bucket-here/copy", {"x-amz-copy-source": kept}), "NoSuchBucket", BucketName="no-such-bucket-here")
    answer = send_signed(server, "PUT", f"/{bucket}/copy", {"x-amz-copy-source": kept, "x-amz-metadata-directive": "copy"})
    has(answer, "InvalidArgument", Message="Unknown metadata directive.", ArgumentName="x-amz-metadata-directive", ArgumentValue="copy")


def test_what_is_too_long_or_too_large(server, bucket):
    """versity/versitygw, its package s3err; the sizes are those of "Error responses" in the Amazon S3 API Reference."""
    for method in ("GET", "PUT", "DELETE"):
        has(send_signed(server, method, f"/{bucket}/" + "%C3%BC" * 513), "KeyTooLongError", Size="1026", MaxSizeAllowed="1024")
    answer = send_signed(server, "PUT", f"/{bucket}/key", {"x-amz-meta-a": "v" * 2048}, b"x")
    has(answer, "MetadataTooLarge", Size="2049", MaxSizeAllowed="2048")
    headers = sign(server, "PUT", f"/{bucket}/key", sign_payload=False) | {"Content-Length": str((5 << 30) + 1)}
    has(send(server, "PUT", f"/{bucket}/key", headers), "EntityTooLarge", ProposedSize=str((5 << 30) + 1), MaxSizeAllowed=str(5 << 30))


def test_a_method_that_is_not_allowed(server, bucket, kept):
    """ "Error responses" of the Amazon S3 API Reference; localstack has the same elements for delete markers."""
    for method in ("PUT", "POST", "DELETE"):
        has(send_signed(server, method, "/"), "MethodNotAllowed", Method=method, ResourceType="SERVICE")
    has(send_signed(server, "POST", kept), "MethodNotAllowed", Method="POST", ResourceType="OBJECT")


def test_what_a_bucket_is_called(server, s3, bucket, kept):
    """localstack, `test_delete_bucket_with_objects`, `test_s3_uppercase_bucket_name` and `test_different_location_constraint`."""
    has(send_signed(server, "DELETE", f"/{bucket}"), "BucketNotEmpty", BucketName=bucket)
    for name in ("UPPER", "a..b", "xn--a"):
        has(send_signed(server, "PUT", f"/{name}"), "InvalidBucketName", BucketName=name)
    document = b"<CreateBucketConfiguration><LocationConstraint>nowhere</LocationConstraint></CreateBucketConfiguration>"
    has(send_signed(server, "PUT", "/another-bucket", body=document), "InvalidLocationConstraint", LocationConstraint="nowhere")


def test_values_that_are_refused_are_repeated(server, s3, bucket, kept):
    """localstack, `test_tagging_validation`, `test_put_object_storage_class_outposts`, `test_get_bucket_policy_invalid_account_id` and
    `test_list_objects_v2_continuation_start_after`."""
    has(send_signed(server, "PUT", kept, {"x-amz-storage-class": "OUTPOSTS"}, b"x"), "InvalidStorageClass", StorageClassRequested="OUTPOSTS")
    for tags, told in (
        ("Key1%2CKey2=1", {"Message": "The TagKey you have provided is invalid", "TagKey": "Key1,Key2"}),
        ("Key1=a%2Cb", {"Message": "The TagValue you have provided is invalid", "TagKey": "Key1", "TagValue": "a,b"}),
        ("aws:a=1", {"Message": "Your TagKey cannot be prefixed with aws:", "TagKey": "aws:a"}),
    ):
        has(send_signed(server, "PUT", kept, {"x-amz-tagging": tags}, b"x"), "InvalidTag", **told)
    tag = "<Tag><Key>Key1</Key><Value>1</Value></Tag>"
    document = f"<Tagging><TagSet>{tag}{tag}</TagSet></Tagging>".encode()
    answer = send_signed(server, "PUT", f"{kept}?tagging", body=document)
    has(answer, "InvalidTag", Message="Cannot provide multiple Tags with the same key", TagKey="Key1")
    told = "The value of the expected bucket owner parameter must be an AWS Account ID... [abcd]"
    has(send_signed(server, "GET", kept, {"x-amz-expected-bucket-owner": "abcd"}), "InvalidBucketOwnerAWSAccountID", Message=told)
    found = has(send_signed(server, "GET", f"/{bucket}?list-type=2&continuation-token=x"), "InvalidArgument", ArgumentName="continuation-token")
    assert "ArgumentValue" not in found
    answer = send_signed(server, "GET", f"{kept}?attributes", {"x-amz-object-attributes": "ETag,Owner"})
    has(answer, "InvalidArgument", ArgumentName="x-amz-object-attributes", ArgumentValue="Owner")
    # Amazon S3 repeats the value of this one too; here a password does not come back.
    answer = send(server, "GET", kept, {"Authorization": "Basic cm9vdDpyb290"})
    has(answer, "InvalidArgument", Message="Unsupported Authorization Type", ArgumentName="Authorization")
    assert b"cm9vdDpyb290" not in answer.body


def test_conditions_that_s3_does_not_have(server, s3, bucket, kept):
    """localstack, `test_put_object_if_match_validation`, `test_put_object_if_none_match_validation`,
    `test_copy_object_precondition_write_validation` and `test_delete_object_if_match_all_non_express`."""
    not_accepted = "We don't accept the provided value of {} header for this API"
    both = "Multiple conditional request headers present in the request"
    for copy in ({}, {"x-amz-copy-source": kept}):
        for headers, header, why in (
            ({"If-None-Match": '"0"'}, "If-None-Match", not_accepted.format("If-None-Match")),
            ({"If-Match": "*"}, "If-Match", not_accepted.format("If-Match")),
            ({"If-Match": '"0"', "If-None-Match": "*"}, "If-Match,If-None-Match", both),
        ):
            answer = send_signed(server, "PUT", f"/{bucket}/object", headers | copy, b"" if copy else b"x")
            assert answer.status == 501
            has(answer, "NotImplemented", Header=header, additionalMessage=why)
    for headers, header in (
        ({"x-amz-if-match-size": "10"}, "x-amz-if-match-size"),
        ({"x-amz-if-match-size": "10", "x-amz-if-match-last-modified-time": "Wed, 01 Jan 2020 00:00:00 GMT"}, "x-amz-if-match-last-modified-time"),
    ):
        has(send_signed(server, "DELETE", kept, headers), "NotImplemented", Header=header)
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == KEPT


def test_a_change_of_a_list_says_what_it_wants_in_one_place(server, s3, bucket, kept):
    """localstack, `test_s3_bucket_acl_exceptions`."""
    owner = s3.get_bucket_acl(Bucket=bucket)["Owner"]["ID"]
    grant = (
        '<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
        f"<ID>{owner}</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant>"
    )
    document = f"<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList>{grant}</AccessControlList></AccessControlPolicy>".encode()
    for target in (f"/{bucket}?acl", f"{kept}?acl"):
        has(send_signed(server, "PUT", target), "MissingSecurityHeader", MissingHeaderName="x-amz-acl")
        two = {"x-amz-acl": "private", "x-amz-grant-read": "id=x"}
        has(send_signed(server, "PUT", target, two), "InvalidRequest", Message="Specifying both Canned ACLs and Header Grants is not allowed")
        canned = {"x-amz-acl": "bucket-owner-full-control"}
        assert send_signed(server, "PUT", target, body=document).status == 200
        has(send_signed(server, "PUT", target, canned, document), "UnexpectedContent", Message="This request does not support content")
        has(send_signed(server, "PUT", target, body=b"<x/>"), "MalformedACLError")


def test_tags_that_are_none_are_told_why(server, s3, bucket, kept):
    """localstack, `test_object_tagging_exc` and `test_tagging_validation`."""
    told = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates."
    for tags in ("key1=val1,key2=val2", "a=b=c"):
        answer = send_signed(server, "PUT", kept, {"x-amz-tagging": tags}, b"x")
        has(answer, "InvalidArgument", Message=told, ArgumentName="x-amz-tagging", ArgumentValue=tags)
    s3.put_object_tagging(Bucket=bucket, Key="kept", Tagging={"TagSet": [{"Key": "a", "Value": "b=c"}]})
    for tag in ("<Key>a</Key>", "<Value>1</Value>", ""):
        document = f"<Tagging><TagSet><Tag>{tag}</Tag></TagSet></Tagging>".encode()
        has(send_signed(server, "PUT", f"{kept}?tagging", body=document), "MalformedXML")
    assert s3.get_object_tagging(Bucket=bucket, Key="kept")["TagSet"] == [{"Key": "a", "Value": "b=c"}]
    # The bucket is named by the first of them alone.
    for method, key in (("GET", f"{bucket}/fake-key"), ("DELETE", "fake-key"), ("PUT", "fake-key")):
        document = b"<Tagging><TagSet/></Tagging>" if method == "PUT" else b""
        has(send_signed(server, method, f"/{bucket}/fake-key?tagging", body=document), "NoSuchKey", Key=key)


def test_tags_of_a_new_bucket(server, s3, bucket):
    """localstack, `test_create_bucket_with_tags_exc` and `test_create_bucket_with_tags_us_east_1_idempotency`. A key that is given twice gets
    an InternalError there."""

    def make(tags, name=f"{bucket}-new"):
        document = f"<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>".encode()
        return send_signed(server, "PUT", f"/{name}", body=document)

    def tag(key, value):
        return f"<Tag><Key>{key}</Key><Value>{value}</Value></Tag>"

    for partial in ("<Tag><Key>a</Key></Tag>", "<Tag><Value>1</Value></Tag>"):
        has(make(partial), "MalformedXML")
    has(make(tag("test", "value1,value2")), "InvalidTag", Message="The TagValue you have provided is invalid", TagKey="test", TagValue="value1,value2")
    has(make(tag("test,test2", "1")), "InvalidTag", Message="The TagKey you have provided is invalid", TagKey="test,test2")
    reserved = "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system tags."
    found = has(make(tag("aws:a", "1")), "InvalidTag")
    assert found["Message"].startswith(reserved) and "TagKey" not in found
    has(make(tag("a", "1") * 2), "InvalidTag", Message="Cannot provide multiple Tags with the same key")
    answer = make(tag("a", "1"))
    assert answer.status == 501
    has(answer, "NotImplemented")
    answer = make(tag("a", "1"), bucket)
    assert answer.status == 409
    has(answer, "BucketAlreadyOwnedByYou", BucketName=bucket)
    assert make("", bucket).status == 200
    refused("404", s3.head_bucket, Bucket=f"{bucket}-new")


def test_who_may_own_what_is_in_a_bucket(server, s3, bucket):
    """localstack, `test_bucket_ownership_controls_exc`."""
    rule = "<Rule><ObjectOwnership>{}</ObjectOwnership></Rule>"
    for rules in (rule.format("RandomValue"), rule.format("BucketOwnerEnforced") * 2, ""):
        document = f"<OwnershipControls>{rules}</OwnershipControls>".encode()
        has(send_signed(server, "PUT", f"/{bucket}?ownershipControls", body=document), "MalformedXML")
    for value in ("RandomValue", ""):
        found = has(send_signed(server, "PUT", f"/{bucket}-new", {"x-amz-object-ownership": value}), "InvalidArgument")
        assert found["Message"] == f"Invalid x-amz-object-ownership header: {value}", found
        assert (found["ArgumentName"], "ArgumentValue" in found) == ("x-amz-object-ownership", False)
    refused("404", s3.head_bucket, Bucket=f"{bucket}-new")


def test_an_empty_source_names_no_bucket(server, s3, bucket):
    """versity/versitygw, s3err."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    answer = send_signed(server, "PUT", f"/{bucket}/object?partNumber=1&uploadId={upload}", {"x-amz-copy-source": ""})
    has(answer, "InvalidArgument", Message="Invalid copy source bucket name", ArgumentName="x-amz-copy-source")


def test_a_preflight_is_told_what_it_asks(server, bucket):
    """localstack, `test_cors_http_options_no_config`."""
    told = {"Message": "CORSResponse: CORS is not enabled for this bucket.", "ResourceType": "BUCKET"}
    for asked, method in (({"Access-Control-Request-Method": "PUT"}, "PUT"), ({}, "OPTIONS")):
        answer = send(server, "OPTIONS", f"/{bucket}", {"Origin": "http://localhost"} | asked)
        assert answer.status == 403
        has(answer, "AccessForbidden", Method=method, **told)


def test_a_list_of_keys_with_another_checksum(server, s3, bucket, kept):
    listed = b"<Delete><Object><Key>kept</Key></Object></Delete>"
    answer = send_signed(server, "POST", f"/{bucket}?delete", {"x-amz-checksum-crc32": "AAAAAA=="}, listed)
    has(answer, "BadDigest", Message="The CRC32 you specified did not match the calculated checksum.")
    s3.head_object(Bucket=bucket, Key="kept")


@pytest.mark.deployments(("s3", "WRITE_THROUGH"))
def test_what_the_store_behind_does_not_have_is_told_in_words_of_s3(server, s3, bucket, kept):
    """localstack, `test_get_cors`, and others that ask for what is not there. What the store behind says itself stays inside."""
    for query, code, message in (
        ("policy", "NoSuchBucketPolicy", "The bucket policy does not exist"),
        ("cors", "NoSuchCORSConfiguration", "The CORS configuration does not exist"),
        ("object-lock", "ObjectLockConfigurationNotFoundError", "Object Lock configuration does not exist for this bucket"),
    ):
        answer = send_signed(server, "GET", f"/{bucket}?{query}=")
        assert answer.status == 404, answer
        has(answer, code, Message=message, BucketName=bucket)


def test_boto3_shows_the_elements(server, s3, bucket, kept):
    wrong = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=REGION, aws_access_key_id=server.access_key, aws_secret_access_key="no"
    )
    with pytest.raises(wrong.exceptions.ClientError) as caught:
        wrong.get_object(Bucket=bucket, Key="kept")
    error = caught.value.response["Error"]
    assert error["AWSAccessKeyId"] == server.access_key and error["CanonicalRequest"].startswith(f"GET\n{kept}\n")
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.get_object(Bucket=bucket, Key="kept", Range="bytes=100-")
    assert caught.value.response["Error"]["ActualObjectSize"] == "13"
