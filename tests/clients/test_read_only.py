"""READ_ONLY: every client reads and lists what is there, and is refused every change."""

import functools

import pytest

from adapters import CLIENTS
from client import Refused
from harness.clients import boto
from harness.servers import Forebay

BODY = bytes(range(256)) * 1000
KEYS = ["a", "dir/b c", "dir/sub/ü"]
BUCKET = "read-only"


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """A Forebay in READ_ONLY before a directory that another mode has filled."""
    directory = tmp_path_factory.mktemp("READ_ONLY")
    server = Forebay(directory, "WRITE_THROUGH").start()
    s3 = boto(server)
    s3.create_bucket(Bucket=BUCKET)
    for key in KEYS:
        s3.put_object(Bucket=BUCKET, Key=key, Body=BODY, ContentType="image/png")
    assert server.stop() == 0
    server.mode = "READ_ONLY"
    server.start()
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("adapter", CLIENTS, ids=lambda adapter: adapter.__name__)
def test_reads_and_no_writes(read_only, adapter, tmp_path):
    client = adapter(read_only, tmp_path)
    try:
        assert sorted(client.list(BUCKET)[0]) == KEYS
        keys, prefixes = client.list(BUCKET, "dir/", "/")
        assert (list(keys), list(prefixes)) == (["dir/b c"], ["dir/sub/"])
        for key in KEYS:
            assert client.get(BUCKET, key) == BODY
            assert client.head(BUCKET, key).size == len(BODY)
        if "get_range" not in client.lacks:
            assert client.get_range(BUCKET, "a", 1000, 1999) == BODY[1000:2000]
        for change in (
            functools.partial(client.put, BUCKET, "new", b"new"),
            functools.partial(client.put, BUCKET, "a", b"changed"),
            functools.partial(client.delete, BUCKET, "a"),
        ):
            # How they tell it is theirs, and some do not tell a refusal from another.
            with pytest.raises((Refused, OSError)):
                change()
        s3 = boto(read_only)
        assert [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == KEYS
        assert s3.get_object(Bucket=BUCKET, Key="a")["Body"].read() == BODY
    finally:
        client.close()
