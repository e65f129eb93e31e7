"""Two servers whose data directories are copies of the same ones, over one under store: nobody should, and no write is lost."""

import shutil

import pytest

from harness.clients import boto
from harness.servers import Forebay, eventually


def get(server, key):
    return boto(server).get_object(Bucket=server.bucket, Key=key)["Body"].read()


@pytest.fixture
def copied(start, tmp_path):
    """An original and a copy, which both run."""
    original = start(mode="WRITE_BACK")
    boto(original).put_object(Bucket=original.bucket, Key="before", Body=b"before")
    original.wait_until_drained()
    assert original.stop() == 0
    copy = Forebay(tmp_path / "copy", mode="WRITE_BACK", config=original.config.read_text())
    shutil.copytree(original.data, copy.data)
    copy.under, copy.bucket = original.under, original.bucket
    original.start()
    copy.start()
    yield original, copy
    copy.kill()


def test_a_write_of_the_other_copy_is_a_conflict_and_none_is_lost(copied):
    original, copy = copied
    for key in ("new", "before"):
        boto(copy).put_object(Bucket=copy.bucket, Key=key, Body=b"of the copy")
        copy.wait_until_drained()
        boto(original).put_object(Bucket=original.bucket, Key=key, Body=b"of the original")
        eventually("an outcome", lambda: original.metrics()["forebay_dirty_objects"] == 0)
        assert (original.under / original.bucket / key).read_bytes() == b"of the copy", key
        assert get(original, key) == b"of the original" and get(copy, key) == b"of the copy", key
    assert original.status()["conflicts"] == 2
    assert "a copy of these data directories is in use" in original.log.read_text()
    # The original reports it when it stops, too.
    assert original.stop() == 0
    assert "nothing waits" not in original.log.read_text().splitlines()[-1]
    assert "stopped: conflicts remain" in original.log.read_text()
