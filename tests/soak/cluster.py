#!/usr/bin/env python3
"""Three workers and three etcd members under load, while machines fail, stall, are cut off, leave and join.

Clients write, delete, copy and read the same keys through all workers. Each round does one thing to the cluster. In its end every key must have a
linearizable history, all workers and the under store must say the same, and nothing may be missing.

usage: cluster.py MINUTES [EVENT…]      (FOREBAY_BIN names the binary; SEED repeats the choices, not the timing)
"""

import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from botocore.exceptions import BotoCoreError, ClientError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness.clients import boto  # noqa: E402
from harness.cluster import CONFIG, LEASE_SECONDS, Cluster, Etcds, answered, wait_until_shared  # noqa: E402
from harness.command_line import CommandLine  # noqa: E402
from harness.linear import ANYTHING, Operation, check  # noqa: E402
from harness.relay import WELL, Fault, Relay  # noqa: E402
from harness.servers import S3Server, eventually  # noqa: E402

BUCKET = "soak"
# Each has a relay to the under store.
OWN_WAYS = """
compare_endpoints = false
"""
POLICY = """
[[policy]]
path = "/"
writeReplicas = 2
metadataTtl = "1 h"
[[policy]]
path = "/soak/through/"
writeMode = "WRITE_THROUGH"
"""
NAMES = ("w1", "w2", "w3")
CLIENTS = 8
KEYS = 24
SIZES = (100, 700, 3_000, 20_000, 20_000, 300_000, 1_500_000)
# Multipart uploads have two parts: the smallest first part that S3 allows, and a rest.
PART = os.urandom(5 << 20)
# A request that hangs is given up after this: its outcome is unknown then.
ANSWER_SECONDS = 20
# Acknowledged operations before an event, and after it.
OPERATIONS = 150
# How long a fault lasts: the lease is over, and others have taken up what was there.
FAULT_SECONDS = 2 * LEASE_SECONDS + 2


class Lies(AssertionError):
    """An answer that no order of operations explains."""


