"""Any worker lists and ends what the under store refuses, wherever it is at home."""

import contextlib
import itertools

from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import eventually
from harness.stand_in import StandIn, answers, error

BUCKET = "refused"
KEYS = [f"d//{number:02}" for number in range(24)]
QUICK = '[cache]\npersist_backoff_min = "100 ms"\npersist_backoff_max = "500 ms"\n'
LIMITS = '[under_store_limits]\ncircuit_pause_max = "1 s"\n'


def refuses_empty_components(exchange, rule):
    """As MinIO does."""
    if "//" in exchange.key:
        exchange.read()
        return error(400, "XMinioInvalidObjectName", "Object name contains unsupported characters.")
    return exchange.forward()


def place(key):
    return f"s3://{BUCKET}/{key}"


def undeliverable(worker):
    return [found["path"] for found in CommandLine(worker).json("undeliverable", "list")]


def test_any_worker_tells_and_ends_what_is_undeliverable_anywhere(cluster, under_store):
    with contextlib.closing(StandIn(under_store)) as front:
        config = CONFIG.format(lease=LEASE_SECONDS).replace("[cache]\n", QUICK) + LIMITS
        workers = [cluster.worker(name, behind=front, config=config) for name in ("w1", "w2", "w3")]
        for worker in workers:
            worker.start()
        wait_until_shared(workers)
        first, second, third = workers
        first.s3().create_bucket(Bucket=BUCKET)
        # Nothing arrives before all were acknowledged: then more of their kind would be refused at once.
        hold = front.on("put", answers(error(503, "SlowDown")), times=None)
        front.on("any", refuses_empty_components, times=None)
        for key, worker in zip(KEYS, itertools.cycle(workers)):
            answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=key.encode()))
        hold.release()

        expected = [f"/{BUCKET}/{key}" for key in KEYS]
        for worker in workers:
            eventually("the list of all", lambda: undeliverable(worker) == expected, 60)
        told = [worker.metrics()["forebay_undeliverable_objects"] for worker in workers]
        assert sum(told) == len(KEYS) and 0 not in told

        # Old and new names are at home at any of them.
        for key in KEYS[:6]:
            CommandLine(first).text("undeliverable", "rename", place(key), place(key.replace("//", "/")))
        CommandLine(second).text("undeliverable", "keep", place(KEYS[6]))
        CommandLine(second).text("undeliverable", "discard", place(KEYS[7]))
        discarded = CommandLine(third).text("undeliverable", "discard", "-r", place("d/"))
        assert len(discarded.splitlines()) == len(KEYS) - 8
        for worker in workers:
            assert undeliverable(worker) == []
            worker.wait_until_drained()
        for worker in workers:
            for key in KEYS[:6]:
                body = answered(lambda: worker.s3().get_object(Bucket=BUCKET, Key=key.replace("//", "/"))["Body"].read())
                assert body == key.encode()
            assert CommandLine(worker).json("stat", place(KEYS[6]))["state"] == "transient"
