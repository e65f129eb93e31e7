"""Objects that are read often are answered by every worker, and nobody reads an older version than somebody else."""

import concurrent.futures
import itertools
import time

import pytest

from harness.clients import boto, refused
from harness.cluster import LEASE_SECONDS, answered, wait_until_shared
from harness.servers import eventually

BUCKET = "leases"
# Of a read lease at most.
READ_LEASE_SECONDS = 5


@pytest.fixture
def workers(cluster):
    workers = [cluster.worker(name) for name in ("w1", "w2", "w3")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    workers[0].s3().create_bucket(Bucket=BUCKET)
    for worker in workers:
        answered(lambda: worker.s3().head_bucket(Bucket=BUCKET))
    return workers


def read(client, key="hot"):
    return client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def leased_reads(worker):
    return worker.metrics().get("forebay_leased_reads_total", 0)


def readers(workers, key="hot"):
    """The workers that answer reads of a key under a lease."""

    def answers_alone(worker):
        before = leased_reads(worker)
        read(worker.s3(), key)
        return leased_reads(worker) > before

    def found():
        found = [worker for worker in workers if answers_alone(worker)]
        return found if len(found) == len(workers) - 1 else None

    return eventually("two workers with a lease", found)


def test_every_worker_answers_what_is_read_often(workers):
    client = workers[0].s3()
    client.put_object(Bucket=BUCKET, Key="hot", Body=b"some hot data", Metadata={"a": "b"}, ContentType="text/plain")
    for worker in readers(workers):
        near, before = worker.s3(), leased_reads(worker)
        answer = near.get_object(Bucket=BUCKET, Key="hot", Range="bytes=5-7")
        assert (answer["Body"].read(), answer["ContentRange"], answer["Metadata"]) == (b"hot", "bytes 5-7/13", {"a": "b"})
        head = near.head_object(Bucket=BUCKET, Key="hot")
        assert (head["ContentLength"], head["ContentType"], head["ETag"]) == (13, "text/plain", answer["ETag"])
        refused("304", near.get_object, Bucket=BUCKET, Key="hot", IfNoneMatch=head["ETag"])
        refused("InvalidRange", near.get_object, Bucket=BUCKET, Key="hot", Range="bytes=13-")
        assert leased_reads(worker) == before + 4
        # Tags are the home's to tell, and so is everything that a client does not want from a cache.
        assert near.get_object_tagging(Bucket=BUCKET, Key="hot")["TagSet"] == []
        assert leased_reads(worker) == before + 4


def test_nobody_reads_what_was_replaced(workers):
    clients = [worker.s3() for worker in workers]
    clients[0].put_object(Bucket=BUCKET, Key="hot", Body=b"0")
    readers(workers)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for number, writer in zip(range(1, 60), itertools.cycle(clients)):
            body = str(number).encode()
            if number % 10 == 9:
                writer.delete_object(Bucket=BUCKET, Key="hot")
                for client in clients:
                    refused("NoSuchKey", read, client)
            writer.put_object(Bucket=BUCKET, Key="hot", Body=body)
            assert list(pool.map(read, clients * 2)) == [body] * 6
    assert sum(worker.metrics()["forebay_read_leases_revoked_total"] for worker in workers) > 0
    assert sum(leased_reads(worker) for worker in workers) > 0


def test_a_write_waits_for_a_reader_that_stalls_and_no_longer(workers):
    clients = [worker.s3() for worker in workers]
    clients[0].put_object(Bucket=BUCKET, Key="hot", Body=b"old")
    reader = readers(workers)[0]
    writer = next(worker for worker in workers if worker is not reader)
    reader.pause()
    began = time.monotonic()
    answered(lambda: writer.s3().put_object(Bucket=BUCKET, Key="hot", Body=b"new"))
    assert time.monotonic() - began < READ_LEASE_SECONDS + 2 * LEASE_SECONDS + 3
    reader.resume()
    assert answered(lambda: read(reader.s3())) == b"new"


def test_a_killed_home_that_comes_back_leaves_no_old_version_behind(workers):
    clients = [worker.s3() for worker in workers]
    clients[0].put_object(Bucket=BUCKET, Key="hot", Body=b"old")
    home = next(worker for worker in workers if worker not in readers(workers))
    others = [worker for worker in workers if worker is not home]
    home.kill()
    home.start()
    answered(lambda: boto(home).put_object(Bucket=BUCKET, Key="hot", Body=b"new"))
    for worker in [*others, home]:
        assert answered(lambda: read(worker.s3())) == b"new"
