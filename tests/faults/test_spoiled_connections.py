"""Connections to the under store that are slow, cut or damaged: objects arrive whole, or not yet."""

import pytest
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from harness.clients import boto, refused
from harness.ledger import OK, Ledger
from harness.relay import Fault
from harness.servers import eventually

SIZE = 300_000
FAULTS = {
    "an answer late": Fault("down", delay=0.2),
    "requests in small pieces": Fault("up", delay=0.02, piece=16 << 10),
    "requests cut": Fault("up", cut_after=100_000),
    "answers cut": Fault("down", cut_after=100),
    "requests damaged": Fault("up", flips=True),
    "requests swallowed": Fault("up", hangs=True),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_uploads_arrive_whole(start, relay, fault):
    server = start(mode="WRITE_BACK", behind=relay, patience="2 s")
    ledger = Ledger(server)
    relay.set(fault)
    for number in range(4):
        assert ledger.put(f"ledger/{number}", SIZE) == OK, "a write is none of the under store's business"
    assert ledger.delete("ledger/0") == OK
    ledger.check_keys()
    if fault.flips or fault.cut_after:
        eventually("spoiled uploads", lambda: relay.spoiled > 0, 60)
    relay.set()
    server.wait_until_drained(120)
    ledger.check_all()
    behind = boto(relay)
    for key in ledger.present():
        assert behind.get_object(Bucket=server.bucket, Key=key)["Body"].read() == ledger.read(key)
    assert server.metrics()["forebay_conflict_objects"] == 0


@pytest.mark.parametrize("damage", [Fault("down", flips=True), Fault("down", cut_after=150_000)], ids=["damaged", "cut"])
def test_a_damaged_answer_is_neither_served_as_whole_nor_kept(start, relay, damage):
    server = start(mode="WRITE_THROUGH", behind=relay, patience="2 s")
    body = bytes(range(256)) * (SIZE // 256)
    # With a checksum, as all clients of today write it.
    boto(relay).put_object(Bucket=server.bucket, Key="theirs", Body=body)
    # A client that compares nothing itself.
    trusting = boto(server, response_checksum_validation="when_required")
    read = lambda: attempt(lambda: trusting.get_object(Bucket=server.bucket, Key="theirs")["Body"].read())  # noqa: E731
    relay.set(damage)
    assert read() is None, "no clean end of a wrong body"
    assert relay.spoiled > 0
    relay.set()
    assert eventually("service", read) == body, "and nothing wrong was kept"


def attempt(call):
    """What a call returns, or None when it fails."""
    try:
        return call()
    except (BotoCoreError, ClientError, HTTPClientError):
        return None


def test_a_write_through_says_when_it_is_not_there(start, relay):
    server = start(mode="WRITE_THROUGH", behind=relay, patience="2 s")
    ledger = Ledger(server)
    assert ledger.put("ledger/key", SIZE) == OK
    relay.set(gone=True)
    error = refused("ServiceUnavailable|SlowDown", boto(server).put_object, Bucket=server.bucket, Key="ledger/key", Body=b"x")
    assert "retry-after" in error["ResponseMetadata"]["HTTPHeaders"]
    relay.set()
    eventually("writes", lambda: ledger.put("ledger/key", SIZE) == OK)
    ledger.check_all()
