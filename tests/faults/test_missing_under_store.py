"""A directory under store that is not there: its disk is not mounted."""

import shutil

import pytest

from harness.clients import boto
from harness.faults import ended_start
from harness.servers import Forebay


def test_a_missing_or_empty_under_store_is_refused_and_not_made(start):
    server = start(mode="WRITE_BACK")
    s3 = boto(server)
    s3.put_object(Bucket=server.bucket, Key="key", Body=b"x")
    server.wait_until_drained()
    assert server.stop() == 0
    away = server.under.with_name("away")
    server.under.rename(away)
    code, said = ended_start(server)
    assert code == 2 and f"{server.under} is missing" in said and "not mounted" in said and "mkdir" in said, said
    assert not server.under.exists()
    # As a mount point looks that nothing is mounted on.
    server.under.mkdir()
    code, said = ended_start(server)
    assert code == 1 and f"{server.under} has no buckets" in said and server.bucket in said and "not mounted" in said, said
    assert not list(server.under.iterdir())
    server.under.rmdir()
    away.rename(server.under)
    server.start()
    assert boto(server).get_object(Bucket=server.bucket, Key="key")["Body"].read() == b"x"


def test_a_new_under_store_is_taken_when_it_is_meant(start):
    server = start(mode="WRITE_BACK")
    assert server.stop() == 0
    shutil.rmtree(server.under)
    (server.under / "another").mkdir(parents=True)
    server.start()
    boto(server).put_object(Bucket="another", Key="key", Body=b"x")


@pytest.mark.parametrize("has_bucket", [False, True])
def test_a_store_without_buckets_starts_on_an_empty_directory(tmp_path, has_bucket):
    server = Forebay(tmp_path / "server")
    server.under.rmdir()
    for _ in range(2):
        server.start()
        s3 = boto(server)
        if has_bucket:
            s3.create_bucket(Bucket="for-a-while")
            s3.delete_bucket(Bucket="for-a-while")
        assert server.stop() == 0
