"""The wall clock of the server jumps both ways while it runs."""

import datetime

import botocore.auth
import botocore.crt.auth
import pytest

from harness.clients import boto, refused
from harness.ledger import OK, Ledger

HOUR = 3600


@pytest.fixture
def move(clock, monkeypatch):
    """Moves the clocks of the server and of its clients together."""
    real = botocore.auth.get_current_datetime

    def move(seconds):
        clock.move(seconds)
        moved = lambda *words, **more: real(*words, **more) + datetime.timedelta(seconds=seconds)  # noqa: E731
        for module in (botocore.auth, botocore.crt.auth):
            monkeypatch.setattr(module, "get_current_datetime", moved)

    return move


def test_jumps_change_neither_order_nor_listings_nor_what_is_kept(start, relay, clock, move):
    server = start(mode="WRITE_BACK", behind=relay, variables=clock.variables())
    ledger, times = Ledger(server), []
    for jump in (0, 5 * HOUR, -5 * HOUR, 400 * 24 * HOUR, -24 * HOUR, 0):
        move(jump)
        for number in range(5):
            assert ledger.put(f"ledger/{number}", 1_000 + abs(jump) % 1_000) == OK
        assert ledger.put(f"ledger/only{jump}", 500) == OK
        assert ledger.delete("ledger/4") == OK
        times.append(boto(server).head_object(Bucket=server.bucket, Key="ledger/0")["LastModified"])
        ledger.check_all()
        server.wait_until_drained()
    assert times == sorted(times), "the time of a key's last write never goes back"
    move(-3 * HOUR)
    server.kill()
    server.start()
    assert ledger.put("ledger/0", 77) == OK, "after a start in the past too"
    ledger.check_all()
    server.wait_until_drained()
    move(0)
    behind = boto(relay)
    for key in ledger.present():
        assert behind.get_object(Bucket=server.bucket, Key=key)["Body"].read() == ledger.read(key)
    assert server.stop() == 0


def test_only_signatures_care_what_time_it_is(start, clock, move):
    server = start(mode="WRITE_BACK", variables=clock.variables())
    clock.move(2 * HOUR)
    refused("RequestTimeTooSkewed", boto(server).list_objects_v2, Bucket=server.bucket)
    move(2 * HOUR)
    boto(server).list_objects_v2(Bucket=server.bucket)
