"""What Amazon S3 answers to forms that break a rule, and what it takes.

Recorded from it by localstack/localstack (`TestS3PresignedPost` in tests/aws/services/s3), or shown in the issues that a test names.
"""

import base64
import json

import boto3
import pytest
from botocore.config import Config

from harness import signing
from harness.clients import refused, send
from test_error_elements import bytes_of, has
from test_signatures import post_form, sign_policy

pytestmark = pytest.mark.beyond_reference("it has no forms")

FIELD = "Bucket POST must contain a field named '{}'.  If it is specified, please check the order of the fields."


@pytest.fixture
def form(server, s3, bucket):
    """Makes the fields of a form whose policy has these conditions too, or is changed; signed with Version 4."""

    def make(fields=None, conditions=(), key="object", change=None, credential=None):
        made = s3.generate_presigned_post(bucket, key, Fields=fields or {}, Conditions=list(conditions), ExpiresIn=60)["fields"]
        policy = json.loads(base64.b64decode(made["policy"]))
        policy = json.loads(json.dumps(policy).replace(made["x-amz-credential"], credential or made["x-amz-credential"]))
        made["x-amz-credential"] = credential or made["x-amz-credential"]
        text = base64.b64encode(change(policy) if change else json.dumps(policy).encode()).decode()
        return made | {"policy": text, "x-amz-signature": sign_policy(server, text, made["x-amz-credential"])}

    return make


def nothing_was_stored(s3, bucket):
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_fields_of_a_signature_that_are_missing(server, s3, bucket, form):
    """localstack, `test_post_request_missing_fields` and `test_post_request_missing_signature`."""
    good = form()

    def without(*names):
        return {name: value for name, value in good.items() if name not in names}

    for names, told in (
        (("x-amz-algorithm", "x-amz-credential"), "X-Amz-Algorithm"),
        (("x-amz-credential",), "X-Amz-Credential"),
        (("x-amz-date",), "X-Amz-Date"),
        (("x-amz-signature",), "X-Amz-Signature"),
        (("policy",), "policy"),
        (("key",), "key"),
    ):
        answer = post_form(server, bucket, without(*names), b"x")
        assert answer.status == 400
        has(answer, "InvalidArgument", Message=FIELD.format(told), ArgumentName=told, ArgumentValue=None)
    version_2 = signing_client(server).generate_presigned_post(bucket, "object", ExpiresIn=60)["fields"]
    for missing, told in (("AWSAccessKeyId", "AWSAccessKeyId"), ("signature", "Signature")):
        fields = {name: value for name, value in version_2.items() if name != missing}
        has(post_form(server, bucket, fields, b"x"), "InvalidArgument", Message=FIELD.format(told), ArgumentName=told)
    only = {name: good[name] for name in ("key", "policy")}
    answer = post_form(server, bucket, only, b"x")
    assert answer.status == 403
    has(answer, "AccessDenied")
    nothing_was_stored(s3, bucket)


def signing_client(server):
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", config=Config(signature_version="s3"), **keys)


def test_a_credential_that_is_not_valid_here(server, s3, bucket, form):
    """CulturalMe/meteor-slingshot#150 (another region), outline/outline#7060 (no key), michaeldyrynda/s3upload#1 (a time that is none); the rest is what
    versity/versitygw has (s3err/post-object.go)."""
    key, day, *_ = form()["x-amz-credential"].split("/")
    for credential, message in (
        (f"{key}/{day}/eu-west-1/s3/aws4_request", "the region 'eu-west-1' is wrong; expecting 'us-east-1'"),
        (f"{key}/{day}/us-east-1/sqs/aws4_request", 'incorrect service "sqs". This endpoint belongs to "s3".'),
        (f"{key}/{day}/us-east-1/s3/aws5_request", 'incorrect terminal "aws5_request". This endpoint uses "aws4_request".'),
        (f"/{day}/us-east-1/s3/aws4_request", "a non-empty Access Key (AKID) must be provided in the credential."),
        ("nonsense", 'the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".'),
    ):
        answer = post_form(server, bucket, form(credential=credential), b"x")
        assert answer.status == 400
        found = has(answer, "InvalidArgument", Message=message, ArgumentName="X-Amz-Credential", ArgumentValue=credential)
        assert found.get("Region") == ("us-east-1" if "region" in message else None)
    wrong = form() | {"x-amz-algorithm": "AWS4-HMAC-SHA1"}
    has(post_form(server, bucket, wrong, b"x"), "InvalidArgument", ArgumentName="X-Amz-Algorithm", ArgumentValue="AWS4-HMAC-SHA1")
    wrong = form() | {"x-amz-date": "yesterday"}
    told = "X-Amz-Date must be formated via ISO8601 Long format"
    has(post_form(server, bucket, wrong, b"x"), "InvalidArgument", Message=told, ArgumentName="X-Amz-Date", ArgumentValue="yesterday")
    nothing_was_stored(s3, bucket)


