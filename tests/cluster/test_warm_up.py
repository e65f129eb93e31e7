"""A worker that gets slots takes what is cached of them over from their former homes."""

from harness.clients import boto
from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared

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


def test_a_worker_that_joins_reads_little_from_the_under_store(cluster, under_store):
    config = CONFIG.format(lease=LEASE_SECONDS) + POLICY
    workers = [cluster.worker(name, behind=under_store, config=config) for name in ("w1", "w2", "w3")]
    for worker in workers[:2]:
        worker.start()
    wait_until_shared(workers[:2])
    first, third, below = workers[0].s3(), workers[2], boto(under_store)
    first.create_bucket(Bucket=BUCKET)
    bodies = {f"small/{number}": f"{number}-".encode() * 1000 for number in range(SMALL)}
    bodies |= {f"large/{number}": bytes([number]) * (5 << 20) for number in range(LARGE)}
    for key, body in bodies.items():
        below.put_object(Bucket=BUCKET, Key=key, Body=body)

    def read_all(client):
        for key, body in bodies.items():
            assert answered(lambda: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()) == body, key

    read_all(first)
    cold = sum(map(reads, workers[:2]))
    assert cold >= len(bodies)
    third.start()
    wait_until_shared(workers)
    read_all(third.s3())
    taken_over = third.metrics()["forebay_warm_up_objects_total"]
    assert taken_over > len(bodies) / 6, "a third of them are at home there"
    warm = sum(map(reads, workers)) - cold
    assert warm <= 0.05 * cold / 3, f"{warm} reads instead of about {cold / 3}"
    # What it has taken over is its own.
    read_all(third.s3())
    assert third.metrics()["forebay_warm_up_objects_total"] == taken_over
    assert sum(map(reads, workers)) - cold == warm
