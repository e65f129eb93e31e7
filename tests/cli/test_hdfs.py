"""The real worker in front of a real HDFS."""

import pytest
from harness.command_line import CommandLine
from harness.clients import boto, refused
from harness.hdfs import is_installed, running
from harness.servers import Forebay, eventually

pytestmark = pytest.mark.skipif(not is_installed(), reason="HDFS is not installed: scripts/setup hdfs, which needs a JDK and Maven")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory):
    with running(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def worker(hdfs, tmp_path):
    """WRITE_BACK, with a bucket of its own in HDFS."""
    config = f'[mounts]\nlake = "{hdfs.url("/lake")}"\n'
    started = Forebay(tmp_path / "worker", mode="WRITE_BACK", config=config).start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]


def body_of(s3, key):
    return s3.get_object(Bucket="lake", Key=key)["Body"].read()


def test_objects_go_to_hdfs_and_come_back(hdfs, worker):
    s3, cli = boto(worker), CommandLine(worker)
    large = bytes(range(256)) * (12 << 10)
    s3.put_object(Bucket="lake", Key="dir/small", Body=b"small", Metadata={"name": "value"}, ContentType="text/x-small")
    s3.put_object(Bucket="lake", Key="dir/large", Body=large, Tagging="colour=red")
    worker.wait_until_drained()
    assert hdfs.shell("-cat", "/lake/dir/small") == b"small"

    cli.text("free", "s3://lake")
    found = s3.get_object(Bucket="lake", Key="dir/small")
    assert (found["Body"].read(), found["Metadata"], found["ContentType"]) == (b"small", {"name": "value"}, "text/x-small")
    assert body_of(s3, "dir/large") == large
    assert s3.get_object_tagging(Bucket="lake", Key="dir/large")["TagSet"] == [{"Key": "colour", "Value": "red"}]
    assert [one["Key"] for one in s3.list_objects_v2(Bucket="lake")["Contents"]] == ["dir/large", "dir/small"]

    for key in ("dir/small", "dir/large"):
        s3.delete_object(Bucket="lake", Key=key)
    worker.wait_until_drained()
    assert hdfs.shell("-ls", "/lake") == b""
    assert s3.list_objects_v2(Bucket="lake")["KeyCount"] == 0


def test_keys_that_hdfs_cannot_have_are_refused_at_once(worker):
    s3 = boto(worker)
    for key in ("a//b", "/a", "a:b", "x" * 256):
        refused("InvalidArgument", s3.put_object, Bucket="lake", Key=key, Body=b"")
    assert worker.is_drained() and s3.list_objects_v2(Bucket="lake")["KeyCount"] == 0


def test_a_missing_directory_is_told(hdfs, tmp_path):
    config = f'[mounts]\nlake = "{hdfs.url("/nowhere")}"\n'
    server = Forebay(tmp_path / "worker", config=config).start()
    try:
        problem = eventually("the problem", lambda: [one.get("problem") for one in server.ask("under-stores") if one.get("problem")])
        assert "/nowhere" in problem[0], problem
        refused("ServiceUnavailable|NoSuchBucket", boto(server).put_object, Bucket="lake", Key="key", Body=b"x")
    finally:
        server.stop()