@pytest.mark.parametrize("version", [2, 4])
def test_a_wrong_signature_shows_the_policy(server, s3, bucket, form, version):
    """localstack, `test_post_request_malformed_policy`: the signature is compared before the policy is read. Fausto95/aws-s3#65."""
    good = form() if version == 4 else signing_client(server).generate_presigned_post(bucket, "object", ExpiresIn=60)["fields"]
    name = "x-amz-signature" if version == 4 else "signature"
    cut = good | {"policy": good["policy"][:-2]}
    answer = post_form(server, bucket, cut, b"x")
    told = {"StringToSign": cut["policy"], "StringToSignBytes": bytes_of(cut["policy"]), "SignatureProvided": good[name]}
    found = has(answer, "SignatureDoesNotMatch", AWSAccessKeyId=server.access_key, **told)
    assert answer.status == 403 and "CanonicalRequest" not in found
    nothing_was_stored(s3, bucket)


def test_a_policy_that_is_none_is_told_why(server, s3, bucket, form):
    """toniopelo/modbox#10 and tpyo/amazon-s3-php-class#53; the other words are versitygw's (s3err/post-object.go)."""

    def with_conditions(conditions):
        return lambda policy: json.dumps(policy | {"conditions": conditions(policy["conditions"])}).encode()

    for change, told in (
        (lambda _: b"no policy", "Invalid JSON."),
        (lambda policy: json.dumps({"conditions": policy["conditions"]}).encode(), "Policy missing expiration."),
        (lambda policy: json.dumps({"expiration": policy["expiration"]}).encode(), "Policy missing conditions."),
        (lambda policy: json.dumps(policy | {"expiration": "tomorrow"}).encode(), "Invalid 'expiration' value: 'tomorrow'"),
        (with_conditions(lambda old: [*old, {"key": 5}]), "Invalid Simple-Condition: value must be a string."),
        (with_conditions(lambda old: [*old, ["ne", "$key", ""]]), "Invalid Condition: unknown operation 'ne'."),
    ):
        answer = post_form(server, bucket, form(change=change), b"x")
        assert answer.status == 400
        has(answer, "InvalidPolicyDocument", Message=f"Invalid Policy: {told}")
    nothing_was_stored(s3, bucket)


def test_a_field_that_the_policy_does_not_name(server, s3, bucket, form):
    """moxiecode/moxie#165, martinklepsch/s3-beam#42."""
    answer = post_form(server, bucket, form() | {"Content-Disposition": "inline"}, b"x")
    assert answer.status == 403
    has(answer, "AccessDenied", Message="Invalid according to Policy: Extra input fields: content-disposition")
    nothing_was_stored(s3, bucket)


def test_the_size_of_a_file_in_numbers_or_in_strings(server, s3, bucket, form):
    """localstack, `test_post_object_policy_validation_size`."""
    for low, high in ((5, 10), ("5", "10")):
        sized = form(conditions=[["content-length-range", low, high]])
        told = "Your proposed upload exceeds the maximum allowed size"
        has(post_form(server, bucket, sized, b"x" * 11), "EntityTooLarge", Message=told)
        told = "Your proposed upload is smaller than the minimum allowed size"
        has(post_form(server, bucket, sized, b"x" * 4), "EntityTooSmall", Message=told)
        nothing_was_stored(s3, bucket)
        for size in (5, 10):
            assert post_form(server, bucket, sized, b"x" * size).status == 204
        s3.delete_object(Bucket=bucket, Key="object")


