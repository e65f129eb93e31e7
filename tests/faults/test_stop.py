"""Stops that are in a hurry, and syncs that take long."""

import signal
import socket

from harness.clients import sign
from harness.faults import system_calls
from harness.ledger import OK, Ledger, Load
from harness.servers import answers, eventually


def test_a_second_signal_ends_at_once_and_loses_nothing(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    load = Load(server)
    with load.running():
        eventually("work", lambda: load.acknowledged() >= 80, 120)
    # A request that does not end by itself keeps the first signal from ending the process.
    target = f"/{server.bucket}/never"
    body = bytes(100_000)
    headers = sign(server, "PUT", target, {"Content-Length": str(len(body))}, body)
    slow = socket.create_connection(("127.0.0.1", server.port))
    head = "".join(f"{name}: {value}\r\n" for name, value in ({"Host": f"127.0.0.1:{server.port}"} | headers).items())
    slow.sendall(f"PUT {target} HTTP/1.1\r\n{head}\r\n".encode() + body[:1000])
    eventually("it is under way", lambda: server.metrics()["forebay_connections"] >= 1)
    server.process.send_signal(signal.SIGTERM)
    eventually("it stops", lambda: not answers(f"{server.admin}/readyz"))
    assert server.process.poll() is None, "it waits for the request"
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=60) != 0
    slow.close()
    server.start()
    load.check_keys()
    relay.set()
    server.wait_until_drained(120)
    load.check_all()


def test_a_stop_under_load_leaves_what_is_dirty_for_the_next_start(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    load = Load(server)
    with load.running():
        eventually("work", lambda: load.acknowledged() >= 80, 120)
        assert server.stop() == 0
    server.start()
    assert server.metrics()["forebay_dirty_objects"] > 0
    relay.set()
    load.check_all()
    server.wait_until_drained(120)
    load.check_all()


def test_a_slow_disk_slows_writes_and_nothing_else(start):
    server = start(mode="WRITE_BACK", memory="32 MiB")
    ledger = Ledger(server)
    assert ledger.put("ledger/before", 3_000) == OK
    load = Load(server, writers=8)
    commits = lambda: server.metrics()["forebay_store_commits_total"]  # noqa: E731
    syncs = lambda: server.metrics()["forebay_store_group_commits_total"]  # noqa: E731
    with system_calls(server.process, "fdatasync", "delay_enter=300000"):
        before = commits(), syncs()
        with load.running():
            eventually("work", lambda: load.acknowledged() >= 60, 120)
            ledger.check("ledger/before")
            assert server.is_healthy(), "slow is not broken"
        made, synced = commits() - before[0], syncs() - before[1]
        assert synced < made, "writers share the syncs that they wait for"
    load.check_all()
    assert server.is_healthy()
    assert server.stop() == 0
