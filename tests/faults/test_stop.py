"""Stops that are in a hurry, and syncs that take long."""

import signal
import socket
import threading

import pytest

from harness.clients import sign
from harness.faults import system_calls
from harness.ledger import OK, REFUSED, UNKNOWN, Ledger, Load
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
    eventually("it is in flight", lambda: server.metrics()["forebay_connections"] >= 1)
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
    assert "stopped: the rest goes to the under store after the next start" in server.log.read_text()
    server.start()
    load.check_what_was_left(server, relay)
    assert server.stop() == 0
    assert "stopped: nothing waits for the under store" in server.log.read_text()


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
    assert {done.outcome for ledger in load.ledgers for done in ledger.history} == {OK}, "and nobody is refused"
    load.check_all()
    assert server.is_healthy()
    assert server.stop() == 0


@pytest.mark.slow("the server waits 15 s for a disk; the tests of forebay-cache do it in simulated time")
def test_a_disk_that_stands_still_ends_writes_with_503_and_keeps_nothing_else_waiting(start):
    server = start(mode="TRANSIENT")
    ledger, waiting = Ledger(server), Ledger(server, "waiting", seed=1)
    for number in range(3):
        assert ledger.put(f"ledger/{number}", 300_000) == OK
    outcomes = []
    writer = threading.Thread(target=lambda: outcomes.append(waiting.put("waiting/put", 3_000)))
    logged = lambda: any(b"waiting/put" in path.read_bytes() for path in server.data.glob("*.log"))  # noqa: E731
    # Far longer than the test: it ends when the trace does.
    with system_calls(server.process, "fdatasync", "delay_enter=600000000"):
        writer.start()
        eventually("a write that waits for its sync", logged)
        ledger.check_all()
        assert waiting.read("waiting/put") is None, "nobody sees what is not acknowledged"
        eventually("an answer", lambda: outcomes, 60)
        assert outcomes == [UNKNOWN]
        assert waiting.put("waiting/put", 2_000) == REFUSED
        assert waiting.put("waiting/large", 3_000_000) == REFUSED
        assert waiting.delete("ledger/0") == REFUSED
        ledger.check_all()
        assert server.is_healthy(), "the disk may recover at any time"
        assert server.metrics()["forebay_rejected_disk_stalled_total"] == 4
    writer.join()
    waiting.check_all()
    assert waiting.put("waiting/put", 2_000) == OK
    assert waiting.put("waiting/large", 3_000_000) == OK
    ledger.check_all()
    waiting.check_all()
    assert server.stop() == 0
