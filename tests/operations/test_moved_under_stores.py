"""Changes that wait go to the under store that they were meant for, and to no other one."""

import os
import subprocess

import pytest
from harness.clients import boto, refused
from harness.servers import REGION, Forebay, S3Server, eventually

SETTINGS = """
[cache]
drain_timeout = "100 ms"
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "1 s"
"""


class Mounted(Forebay):
    """With one mount, or with all buckets of an endpoint."""

    def __init__(self, directory, behind, mount):
        super().__init__(directory, mode="WRITE_BACK", behind=behind)
        self.is_mount = mount

    def show(self, bucket_or_server, more=""):
        """Where `lake` is from the next start on."""
        if self.is_mount:
            url = f's3://{bucket_or_server}?endpoint={self.behind.endpoint}&region={REGION}'
            self.config.write_text(f'{SETTINGS}{more}[mounts]\nlake = "{url}"\n')
        else:
            self.behind = bucket_or_server
            self.config.write_text(SETTINGS + more)

    def refused(self):
        environment = os.environ | self.environment()
        done = subprocess.run(self.command(), env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done
        return done.stderr.splitlines()[-1]


@pytest.fixture
def stores(tmp_path):
    """An S3 server in front of which changes wait, and a second one."""
    servers = [S3Server(tmp_path / name).start() for name in ("first", "second")]
    yield servers
    for server in servers:
        server.kill()


@pytest.mark.parametrize("mount", [True, False], ids=["mount", "endpoint"])
def test_what_waits_is_not_sent_to_another_under_store(stores, tmp_path, mount):
    first, second = stores
    old, new = ("old-lake", "new-lake") if mount else (first, second)
    holders = [(boto(first), "old-lake"), (boto(first), "new-lake")] if mount else [(boto(server), "lake") for server in stores]
    for (s3, bucket), body in zip(holders, (b"old", b"new")):
        s3.create_bucket(Bucket=bucket)
        for key in ("deleted", "replaced"):
            s3.put_object(Bucket=bucket, Key=key, Body=body)

    server = Mounted(tmp_path / "server", first, mount)
    server.show(old)
    server.start()
    try:
        s3 = boto(server)
        s3.list_objects_v2(Bucket="lake")
        first.kill()
        s3.delete_object(Bucket="lake", Key="deleted")
        s3.put_object(Bucket="lake", Key="replaced", Body=b"mine")
        assert server.stop() == 0
        first.start()

        server.show(new)
        line = server.refused()
        setting = "mounts.lake" if mount else "under_store.url"
        for part in (setting, "2 changes wait", "bucket lake", first.endpoint, "moved_buckets", "forebay status"):
            assert part in line, line
        s3, bucket = holders[1]
        assert [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in ("deleted", "replaced")] == [b"new", b"new"]

        server.show(old)
        server.start()
        server.wait_until_drained()
        s3, bucket = holders[0]
        assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["replaced"]
        assert boto(server).get_object(Bucket="lake", Key="replaced")["Body"].read() == b"mine"
        assert server.stop() == 0
        # Nothing waits any more. What is cached of the old one is not shown, even while the new one does not answer.
        server.show(new)
        behind = first if mount else second
        behind.kill()
        server.start()
        refused("ServiceUnavailable", boto(server).get_object, Bucket="lake", Key="replaced")
        behind.start()
        eventually("the other object", lambda: boto(server).get_object(Bucket="lake", Key="deleted")["Body"].read() == b"new")
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def test_an_operator_may_say_that_the_new_under_store_has_the_same_objects(stores, tmp_path):
    first, second = stores
    for server in stores:
        boto(server).create_bucket(Bucket="lake")
    server = Mounted(tmp_path / "server", first, False)
    server.show(first)
    server.start()
    try:
        s3 = boto(server)
        s3.list_objects_v2(Bucket="lake")
        first.kill()
        s3.put_object(Bucket="lake", Key="key", Body=b"mine")
        assert server.stop() == 0
        server.show(second, '[under_store]\nmoved_buckets = "lake"\n')
        server.start()
        server.wait_until_drained()
        assert boto(second).get_object(Bucket="lake", Key="key")["Body"].read() == b"mine"

        def reminds():
            return any(notice["id"] == "moved-buckets-set" for notice in server.ask("notices"))

        assert not reminds()
        assert server.stop() == 0
        # It has done its work, and would let a mistake pass.
        server.start()
        assert reminds()
        assert server.stop() == 0
        server.show(second)
        server.start()
        assert not reminds()
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()