class Client:
    """Asks one worker after the other, and records the answers."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.count = 0
        self.choice = random.Random(f"{soak.seed} {number}")
        # By key: a value that was read or written last, with its ETag.
        self.known = {}
        timeouts = {"read_timeout": ANSWER_SECONDS, "connect_timeout": ANSWER_SECONDS}
        self.s3 = {worker.name: boto(worker, **timeouts) for worker in soak.workers}

    def fresh(self, key):
        """A value, and the bytes that say it."""
        self.count += 1
        value = f"{self.number}-{self.count}"
        head = f"{key} {value}\n".encode()
        size = self.choice.choice(SIZES)
        return value, head + random.Random(value).randbytes(max(0, size - len(head)))

    def work(self, prefix, stop):
        operations = (self.put, self.put, self.put, self.read, self.read, self.read, self.delete, self.put_if, self.put_once, self.copy)
        while not stop.is_set():
            key = f"{prefix}{self.choice.randrange(KEYS):02}"
            name = self.choice.choice(NAMES)
            # Once in a while; large bodies take most of the time otherwise.
            operation = self.upload if self.choice.random() < 0.01 else self.choice.choice(operations)
            if not operation(self.s3[name], key, name):
                stop.wait(0.05)

    def attempt(self, key, by, call, value, guard=ANYTHING):
        """Notes a write and its outcome. Returns the answer, or None."""
        begun = time.monotonic()
        note = lambda kind, ended: self.soak.note(key, Operation(kind, value, begun, ended, guard, by))  # noqa: E731
        try:
            answer = call()
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status in (404, 412):
                note("refused", time.monotonic())
            elif status == 409 or status >= 500:
                # Of two conditional writes at once, one may be told to try again.
                note("write", None)
            else:
                raise
            return None
        except BotoCoreError:
            note("write", None)
            return None
        note("write", time.monotonic())
        self.soak.acknowledge()
        return answer

    def put(self, s3, key, name, guard=ANYTHING, **conditions):
        value, body = self.fresh(key)
        call = lambda: s3.put_object(Bucket=BUCKET, Key=key, Body=body, **conditions)  # noqa: E731
        answer = self.attempt(key, f"{name} put {conditions or ''}", call, value, guard)
        if answer:
            self.known[key] = (value, answer["ETag"])
        return answer

    def put_if(self, s3, key, name):
        value, etag = self.known.get(key, (None, None))
        return etag and self.put(s3, key, name, value, IfMatch=etag)

    def put_once(self, s3, key, name):
        # Of few keys: every write without an answer may be why one is refused, and the order is hard to find.
        return key[-1] == "0" and self.put(s3, key, name, None, IfNoneMatch="*")

    def delete(self, s3, key, name):
        return self.attempt(key, f"{name} delete", lambda: s3.delete_object(Bucket=BUCKET, Key=key), None)

    def upload(self, s3, key, name):
        """Its parts go through other workers."""
        value, body = self.fresh(key)
        first = f"{key} {value}\n".encode() + PART
        try:
            upload = {"Bucket": BUCKET, "Key": key}
            upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
            parts = []
            for number, (other, part) in enumerate(zip(self.s3.values(), (first, body)), start=1):
                answer = other.upload_part(**upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        except (ClientError, BotoCoreError):
            return None
        # Twice as many bytes say the same value.
        call = lambda: s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})  # noqa: E731
        return self.attempt(key, f"{name} complete", call, value)

    def copy(self, s3, key, name):
        """To a key that has no other writes: it holds what the other one held."""
        target = f"{key}-copy-{self.number}-{self.count}"
        self.count += 1
        begun = time.monotonic()
        try:
            s3.copy_object(Bucket=BUCKET, Key=target, CopySource=f"{BUCKET}/{key}")
        except (ClientError, BotoCoreError):
            return None
        ended = time.monotonic()
        with contextlib.suppress(ClientError, BotoCoreError):
            found, _ = self.soak.read(s3, target, key)
            if found is None:
                raise Lies(f"{target} was copied, and is gone")
            # The copy says what was there.
            self.soak.note(key, Operation("read", found, begun, ended, by=f"{name} copy"))
            self.soak.note(target, Operation("write", found, begun, ended, by=f"{name} copy"))
        self.soak.acknowledge()
        return True

    def read(self, s3, key, name):
        begun = time.monotonic()
        try:
            value, etag = self.soak.read(s3, key)
        except (ClientError, BotoCoreError):
            return None
        self.soak.note(key, Operation("read", value, begun, time.monotonic(), by=f"{name} get"))
        if value:
            self.known[key] = (value, etag)
        self.soak.acknowledge()
        return True


class Soak:
    def __init__(self, directory, seed):
        self.seed, self.choice = seed, random.Random(seed)
        self.behind = S3Server(directory / "s3").start()
        self.cluster = Cluster(directory / "cluster", etcd=Etcds)
        self.lock = threading.Lock()
        self.history, self.acknowledged, self.last_acknowledged = {}, 0, time.monotonic()
        # The longest time without any acknowledged operation, of a round.
        self.silence = 0
        self.relays = {}
        self.workers = [self.add(name) for name in NAMES]
        for worker in self.workers:
            worker.start()
        wait_until_shared(self.workers)
        self.s3, self.direct = [worker.s3() for worker in self.workers], boto(self.behind)
        answered(lambda: self.s3[0].create_bucket(Bucket=BUCKET))
        self.clients = [Client(self, number) for number in range(CLIENTS)]

    def add(self, name):
        """A worker that reaches everything through relays of its own."""
        under = Relay(self.behind)
        worker = self.cluster.worker(name, config=CONFIG.format(lease=LEASE_SECONDS) + OWN_WAYS + POLICY, behind=under)
        engine = [Relay(member) for member in self.cluster.etcd.members]
        worker.engine = "etcd://" + ",".join(f"127.0.0.1:{relay.port}" for relay in engine)
        peers = Relay(worker, worker.peer_port)
        worker.more += ["--cluster-advertise", f"127.0.0.1:{peers.port}"]
        self.relays[name] = {"under": [under], "engine": engine, "peers": [peers]}
        return worker

    def note(self, key, operation):
        with self.lock:
            self.history.setdefault(key, []).append(operation)

    def acknowledge(self):
        with self.lock:
            now = time.monotonic()
            self.silence = max(self.silence, now - self.last_acknowledged)
            self.last_acknowledged = now
            self.acknowledged += 1

    def read(self, s3, key, copy_of=None):
        """The value that a key holds, or None, and its ETag."""
        try:
            answer = s3.get_object(Bucket=BUCKET, Key=key)
            body = answer["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return None, None
        head, _, rest = body.partition(b"\n")
        name, _, value = head.decode("ascii", "replace").partition(" ")
        if name != (copy_of or key):
            raise Lies(f"{key} holds {len(body)} bytes of something else: {body[:60]}")
        if rest.startswith(PART):
            second, _, rest = rest[len(PART) :].partition(b"\n")
            if second != head:
                raise Lies(f"{key} holds parts of two uploads: {head}, {second[:60]}")
        if rest != random.Random(value).randbytes(len(rest)):
            raise Lies(f"{key} holds damaged bytes of {value}")
        return value, answer["ETag"]

    @contextlib.contextmanager
    def load(self, prefix):
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            working = [pool.submit(client.work, prefix, stop) for client in self.clients]
            try:
                yield
            finally:
                stop.set()
            for work in working:
                work.result()

    def wait_for(self, count, seconds):
        enough = self.acknowledged + count
        eventually(f"{count} operations", lambda: self.acknowledged >= enough, seconds)

    def round(self, number, event):
        prefix = f"{'through/' if number % 3 == 0 else ''}{number:04}-"
        self.last_acknowledged, self.silence = time.monotonic(), 0
        with self.load(prefix):
            self.wait_for(OPERATIONS, 60)
            getattr(self, event)(self.choice.choice(self.workers))
            # The lease, and what slots and bytes need to move.
            self.wait_for(OPERATIONS, 60)
        wait_until_shared(self.workers)
        self.abort_uploads()
        for worker in self.workers:
            worker.wait_until_drained(120)
        self.check_round(prefix)

    def abort_uploads(self):
        """Those that clients have given up: their parts stay pinned."""
        s3 = self.s3[0]
        pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET)
        for upload in answered(lambda: [upload for page in pages for upload in page.get("Uploads", [])], 60):
            answered(lambda: s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]), 60)

    def check_round(self, prefix):
        keys = sorted(key for key in self.history if key.startswith(prefix))
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self.check_key, keys))
        for s3 in self.s3:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
            listed = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
            present = {key for key in keys if self.history[key][-1].value is not None}
            assert listed - set(keys) <= {key for key in listed if "-copy-" in key}, listed - set(keys)
            assert present <= listed and not {key for key in keys if key not in present} & listed, (present ^ listed, prefix)
        for worker in self.workers:
            status, metrics = worker.status(), worker.metrics()
            assert status["missingObjects"] == 0, status
            assert metrics["forebay_conflict_objects"] == 0

    def check_key(self, key):
        """It has a history that is possible, and everybody says the same in the end."""
        copy_of = key.partition("-copy-")[0]
        for name, s3 in [*zip(NAMES, self.s3), ("under store", self.direct)]:
            begun = time.monotonic()
            value, _ = answered(lambda: self.read(s3, key, copy_of), 60)
            self.note(key, Operation("read", value, begun, time.monotonic(), by=f"{name}, at the end"))
        verdict = check(self.history[key])
        if verdict is None:
            print(f"  {key}: undecided")
        if verdict is False:
            first = self.history[key][0].begun
            lines = "\n".join(
                f"  {operation.begun - first:9.3f} to {operation.ended and round(operation.ended - first, 3)}: {operation.by}: {operation.kind} "
                f"{operation.value} {'' if operation.guard is ANYTHING else f'if {operation.guard}'}"
                for operation in sorted(self.history[key], key=lambda operation: operation.begun)
            )
            raise Lies(f"no order explains the answers about {key}:\n{lines}")

    # What happens to a cluster.

    def nothing(self, worker):
        pass

    def kill(self, worker):
        worker.kill()
        self.wait_for(OPERATIONS, 60)
        worker.start()

    def kill_and_start_at_once(self, worker):
        worker.kill()
        worker.start()

    def burn(self, worker):
        """The machine is lost, with its disks."""
        worker.kill()
        shutil.rmtree(worker.data)
        self.wait_for(OPERATIONS, 60)
        worker.start()
        wait_until_shared(self.workers)
        self.wait_until_complete()

    def stop(self, worker):
        assert worker.stop() == 0
        worker.start()

    def stall(self, worker):
        worker.pause()
        time.sleep(FAULT_SECONDS)
        worker.resume()

    def stall_shortly(self, worker):
        worker.pause()
        time.sleep(LEASE_SECONDS * self.choice.random() * 1.5)
        worker.resume()

    def cut(self, worker, what):
        relays = self.relays[worker.name][what]
        fault = self.choice.choice([None, Fault("up", hangs=True), Fault("down", hangs=True)])
        for relay in relays:
            relay.set(fault or WELL, gone=fault is None)
        time.sleep(FAULT_SECONDS)
        for relay in relays:
            relay.set()

    def cut_from_etcd(self, worker):
        self.cut(worker, "engine")

    def cut_from_peers(self, worker):
        self.cut(worker, "peers")

    def cut_from_under_store(self, worker):
        self.cut(worker, "under")

    def drain(self, worker):
        """It leaves, and another machine takes its name."""
        other = next(other for other in self.workers if other is not worker)
        CommandLine(other).text("cluster", "drain", worker.name, "--wait")
        assert worker.process.wait(timeout=60) == 0
        shutil.rmtree(worker.data)
        worker.start()

    def join(self, worker):
        """A fourth worker comes, and leaves."""
        fourth = next((worker for worker in self.cluster.workers if worker.name == "w4"), None) or self.add("w4")
        fourth.start()
        wait_until_shared([*self.workers, fourth])
        self.wait_for(OPERATIONS, 60)
        CommandLine(worker).text("cluster", "drain", "w4", "--wait")
        assert fourth.process.wait(timeout=60) == 0
        shutil.rmtree(fourth.data)

    def lose_etcd_member(self, worker):
        member = self.choice.choice(self.cluster.etcd.members)
        member.kill()
        time.sleep(FAULT_SECONDS)
        member.start()

    def stall_etcd(self, worker):
        for member in self.cluster.etcd.members:
            member.pause()
        time.sleep(FAULT_SECONDS)
        for member in self.cluster.etcd.members:
            member.resume()

    def restart_etcd(self, worker):
        for member in self.cluster.etcd.members:
            member.process.send_signal(signal.SIGKILL)
        for member in self.cluster.etcd.members:
            member.kill()
        self.cluster.etcd.start()

    def wait_until_complete(self):
        lacking = lambda: sum(  # noqa: E731
            value for worker in self.workers for name, value in worker.metrics().items() if name.startswith("forebay_under_replicated_objects")
        )
        eventually("all copies", lambda: lacking() == 0, 120)

    def end(self):
        self.cluster.close()
        self.behind.kill()
        for relay in itertools.chain(*(relays for kinds in self.relays.values() for relays in kinds.values())):
            relay.close()


EVENTS = (
    "nothing kill kill_and_start_at_once burn stop stall stall_shortly cut_from_etcd cut_from_peers cut_from_under_store drain join "
    "lose_etcd_member stall_etcd restart_etcd"
).split()


def main(minutes, events):
    seed = int(os.environ.get("SEED", random.SystemRandom().getrandbits(32)))
    print(f"SEED={seed}", flush=True)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="forebay-soak-"))
    soak = Soak(directory, seed)
    deadline = time.monotonic() + minutes * 60
    queue = []
    try:
        for number in itertools.count(1):
            if not queue:
                if time.monotonic() > deadline:
                    break
                queue = soak.choice.sample(events, len(events))
            event, began = queue.pop(), time.monotonic()
            soak.round(number, event)
            print(
                f"round {number:3} {event:22} {time.monotonic() - began:5.0f} s; {soak.acknowledged:7} operations acknowledged; "
                f"at most {soak.silence:4.1f} s without one",
                flush=True,
            )
        # Copies are given back within two minutes.
        try:
            eventually("nothing pinned", lambda: all(worker.status()["pinnedBytes"] == 0 for worker in soak.workers), 180)
        except AssertionError:
            for worker in soak.workers:
                print(worker.name, worker.status(), {name: value for name, value in worker.metrics().items() if value and "pinned" in name})
            raise
        for worker in soak.workers:
            assert worker.stop() == 0
        problems = [line for worker in soak.workers for line in worker.log.read_text().splitlines() if "panicked" in line]
        assert not problems, problems
    except BaseException:
        print(f"failed in round {number} ({event}); what is left: {directory}", flush=True)
        raise
    finally:
        soak.end()
    shutil.rmtree(directory)
    print("nothing was lost")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60, sys.argv[2:] or EVENTS)
