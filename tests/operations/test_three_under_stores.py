"""One worker with a bucket on HDFS, one on S3 and one in a directory, at once."""

import io
import itertools

import pytest
from harness.clients import boto
from harness.command_line import CommandLine
from harness.hdfs import is_installed, running
from harness.servers import Forebay, S3Server, eventually

pytestmark = pytest.mark.skipif(not is_installed(), reason="HDFS is not installed: scripts/setup hdfs, which needs a JDK and Maven")

BUCKETS = ("on-hdfs", "on-s3", "on-disk")
SMALL, LARGE = b"small", bytes(range(256)) * (24 << 10)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory):
    with running(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """An S3 with a bucket."""
    server = S3Server(tmp_path_factory.mktemp("s3")).start()
    boto(server).create_bucket(Bucket="remote")
    yield server
    server.kill()


@pytest.fixture
def worker(hdfs, objects, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    config = f"""
[mounts]
on-hdfs = "{hdfs.url("/lake")}"
on-disk = "file://{place}"
[mounts.on-s3]
url = "s3://remote?endpoint={objects.endpoint}&region=us-east-1"
access_key = "{objects.access_key}"
secret_key = "{objects.secret_key}"
[[policy]]
path = "/on-s3/"
writeMode = "WRITE_THROUGH"
"""
    started = Forebay(tmp_path / "worker", mode="WRITE_BACK", config=config).start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]


def read(s3, bucket, key):
    found = s3.get_object(Bucket=bucket, Key=key)
    return found["Body"].read(), found["Metadata"]


@pytest.mark.slow("six pairs of under stores, and HDFS is started for them")
def test_copies_go_from_each_under_store_to_each_other(hdfs, objects, worker, tmp_path):
    s3, cli = boto(worker), CommandLine(worker)
    for bucket in BUCKETS:
        s3.put_object(Bucket=bucket, Key="from/small", Body=SMALL, Metadata={"of": bucket})
        s3.upload_fileobj(io.BytesIO(LARGE), bucket, "from/large")
    pairs = list(itertools.permutations(BUCKETS, 2))
    for source, target in pairs:
        for name in ("small", "large"):
            s3.copy_object(Bucket=target, Key=f"to/{source}/{name}", CopySource={"Bucket": source, "Key": f"from/{name}"})
    worker.wait_until_drained()
    # Each under store has plain objects, which nobody needs Forebay for.
    for target in BUCKETS:
        for source in (bucket for bucket in BUCKETS if bucket != target):
            for name, body in (("small", SMALL), ("large", LARGE)):
                path = f"to/{source}/{name}"
                held = {
                    "on-hdfs": lambda: hdfs.shell("-cat", f"/lake/{path}"),
                    "on-s3": lambda: boto(objects).get_object(Bucket="remote", Key=path)["Body"].read(),
                    "on-disk": lambda: (tmp_path / "place" / path).read_bytes(),
                }[target]()
                assert held == body, (target, path)
    # And what comes back from there is the same.
    cli.text("free", "/")
    for source, target in pairs:
        assert read(s3, target, f"to/{source}/small") == (SMALL, {"of": source})
        assert read(s3, target, f"to/{source}/large")[0] == LARGE


def test_one_that_is_away_holds_up_no_other(objects, worker):
    s3 = boto(worker)
    objects.kill()
    try:
        for bucket in ("on-hdfs", "on-disk"):
            s3.put_object(Bucket=bucket, Key="meanwhile", Body=SMALL)
        worker.wait_until_drained()
        for bucket in ("on-hdfs", "on-disk"):
            assert read(s3, bucket, "meanwhile")[0] == SMALL
    finally:
        objects.start()
    eventually("the S3 is back", lambda: s3.put_object(Bucket="on-s3", Key="again", Body=SMALL))
    assert read(s3, "on-s3", "again")[0] == SMALL
