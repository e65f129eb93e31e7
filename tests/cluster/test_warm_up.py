"""A worker that gets slots takes what is cached of them over from their former homes."""

import pytest

from harness.clients import boto
from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine

BUCKET = "warm"
SMALL, LARGE = 240, 6
# No object is validated again while the test runs.
POLICY = """
[[policy]]
path = "/"
metadataTtl = "1 h"
spreadReads = false
"""


def reads(worker):
    """What the worker has read from the under store."""
    return worker.metrics().get('forebay_under_store_requests_total{class="read"}', 0)


def three_workers(cluster, under_store):
    config = CONFIG.format(lease=LEASE_SECONDS) + POLICY
    return [cluster.worker(name, behind=under_store, config=config) for name in ("w1", "w2", "w3")]


def put_below(client, under_store):
    """Objects of the under store, in a bucket that the client makes."""
    below = boto(under_store)
    client.create_bucket(Bucket=BUCKET)
    bodies = {f"small/{number}": f"{number}-".encode() * 1000 for number in range(SMALL)}
    bodies |= {f"large/{number}": bytes([number]) * (5 << 20) for number in range(LARGE)}
    for key, body in bodies.items():
        below.put_object(Bucket=BUCKET, Key=key, Body=body)
    return bodies


def check_all(client, bodies):
    for key, body in bodies.items():
        assert answered(lambda: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()) == body, key


@pytest.mark.slow("two workers are warmed up; the test before it has the same for a drain")
def test_a_worker_that_joins_reads_little_from_the_under_store(cluster, under_store):
    workers = three_workers(cluster, under_store)
    for worker in workers[:2]:
        worker.start()
    wait_until_shared(workers[:2])
    first, third = workers[0].s3(), workers[2]
    bodies = put_below(first, under_store)
    check_all(first, bodies)
    cold = sum(map(reads, workers[:2]))
    assert cold >= len(bodies)
    third.start()
    wait_until_shared(workers)
    check_all(third.s3(), bodies)
    taken_over = third.metrics()["forebay_warm_up_objects_total"]
    assert taken_over > len(bodies) / 6, "a third of them are at home there"
    warm = sum(map(reads, workers)) - cold
    assert warm <= 0.05 * cold / 3, f"{warm} reads instead of about {cold / 3}"
    # What it has taken over is its own.
    check_all(third.s3(), bodies)
    assert third.metrics()["forebay_warm_up_objects_total"] == taken_over
    assert sum(map(reads, workers)) - cold == warm


def test_what_a_drained_worker_has_read_often_is_not_read_from_the_under_store_again(cluster, under_store):
    workers = three_workers(cluster, under_store)
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    first, leaving = workers[0].s3(), workers[2]
    bodies = put_below(first, under_store)
    for _ in range(3):
        check_all(first, bodies)
    before = sum(map(reads, workers[:2]))
    assert CommandLine(workers[0]).text("cluster", "drain", "w3", "--wait") == "drained: w3\n"
    assert leaving.process.wait(timeout=30) == 0
    check_all(first, bodies)
    more = sum(map(reads, workers[:2])) - before
    assert more <= 0.05 * len(bodies) / 3, f"{more} reads of what the drained worker had"
    taken_over = sum(worker.metrics()["forebay_warm_up_objects_total"] for worker in workers[:2])
    assert taken_over > len(bodies) / 6, "a third of them were at home there"
