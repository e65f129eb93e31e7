"""A job is one of all workers: each does its share, and what one of them leaves undone is done by another."""

import pytest

from harness.clients import boto
from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import eventually

BUCKET = "jobs"
KEYS = [f"data/{number:03}" for number in range(240)]
BODY = bytes(1000)
# No object is validated again while the test runs.
POLICY = """
[[policy]]
path = "/"
metadataTtl = "1 h"
spreadReads = false
"""


def workers_before(cluster, under_store, names=("w1", "w2", "w3")):
    config = CONFIG.format(lease=LEASE_SECONDS) + POLICY
    workers = [cluster.worker(name, behind=under_store, config=config) for name in names]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    workers[0].s3().create_bucket(Bucket=BUCKET)
    below = boto(under_store)
    for key in KEYS:
        below.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    return workers


def reads(worker):
    """What the worker has read from the under store."""
    return worker.metrics().get('forebay_under_store_requests_total{class="read"}', 0)


def job(worker, number):
    return CommandLine(worker).json("jobs", "show", number)


def begun(worker, *command):
    return CommandLine(worker).text(*command, "--detach").strip()


def ended(worker, number, seconds=60):
    def attempt():
        seen = answered(lambda: job(worker, number))
        return seen if "endedMs" in seen else None

    return eventually("the end of the job", attempt, seconds)


def test_a_job_of_one_worker_is_one_of_all(cluster, under_store):
    workers = workers_before(cluster, under_store)
    first, second, third = workers
    loaded = CommandLine(first).json("load", f"s3://{BUCKET}/data/")
    assert (loaded["state"], loaded["progress"]["objectsDone"]) == ("done", len(KEYS))
    assert loaded["progress"]["bytesDone"] == len(KEYS) * len(BODY)
    before = sum(map(reads, workers))
    for key in KEYS:
        assert answered(lambda: third.s3().get_object(Bucket=BUCKET, Key=key)["Body"].read()) == BODY
    assert sum(map(reads, workers)) == before
    # Whichever worker is asked.
    assert [job(worker, loaded["id"]) for worker in workers] == [loaded] * 3

    # What is dirty anywhere is named, with the worker that has it.
    under_store.pause()
    for key in KEYS[:30]:
        answered(lambda: second.s3().put_object(Bucket=BUCKET, Key=key, Body=b"newer"))
    number = begun(second, "free", f"s3://{BUCKET}/")
    freed = ended(third, number)
    assert (freed["state"], freed["findings"]) == ("done", 30)
    assert freed["progress"]["objectsDone"] == len(KEYS) - 30
    findings = CommandLine(first).json("jobs", "findings", number)
    assert sorted(found["path"] for found in findings) == [f"/{BUCKET}/{key}" for key in KEYS[:30]]
    assert {found["worker"] for found in findings} == {"w1", "w2", "w3"}
    assert "w2" in CommandLine(third).text("jobs", "findings", number)
    under_store.resume()

    persisted = CommandLine(third).json("persist", "/")
    assert persisted["state"] == "done"
    assert sum(worker.ask("status")["dirtyObjects"] for worker in workers) == 0
    for command in ("verify", "scrub"):
        checked = CommandLine(second).json(command, "/")
        assert (checked["state"], checked["findings"]) == ("done", 0), command


@pytest.mark.slow("leases run out one after the other")
def test_the_share_of_a_worker_that_dies_is_done_by_others(cluster, under_store):
    workers = workers_before(cluster, under_store)
    first, second, third = workers
    # Some seconds of it.
    number = begun(first, "load", f"s3://{BUCKET}/", "--rate-limit", "15 KB")
    eventually("all work on it", lambda: job(second, number)["progress"]["objectsDone"] > 30)
    third.kill()
    done = ended(second, number)
    assert done["state"] == "done"
    rest = [first, second]
    wait_until_shared(rest)
    before = sum(map(reads, rest))
    for key in KEYS:
        assert answered(lambda: first.s3().get_object(Bucket=BUCKET, Key=key)["Body"].read()) == BODY
    assert sum(map(reads, rest)) == before

    # It knows of the jobs when it is back, and takes part in a new one, which any worker cancels.
    third.start()
    wait_until_shared(workers)
    assert job(third, number) == done
    CommandLine(third).json("free", "/")
    number = begun(third, "load", f"s3://{BUCKET}/", "--rate-limit", "1 KB")
    eventually("all work on it", lambda: job(first, number)["progress"]["objectsDone"] > 3)
    assert CommandLine(second).json("jobs", "cancel", number)["state"] == "cancelled"
    eventually("no work for it", lambda: all(worker.metrics()["forebay_jobs_running"] == 0 for worker in workers))
    assert job(third, number)["state"] == "cancelled"


@pytest.mark.slow("all workers are started again; the test beside it has one job of all")
def test_jobs_survive_a_restart_of_all(cluster, under_store):
    workers = workers_before(cluster, under_store, ("w1", "w2"))
    number = begun(workers[0], "load", f"s3://{BUCKET}/", "--rate-limit", "15 KB")
    eventually("some work", lambda: job(workers[1], number)["progress"]["objectsDone"] > 10)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    done = ended(workers[1], number)
    assert done["state"] == "done"
    assert done["progress"]["objectsSeen"] >= len(KEYS)
    before = sum(map(reads, workers))
    for key in KEYS:
        assert answered(lambda: workers[0].s3().get_object(Bucket=BUCKET, Key=key)["Body"].read()) == BODY
    assert sum(map(reads, workers)) == before
