"""Three workers and one etcd: any worker answers for any key, and a worker that is gone takes nothing with it."""

import concurrent.futures
import os
import time

import pytest
from botocore.exceptions import ClientError

from harness.clients import refused
from harness.cluster import LEASE_SECONDS, answered
from harness.command_line import CommandLine
from harness.servers import eventually

BUCKET = "cluster"


def read(client, key):
    return client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def keys_of(client):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 7})
    return [found["Key"] for page in pages for found in page.get("Contents", [])]


def put_many(clients, prefix, count=24):
    """Objects that were written through all workers in turn, by their keys."""
    written = {f"{prefix}/{number:03}": os.urandom(1000 + number) for number in range(count)}
    for number, (key, body) in enumerate(written.items()):
        answered(lambda: clients[number % len(clients)].put_object(Bucket=BUCKET, Key=key, Body=body))
    return written


def create_bucket(clients):
    clients[0].create_bucket(Bucket=BUCKET)
    for client in clients:
        eventually("the bucket at all workers", lambda: BUCKET in [b["Name"] for b in client.list_buckets()["Buckets"]])


def test_all_workers_answer_for_all_keys(three):
    create_bucket(three)
    written = put_many(three, "objects")
    for client in three:
        assert {key: read(client, key) for key in written} == written
        assert keys_of(client) == sorted(written)
    # The last part of a body with a chunked signature and checksums is the home's to check, too.
    three[1].put_object(Bucket=BUCKET, Key="objects/000", Body=b"again", ChecksumAlgorithm="CRC32C")
    for client in three:
        assert read(client, "objects/000") == b"again"
    deleted = three[2].delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in written]})
    assert sorted(found["Key"] for found in deleted["Deleted"]) == sorted(written)
    assert [keys_of(client) for client in three] == [[], [], []]


def test_uploads_copies_tags_and_conditions_cross_workers(three):
    create_bucket(three)
    parts = [os.urandom(5 << 20), os.urandom(5 << 20), b"end"]
    upload = three[0].create_multipart_upload(Bucket=BUCKET, Key="large")
    name = {"Bucket": BUCKET, "Key": "large", "UploadId": upload["UploadId"]}
    done = []
    for number, part in enumerate(parts, start=1):
        answer = three[number % 3].upload_part(**name, PartNumber=number, Body=part)
        done.append({"PartNumber": number, "ETag": answer["ETag"]})
    three[1].complete_multipart_upload(**name, MultipartUpload={"Parts": done})
    for number, client in enumerate(three):
        copy = f"copy-{number}"
        client.copy_object(Bucket=BUCKET, Key=copy, CopySource=f"{BUCKET}/large")
        client.put_object_tagging(Bucket=BUCKET, Key=copy, Tagging={"TagSet": [{"Key": "by", "Value": str(number)}]})
        for other in three:
            assert read(other, copy) == b"".join(parts)
            assert other.get_object_tagging(Bucket=BUCKET, Key=copy)["TagSet"][0]["Value"] == str(number)

    def create(client):
        try:
            client.put_object(Bucket=BUCKET, Key="once", Body=b"mine", IfNoneMatch="*")
        except ClientError as error:
            assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"), error
            return 0
        return 1

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        assert sum(threads.map(create, three * 4)) == 1


def test_a_worker_passes_on_as_many_headers_as_it_takes(three):
    """Messages between workers have some more."""
    create_bucket(three)
    body = os.urandom(100_000)
    for count in range(76, 92):
        metadata = {f"k{number}": "v" for number in range(count)}
        answers = set()
        for client in three:
            try:
                answer = answered(lambda: client.put_object(Bucket=BUCKET, Key="headers", Body=body, Metadata=metadata))
            except ClientError as error:
                answer = error.response
            answers.add(answer["ResponseMetadata"]["HTTPStatusCode"])
        assert len(answers) == 1, (count, answers)


def test_what_a_killed_worker_had_comes_back_with_it_or_without(cluster, three):
    create_bucket(three)
    written = put_many(three, "before")
    for worker in cluster.workers:
        worker.wait_until_drained()
    killed, others = cluster.workers[2], three[:2]
    killed.kill()
    for client in others:
        assert {key: answered(lambda: read(client, key), LEASE_SECONDS + 25) for key in written} == written
    written |= put_many(others, "after")
    killed.start()
    for client in three:
        assert {key: answered(lambda: read(client, key)) for key in written} == written
        assert answered(lambda: keys_of(client)) == sorted(written)


@pytest.mark.slow("a lease runs out; the tests of forebay-cluster and the simulation pause workers")
def test_a_worker_that_stalls_says_nothing_outdated_and_joins_again(cluster, three):
    create_bucket(three)
    written = put_many(three, "objects")
    for worker in cluster.workers:
        worker.wait_until_drained()
    stalled, others = cluster.workers[0], three[1:]
    stalled.pause()
    written = {key: os.urandom(500) for key in written}
    for key, body in written.items():
        answered(lambda: others[0].put_object(Bucket=BUCKET, Key=key, Body=body))
    stalled.resume()
    # It may refuse for a while; it may not answer with what was there before.
    for key, body in written.items():
        assert answered(lambda: read(three[0], key)) == body
    eventually("a new start", lambda: "starting again" in stalled.log.read_text())
    eventually("slots for it", lambda: "took over slots" in stalled.log.read_text().rpartition("starting again")[2])
    for key, body in written.items():
        assert answered(lambda: read(three[0], key)) == body
    assert stalled.stop() == 0


def test_a_worker_that_stops_leaves_its_slots_at_once(cluster, three):
    create_bucket(three)
    written = put_many(three, "objects")
    for worker in cluster.workers:
        worker.wait_until_drained()
    assert cluster.workers[1].stop() == 0
    rest = [three[0], three[2]]
    for client in rest:
        assert {key: answered(lambda: read(client, key)) for key in written} == written
    assert "its slots are taken" not in cluster.workers[0].log.read_text() + cluster.workers[2].log.read_text()


def test_without_the_engine_nobody_waits_and_all_say_so(cluster, three):
    create_bucket(three)
    written = put_many(three, "objects")
    for worker in cluster.workers:
        worker.wait_until_drained()
    cluster.etcd.pause()
    for worker in cluster.workers:
        eventually("a worker that is not ready", lambda: not worker.is_ready(), 30)
        assert worker.is_healthy()
    began = time.monotonic()
    for client in three:
        refused("ServiceUnavailable|SlowDown", client.put_object, Bucket=BUCKET, Key="objects/000", Body=b"late")
    assert time.monotonic() - began < 20
    cluster.etcd.resume()
    for worker in cluster.workers:
        eventually("a worker that is ready", worker.is_ready, 30)
    for client in three:
        assert {key: answered(lambda: read(client, key)) for key in list(written)[1:]} == dict(list(written.items())[1:])


def test_path_policies_hold_on_all_workers_within_a_second(cluster, three):
    one, other = (CommandLine(worker) for worker in (cluster.workers[0], cluster.workers[2]))
    one.text("policy", "set", "/cluster/logs/", "--write-mode", "TRANSIENT")

    def mode():
        return [rule.get("writeMode") for rule in other.json("policy", "get") if rule["path"] == "/cluster/logs/"]

    eventually("the policy at another worker", lambda: mode() == ["TRANSIENT"], 2)
