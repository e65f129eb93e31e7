"""Writes that several workers have before they are acknowledged: `writeReplicas`."""

import concurrent.futures
import itertools
import json
import os
import shutil

import pytest

from harness.clients import boto, refused
from harness.cluster import CONFIG, LEASE_SECONDS, Pausable, answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import S3Server, eventually

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


class UnderStore(S3Server, Pausable):
    """An S3 server that can be stopped for a while."""


@pytest.fixture
def under_store(tmp_path):
    server = UnderStore(tmp_path / "under-store").start()
    yield server
    server.resume()
    server.kill()


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
    """How many copies an object has, as its home says."""
    told = [CommandLine(worker).run("stat", f"s3://{BUCKET}/{key}", "--output", "json") for worker in workers]
    return [json.loads(done.stdout)["replicas"] for done in told if done.returncode == 0]


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
    assert copies_of(workers, "object") == [2]
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
    assert copies_of(workers, "scratch/two") == [2]
