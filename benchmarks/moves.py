"""What clients notice when workers join and leave: boto3 with its default retries, at a fixed rate."""

import contextlib
import itertools
import statistics
import threading
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

import cluster
import peers
from harness.cluster import wait_until_shared
from harness.command_line import CommandLine
from harness.servers import REGION
from report import Section

CLIENTS, PER_SECOND = 8, 10
OBJECT_BYTES = 10 << 10
# Written before, and read all the time.
OBJECTS = 2000


class Client:
    """Writes new objects and reads those that are there, through one worker. Notes when each request began, how long it took, and its retries."""

    def __init__(self, worker, number, stop):
        config = Config(s3={"addressing_style": "path"})
        keys = {"aws_access_key_id": worker.access_key, "aws_secret_access_key": worker.secret_key}
        self.s3 = boto3.client("s3", endpoint_url=worker.endpoint, region_name=REGION, config=config, **keys)
        self.number, self.stop = number, stop
        self.noted = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        due = time.monotonic()
        for turn in itertools.count():
            due += 1 / PER_SECOND
            if self.stop.wait(max(0, due - time.monotonic())):
                return
            began = time.monotonic()
            try:
                answer = self.step(turn)
            except ClientError as error:
                answer = error.response | {"failed": True}
            self.noted.append((began, time.monotonic() - began, answer["ResponseMetadata"].get("RetryAttempts", 0), "failed" in answer))

    def step(self, turn):
        if turn % 2:
            return self.s3.put_object(Bucket=cluster.BUCKET, Key=f"new/{self.number}/{turn}", Body=b"x" * OBJECT_BYTES)
        answer = self.s3.get_object(Bucket=cluster.BUCKET, Key=f"old/{turn * 7919 % OBJECTS}")
        answer["Body"].read()
        return answer


def row(noted, began, ended):
    """Of the requests that began in this time."""
    chosen = [one for one in noted if began <= one[0] < ended]
    taken = sorted(1000 * seconds for _, seconds, _, _ in chosen)
    return {
        "p50": statistics.median(taken),
        "p99": taken[len(taken) * 99 // 100],
        "max": taken[-1],
        "rate": len(taken) / (ended - began),
        "retried": sum(retries > 0 for _, _, retries, _ in chosen),
        "errors": sum(failed for *_, failed in chosen),
    }


def moves(setting):
    """Two workers under load. A third joins and is drained, as often as there are rounds."""
    with contextlib.ExitStack() as stack:
        behind = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms"))
        two = stack.enter_context(contextlib.closing(cluster.Of(setting, 2, behind)))
        for number in range(OBJECTS):
            two.workers[number % 2].s3().put_object(Bucket=cluster.BUCKET, Key=f"old/{number}", Body=b"y" * OBJECT_BYTES)
        stop = threading.Event()
        stack.callback(stop.set)
        clients = [Client(two.workers[number % 2], number, stop) for number in range(CLIENTS)]
        phases = {"all stay": [], "one joins": [], "one is drained": []}

        def phase(name, act=lambda: None):
            """Until the act has ended, and then for a while."""
            began = time.monotonic()
            act()
            time.sleep(setting.seconds)
            phases[name].append((began, time.monotonic()))

        for number in range(setting.rounds):
            third = two.cluster.worker(f"third-{number}", config=two.config, behind=behind)
            phase("all stay")
            phase("one joins", lambda: (third.start(), wait_until_shared([*two.workers, third])))
            phase("one is drained", lambda: CommandLine(two.workers[0]).run("cluster", "drain", third.name, "--wait"))
        stop.set()
        for client in clients:
            client.thread.join()
        noted = [one for client in clients for one in client.noted]
    rows = {name: merged([row(noted, *span) for span in spans]) for name, spans in phases.items()}
    section = Section("moves", "PUT and GET of 10 KiB with boto3, while workers join and leave", ("p50", "p99", "max", "rate", "retried", "errors"), rows)
    section.bar("no request fails", f"{sum(row['errors'] for row in rows.values()):,}", not any(row["errors"] for row in rows.values()))
    section.notes.append(
        f"{CLIENTS} clients with boto3's default retries, half of them through each of two workers, make {CLIENTS * PER_SECOND} requests per second, half of each kind. A "
        "third worker joins, takes a third of the slots, and is drained. Times contain the retries. All workers, etcd and the clients share this machine's cores."
    )
    return [section]


def merged(rows):
    """Medians of percentiles and rates, the longest of all, and sums."""
    median = {name: statistics.median(row[name] for row in rows) for name in ("p50", "p99", "rate")}
    return median | {"max": max(row["max"] for row in rows)} | {name: sum(row[name] for row in rows) for name in ("retried", "errors")}
