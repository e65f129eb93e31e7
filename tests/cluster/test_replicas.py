"""Writes that several workers have before they are acknowledged: `writeReplicas`."""

import concurrent.futures
import itertools
import os
import shutil

import pytest

from harness.clients import boto, refused
from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import eventually

BUCKET = "copies"
POLICY = """
[[policy]]
path = "/"
writeReplicas = 2
whenReplicasMissing = "{missing}"
[[policy]]
path = "/copies/scratch/"
writeMode = "TRANSIENT"
"""


@pytest.fixture
def start(cluster, under_store):
    """Starts workers with these names, and returns them."""

    def started(*names, missing="reject"):
        config = CONFIG.format(lease=LEASE_SECONDS) + POLICY.format(missing=missing)
        workers = [cluster.worker(name, config=config, behind=under_store) for name in names]
        for worker in workers:
            worker.start()
        wait_until_shared(workers)
        workers[0].s3().create_bucket(Bucket=BUCKET)
        for worker in workers:
            answered(lambda: worker.s3().head_bucket(Bucket=BUCKET))
        return workers

    return started


def read(client, key):
    return client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def lose(worker):
    """Its machine burns."""
    worker.kill()
    shutil.rmtree(worker.data)


def upload(clients, key, parts):
    """A multipart upload whose parts go through different workers."""
    name = {"Bucket": BUCKET, "Key": key}
    name["UploadId"] = answered(lambda: clients[0].create_multipart_upload(Bucket=BUCKET, Key=key))["UploadId"]
    done = []
    for number, (part, client) in enumerate(zip(parts, itertools.cycle(clients)), start=1):
        answer = answered(lambda: client.upload_part(**name, PartNumber=number, Body=part))
        done.append({"PartNumber": number, "ETag": answer["ETag"]})
    answered(lambda: clients[-1].complete_multipart_upload(**name, MultipartUpload={"Parts": done}))


def copies_of(workers, key):
    """How many copies an object has, as each worker says."""
    return {CommandLine(worker).json("stat", f"s3://{BUCKET}/{key}")["replicas"] for worker in workers}


def test_no_acknowledged_byte_is_lost_with_a_machine(start, under_store):
    workers = start("w1", "w2", "w3")
    clients = [worker.s3() for worker in workers]
    # From here on, what is acknowledged is with the workers alone.
    under_store.pause()
    written = {}
    for number, client in zip(range(36), itertools.cycle(clients)):
        key = f"{'scratch' if number % 3 == 0 else 'kept'}/{number:02}"
        written[key] = os.urandom(1000 + 20_000 * number)
        answered(lambda: client.put_object(Bucket=BUCKET, Key=key, Body=written[key], Tagging="is=new"))
    parts = [os.urandom(5 << 20), os.urandom(5 << 20), b"end"]
    upload(clients, "kept/large", parts)
    written["kept/large"] = b"".join(parts)
    # An object has copies of each of its versions, and of its tags.
    for key in list(written)[:12]:
        written[key] = os.urandom(3000)
        answered(lambda: clients[0].put_object(Bucket=BUCKET, Key=key, Body=written[key]))
        tags = {"TagSet": [{"Key": "is", "Value": "changed"}]}
        answered(lambda: clients[1].put_object_tagging(Bucket=BUCKET, Key=key, Tagging=tags))
    # And of what it was copied from.
    answered(lambda: clients[2].copy_object(Bucket=BUCKET, Key="kept/copied", CopySource=f"{BUCKET}/kept/large"))
    written["kept/copied"] = written["kept/large"]

    lose(workers[2])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for client in clients[:2]:
            bodies = pool.map(lambda key, client=client: answered(lambda: read(client, key), LEASE_SECONDS + 5), written)
            assert dict(zip(written, bodies)) == written
    for key in list(written)[:12]:
        found = answered(lambda: clients[0].get_object_tagging(Bucket=BUCKET, Key=key))["TagSet"]
        assert found == [{"Key": "is", "Value": "changed"}]
    under_store.resume()
    for worker in workers[:2]:
        worker.wait_until_drained()
    direct = boto(under_store)
    kept = {key: body for key, body in written.items() if key.startswith("kept/")}
    assert {key: read(direct, key) for key in kept} == kept
    # The only copies of objects that never go to the under store are those of the workers that are left.
    assert all(worker.status()["missingObjects"] == 0 for worker in workers[:2])