def test_a_condition_that_no_form_meets(server, s3, bucket, form):
    """localstack, `test_post_object_policy_conditions_validation_eq` and `test_post_object_policy_validation_size`."""
    url = "http://localhost.test/random"
    redirect = {"success_action_redirect": url}
    for condition, told in (
        (["eq", "success_action_redirect", url], f'["eq", "success_action_redirect", "{url}"]'),
        (["starts-with", "key", ""], '["starts-with", "key", ""]'),
        (["content-length-range", "test", 10], '["content-length-range", "test", "10"]'),
    ):
        answer = post_form(server, bucket, form(redirect, [redirect, condition]), b"x")
        assert answer.status == 403, answer
        has(answer, "AccessDenied", Message=f"Invalid according to Policy: Policy Condition failed: {told}")
    nothing_was_stored(s3, bucket)
    assert post_form(server, bucket, form(redirect, [redirect, ["eq", "$success_action_redirect", url]]), b"x").status == 303


@pytest.mark.parametrize("kind", ["text/html", "application/json", "application/x-www-form-urlencoded"])
def test_a_form_has_its_type(server, s3, bucket, kind):
    """localstack, `test_post_object_with_wrong_content_type`. Nobody has signed it."""
    answer = send(server, "POST", f"/{bucket}", {"Content-Type": kind}, b"key=a&file=b")
    assert answer.status == 412, answer
    told = "At least one of the pre-conditions you specified did not hold"
    has(answer, "PreconditionFailed", Message=told, Condition="Bucket POST must be of the enclosure-type multipart/form-data")
    assert send(server, "POST", f"/{bucket}/object", {"Content-Type": kind}, b"key=a&file=b").status == 403
    nothing_was_stored(s3, bucket)


def test_fields_whose_values_are_not_valid(server, s3, bucket, form):
    for name in ("acl", "x-amz-acl"):
        answer = post_form(server, bucket, form({name: "foo"}, [{name: "foo"}]), b"x")
        assert answer.status == 400
        has(answer, "InvalidArgument", ArgumentName=name, ArgumentValue="foo")
    # localstack, `test_post_object_with_storage_class`.
    answer = post_form(server, bucket, form({"x-amz-storage-class": "FakeClass"}, [{"x-amz-storage-class": "FakeClass"}]), b"x")
    has(answer, "InvalidStorageClass", StorageClassRequested="FakeClass")
    # S3 has no such fields. A client that sends them does not want an object to be replaced.
    for condition in ({"if-none-match": "*"}, {"If-Match": '"0"'}):
        assert post_form(server, bucket, form(condition, [condition]), b"x").status == 501
    nothing_was_stored(s3, bucket)


def test_a_document_of_other_tags_has_none(server, s3, bucket, form):
    """localstack, `test_post_object_with_tags`."""
    for tagging, status in (("<InvalidXmlTagging></InvalidXmlTagging>", 204), ("<InvalidXmlTagging/>", 204), ("not-xml", 400), ("<a></b>", 400)):
        answer = post_form(server, bucket, form({"tagging": tagging}, [["starts-with", "$tagging", ""]]), b"x")
        assert answer.status == status, answer
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == []


def test_a_file_without_a_name_leaves_the_key_alone(server, s3, bucket, form):
    """localstack, `test_post_object_with_file_as_string`."""
    fields = form(key="as-field-${filename}")
    parts = [f'--{signing.BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
    body = "".join(parts) + f'--{signing.BOUNDARY}\r\nContent-Disposition: form-data; name="file"\r\n\r\ndata\r\n--{signing.BOUNDARY}--\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary={signing.BOUNDARY}"}
    assert send(server, "POST", f"/{bucket}", headers, body.encode()).status == 204
    assert s3.get_object(Bucket=bucket, Key="as-field-${filename}")["Body"].read() == b"data"
    assert post_form(server, bucket, fields, b"named").status == 204
    assert "as-field-f" in " ".join(found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"])


def test_an_empty_type_is_none(server, s3, bucket, form):
    answer = post_form(server, bucket, form({"Content-Type": ""}, [["starts-with", "$Content-Type", ""]]), b"x")
    assert answer.status == 204, answer
    assert s3.head_object(Bucket=bucket, Key="object")["ContentType"] == "binary/octet-stream"
    refused("404", s3.head_object, Bucket=bucket, Key="other")
