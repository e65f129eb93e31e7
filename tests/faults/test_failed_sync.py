"""`fsync` fails: nothing is acknowledged by it, it is not tried again, and what is intact is still read."""

import threading

import pytest

from harness.clients import boto, refused
from harness.faults import Ext4, Tmpfs, system_calls
from harness.ledger import OK, UNKNOWN, Ledger
from harness.servers import eventually


def notices(server):
    return {notice["id"] for notice in server.ask("overview")["notices"]}


# Where room is given out late, a file system says only here that there is none.
ERRORS = ["EIO", "ENOSPC"]


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_sync_acknowledges_nothing_and_is_not_tried_again(start, error):
    server = start(mode="WRITE_BACK")
    ledger = Ledger(server)
    for number in range(20):
        assert ledger.put(f"ledger/{number}", 5_000) == OK
    with system_calls(server.process, "fdatasync", f"error={error}"):
        assert ledger.put("ledger/lost", 5_000) == UNKNOWN
        assert ledger.delete("ledger/0") == UNKNOWN
    # The disk does its work again, and the next sync would succeed although the bytes before it are gone.
    refusal = refused("ServiceUnavailable", boto(server).put_object, Bucket=server.bucket, Key="after", Body=b"x")
    assert refusal["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert not server.is_healthy()
    assert server.status()["failedDirectories"], "the directory is named"
    assert server.metrics()[f'forebay_store_directory_failed{{directory="{server.data}"}}'] == 1
    eventually("a notice", lambda: "directory-failed" in notices(server))
    for number in range(1, 20):
        ledger.check(f"ledger/{number}")
    server.kill()
    server.start()
    ledger.check_all()
    assert ledger.put("ledger/0", 5_000) == OK and server.is_healthy(), "a restart is what makes it take writes again"
    server.wait_until_drained()
    ledger.check_all()
    ledger.check_directory(server.under / server.bucket)


@pytest.mark.parametrize("error", ERRORS)
def test_nobody_who_shares_or_awaits_a_failed_sync_gets_an_acknowledgement(start, error):
    server = start(mode="TRANSIENT")
    ledgers = [Ledger(server, f"writer-{number}", seed=number + 1) for number in range(8)]
    for ledger in ledgers:
        assert ledger.put(f"{ledger.name}/deleted", 5_000) == OK
    outcomes = []

    def change(ledger):
        outcomes.append(ledger.put(f"{ledger.name}/written", 5_000))
        outcomes.append(ledger.delete(f"{ledger.name}/deleted"))

    threads = [threading.Thread(target=change, args=(ledger,)) for ledger in ledgers]
    # Long enough for all of them to come before it is over.
    with system_calls(server.process, "fdatasync", f"delay_enter=500000:error={error}"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == [UNKNOWN] * (2 * len(ledgers))
    assert not server.is_healthy()
    server.kill()
    server.start()
    for ledger in ledgers:
        ledger.check_all()
        assert ledger.put(f"{ledger.name}/written", 5_000) == OK


def test_a_disk_that_loses_what_it_was_given_loses_nothing_acknowledged(start, mounts):
    """A device without room for what the file system has promised: writes succeed, and syncs fail for good."""
    memory = mounts(Tmpfs, 24)
    disk = mounts(Ext4, 256, below=memory.at)
    server = start(data=disk.at / "data", size="200 MiB", mode="TRANSIENT")
    ledger = Ledger(server)
    for number in range(1000):
        if ledger.put(f"ledger/{number:03}", 300_000) != OK:
            break
    else:
        raise AssertionError("a device of 24 MiB took 300 MB")
    eventually("a red light", lambda: not server.is_healthy())
    assert ledger.put("ledger/more", 10) == UNKNOWN, "no other answer than an error"
    server.kill()
    disk.unmount()
    memory.resize(512)
    disk.mount()
    server.start()
    ledger.check_all()
    assert ledger.put("ledger/more", 10) == OK
