"""What one tenant has is nothing to another: no bytes, no names, and not whether it is there."""

import pytest

from guarded import READER, STRANGER, WRITER
from harness import signing
from harness.clients import boto, refused, send


@pytest.fixture(scope="module")
def worker(guarded):
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.create_bucket(Bucket="elsewhere")
    s3.put_object(Bucket="bucket", Key="object", Body=b"kept", Metadata={"a": "b"})
    s3.put_object(Bucket="bucket", Key="own/object", Body=b"mine")
    s3.put_object(Bucket="elsewhere", Key="object", Body=b"stranger's")
    # Everything is in the cache by now.
    s3.get_object(Bucket="bucket", Key="object")["Body"].read()
    return guarded


def ask(server, keys, method, target, headers=None):
    signed = signing.in_header(server, signing.Request(method, target, headers or {}, b""), *keys)
    answer = send(server, method, signed.target, signed.headers)
    said = {name: value for name, value in answer.headers.items() if name not in ("date", "x-amz-request-id")}
    return answer.status, said, answer.body.partition(b"<RequestId>")[0]


def test_what_is_cached_is_refused_as_what_is_not_there(worker):
    """Word for word: neither a condition nor a range nor a checksum tells one from the other."""
    etag = boto(worker).head_object(Bucket="bucket", Key="object")["ETag"]
    for headers in (
        {},
        {"If-None-Match": etag},
        {"If-None-Match": "*"},
        {"If-Match": etag},
        {"If-Match": '"other"'},
        {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"Range": "bytes=100-"},
        {"x-amz-checksum-mode": "ENABLED"},
    ):
        for method in ("GET", "HEAD", "DELETE", "PUT"):
            there = ask(worker, STRANGER, method, "/bucket/object", headers)
            absent = ask(worker, STRANGER, method, "/bucket/absent", headers)
            assert there[0] == 403 and there == absent, (method, headers, there, absent)
    for query in ("?tagging=", "?attributes=", "?acl=", "?uploads=", "?versionId=null", "?partNumber=1", "?uploadId=x"):
        assert ask(worker, STRANGER, "GET", f"/bucket/object{query}")[0] == 403, query
    # Nor does a bucket that is not there tell itself from one that is.
    assert ask(worker, STRANGER, "GET", "/bucket/object") == ask(worker, STRANGER, "GET", "/no-such-bucket/object")


def test_without_the_right_to_list_what_is_absent_looks_forbidden(worker):
    assert ask(worker, READER, "GET", "/bucket/object")[0] == 200
    assert ask(worker, READER, "GET", "/bucket/absent")[0] == 403
    assert ask(worker, READER, "HEAD", "/bucket/absent")[0] == 403
    assert ask(worker, READER, "GET", "/bucket?list-type=2")[0] == 403


def test_a_copy_needs_both_rights(worker):
    """To read the source and to write the target, for the whole object and for a part."""
    writer = boto(worker, *WRITER)
    stranger = boto(worker, *STRANGER)
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="own/stolen", CopySource="bucket/object")
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="own/stolen", CopySource="elsewhere/object")
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="object", CopySource="bucket/own/object")
    refused("AccessDenied", stranger.copy_object, Bucket="elsewhere", Key="stolen", CopySource="bucket/object")
    for source in ("bucket/own/../object", "bucket/own%2F..%2Fobject", "/bucket//object", "bucket%2Fobject", "bucket/own/object/../../object"):
        assert ask(worker, WRITER, "PUT", "/bucket/own/stolen", {"x-amz-copy-source": source})[0] in (403, 404), source
    upload = writer.create_multipart_upload(Bucket="bucket", Key="own/parts")["UploadId"]
    part = {"Bucket": "bucket", "Key": "own/parts", "UploadId": upload, "PartNumber": 1}
    refused("AccessDenied", writer.upload_part_copy, **part, CopySource="bucket/object")
    writer.upload_part_copy(**part, CopySource="bucket/own/object")
    writer.abort_multipart_upload(Bucket="bucket", Key="own/parts", UploadId=upload)
    assert "Contents" not in boto(worker).list_objects_v2(Bucket="bucket", Prefix="own/stolen")


