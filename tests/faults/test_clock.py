"""The wall clock of the server jumps both ways while it runs."""

import datetime
import email.utils
import itertools
import urllib.parse

import botocore.auth
import botocore.crt.auth
import pytest

from harness.clients import boto, refused, send
from harness.ledger import OK, REFUSED, Ledger

HOUR = 3600
YEAR = 365 * 24 * HOUR


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


def served_from(server, tier):
    return sum(count for name, count in server.metrics().items() if name.startswith(f'forebay_reads_total{{tier="{tier}"'))


def test_jumps_evict_neither_what_is_read_nor_what_the_under_store_lacks(start, relay, clock, move):
    server = start(mode="WRITE_BACK", behind=relay, size="48 MiB", variables=clock.variables())
    hot, cold, dirty = Ledger(server, "hot"), Ledger(server, "cold", seed=1), Ledger(server, "dirty", seed=2)
    for number in range(10):
        assert hot.put(f"hot/{number}", 300_000) == OK
    hot.check_keys()
    numbers = itertools.count()
    for jump in (0, YEAR, -YEAR, 0):
        move(jump)
        for _ in range(6):
            for _ in range(8):
                assert cold.put(f"cold/{next(numbers)}", 300_000) == OK
            server.wait_until_drained()
            hot.check_keys()
    assert server.metrics()["forebay_evicted_bytes_total"] > 10 << 20
    before = served_from(server, "disk")
    hot.check_keys()
    assert served_from(server, "disk") == before + 10, "what is read is here"
    before = served_from(server, "under_store")
    for number in range(10):
        cold.check(f"cold/{number}")
    assert served_from(server, "under_store") == before + 10, "and what is as old and was not read has left"

    relay.set(gone=True)
    numbers = itertools.count()
    for jump in itertools.cycle((YEAR, -YEAR, 0)):
        move(jump)
        outcomes = [dirty.put(f"dirty/{next(numbers)}", 300_000) for _ in range(10)]
        dirty.check_keys()
        if outcomes[-1] == REFUSED:
            break
    assert dirty.acknowledged > 20
    relay.set()
    move(-YEAR)
    server.wait_until_drained()
    for ledger in (hot, cold, dirty):
        ledger.check_all()
    assert server.stop() == 0


def test_listings_and_times_do_not_go_back_with_the_clock(start, clock, move):
    server = start(mode="TRANSIENT", variables=clock.variables())
    ledger, times = Ledger(server), {}
    keys = [f"ledger/{number}" for number in range(8)]
    for turn, jump in enumerate((0, HOUR, 0, -HOUR, -HOUR, HOUR // 2)):
        move(jump)
        if turn == 4:
            server.kill()
            server.start()
        for key in keys[turn % 3 :: 2]:
            assert ledger.put(key, 1_000) == OK
        listed = boto(server).list_objects_v2(Bucket=server.bucket)["Contents"]
        assert [entry["Key"] for entry in listed] == sorted(entry["Key"] for entry in listed)
        for entry in listed:
            key, time = entry["Key"], entry["LastModified"]
            assert boto(server).head_object(Bucket=server.bucket, Key=key)["LastModified"] == time.replace(microsecond=0)
            assert time >= times.get(key, time), f"{key} was older than before"
            times[key] = time
        # Of two writes, the later one does not look like the older.
        written = [times[key] for key in keys[turn % 3 :: 2]]
        assert min(written) >= max(times.values()) - datetime.timedelta(seconds=1) and written == sorted(written)
    ledger.check_all()


def test_a_presigned_url_holds_for_its_time_whatever_the_clock_was(start, clock):
    server = start(mode="WRITE_BACK", variables=clock.variables())
    boto(server).put_object(Bucket=server.bucket, Key="key", Body=b"body")
    target = {"Bucket": server.bucket, "Key": "key"}
    url = urllib.parse.urlsplit(boto(server).generate_presigned_url("get_object", Params=target, ExpiresIn=HOUR))
    ask = lambda: send(server, "GET", f"{url.path}?{url.query}")  # noqa: E731
    assert (ask().status, ask().body) == (200, b"body")
    for jump in (2 * HOUR, YEAR):
        clock.move(jump)
        answer = ask()
        assert answer.status == 403 and b"<Code>AccessDenied</Code>" in answer.body, answer
        assert b"<Message>Request has expired</Message>" in answer.body, answer
        clock.move(0)
        assert (ask().status, ask().body) == (200, b"body")
    clock.move(-2 * HOUR)
    answer = ask()
    assert answer.status == 403 and b"<Message>Request is not yet valid</Message>" in answer.body, answer
    clock.move(0)
    assert (ask().status, ask().body) == (200, b"body")


def test_answers_tell_the_time_of_the_clock_as_it_is(start, clock):
    """After an error about clock skew, clients compute the skew from the Date header."""
    server = start(mode="WRITE_BACK", variables=clock.variables())
    for jump in (0, YEAR, -YEAR, 0, 2 * HOUR, 0):
        clock.move(jump)
        told = email.utils.parsedate_to_datetime(send(server, "GET", "/").headers["date"])
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=jump)
        assert abs(told - now) < datetime.timedelta(minutes=5), f"after a jump of {jump} s"
