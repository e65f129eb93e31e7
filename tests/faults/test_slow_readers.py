"""Slow readers of what has left the cache: they keep its room for a while, but not from those who need it."""

import os
import pathlib

from harness.clients import boto
from harness.ledger import OK, Ledger
from harness.servers import eventually
from harness.slow import Slow

# More than a connection and the kernel hold of an answer. Segments have 2 MiB.
SIZE, STORE_BYTES = 8 << 20, 128 << 20
READERS = 14


def taken(server):
    """What the store's files take of the disk, also those without a name that the server has open."""
    files = {}
    for one in [*server.data.iterdir(), *pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()]:
        try:
            status = one.stat()
            if one.parent == server.data or str(server.data) in os.readlink(one):
                files[status.st_dev, status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:
            pass
    return sum(files.values())


def read_slowly(server, key, body):
    boto(server).put_object(Bucket=server.bucket, Key=key, Body=body)
    reader = Slow(server, "GET", key)
    assert reader.has_begun()
    return reader


def test_readers_of_what_was_deleted_do_not_fill_the_disk_beyond_the_store(start):
    server = start(mode="TRANSIENT", size="128 MiB")
    bodies = [os.urandom(SIZE) for _ in range(READERS)]
    readers = []
    for round in range(2):
        for number, body in enumerate(bodies):
            readers.append(read_slowly(server, f"{round}/{number}", body))
            boto(server).delete_object(Bucket=server.bucket, Key=f"{round}/{number}")
            assert taken(server) < STORE_BYTES, number
    # Nobody was refused, although much more was written than fits.
    assert server.metrics()["forebay_store_reclaimed_bytes_total"] > STORE_BYTES / 2
    assert 0 < server.metrics()["forebay_store_held_bytes"] <= STORE_BYTES / 8
    first, last = readers[0].answer(), readers[-1].answer()
    assert first[0] == 200 and len(first[1]) < SIZE and bodies[0].startswith(first[1]), "it has broken off"
    assert last == (200, bodies[-1])
    for reader in readers[1:-1]:
        reader.connection.close()
    eventually("nothing is held", lambda: server.metrics()["forebay_store_held_bytes"] == 0)
    assert server.metrics()["forebay_store_corrupt_records_total"] == 0


def test_readers_of_what_is_evicted_go_on_with_what_the_under_store_has(start):
    server = start(mode="WRITE_BACK", size="128 MiB")
    body = os.urandom(SIZE)
    reader = read_slowly(server, "read", body)
    ledger = Ledger(server)
    others = []
    for number in range(3 * STORE_BYTES // 2 // SIZE):
        assert ledger.put(f"ledger/{number}", SIZE) == OK
        if number % 4 == 0:
            others.append(Slow(server, "GET", f"ledger/{number}"))
    assert taken(server) < STORE_BYTES
    assert reader.answer() == (200, body)
    for number, other in enumerate(others):
        status, read = other.answer()
        assert status == 200 and len(read) == SIZE, number
    ledger.check_keys()