def test_copies_are_given_up_when_the_under_store_has_the_object(start, under_store):
    workers = start("w1", "w2")
    client = workers[0].s3()
    under_store.pause()
    client.put_object(Bucket=BUCKET, Key="object", Body=b"x" * 100_000)
    upload([client], "large", [os.urandom(5 << 20), b"end"])
    assert copies_of(workers, "object") == {2}
    pinned = lambda: [worker.status()["pinnedBytes"] for worker in workers]
    eventually("all of it at both workers", lambda: min(pinned()) > 5 << 20)
    under_store.resume()
    eventually("nothing pinned", lambda: pinned() == [0, 0], 60)


def test_a_worker_alone_refuses_or_writes_through(start, cluster, under_store):
    workers = start("w1", "w2")
    client = workers[0].s3()
    client.put_object(Bucket=BUCKET, Key="before", Body=b"two copies")
    lose(workers[1])
    answered(lambda: read(client, "before"), LEASE_SECONDS + 25)
    eventually("all slots at one", lambda: workers[0].ask("cluster")["workers"][0]["slots"] == 1024)
    refused("SlowDown", client.put_object, Bucket=BUCKET, Key="rejected", Body=b"one copy")
    assert workers[0].metrics()["forebay_replicas_missing_total"] >= 1
    assert "writeReplicas" in workers[0].log.read_text()
    CommandLine(workers[0]).text("policy", "set", "/", "--when-replicas-missing", "write-through")
    client.put_object(Bucket=BUCKET, Key="through", Body=b"there")
    assert read(boto(under_store), "through") == b"there"
    # What never goes to the under store can't be written there.
    refused("SlowDown", client.put_object, Bucket=BUCKET, Key="scratch/rejected", Body=b"one copy")
    workers[1].start()
    wait_until_shared(workers)
    answered(lambda: client.put_object(Bucket=BUCKET, Key="scratch/two", Body=b"two copies"))
    assert copies_of(workers, "scratch/two") == {2}


def wait_until_complete(workers, seconds=60):
    """Until these workers alone have all copies."""
    homes = lambda: {found["id"]: found["slots"] for found in workers[0].ask("cluster")["workers"]}
    names = [worker.name for worker in workers]
    eventually("all slots at these", lambda: sum(homes().get(name, 0) for name in names) == 1024, seconds)
    lacking = lambda: [total(worker, "forebay_under_replicated_objects") for worker in workers]
    eventually("all copies", lambda: lacking() == [0] * len(workers), seconds)


def total(worker, metric):
    return sum(value for name, value in worker.metrics().items() if name.startswith(metric))


@pytest.mark.slow("three leases run out; the simulation loses machines in any order")
def test_machines_are_lost_one_after_the_other(start, under_store):
    workers = start("w1", "w2", "w3")
    clients = [worker.s3() for worker in workers]
    under_store.pause()
    written = {}
    for number, client in zip(range(36), itertools.cycle(clients)):
        key = f"{'scratch' if number % 3 == 0 else 'kept'}/{number:02}"
        written[key] = os.urandom(1000 + 20_000 * number)
        answered(lambda: client.put_object(Bucket=BUCKET, Key=key, Body=written[key]))
    name = {"Bucket": BUCKET, "Key": "kept/large"}
    name["UploadId"] = answered(lambda: clients[0].create_multipart_upload(**name))["UploadId"]
    part = os.urandom(5 << 20)
    first = {"PartNumber": 1, "ETag": answered(lambda: clients[1].upload_part(**name, PartNumber=1, Body=part))["ETag"]}

    lose(workers[2])
    wait_until_complete(workers[:2])
    lose(workers[1])
    last = clients[0]
    for key, body in written.items():
        assert answered(lambda: read(last, key), LEASE_SECONDS + 25) == body, key
    # From here on, only one worker is left: a new copy has no place.
    eventually("the status reports missing copies", lambda: workers[0].status()["underReplicated"] > 30, 60)
    refused("SlowDown", last.put_object, Bucket=BUCKET, Key="kept/more", Body=b"one copy")
    # Slots wait for requests that the under store does not answer.
    workers[1].start()
    wait_until_complete(workers[:2], 120)
    second = answered(lambda: last.upload_part(**name, PartNumber=2, Body=b"end"))
    parts = [first, {"PartNumber": 2, "ETag": second["ETag"]}]
    answered(lambda: last.complete_multipart_upload(**name, MultipartUpload={"Parts": parts}))
    written["kept/large"] = part + b"end"
    under_store.resume()
    for worker in workers[:2]:
        worker.wait_until_drained()
    direct = boto(under_store)
    kept = {key: body for key, body in written.items() if key.startswith("kept/")}
    assert {key: read(direct, key) for key in kept} == kept
    assert all(worker.status()["missingObjects"] == 0 for worker in workers[:2])


