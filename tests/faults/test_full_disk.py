"""The file system is full before the cache is: 503 SlowDown, deletes still work, and service comes back with the room."""

import os

from harness.clients import boto, refused
from harness.faults import Tmpfs
from harness.ledger import OK, REFUSED, Ledger
from harness.servers import eventually


def test_a_full_disk_is_told_and_ends_by_itself(start, mounts, relay):
    disk = mounts(Tmpfs, 32)
    server = start(data=disk.at / "data", size="128 MiB", mode="WRITE_BACK", behind=relay)
    ledger = Ledger(server)
    # So that nothing can leave the cache.
    relay.set(gone=True)
    taken = 0
    while ledger.put(f"ledger/{taken:03}", 300_000) == OK:
        taken += 1
        assert taken < 150, "32 MiB took 45 MB"
    error = refused("SlowDown", boto(server).put_object, Bucket=server.bucket, Key="more", Body=os.urandom(300_000))
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 503
    error = refused("InsufficientStorage", boto(server).put_object, Bucket=server.bucket, Key="more", Body=bytes(40 << 20))
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 507, "32 MiB will never hold it"
    assert server.is_healthy(), "a full disk is no broken one"
    for number in range(5):
        assert ledger.delete(f"ledger/{number:03}") == OK, "deletes work while nothing else does"
    ledger.check_keys()
    server.kill()
    server.start()
    ledger.check_keys()

    relay.set()
    server.wait_until_drained(120)
    put = lambda: ledger.put("ledger/again", 300_000)  # noqa: E731
    eventually("room again", lambda: put() == OK)
    for number in range(150):
        # More than the disk holds: what the under store has makes room.
        eventually("room", lambda: ledger.put(f"ledger/{number:03}", 300_000) == OK, 60)
    server.wait_until_drained(120)
    ledger.check_all()


def test_room_that_others_give_back_is_used(start, mounts):
    disk = mounts(Tmpfs, 48)
    server = start(data=disk.at / "data", size="128 MiB", mode="TRANSIENT")
    ledger = Ledger(server)
    assert ledger.put("ledger/first", 300_000) == OK
    hog = disk.fill()
    outcomes = [ledger.put(f"ledger/{number}", 300_000) for number in range(20)]
    assert outcomes[-1] == REFUSED, outcomes
    hog.unlink()
    assert ledger.put("ledger/after", 300_000) == OK, "at once, without a restart"
    ledger.check_all()
