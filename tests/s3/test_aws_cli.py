"""The AWS command line: cp, mv, rm, sync, ls and a few of the plain operations."""

import json
import os

import pytest

from harness.clients import aws

MIB = 1 << 20
# Starting the command line takes most of a second, so it meets two deployments only.
pytestmark = pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "WRITE_THROUGH"))


@pytest.mark.parametrize("size", [0, 1000, 20 * MIB + 1])
def test_cp_up_and_down(server, bucket, tmp_path, size):
    body = os.urandom(size)
    (tmp_path / "up").write_bytes(body)
    aws(server, "s3", "cp", tmp_path / "up", f"s3://{bucket}/dir/object")
    aws(server, "s3", "cp", f"s3://{bucket}/dir/object", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == body
    assert f"{size} object" in aws(server, "s3", "ls", f"s3://{bucket}/dir/")


def test_cp_from_and_to_a_pipe(server, bucket):
    aws(server, "s3", "cp", "-", f"s3://{bucket}/piped", stdin=b"through a pipe")
    assert aws(server, "s3", "cp", f"s3://{bucket}/piped", "-") == "through a pipe"


def test_sync_up_and_down(server, bucket, tmp_path):
    files = {"a": b"1", "sub/b": b"22", "sub/deeper/c d": b"333"}
    for name, body in files.items():
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(body)
        # Older than the upload by more than the second to which S3 tells times: sync compares the two.
        os.utime(tmp_path / "up" / name, (1_700_000_000, 1_700_000_000))
    aws(server, "s3", "sync", tmp_path / "up", f"s3://{bucket}/tree")
    assert aws(server, "s3", "sync", tmp_path / "up", f"s3://{bucket}/tree") == ""
    (tmp_path / "up" / "a").unlink()
    aws(server, "s3", "sync", "--delete", tmp_path / "up", f"s3://{bucket}/tree")
    aws(server, "s3", "sync", f"s3://{bucket}/tree", tmp_path / "down")
    found = {str(path.relative_to(tmp_path / "down")): path.read_bytes() for path in (tmp_path / "down").rglob("*") if path.is_file()}
    assert found == {name: body for name, body in files.items() if name != "a"}


def test_mv_copies_between_buckets_and_removes(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="from", Body=b"moved")
    other = f"{bucket}-other"
    aws(server, "s3", "mb", f"s3://{other}")
    aws(server, "s3", "mv", f"s3://{bucket}/from", f"s3://{other}/to")
    assert s3.get_object(Bucket=other, Key="to")["Body"].read() == b"moved"
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    aws(server, "s3", "rb", f"s3://{other}", fails=True)
    aws(server, "s3", "rm", "--recursive", f"s3://{other}")
    aws(server, "s3", "rb", f"s3://{other}")
    assert other not in aws(server, "s3", "ls")


def test_a_large_object_is_copied_in_parts(server, s3, bucket):
    body = os.urandom(20 * MIB)
    s3.put_object(Bucket=bucket, Key="large", Body=body)
    aws(server, "s3", "cp", f"s3://{bucket}/large", f"s3://{bucket}/copy")
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == body


def test_plain_operations(server, bucket, tmp_path):
    (tmp_path / "body").write_bytes(b"body")
    put = json.loads(aws(server, "s3api", "put-object", "--bucket", bucket, "--key", "k", "--body", tmp_path / "body"))
    head = json.loads(aws(server, "s3api", "head-object", "--bucket", bucket, "--key", "k"))
    assert (put["ETag"], head["ContentLength"]) == (head["ETag"], 4)
    error = aws(server, "s3api", "get-object", "--bucket", bucket, "--key", "absent", tmp_path / "x", fails=True)
    assert "NoSuchKey" in error