def test_a_drain_leaves_as_many_copies_as_before(start, under_store):
    workers = start("w1", "w2", "w3")
    under_store.pause()
    written = {f"scratch/{number:02}": os.urandom(50_000) for number in range(24)}
    for (key, body), worker in zip(written.items(), itertools.cycle(workers)):
        answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=body))
    assert CommandLine(workers[1]).text("cluster", "drain", "w1", "--wait") == "drained: w1\n"
    assert workers[0].process.wait(timeout=60) == 0
    shutil.rmtree(workers[0].data)
    lose(workers[2])
    for key, body in written.items():
        assert answered(lambda: read(workers[1].s3(), key), LEASE_SECONDS + 25) == body, key


@pytest.mark.slow("a drain is waited for that does not end")
def test_a_drain_waits_when_too_few_workers_would_be_left(start, under_store):
    workers = start("w1", "w2")
    answered(lambda: workers[0].s3().put_object(Bucket=BUCKET, Key="scratch/two", Body=b"two copies"))
    done = CommandLine(workers[1]).run("cluster", "drain", "w1", "--wait", "--timeout", "8s")
    assert done.returncode != 0 and "1 have fewer copies than writeReplicas asks for" in done.stderr, done.stderr
    assert workers[0].process.poll() is None
    for path in ("/", "/copies/scratch/"):
        CommandLine(workers[1]).text("policy", "set", path, "--write-replicas", "1")
    assert CommandLine(workers[1]).text("cluster", "drain", "w1", "--wait") == "drained: w1\n"
    assert workers[0].process.wait(timeout=60) == 0
    assert read(workers[1].s3(), "scratch/two") == b"two copies"


def test_a_worker_that_is_back_at_once_with_empty_disks_gets_its_copies(start, under_store):
    workers = start("w1", "w2", "w3")
    under_store.pause()
    written = {f"kept/{number:03}": os.urandom(20_000) for number in range(60)}
    for (key, body), worker in zip(written.items(), itertools.cycle(workers)):
        answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=body))
    for lost in (workers[1], workers[2]):
        lose(lost)
        lost.start()
        wait_until_shared(workers)
        wait_until_complete(workers)
        for key, body in written.items():
            assert answered(lambda: read(workers[0].s3(), key), LEASE_SECONDS + 25) == body, key


def test_a_worker_without_room_for_a_large_copy_takes_small_ones(start, cluster):
    workers = start("w1")
    # 2 % of 256 MiB may be pinned.
    config = CONFIG.format(lease=LEASE_SECONDS).replace("[cache]", "[cache]\npinned_ratio = 0.02") + POLICY.format(missing="reject")
    workers.append(cluster.worker("w2", config=config, behind=workers[0].behind).start())
    wait_until_shared(workers)
    client = workers[0].s3()
    passed_on = lambda: total(workers[0], 'forebay_requests_total{operation="Forwarded"')
    refusals = 0
    for number in range(12):
        key, before = f"scratch/{number}", passed_on()
        client.put_object(Bucket=BUCKET, Key=key, Body=b"small")
        if passed_on() > before:
            # It is at home at the worker without room.
            continue
        refused("SlowDown", client.put_object, Bucket=BUCKET, Key=key, Body=bytes(8 << 20))
        client.put_object(Bucket=BUCKET, Key=key, Body=b"small")
        refusals += 1
    assert refusals > 0
    assert "is out of reach" not in workers[0].log.read_text() and "roken pipe" not in workers[0].log.read_text()


def test_a_rule_that_asks_for_more_workers_than_there_are_is_told(start):
    shell = CommandLine(start("w1", "w2")[0])
    done = shell.run("policy", "set", f"/{BUCKET}/three/", "--write-replicas", "3")
    assert done.returncode == 0 and "writeReplicas asks for 3 workers, and 2 of the cluster" in done.stderr, done
    done = shell.run("policy", "set", f"/{BUCKET}/three/", "--write-replicas", "2")
    assert (done.returncode, done.stderr) == (0, ""), done
