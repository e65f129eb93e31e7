"""Workers that are taken out of a cluster: drained, with nothing lost, or removed, with what only they had."""

import itertools
import os
import shutil
import signal
import subprocess
import threading

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from harness.cluster import LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import REGION, eventually

BUCKET = "cluster"
# Most of what is written stays dirty: the only bytes are those of the workers.
SLOWLY = {"FOREBAY_UNDER_STORE_LIMITS_REQUESTS_PER_SECOND": "1"}
PART = os.urandom(5 << 20)
# Numbers of loads: each has its own keys.
LOADS = itertools.count()


def started(cluster, names=("w1", "w2", "w3"), **variables):
    workers = [cluster.worker(name, variables=variables) for name in names]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    client = workers[0].s3()
    client.create_bucket(Bucket=BUCKET)
    CommandLine(workers[0]).text("policy", "set", f"/{BUCKET}/transient/", "--write-mode", "TRANSIENT")
    for worker in workers:
        eventually("the bucket", lambda: BUCKET in [b["Name"] for b in worker.s3().list_buckets()["Buckets"]])
        eventually("the policy", lambda: f"/{BUCKET}/transient/" in [rule["path"] for rule in CommandLine(worker).json("policy", "get")])
    return workers


def patient(worker):
    """A client with the retries that boto3 has by default."""
    keys = {"aws_access_key_id": worker.access_key, "aws_secret_access_key": worker.secret_key}
    return boto3.client("s3", endpoint_url=worker.endpoint, region_name=REGION, config=Config(signature_version="s3v4"), **keys)


def put_many(workers, prefix, count=24):
    clients = itertools.cycle([worker.s3() for worker in workers])
    written = {f"{prefix}/{number:03}": os.urandom(1000 + number) for number in range(count)}
    for key, body in written.items():
        answered(lambda: next(clients).put_object(Bucket=BUCKET, Key=key, Body=body))
    return written


def check(workers, written):
    for worker in workers:
        client = worker.s3()
        for key, body in written.items():
            assert answered(lambda: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()) == body, key


def states(worker):
    return {found["id"]: found["state"] for found in worker.ask("cluster")["workers"]}


def slots(worker):
    seen = worker.ask("cluster")
    return {found["id"]: found["slots"] for found in seen["workers"]} | {None: seen["slotsWithoutHome"]}


def wanted(workers):
    return sum(worker.status()["copiesWanted"] for worker in workers)


def missing(workers):
    return sum(worker.status()["missingObjects"] for worker in workers)


def ended(worker):
    """The exit code of a worker that stops by itself, and nothing is left of its disks."""
    code = worker.process.wait(timeout=60)
    shutil.rmtree(worker.data)
    return code


class Load:
    """Writes new objects, overwrites one, reads and lists, until `stop` is set."""

    def __init__(self, worker, is_leaving=False):
        self.worker, self.is_leaving = worker, is_leaving
        self.name = f"{worker.name}/{next(LOADS)}"
        self.written, self.last, self.failures = {}, [], []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        client = patient(self.worker)
        for number in itertools.count():
            if self.stop.is_set():
                return
            try:
                self.step(client, number)
            except (ConnectionError, HTTPClientError) as error:
                # A load balancer would ask another one.
                if not self.is_leaving:
                    self.failures.append(error)
                return
            except Exception as error:
                self.failures.append(error)
                return

    def step(self, client, number):
        key, body = f"{('load', 'transient')[number % 2]}/{self.name}/{number}", os.urandom(5000)
        self.last.append(body)
        client.put_object(Bucket=BUCKET, Key=f"load/{self.name}/last", Body=body)
        self.last = [body]
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
        self.written[key] = body
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body
        listed = client.list_objects_v2(Bucket=BUCKET, Prefix=key)
        assert [found["Key"] for found in listed.get("Contents", [])] == [key]

    def end(self):
        self.stop.set()
        self.thread.join()
        assert not self.failures, self.failures
        assert self.written
        return self.written


