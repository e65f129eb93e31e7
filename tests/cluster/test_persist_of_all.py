"""A persist request is about all workers, whichever of them is asked."""

import contextlib
import itertools

import requests

from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.servers import eventually
from harness.stand_in import StandIn, answers, error

BUCKET = "persisted"
# Each worker is the home of some of them.
KEYS = [f"data/{number:02}" for number in range(60)]
# What was refused once is not tried again by itself while the test runs.
PATIENT = '[cache]\npersist_backoff_min = "10 min"\npersist_backoff_max = "10 min"\n'
REFUSALS = 'forebay_persist_failures_total{kind="InvalidName"}'


def dirty(worker):
    return worker.ask("status")["dirtyObjects"]


def test_a_persist_request_is_answered_when_all_workers_have_persisted(cluster, under_store):
    with contextlib.closing(StandIn(under_store)) as front:
        config = CONFIG.format(lease=LEASE_SECONDS).replace("[cache]\n", PATIENT)
        workers = [cluster.worker(name, behind=front, config=config) for name in ("w1", "w2", "w3")]
        for worker in workers:
            worker.start()
        wait_until_shared(workers)
        workers[0].s3().create_bucket(Bucket=BUCKET)
        rule = front.on("put", answers(error(400, "XMinioInvalidObjectName")), times=None)
        for key, worker in zip(KEYS, itertools.cycle(workers)):
            answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=b"value"))
        eventually("all were refused", lambda: all(worker.metrics().get(REFUSALS, 0) >= dirty(worker) > 0 for worker in workers))
        assert sum(map(dirty, workers)) == len(KEYS)
        rule.release()

        keys = (workers[0].access_key, workers[0].secret_key)
        asked = requests.post(f"{workers[0].admin}/api/v1/persist", params={"prefix": f"/{BUCKET}/"}, auth=keys, timeout=60)
        assert asked.status_code == 204, asked.text
        assert [dirty(worker) for worker in workers] == [0, 0, 0]
