"""Ids of versions in requests. Every object here has the version `null`; other versions are those of an S3 under store."""

import pytest

from harness.clients import md5_base64, refused, send_signed
from test_error_elements import has
from test_errors import elements

pytestmark = pytest.mark.beyond_reference("its words differ")

# As in the requests that localstack has recorded.
UNKNOWN = "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD"
OF_OBJECTS = ["GET", "HEAD", "DELETE", "GET tagging", "PUT tagging", "DELETE tagging", "GET acl", "PUT acl", "GET attributes"]
TAGS = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"


@pytest.fixture
def kept(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept as it is")
    server.wait_until_drained()
    yield f"/{bucket}/kept"
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"kept as it is"


def ask(server, target, kind, version):
    method, _, subresource = kind.partition(" ")
    query = f"{subresource}=&versionId={version}" if subresource else f"versionId={version}"
    headers = {"x-amz-object-attributes": "ETag"} if subresource == "attributes" else {}
    headers |= {"x-amz-acl": "private"} if kind == "PUT acl" else {}
    return send_signed(server, method, f"{target}?{query}", headers, TAGS if kind == "PUT tagging" else b"")


@pytest.mark.each_deployment
@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("s3", "WRITE_THROUGH"))
@pytest.mark.parametrize("kind", OF_OBJECTS)
def test_an_empty_id_is_no_version(server, kept, kind):
    """noobaa/noobaa-core, `InvalidArgumentEmptyVersionId`. Taken for none given, it had the object deleted."""
    answer = ask(server, kept, kind, "")
    assert answer.status == 400, answer
    if kind != "HEAD":
        has(answer, "InvalidArgument", Message="Version id cannot be the empty string", ArgumentName="versionId", ArgumentValue=None)


@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("directory", "WRITE_BACK"))
@pytest.mark.parametrize("kind", OF_OBJECTS)
def test_without_versions_every_other_id_is_invalid(server, kept, kind):
    """localstack, `test_get_object_with_version_unversioned_bucket` and `test_delete_object`."""
    answer = ask(server, kept, kind, UNKNOWN)
    assert answer.status == 400, answer
    if kind != "HEAD":
        has(answer, "InvalidArgument", Message="Invalid version id specified", ArgumentName="versionId", ArgumentValue=UNKNOWN)
    if kind.partition(" ")[0] == "GET":
        assert ask(server, kept, kind, "null").status == 200


@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("s3", "WRITE_THROUGH"))
def test_a_write_takes_no_id(server, s3, bucket, kept):
    """versity/versitygw, s3err: also that a part has an upload."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="kept")["UploadId"]
    for version in ("", "null", UNKNOWN):
        for query in ("", f"partNumber=1&uploadId={upload}&"):
            answer = send_signed(server, "PUT", f"{kept}?{query}versionId={version}", body=b"x")
            assert answer.status == 400, (version, query, answer)
            has(answer, "InvalidArgument", Message="This operation does not accept a version-id.", ArgumentName="versionId")
    answer = send_signed(server, "PUT", f"{kept}?partNumber=3", body=b"x")
    told = "This operation does not accept partNumber without uploadId"
    has(answer, "InvalidArgument", Message=told, ArgumentName="partNumber", ArgumentValue="3")
    answer = send_signed(server, "PUT", f"{kept}?uploadId={upload}", body=b"x")
    assert answer.status == 405
    has(answer, "MethodNotAllowed", Method="PUT")


@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("s3", "WRITE_THROUGH"))
def test_a_copy_has_no_source_with_another_id(server, s3, bucket, kept):
    """A version of an S3 under store can be read, and not be copied."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="copy")["UploadId"]
    for target in (f"/{bucket}/copy", f"/{bucket}/copy?partNumber=1&uploadId={upload}"):
        answer = send_signed(server, "PUT", target, {"x-amz-copy-source": f"{kept}?versionId="})
        has(answer, "InvalidArgument", Message="Version id cannot be the empty string")
        answer = send_signed(server, "PUT", target, {"x-amz-copy-source": f"{kept}?versionId={UNKNOWN}"})
        found = elements(answer)
        if server.behind:
            assert (answer.status, found["Code"]) == (501, "NotImplemented"), answer
        else:
            assert (answer.status, found["Code"], found["Message"]) == (400, "InvalidArgument", "Invalid version id specified"), answer
    refused("404", s3.head_object, Bucket=bucket, Key="copy")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "kept", "VersionId": "null"})


def test_a_list_of_keys_is_told_of_each_version(server, s3, bucket, kept):
    """localstack, `test_delete_objects`."""
    listed = f"<Delete><Object><Key>kept</Key><VersionId>{UNKNOWN}</VersionId></Object></Delete>".encode()
    answer = send_signed(server, "POST", f"/{bucket}?delete=", {"Content-MD5": md5_base64(listed)}, listed)
    assert answer.status == 200 and b"<Code>NoSuchVersion</Code>" in answer.body and UNKNOWN.encode() in answer.body, answer
