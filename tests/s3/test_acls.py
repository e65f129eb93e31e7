"""Access control lists, as in a bucket of Amazon S3 that has them disabled, which is the default there.

Sources: https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-ownership-error-responses.html for what is refused and what a list shows;
hashicorp/terraform-provider-aws#34079: PutBucketAcl is refused with `private` too.
"""

import pytest

from harness.clients import md5_base64, refused, send_signed
from test_signatures import post_form

pytestmark = pytest.mark.beyond_reference("it has ACLs")

HARMLESS = ["private", "bucket-owner-full-control"]
NOT_SUPPORTED = "AccessControlListNotSupported"


def only_the_owner(answer):
    grants = [(grant["Grantee"]["Type"], grant["Grantee"]["ID"], grant["Permission"]) for grant in answer["Grants"]]
    assert grants == [("CanonicalUser", answer["Owner"]["ID"], "FULL_CONTROL")], answer


@pytest.mark.parametrize("acl", HARMLESS)
def test_tools_may_send_the_list_that_says_nothing(server, s3, bucket, acl):
    s3.put_object(Bucket=bucket, Key="put", Body=b"x", ACL=acl)
    s3.copy_object(Bucket=bucket, Key="copied", CopySource=f"{bucket}/put", ACL=acl)
    upload = {"Bucket": bucket, "Key": "parts"}
    upload["UploadId"] = s3.create_multipart_upload(ACL=acl, **upload)["UploadId"]
    etag = s3.upload_part(PartNumber=1, Body=b"x", **upload)["ETag"]
    s3.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)
    form = s3.generate_presigned_post(bucket, "form", Fields={"acl": acl}, Conditions=[{"acl": acl}], ExpiresIn=60)
    assert post_form(server, bucket, form["fields"], b"x").status == 204
    for key in ("put", "copied", "parts", "form"):
        only_the_owner(s3.get_object_acl(Bucket=bucket, Key=key))
    s3.create_bucket(Bucket=f"{bucket}-{acl}", ACL=acl, ObjectOwnership="BucketOwnerEnforced")
    only_the_owner(s3.get_bucket_acl(Bucket=f"{bucket}-{acl}"))


@pytest.mark.parametrize("grants", [{"ACL": "public-read"}, {"ACL": "authenticated-read"}, {"GrantRead": 'id="x"'}, {"GrantFullControl": 'id="x"'}])
def test_what_grants_anything_to_others_is_refused(s3, bucket, grants):
    s3.put_object(Bucket=bucket, Key="source", Body=b"x")
    error = refused(NOT_SUPPORTED, s3.put_object, Bucket=bucket, Key="object", Body=b"x", **grants)
    assert error["Error"]["Message"] == "The bucket does not allow ACLs" and error["ResponseMetadata"]["HTTPStatusCode"] == 400
    refused(NOT_SUPPORTED, s3.copy_object, Bucket=bucket, Key="object", CopySource=f"{bucket}/source", **grants)
    refused(NOT_SUPPORTED, s3.create_multipart_upload, Bucket=bucket, Key="object", **grants)
    refused(NOT_SUPPORTED, s3.put_object_acl, Bucket=bucket, Key="source", **grants)
    refused(NOT_SUPPORTED, s3.put_bucket_acl, Bucket=bucket, **grants)
    # In words of its own: kubernetes/kops#15454.
    refused("InvalidBucketAclWithObjectOwnership", s3.create_bucket, Bucket=f"{bucket}-open", **grants)
    refused("404", s3.head_bucket, Bucket=f"{bucket}-open")
    assert [listed["Key"] for listed in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["source"]


@pytest.mark.parametrize("fields", [{"acl": "public-read"}, {"x-amz-acl": "public-read"}, {"x-amz-grant-read": "id=x"}])
def test_a_form_that_grants_anything_to_others_is_refused(server, s3, bucket, fields):
    conditions = [{name: value} for name, value in fields.items()]
    form = s3.generate_presigned_post(bucket, "form", Fields=fields, Conditions=conditions, ExpiresIn=60)
    answer = post_form(server, bucket, form["fields"], b"x")
    assert answer.status == 400 and f"<Code>{NOT_SUPPORTED}<".encode() in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="form")


def test_a_list_can_be_set_to_what_it_is(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    found = s3.get_object_acl(Bucket=bucket, Key="object")
    same = {"Owner": found["Owner"], "Grants": found["Grants"]}
    s3.put_object_acl(Bucket=bucket, Key="object", AccessControlPolicy=same)
    s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=same)
    s3.put_object_acl(Bucket=bucket, Key="object", ACL="bucket-owner-full-control")
    for grant in (
        {"Grantee": {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AllUsers"}, "Permission": "READ"},
        {"Grantee": {"Type": "CanonicalUser", "ID": "0" * 64}, "Permission": "FULL_CONTROL"},
    ):
        more = same | {"Grants": [*same["Grants"], grant]}
        refused(NOT_SUPPORTED, s3.put_object_acl, Bucket=bucket, Key="object", AccessControlPolicy=more)
        refused(NOT_SUPPORTED, s3.put_bucket_acl, Bucket=bucket, AccessControlPolicy=more)
    refused(NOT_SUPPORTED, s3.put_bucket_acl, Bucket=bucket, ACL="private")
    assert s3.get_object_acl(Bucket=bucket, Key="object")["Grants"] == found["Grants"]


def test_what_has_no_list(server, s3, bucket):
    refused("NoSuchKey", s3.get_object_acl, Bucket=bucket, Key="absent")
    refused("NoSuchKey", s3.put_object_acl, Bucket=bucket, Key="absent", ACL="bucket-owner-full-control")
    for call in (s3.get_bucket_acl, s3.get_bucket_ownership_controls):
        refused("NoSuchBucket", call, Bucket="no-such-bucket-here")
    refused("MissingSecurityHeader", s3.put_bucket_acl, Bucket=bucket)
    answer = send_signed(server, "PUT", f"/{bucket}?acl", {"Content-MD5": md5_base64(b"<x/>")}, b"<x/>")
    assert answer.status == 400 and b"<Code>MalformedACLError<" in answer.body, answer


def test_the_owner_of_the_bucket_owns_what_is_in_it(s3, bucket):
    enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"] == enforced
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=enforced)
    writer = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    refused("NotImplemented", s3.put_bucket_ownership_controls, Bucket=bucket, OwnershipControls=writer)
    refused("NotImplemented", s3.delete_bucket_ownership_controls, Bucket=bucket)
    assert s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"] == enforced
