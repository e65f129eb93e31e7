"""The process is killed or paused at any moment, under clients that record every answer."""

import random
import signal

from harness.ledger import OK, Ledger, Load
from harness.servers import eventually

ROUNDS = 6


def test_kills_and_pauses_at_any_moment_lose_nothing(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    load = Load(server)
    moments = random.Random(load.seed)
    for _ in range(ROUNDS):
        with load.running():
            enough = load.acknowledged() + moments.randrange(10, 60)
            eventually("work", lambda: load.acknowledged() >= enough, 120)
            # A pause with requests in flight, here and towards the under store, which hangs up meanwhile.
            server.process.send_signal(signal.SIGSTOP)
            relay.set()
            server.process.send_signal(signal.SIGCONT)
            enough = load.acknowledged() + moments.randrange(0, 40)
            eventually("work after a pause", lambda: load.acknowledged() >= enough, 120)
            server.kill()
        server.start()
        load.check_all()
    server.wait_until_drained(120)
    load.check_all()
    assert server.metrics()["forebay_conflict_objects"] == 0
    assert server.stop() == 0


def test_memory_and_descriptors_come_back_after_trouble(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    ledger = Ledger(server)
    assert ledger.put("ledger/first", 1_000) == OK
    server.wait_until_drained()
    before = server.metrics()["process_open_fds"]
    relay.set(gone=True)
    load = Load(server)
    with load.running():
        eventually("a backlog", lambda: load.acknowledged() >= 100, 120)
    relay.set()
    server.wait_until_drained(120)
    # Connections of clients and to the under store are kept for a while, each writer has one.
    eventually("descriptors", lambda: server.metrics()["process_open_fds"] <= before + 40, 60)
    metrics = server.metrics()
    assert metrics["forebay_store_pinned_bytes"] == 0 and metrics["forebay_dirty_bytes"] == 0
    load.check_all()
