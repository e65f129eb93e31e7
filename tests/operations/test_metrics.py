"""Requests that the cache avoids and those that it sends, counted against a real S3 server; the state of under stores."""

import pytest

from harness.clients import boto
from harness.servers import Forebay, S3Server, eventually


@pytest.fixture
def pair(tmp_path):
    behind = S3Server(tmp_path / "s3").start()
    fast = "[under_store_limits]\ncircuit_failures = 2\ncircuit_pause_max = \"1 s\"\n[cache]\npersist_backoff_max = \"1 s\"\n"
    forebay = Forebay(tmp_path / "forebay", mode="WRITE_BACK", behind=behind, config=fast).start()
    yield behind, forebay
    for server in (forebay, behind):
        if server.process.poll() is None:
            server.kill()


def avoided(forebay):
    metrics = forebay.metrics()
    return tuple(metrics[f'forebay_requests_avoided_total{{operation="{operation}"}}'] for operation in ("get", "head"))


def sent(forebay, kind):
    return forebay.metrics().get(f'forebay_under_store_requests_total{{class="{kind}"}}', 0)


def read(s3, key, **more):
    return s3.get_object(Bucket="counted", Key=key, **more)["Body"].read()


def test_reads_that_take_no_request_are_counted_and_no_others(pair):
    behind, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="counted")
    s3.put_object(Bucket="counted", Key="written", Body=b"here")
    assert read(s3, "written") == b"here"
    s3.head_object(Bucket="counted", Key="written")
    assert avoided(forebay) == (1, 1), "what waits for the under store is served without it"

    boto(behind).put_object(Bucket="counted", Key="cold", Body=b"z" * 3_000_000)
    before = sent(forebay, "read")
    assert len(read(s3, "cold")) == 3_000_000
    assert avoided(forebay) == (1, 1), "the first read asks"
    assert sent(forebay, "read") > before
    # The pages are kept behind the answer.
    eventually("a copy", lambda: read(s3, "cold", Range="bytes=0-9") and avoided(forebay)[0] > 1)
    before, (gets, heads) = sent(forebay, "read"), avoided(forebay)
    assert len(read(s3, "cold")) == 3_000_000
    s3.head_object(Bucket="counted", Key="cold")
    assert avoided(forebay) == (gets + 1, heads + 1)
    assert sent(forebay, "read") == before, "and nothing was sent"
    with pytest.raises(s3.exceptions.ClientError):
        read(s3, "absent")
    assert avoided(forebay)[0] == gets + 1


def test_requests_are_counted_as_providers_price_them(pair):
    _, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="counted")
    before = {kind: sent(forebay, kind) for kind in ("write", "list", "delete")}
    s3.put_object(Bucket="counted", Key="key", Body=b"x")
    forebay.wait_until_drained()
    s3.list_objects_v2(Bucket="counted")
    s3.delete_object(Bucket="counted", Key="key")
    forebay.wait_until_drained()
    for kind, count in before.items():
        assert sent(forebay, kind) > count, kind


def test_an_outage_opens_the_circuit_and_its_end_closes_it(pair):
    behind, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="counted")

    def circuit():
        label = forebay.under_store_url()
        return forebay.metrics()[f'forebay_under_store_circuit_open{{under_store="{label}"}}']

    assert circuit() == 0
    behind.kill()
    s3.put_object(Bucket="counted", Key="waits", Body=b"x")
    eventually("an open circuit", lambda: circuit() == 1, 60)
    behind.start()
    eventually("a closed circuit", lambda: circuit() == 0, 60)


def test_a_disk_under_the_store_is_watched(pair):
    _, forebay = pair
    label = f'{{directory="{forebay.data}"}}'
    eventually("a look at the disk", lambda: f"forebay_disk_saturated{label}" in forebay.metrics())
    metrics = forebay.metrics()
    assert metrics[f"forebay_disk_saturated{label}"] in (0, 1)
    busy = metrics.get(f"forebay_disk_busy_ratio{label}")
    assert busy is None or 0 <= busy <= 1
    assert 0 < metrics["forebay_pinned_max_bytes"] < metrics["forebay_store_capacity_bytes"]
