"""Pages of listings that each worker keeps: what is written through any worker shows at once in all of them."""

import itertools

from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.servers import eventually

BUCKET = "kept"
POLICY = f"""
[[policy]]
path = "/{BUCKET}/"
listTtl = "1 h"
"""


def pages(workers, source):
    """How many pages of listings came from there, at all workers."""
    return sum(worker.metrics().get(f'forebay_list_pages_total{{source="{source}"}}', 0) for worker in workers)


def names(worker):
    listed = answered(lambda: worker.s3().list_objects_v2(Bucket=BUCKET))
    return [found["Key"] for found in listed.get("Contents", [])]


def test_pages_that_workers_keep_show_what_all_have_written(cluster):
    config = CONFIG.format(lease=LEASE_SECONDS) + POLICY
    workers = [cluster.worker(name, config=config).start() for name in ("w1", "w2", "w3")]
    wait_until_shared(workers)
    answered(lambda: workers[0].s3().create_bucket(Bucket=BUCKET))
    keys = [f"{number:02}" for number in range(24)]
    for key, worker in zip(keys, itertools.cycle(workers)):
        answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=b"x"))
    for worker in workers:
        worker.wait_until_drained()
        assert names(worker) == keys
    asked = pages(workers, "under_store")
    for worker in workers * 2:
        assert names(worker) == keys
    assert (pages(workers, "under_store") - asked, pages(workers, "cache")) == (0, 6)

    for number, (writer, worker) in enumerate(itertools.product(workers, workers)):
        answered(lambda: writer.s3().put_object(Bucket=BUCKET, Key=f"new/{number}", Body=b"x"))
        answered(lambda: writer.s3().delete_object(Bucket=BUCKET, Key=keys[0]))
        keys = [*keys[1:], f"new/{number}"]
        assert names(worker) == keys
    for worker in workers:
        worker.wait_until_drained()
    for worker in workers:
        assert names(worker) == keys

    # A worker that starts again has forgotten what it had changed.
    workers[0].kill()
    workers[0].start()
    wait_until_shared(workers)
    answered(lambda: workers[1].s3().put_object(Bucket=BUCKET, Key="zz", Body=b"x"))
    workers[1].wait_until_drained()
    for worker in workers:
        assert names(worker) == [*keys, "zz"]

    def is_kept_again():
        asked = pages(workers, "under_store")
        return all(names(worker) == [*keys, "zz"] for worker in workers) and pages(workers, "under_store") == asked

    eventually("pages are kept again", is_kept_again)
