"""Buckets."""

import boto3
import pytest

from harness.clients import refused, send_signed
from harness.servers import ACCOUNT, Forebay


def test_a_bucket_is_made_found_and_deleted(s3):
    s3.create_bucket(Bucket="made-and-deleted")
    assert "made-and-deleted" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket="made-and-deleted")
    assert s3.get_bucket_location(Bucket="made-and-deleted")["LocationConstraint"] is None
    s3.delete_bucket(Bucket="made-and-deleted")
    refused("404", s3.head_bucket, Bucket="made-and-deleted")
    assert "made-and-deleted" not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]


def test_a_bucket_with_objects_is_not_deleted(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    refused("BucketNotEmpty", s3.delete_bucket, Bucket=bucket)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"x"
    s3.delete_object(Bucket=bucket, Key="object")
    s3.delete_bucket(Bucket=bucket)


def test_a_deleted_bucket_made_again_is_empty(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="object")
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_nothing_is_found_in_a_missing_bucket(s3):
    missing = {"Bucket": "no-such-bucket-here"}
    refused("NoSuchBucket", s3.get_object, Key="x", **missing)
    refused("NoSuchBucket", s3.put_object, Key="x", Body=b"x", **missing)
    refused("NoSuchBucket", s3.delete_object, Key="x", **missing)
    refused("NoSuchBucket", s3.create_multipart_upload, Key="x", **missing)
    refused("NoSuchBucket", s3.list_objects, **missing)
    refused("NoSuchBucket", s3.delete_bucket, **missing)
    refused("NoSuchBucket", s3.get_bucket_location, **missing)


@pytest.mark.beyond_reference("it takes two dots in a row")
@pytest.mark.parametrize("name", ["UPPER", "ab", "under_score", "dots..dots", "-dash", "192.168.1.1"])
def test_names_that_no_bucket_can_have_are_refused(s3, name):
    refused("InvalidBucketName", s3.create_bucket, Bucket=name)


@pytest.mark.beyond_reference("it does not compare them")
def test_a_request_may_say_whose_the_bucket_must_be(server, s3, bucket):
    """A safeguard of callers: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-owner-condition.html."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept", ExpectedBucketOwner=ACCOUNT)
    assert s3.get_object(Bucket=bucket, Key="object", ExpectedBucketOwner=ACCOUNT)["Body"].read() == b"kept"
    for other in ("999988887777", "011122223333"):
        headers = {"x-amz-expected-bucket-owner": other}
        for method, target in (("GET", "/object"), ("PUT", "/object"), ("DELETE", "/object"), ("GET", ""), ("GET", "?acl"), ("GET", "?policy"), ("DELETE", "")):
            answer = send_signed(server, method, f"/{bucket}{target}", headers, b"x" if method == "PUT" else b"")
            assert answer.status == 403 and b"<Code>AccessDenied<" in answer.body, (method, target, answer)
        assert send_signed(server, "HEAD", f"/{bucket}/object", headers).status == 403
        source = {"x-amz-copy-source": f"/{bucket}/object", "x-amz-source-expected-bucket-owner": other}
        assert send_signed(server, "PUT", f"/{bucket}/copy", source).status == 403
    assert [listed["Key"] for listed in s3.list_objects_v2(Bucket=bucket, ExpectedBucketOwner=ACCOUNT)["Contents"]] == ["object"]
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"
    copied = {"CopySource": f"{bucket}/object", "ExpectedBucketOwner": ACCOUNT, "ExpectedSourceBucketOwner": ACCOUNT}
    s3.copy_object(Bucket=bucket, Key="copy", **copied)


@pytest.mark.beyond_reference("it refuses it")
def test_a_bucket_that_is_ours_is_made_once_more(s3, bucket):
    """In us-east-1: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html, BucketAlreadyOwnedByYou."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    assert s3.create_bucket(Bucket=bucket)["Location"] == f"/{bucket}"
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"


@pytest.mark.beyond_reference("it is about Forebay")
def test_elsewhere_a_bucket_is_made_once(tmp_path):
    server = Forebay(tmp_path, config='[server]\nregion = "eu-west-1"\n').start()
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    try:
        client = boto3.client("s3", endpoint_url=server.endpoint, region_name="eu-west-1", **keys)
        there = {"Bucket": "elsewhere", "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
        client.create_bucket(**there)
        error = refused("BucketAlreadyOwnedByYou", client.create_bucket, **there)
    finally:
        server.stop()
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 409
    assert error["Error"]["Message"] == "Your previous request to create the named bucket succeeded and you already own it."


def location(region):
    return f"<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>".encode()


@pytest.mark.beyond_reference("it is about Forebay")
def test_a_new_bucket_is_here_or_nowhere(server, s3, bucket):
    """`us-east-1` may be named, which Amazon S3 refuses (velero-io/velero#284): older SDKs send it to every endpoint of one's own."""
    assert send_signed(server, "PUT", f"/{bucket}-here", body=location("us-east-1")).status == 200
    s3.delete_bucket(Bucket=f"{bucket}-here")
    refused("IllegalLocationConstraintException", s3.create_bucket, Bucket=f"{bucket}-there", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    refused("404", s3.head_bucket, Bucket=f"{bucket}-there")


# "General purpose bucket naming rules", Amazon S3 User Guide.
@pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "WRITE_BACK"))
@pytest.mark.beyond_reference("it takes them")
@pytest.mark.each_deployment("the SDK asks another service for some of them")
def test_names_that_s3_keeps_for_itself_are_refused(server, s3):
    for name in ("xn--forebay", "sthree-forebay", "amzn-s3-demo-forebay", "forebay-s3alias", "forebay--ol-s3", "forebay.mrap", "forebay--x-s3", "forebay--table-s3"):
        answer = send_signed(server, "PUT", f"/{name}")
        assert answer.status == 400 and b"<Code>InvalidBucketName<" in answer.body, (name, answer)


@pytest.mark.beyond_reference("it does not say")
def test_a_page_of_buckets_says_where_each_is(s3, bucket):
    """https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListBuckets.html: with at least one parameter."""
    for call in ({"Prefix": bucket}, {"MaxBuckets": 1}, {"BucketRegion": "us-east-1"}):
        assert {listed["BucketRegion"] for listed in s3.list_buckets(**call)["Buckets"]} == {"us-east-1"}, call
    assert not any("BucketRegion" in listed for listed in s3.list_buckets()["Buckets"])
