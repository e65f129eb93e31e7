"""What workers of a cluster tell Prometheus and operators: who lives, where keys are at home, and what no worker has."""

import os
import re
import urllib.request

import pytest
from botocore.exceptions import ClientError

from harness.cluster import LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import ROOT, Forebay, eventually

BUCKET = "cluster"
PREFIX = "forebay_cluster_"
# What is written stays dirty: the only bytes are those of one worker.
SLOWLY = {"FOREBAY_UNDER_STORE_LIMITS_REQUESTS_PER_SECOND": "1"}


def samples(worker, name, **labels):
    """The samples with these labels, and any others."""
    found = {}
    for sample, value in worker.metrics().items():
        shown, _, rest = sample.partition("{")
        given = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if shown == PREFIX + name and labels.items() <= given.items():
            assert given["cluster"] == "lake", sample
            found[sample] = value
    return found


def total(workers, name, **labels):
    return sum(sum(samples(worker, name, **labels).values()) for worker in workers)


def notices(worker):
    return {notice["id"] for notice in worker.ask("notices")}


def is_lost(worker, count):
    return total([worker], "workers", state="lost") == count


def started(cluster, **options):
    workers = [cluster.worker(name, **options) for name in ("w1", "w2", "w3")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    workers[0].s3().create_bucket(Bucket=BUCKET)
    for worker in workers:
        eventually("the bucket", lambda: BUCKET in [b["Name"] for b in worker.s3().list_buckets()["Buckets"]])
    return workers


def put_many(workers, count=24):
    written = {f"objects/{number:03}": os.urandom(1000 + number) for number in range(count)}
    for number, (key, body) in enumerate(written.items()):
        client = workers[number % len(workers)].s3()
        answered(lambda: client.put_object(Bucket=BUCKET, Key=key, Body=body))
    return written


def test_workers_that_are_well_tell_so_and_all_of_it_is_documented(cluster):
    workers = started(cluster)
    put_many(workers)
    assert total(workers, "slots") == 1024
    assert total(workers, "slots_taken_total") - total(workers, "slots_released_total") <= 1024
    assert total(workers, "slots_released_total") > 0, "the first worker had all of them"
    for worker in workers:
        assert total([worker], "workers", state="live") == 3
        assert total([worker], "workers") == 3
        assert 0 < total([worker], "lease_seconds") <= LEASE_SECONDS
        for name in ("slots_without_home", "copies_wanted", "copies_unavailable"):
            assert list(samples(worker, name).values()) == [0], name
        eventually("a look at the engine", lambda: total([worker], "engine_up") == 1)
        assert 0 < total([worker], "engine_database_bytes") < total([worker], "engine_quota_bytes")
        assert list(samples(worker, "engine_full").values()) == [0]
        assert total([worker], "engine_call_duration_seconds_count", operation="commit") > 0
        assert worker.metrics()['forebay_requests_total{operation="Forwarded",code="200"}'] > 0
    with urllib.request.urlopen(f"{workers[0].admin}/metrics", timeout=60) as response:
        told = set(re.findall(rf"^# HELP ({PREFIX}\w+) (.*?)\.?$", response.read().decode(), re.M))
    reference = (ROOT / "docs" / "metrics-reference.md").read_text()
    documented = re.findall(rf"^\| `({PREFIX}\w+)` \| \w+ \| `cluster`.* \| (.*?) \|$", reference, re.M)
    # Errors have no sample while all is well.
    told.add((f"{PREFIX}engine_errors", "Calls to the engine of the cluster that failed, by operation and kind of error"))
    assert told == {(re.sub("_total$", "", name), words) for name, words in documented}


def test_what_only_a_lost_worker_has_is_named_by_all(cluster):
    workers = started(cluster, variables=SLOWLY)
    written = put_many(workers)
    lost, rest = workers[2], workers[:2]
    lost.kill()
    for worker in rest:
        eventually("a lost worker", lambda: is_lost(worker, 1), LEASE_SECONDS + 25)
        eventually("homes for all slots", lambda: total([worker], "slots_without_home") == 0, LEASE_SECONDS + 25)
    assert total(rest, "slots") == 1024

    def refused():
        """The keys that get 503, when the metrics count as many."""
        keys = set()
        for key, body in written.items():
            try:
                assert rest[0].s3().get_object(Bucket=BUCKET, Key=key)["Body"].read() == body
            except ClientError as error:
                assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 503, error
                keys.add(f"/{BUCKET}/{key}")
        return keys if len(keys) == total(rest, "copies_unavailable") == total(rest, "copies_wanted") else None

    for worker in rest:
        eventually("a notice", lambda: "bytes-unavailable" in notices(worker))
    keys = eventually("the number of keys that are refused", refused, 60)
    assert keys
    for worker in rest:
        named = {}
        for found in worker.ask("cluster")["workers"]:
            status = found["status"] or {"copiesUnavailable": 0, "unavailable": []}
            assert len(status["unavailable"]) == min(status["copiesUnavailable"], 10)
            named |= {unavailable["path"]: unavailable for unavailable in status["unavailable"]}
        assert named and set(named) <= keys
        assert all("worker w3" in found["problem"] and found["sinceMs"] > 1e12 for found in named.values()), named
        shown = CommandLine(worker).text("cluster", "status")
        assert all(path in shown for path in named), shown
        top = CommandLine(worker).text("top", "--once")
        assert "2 of 3 workers live, 0 of 1,024 slots without a home" in top and f"{len(keys)} unavailable" in top, top

    released = total(rest, "slots_released_total")
    lost.start()
    wait_until_shared(workers)
    for worker in workers:
        eventually("bytes of all keys", lambda: total([worker], "copies_wanted") == total([worker], "copies_unavailable") == 0, 60)
        assert is_lost(worker, 0)
    # Some may move between the other two as well.
    assert total(rest, "slots_released_total") - released >= total([lost], "slots") > 0
    assert not [found for worker in workers for found in worker.status()["unavailable"]]
    for worker in workers:
        eventually("the end of the notice", lambda: "bytes-unavailable" not in notices(worker))


@pytest.mark.slow("the engine is given up after several periods")
def test_an_engine_that_is_silent_is_told_by_all(cluster):
    workers = started(cluster)
    cluster.etcd.pause()
    for worker in workers:
        eventually("the end of the lease", lambda: list(samples(worker, "lease_seconds").values()) == [0], LEASE_SECONDS + 25)
        eventually("a look at the engine", lambda: list(samples(worker, "engine_up").values()) == [0], 40)
        eventually("an error", lambda: total([worker], "engine_errors_total", operation="commit") > 0, 40)
        assert not samples(worker, "workers") and not samples(worker, "slots_without_home"), "nobody knows"
        assert not samples(worker, "engine_database_bytes")
        assert worker.ask("cluster")["ageMs"] > 5000, "what it shows is not of now"
    cluster.etcd.resume()
    for worker in workers:
        eventually("a lease", lambda: total([worker], "lease_seconds") > 0)
        eventually("a look at the engine", lambda: total([worker], "engine_up") == 1)
        eventually("all workers", lambda: total([worker], "workers", state="live") == 3)
        eventually("a new view", lambda: worker.ask("cluster")["ageMs"] < 5000)


@pytest.fixture
def alone(tmp_path):
    forebay = Forebay(tmp_path / "alone").start()
    yield forebay
    assert forebay.stop() == 0


def test_a_worker_that_is_alone_shows_nothing_of_a_cluster(alone):
    assert not [name for name in alone.metrics() if name.startswith(PREFIX)]
    assert "Cluster" not in CommandLine(alone).text("top", "--once")
