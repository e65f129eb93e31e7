"""Requests for parts of S3 that Forebay does not have: none of them may run as the plain PUT, POST or DELETE of its path."""

import re

import pytest
from botocore.loaders import Loader

from harness.clients import md5_base64, send, send_signed

BODY = b"kept as it is"

# What each of these does is to write or delete, with nothing in the query to say so.
PLAIN = {"CopyObject", "CreateBucket", "DeleteBucket", "DeleteObject", "PutObject"}

pytestmark = [
    pytest.mark.deployments(("directory", "WRITE_BACK"), ("directory", "WRITE_THROUGH"), ("s3", "WRITE_BACK")),
    pytest.mark.beyond_reference("it runs some of them as the plain request"),
]


def model():
    """Every operation of S3 that this boto3 knows: its name, method, target, and the parameters of its query."""
    service = Loader(extra_search_paths=[]).load_service_model("s3", "service-2")
    for name, operation in sorted(service["operations"].items()):
        shape = service["shapes"].get(operation.get("input", {}).get("shape"), {})
        members = shape.get("members", {}).values()
        query = [member["locationName"] for member in members if member.get("location") == "querystring"]
        yield name, operation["http"]["method"], operation["http"]["requestUri"], query


def names():
    """Everything that can stand in a query, and what may come next year."""
    found = {"nextYearsSubresource"}
    for _, _, target, query in model():
        found.update(query)
        found.update(re.findall(r"[?&]([\w-]+)", target))
    return sorted(found - {"versionId"})


@pytest.fixture
def kept(server, s3, bucket):
    """An object that every test must leave alone, in the cache and behind it."""
    s3.put_object(Bucket=bucket, Key="kept", Body=BODY, Tagging="a=1")
    server.wait_until_drained()

    def check(what):
        assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == BODY, what
        assert [listed["Key"] for listed in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["kept"], what

    yield check
    server.wait_until_drained()
    check("at the end")


def test_the_model_is_there():
    assert len(list(model())) > 100 and {"acl", "annotation", "renameObject", "abac"} <= set(names())


def test_no_operation_of_s3_runs_as_another(server, bucket, kept):
    for name, method, target, query in model():
        if name in PLAIN:
            continue
        target = target.replace("{Bucket}", bucket).replace("{Key+}", "kept")
        more = "&".join(f"{parameter}=1" for parameter in query)
        joined = target + ("&" if "?" in target else "?") + more if more else target
        answer = send_signed(server, method, joined, {"x-amz-rename-source": "/other"}, b"<x/>" if method != "GET" else b"")
        kept(f"{name}: {method} {joined}: {answer}")
        if "nnotation" in name or "Abac" in name or "MetadataConfiguration" in name or name == "RenameObject":
            assert answer.status == 501 and b"<Code>NotImplemented<" in answer.body, f"{name}: {answer}"


def test_nothing_in_a_query_makes_a_plain_write_or_delete(server, s3, bucket, kept):
    for name in names():
        # A sub-resource has no value; what means nothing to S3 may have one.
        valued = [f"{name}=1"] if name != "nextYearsSubresource" else []
        for query in (name, f"{name}=", *valued, f"x-id=PutObject&{name}"):
            for method in ("PUT", "POST", "DELETE"):
                for target in (f"/{bucket}/kept", f"/{bucket}"):
                    headers = {"Content-MD5": md5_base64(b"<x/>")}
                    answer = send_signed(server, method, f"{target}?{query}", headers, b"<x/>")
                    if answer.status < 300:
                        kept(f"{method} {target}?{query}: {answer}")
        kept(name)


def test_an_empty_bucket_is_not_deleted_by_a_subresource(server, s3, bucket):
    for name in names():
        for query in (name, f"{name}=", f"{name}=1"):
            send_signed(server, "DELETE", f"/{bucket}?{query}")
    s3.head_bucket(Bucket=bucket)


def test_a_subresource_is_not_hidden_by_its_spelling(server, bucket, kept):
    for query in ("%61nnotation", "ver%73ionId=7", "a%63l", "renameObject+", "Annotation"):
        for method in ("PUT", "DELETE"):
            answer = send_signed(server, method, f"/{bucket}/kept?{query}", body=b"<x/>")
            assert answer.status >= 400, f"{method} {query}: {answer}"
    kept("spelling")


def test_what_nobody_knows_is_not_read_as_the_object(server, bucket, kept):
    for query in ("annotation", "annotation=&annotationName=a", "nextYearsSubresource"):
        for target in (f"/{bucket}/kept", f"/{bucket}"):
            answer = send_signed(server, "GET", f"{target}?{query}")
            assert answer.status == 501, answer


def test_parameters_that_s3_ignores(server, s3, bucket, kept):
    assert send_signed(server, "GET", f"/{bucket}/kept?t=17000000").body == BODY
    assert send_signed(server, "PUT", f"/{bucket}/kept?foo=bar", body=BODY).status == 200
    assert send_signed(server, "DELETE", f"/{bucket}/kept?foo=bar").status == 501
    assert send_signed(server, "PUT", f"/{bucket}/kept?x-user=me&x-id=PutObject", body=BODY).status == 200


def test_headers_in_a_presigned_url_are_meant(server, s3, bucket):
    """As aws-sdk-js makes them: all x-amz-* headers of the request are in its query."""
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from harness.servers import REGION

    def put(query, body):
        request = AWSRequest(method="PUT", url=f"{server.endpoint}/{bucket}/presigned?{query}")
        S3SigV4QueryAuth(Credentials(server.access_key, server.secret_key), "s3", REGION).add_auth(request)
        return send(server, "PUT", request.url.removeprefix(server.endpoint), {}, body)

    # The checksum is that of the empty body that aws-sdk-js has when it makes the URL: S3 does not compare it.
    assert put("x-amz-meta-a=b&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32", b"hello").status == 200
    assert s3.get_object(Bucket=bucket, Key="presigned")["Body"].read() == b"hello"
    assert s3.head_object(Bucket=bucket, Key="presigned")["Metadata"] == {"a": "b"}