class Changes(Load):
    """What meets several keys, the under store, or an upload that others have begun."""

    def step(self, client, number):
        first, second = (f"{place}/{self.name}/{number}" for place in ("through", "back"))
        body = os.urandom(3000)
        client.put_object(Bucket=BUCKET, Key=first, Body=body)
        client.put_object_tagging(Bucket=BUCKET, Key=first, Tagging={"TagSet": [{"Key": "number", "Value": str(number)}]})
        copied = client.copy_object(Bucket=BUCKET, Key=second, CopySource={"Bucket": BUCKET, "Key": first})
        assert copied["CopyObjectResult"]["ETag"]
        tags = client.get_object_tagging(Bucket=BUCKET, Key=second)["TagSet"]
        assert tags == [{"Key": "number", "Value": str(number)}]
        name = {"Bucket": BUCKET, "Key": f"uploads/{self.name}/{number}"}
        name["UploadId"] = client.create_multipart_upload(**name)["UploadId"]
        part = client.upload_part_copy(**name, PartNumber=1, CopySource={"Bucket": BUCKET, "Key": second})["CopyPartResult"]
        client.complete_multipart_upload(**name, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
        self.written |= {name["Key"]: body, second: body}
        wanted = [{"Key": first}, {"Key": f"none/{number}"}]
        # boto3 does not retry single keys.
        for _ in range(3):
            wanted = [{"Key": error["Key"]} for error in client.delete_objects(Bucket=BUCKET, Delete={"Objects": wanted}).get("Errors", [])]
            if not wanted:
                return
        raise AssertionError(f"not deleted: {wanted}")


def test_one_slow_upload_does_not_hold_up_the_slots_of_other_keys(cluster):
    (first,) = started(cluster, ("w1",), FOREBAY_UNDER_STORE_LIMITS_UPLOAD_BANDWIDTH="1 MB")
    # It takes half a minute.
    first.s3().put_object(Bucket=BUCKET, Key="large", Body=os.urandom(30_000_000))
    eventually("the upload has begun", lambda: first.metrics()["forebay_persist_running"] == 1)
    cluster.worker("w2").start()
    eventually("all other slots have moved", lambda: slots(first).get("w2", 0) >= slots(first)["w1"] - 2)
    assert first.ask("status")["dirtyObjects"] == 1, "the upload still runs"
    assert slots(first)[None] == 0


def test_a_worker_that_is_drained_under_load_takes_nothing_with_it(cluster):
    workers = started(cluster)
    drained, rest = workers[0], workers[1:]
    written = put_many(workers, "dirty") | put_many(workers, "transient")
    uploads = []
    for number in range(9):
        name = {"Bucket": BUCKET, "Key": f"large/{number}"}
        name["UploadId"] = answered(lambda: rest[0].s3().create_multipart_upload(**name))["UploadId"]
        part = answered(lambda: drained.s3().upload_part(**name, PartNumber=1, Body=PART))
        uploads.append((name, {"PartNumber": 1, "ETag": part["ETag"]}))
    loads = [Load(worker, worker is drained) for worker in workers]
    eventually("load", lambda: all(load.written for load in loads))
    assert CommandLine(rest[0]).text("cluster", "drain", "w1", "--wait") == "drained: w1\n"
    assert ended(drained) == 0, drained.log.read_text()[-4000:]
    before = [len(load.written) for load in loads[1:]]
    assert not any(load.failures for load in loads), [load.failures for load in loads]
    eventually("load after it", lambda: all(len(load.written) > count for load, count in zip(loads[1:], before)))
    for load in loads:
        written |= load.end()
        last = answered(lambda: rest[0].s3().get_object(Bucket=BUCKET, Key=f"load/{load.name}/last")["Body"].read())
        assert last in load.last
    check(rest, written)
    for (name, first), worker in zip(uploads, itertools.cycle(rest)):
        client = worker.s3()
        second = answered(lambda: client.upload_part(**name, PartNumber=2, Body=b"end"))
        parts = [first, {"PartNumber": 2, "ETag": second["ETag"]}]
        answered(lambda: client.complete_multipart_upload(**name, MultipartUpload={"Parts": parts}))
        assert answered(lambda: client.get_object(Bucket=BUCKET, Key=name["Key"])["Body"].read()) == PART + b"end"
    for worker in rest:
        eventually("two workers", lambda: states(worker) == {"w2": "live", "w3": "live"})
    assert (wanted(rest), missing(rest)) == (0, 0)


def test_requests_of_all_kinds_need_no_more_than_the_retries_of_boto3_while_slots_move(cluster):
    # Uploads wait for their turn while slots move.
    workers = started(cluster, FOREBAY_UNDER_STORE_LIMITS_REQUESTS_PER_SECOND="40")
    CommandLine(workers[0]).text("policy", "set", f"/{BUCKET}/through/", "--write-mode", "WRITE_THROUGH")
    for worker in workers:
        eventually("the policy", lambda: f"/{BUCKET}/through/" in [rule["path"] for rule in CommandLine(worker).json("policy", "get")])
    drained, rest = workers[0], workers[1:]
    loads = [Changes(worker) for worker in rest for _ in range(2)]
    written = {}
    for _ in range(2):
        before = [len(load.written) for load in loads]
        eventually("load", lambda: any(load.failures for load in loads) or all(len(load.written) > count for load, count in zip(loads, before)))
        CommandLine(rest[0]).text("cluster", "drain", "w1", "--wait")
        assert ended(drained) == 0, drained.log.read_text()[-4000:]
        drained.start()
        wait_until_shared(workers)
    for load in loads:
        written |= load.end()
    check(workers[:1], written)


def test_a_worker_tells_of_its_own_drain_and_comes_back_empty(cluster):
    workers = started(cluster, ("w1", "w2"))
    drained, rest = workers[0], workers[1]
    written = put_many(workers, "transient")
    assert CommandLine(drained).text("cluster", "drain", "w1", "--wait") == "drained: w1\n"
    assert ended(drained) == 0
    check([rest], written)
    # It has lost what it wrote once, and is the home of some of it again.
    drained.start()
    wait_until_shared(workers)
    check(workers, written)
    assert missing(workers) == 0


def test_what_can_not_be_taken_out_is_refused_with_one_line(cluster):
    workers = started(cluster, ("w1", "w2"))
    one, other = (CommandLine(worker) for worker in workers)
    assert "no worker w9" in one.refused("cluster", "drain", "w9")
    assert "no worker w9" in one.refused("cluster", "remove", "w9")
    assert "no name of a worker" in one.refused("cluster", "remove", "a/b")
    assert "drain it instead" in one.refused("cluster", "remove", "w2", "--yes")
    assert "drain it instead" in one.refused("cluster", "remove", "w1", "--yes")
    assert workers[1].stop() == 0
    eventually("a stop that is seen", lambda: states(workers[0]) == {"w1": "live", "w2": "left"})
    assert "remove it" in one.refused("cluster", "drain", "w2")
    assert "no other worker" in one.refused("cluster", "drain", "w1")
    workers[1].start()
    wait_until_shared(workers)
    # Twice is as good as once.
    for _ in range(2):
        assert other.text("cluster", "drain", "w1") == "draining: w1\n"
    assert "no other worker" in other.refused("cluster", "drain", "w2")
    assert workers[0].process.wait(timeout=60) == 0
    eventually("one worker", lambda: states(workers[1]) == {"w2": "live"})
    assert "gone already" in other.refused("cluster", "drain", "w1")
    assert "gone already" in other.refused("cluster", "remove", "w1")
    cluster.etcd.pause()
    assert "the engine of the cluster" in other.refused("cluster", "drain", "w2", code=1)
    cluster.etcd.resume()


def killed(workers):
    """The last one is killed, and others look for what only it has."""
    workers[-1].kill()
    rest = workers[:-1]
    for worker in rest:
        eventually("its slots at others", lambda: (slots(worker)["w3"], slots(worker)[None], states(worker)["w3"]) == (0, 0, "lost"), LEASE_SECONDS + 25)
    eventually("bytes that are lacking", lambda: wanted(rest))


@pytest.mark.slow("a lease runs out, and a worker is started again")
def test_what_only_a_removed_worker_had_is_missing_until_it_is_back(cluster):
    workers = started(cluster, **SLOWLY)
    written = put_many(workers, "transient") | put_many(workers, "dirty")
    lost, rest = workers[2], workers[:2]
    killed(workers)
    one = CommandLine(rest[0])
    assert "start it to drain it, or remove it" in one.refused("cluster", "drain", "w3")
    assert "objects and parts that only worker w3 may have" in one.refused("cluster", "remove", "w3")
    assert one.text("cluster", "remove", "w3", "--yes") == "removed: w3\n"
    for worker in rest:
        eventually("one worker less", lambda: states(worker) == {"w1": "live", "w2": "live"})
    eventually("missing objects", lambda: missing(rest) and not wanted(rest))
    assert "of an acknowledged object are lost" in rest[0].log.read_text() + rest[1].log.read_text()
    gone, client = [], rest[0].s3()
    for key, body in written.items():
        try:
            assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body
        except ClientError as error:
            assert error.response["Error"]["Code"] == "ServiceUnavailable", error
            gone.append(key)
    assert any(key.startswith("transient/") for key in gone) and any(key.startswith("dirty/") for key in gone), gone
    eventually("the number of missing objects", lambda: (missing(rest), wanted(rest)) == (len(gone), 0))
    # If the removed worker comes back nevertheless, it does not undo what was written or deleted meanwhile.
    written[gone[0]] = b"again"
    answered(lambda: client.put_object(Bucket=BUCKET, Key=gone[0], Body=b"again"))
    answered(lambda: client.delete_object(Bucket=BUCKET, Key=gone[1]))
    del written[gone[1]]
    lost.start()
    wait_until_shared(workers)
    check(workers, written)
    for worker in workers:
        with pytest.raises(ClientError) as caught:
            answered(lambda: worker.s3().get_object(Bucket=BUCKET, Key=gone[1]))
        assert caught.value.response["Error"]["Code"] == "NoSuchKey"


@pytest.mark.slow("a drain is waited for that does not end")
def test_a_drain_that_can_not_end_goes_on_when_nobody_waits(cluster):
    workers = started(cluster)
    put_many(workers, "transient")
    rest = workers[:2]
    killed(workers)
    waiting = CommandLine(rest[1])
    assert "not drained within --timeout" in waiting.refused("cluster", "drain", "w1", "--wait", "--timeout", "1s", code=1)
    assert states(rest[1])["w1"] == "draining"
    command = [str(rest[1].binary), "cluster", "drain", "w1", "--wait"]
    with subprocess.Popen(command, env=waiting.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert "objects and parts" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(timeout=60), process.stderr.read()) == (130, "forebay: the drain continues; see 'forebay cluster status'\n")
    eventually("its slots at the other one", lambda: slots(rest[1])["w1"] == 0)
    assert states(rest[1])["w1"] == "draining" and rest[0].process.poll() is None
    # The worker that everybody waits for is back, and brings what is lacking.
    workers[2].start()
    assert waiting.text("cluster", "drain", "w1", "--wait") == "drained: w1\n"
    assert ended(rest[0]) == 0


def test_a_stop_drains_first_when_the_settings_say_so(cluster):
    workers = started(cluster, FOREBAY_CLUSTER_DRAIN_ON_STOP="true")
    written = put_many(workers, "transient")
    assert workers[0].stop() == 0
    shutil.rmtree(workers[0].data)
    check(workers[1:], written)
    eventually("two workers", lambda: states(workers[1]) == {"w2": "live", "w3": "live"})
    assert workers[1].stop() == 0
    shutil.rmtree(workers[1].data)
    check(workers[2:], written)
    # Nobody would take over.
    assert workers[2].stop() == 0
    assert "no other worker would take over" in workers[2].log.read_text()
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    check(workers, written)


def test_a_worker_that_waits_for_its_under_store_follows_the_cluster(cluster, under_store):
    workers = [cluster.worker(name, behind=under_store) for name in ("w1", "w2", "w3", "w4")]
    for worker in workers[:3]:
        worker.start()
    wait_until_shared(workers[:3])
    workers[0].s3().create_bucket(Bucket=BUCKET)
    for worker in workers[:3]:
        answered(lambda: worker.s3().head_bucket(Bucket=BUCKET))
    under_store.pause()
    written = put_many(workers[:3], "dirty", 90)
    is_waiting = lambda worker: worker.metrics()["forebay_persist_running"] > 8
    eventually("requests in flight", lambda: all(is_waiting(worker) for worker in workers[:3]))
    # All give slots up to it, and wait for these requests first.
    workers[3].start()
    for worker in workers[:2]:
        eventually("it is there", lambda: states(worker).get("w4") == "live")
    workers[3].kill()
    for worker in workers[:2]:
        eventually("it is lost", lambda: states(worker).get("w4") == "lost", LEASE_SECONDS + 8)
    assert any(is_waiting(worker) for worker in workers[:3])
    under_store.resume()
    eventually("slots for all", lambda: slots(workers[0])[None] == 0 and slots(workers[0])["w4"] == 0, 60)
    check(workers[:3], written)


@pytest.mark.slow("three workers are each given the time to drain")
def test_workers_that_all_stop_do_not_wait_for_one_another(cluster):
    workers = started(cluster, FOREBAY_CLUSTER_DRAIN_ON_STOP="true", FOREBAY_CLUSTER_DRAIN_DEADLINE="1 h")
    written = put_many(workers, "transient")
    for worker in workers:
        worker.process.terminate()
    assert [worker.process.wait(timeout=60) for worker in workers] == [0, 0, 0]
    assert any("all other workers have stopped" in worker.log.read_text() for worker in workers)
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    check(workers, written)


@pytest.mark.parametrize("deadline", ["1 s", "1 h"])
@pytest.mark.slow("the wait is what is tested")
def test_a_stop_does_not_wait_for_a_drain_for_ever(cluster, deadline):
    workers = started(cluster, FOREBAY_CLUSTER_DRAIN_ON_STOP="true", FOREBAY_CLUSTER_DRAIN_DEADLINE=deadline)
    put_many(workers, "transient")
    killed(workers)
    workers[0].process.terminate()
    eventually("the drain", lambda: states(workers[1])["w1"] in ("draining", "left"))
    if deadline == "1 h":
        workers[0].process.terminate()
    assert workers[0].process.wait(timeout=60) == 0
    log = workers[0].log.read_text()
    assert "stopping before the end of the drain" in log and "this worker is drained" not in log
    eventually("a stop", lambda: states(workers[1])["w1"] == "left")
    # A new start ends the drain.
    workers[0].start()
    workers[2].start()
    wait_until_shared(workers)