def test_each_key_of_a_list_is_looked_at(worker):
    answer = boto(worker, *WRITER).delete_objects(
        Bucket="bucket", Delete={"Objects": [{"Key": key} for key in ("object", "own/none", "own/../object", "/object", "own")]}
    )
    assert [found["Key"] for found in answer["Deleted"]] == ["own/none", "own/../object"]
    assert {error["Key"]: error["Code"] for error in answer["Errors"]} == dict.fromkeys(("object", "/object", "own"), "AccessDenied")
    assert boto(worker).get_object(Bucket="bucket", Key="object")["Body"].read() == b"kept"


def test_an_upload_belongs_to_its_key(worker):
    """Whoever knows its id writes to no other key with it, and a tenant to none of another's."""
    s3, writer, stranger = boto(worker), boto(worker, *WRITER), boto(worker, *STRANGER)
    upload = s3.create_multipart_upload(Bucket="bucket", Key="theirs")["UploadId"]
    for client, place, code in (
        (writer, {"Bucket": "bucket", "Key": "theirs"}, "AccessDenied"),
        (writer, {"Bucket": "bucket", "Key": "own/theirs"}, "NoSuchUpload"),
        (stranger, {"Bucket": "elsewhere", "Key": "theirs"}, "NoSuchUpload"),
        (s3, {"Bucket": "elsewhere", "Key": "theirs"}, "NoSuchUpload"),
    ):
        refused(code, client.upload_part, **place, UploadId=upload, PartNumber=1, Body=b"x")
        refused(code, client.list_parts, **place, UploadId=upload)
        refused(code, client.abort_multipart_upload, **place, UploadId=upload)
        parts = {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}
        refused(code, client.complete_multipart_upload, **place, UploadId=upload, MultipartUpload=parts)
    assert s3.list_parts(Bucket="bucket", Key="theirs", UploadId=upload)["UploadId"] == upload
    s3.abort_multipart_upload(Bucket="bucket", Key="theirs", UploadId=upload)


def test_a_token_of_one_list_is_none_of_another(worker):
    s3 = boto(worker)
    s3.put_object(Bucket="bucket", Key="second", Body=b"x")
    token = s3.list_objects_v2(Bucket="bucket", MaxKeys=1)["NextContinuationToken"]
    refused("InvalidArgument", s3.list_objects_v2, Bucket="elsewhere", ContinuationToken=token)
    for changed in (token[:-2], token[1:], token.swapcase(), "A" * len(token)):
        refused("InvalidArgument", s3.list_objects_v2, Bucket="bucket", ContinuationToken=changed)
    refused("AccessDenied", boto(worker, *STRANGER).list_objects_v2, Bucket="bucket", ContinuationToken=token)


def test_buckets_of_others_are_not_named(worker):
    assert [found["Name"] for found in boto(worker, *STRANGER).list_buckets()["Buckets"]] == ["elsewhere"]
    assert [found["Name"] for found in boto(worker, *WRITER).list_buckets()["Buckets"]] == ["bucket"]


def test_an_unknown_key_and_a_wrong_secret_get_one_answer(worker):
    """At each place where keys are compared, word for word."""
    for way, sign in signing.WAYS.items():
        said = []
        for keys in ((worker.access_key, "wrong"), ("AKNOBODY", "wrong"), (READER[0], worker.secret_key), (READER[0].lower(), READER[1])):
            signed = sign(worker, signing.Request("GET", "/bucket/object", {}, b""), *keys)
            answer = send(worker, "GET", signed.target, signed.headers)
            said.append((answer.status, answer.body.partition(b"<RequestId>")[0], sorted(answer.headers)))
        assert len({str(one) for one in said}) == 1 and said[0][0] == 403, (way, said)
