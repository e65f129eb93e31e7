"""The power goes: a file system loses everything that was not synced, names of new files included."""

import pytest

from harness.clients import boto
from harness.faults import Ext4, stand_still
from harness.ledger import Load
from harness.servers import eventually


def cut(disk, server, load, more):
    """Cuts the power under load, after `more` more operations have been acknowledged; then all starts again."""
    enough = load.acknowledged() + more
    with load.running():
        eventually("work to lose", lambda: load.acknowledged() >= enough, 120)
        lose_power(disk, server)
    start_again(disk, server)
    load.check_all()


def lose_power(disk, server):
    # The process stops before the disk does. Otherwise the kernel would let syncs in flight succeed although the disk has lost what
    # they wrote, and the server would acknowledge it. On a machine without power, it cannot.
    stand_still(server.process)
    disk.cut_power()
    server.kill()


def start_again(disk, server):
    disk.unmount()
    disk.mount()
    server.start()


@pytest.mark.parametrize("mode", ["WRITE_BACK", "TRANSIENT"])
def test_what_was_acknowledged_survives_power_cuts(start, mounts, mode):
    disk = mounts(Ext4, 512)
    server = start(data=disk.at / "data", mode=mode)
    load = Load(server)
    for _ in range(3):
        cut(disk, server, load, 120)
    assert server.is_healthy()
    if mode == "WRITE_BACK":
        server.wait_until_drained()
        load.check_directory(server.under / server.bucket)


def test_what_left_the_cache_is_in_a_directory_that_lost_power_too(start, mounts):
    """The under store is on the same disk, and the cache too small for what is written."""
    disk = mounts(Ext4, 512)
    (disk.at / "under").mkdir()
    disk.sync()
    server = start(data=disk.at / "data", under=disk.at / "under", size="32 MiB", mode="WRITE_BACK")
    # The bucket was made in the under store before anything was promised of it.
    load = Load(server, keys=100, sizes=(3_000, 300_000))
    for _ in range(2):
        cut(disk, server, load, 250)
    assert from_under_store(server) > 0, "nothing has left the cache"
    server.wait_until_drained()
    load.check_directory(server.under / server.bucket)


def from_under_store(server):
    """Reads that the under store answered."""
    return sum(count for name, count in server.metrics().items() if name.startswith('forebay_reads_total{tier="under_store"'))


def test_what_was_written_through_survives_a_power_cut(start, mounts):
    disk = mounts(Ext4, 256)
    (disk.at / "under").mkdir()
    disk.sync()
    server = start(data=disk.at / "data", under=disk.at / "under", mode="WRITE_THROUGH")
    load = Load(server)
    cut(disk, server, load, 80)
    load.check_directory(server.under / server.bucket)


def test_tags_that_were_acknowledged_survive_a_power_cut(start, mounts):
    """They go to the directory at once, as an attribute of a file that others have synced long before."""
    disk = mounts(Ext4, 256)
    (disk.at / "under").mkdir()
    server = start(data=disk.at / "data", under=disk.at / "under", mode="WRITE_THROUGH")
    s3, keys = boto(server), [f"key-{number}" for number in range(20)]
    for key in keys:
        s3.put_object(Bucket=server.bucket, Key=key, Body=b"value")
    disk.sync()
    tags = [{"Key": "state", "Value": "done"}]
    for key in keys:
        s3.put_object_tagging(Bucket=server.bucket, Key=key, Tagging={"TagSet": tags})
    lose_power(disk, server)
    start_again(disk, server)
    assert [s3.get_object_tagging(Bucket=server.bucket, Key=key)["TagSet"] for key in keys] == [tags] * len(keys)
