"""Buckets of a cluster: whichever worker deletes one, none takes writes to it any more."""

import concurrent.futures
import itertools

import pytest
from botocore.exceptions import ClientError

from harness.clients import refused
from harness.cluster import LEASE_SECONDS, answered

BUCKET = "cluster"
# What a request for a bucket may be told that is deleted and created all the time.
GONE, IN_BETWEEN = "NoSuchBucket", ("ServiceUnavailable", "SlowDown", "OperationAborted")


def code_of(call, **arguments):
    """The code of the error that a call ends with; None when it succeeds."""
    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def test_a_bucket_is_deleted_and_created_through_any_worker(cluster, three):
    for number, client in enumerate(three):
        creator = three[number - 1]
        creator.create_bucket(Bucket=BUCKET)
        keys = [f"objects/{number:02}" for number in range(12)]
        for key, writer in zip(keys, itertools.cycle(three)):
            answered(lambda: writer.put_object(Bucket=BUCKET, Key=key, Body=b"value"))
        refused("BucketNotEmpty", client.delete_bucket, Bucket=BUCKET)
        for key, writer in zip(keys, itertools.cycle(three)):
            answered(lambda: writer.delete_object(Bucket=BUCKET, Key=key))
        # Uploads go with their bucket, wherever they are at home.
        for key in keys:
            upload = answered(lambda: client.create_multipart_upload(Bucket=BUCKET, Key=key))["UploadId"]
            answered(lambda: client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"part"))
        answered(lambda: client.delete_bucket(Bucket=BUCKET))
        assert not (cluster.under / BUCKET).exists()
        for other in three:
            assert code_of(other.head_bucket) == "404"
            assert code_of(other.put_object, Key="late", Body=b"late") == GONE
        answered(lambda: client.create_bucket(Bucket=BUCKET))
        for other in three:
            assert "Uploads" not in answered(lambda: other.list_multipart_uploads(Bucket=BUCKET))
            answered(lambda: other.put_object(Bucket=BUCKET, Key="again", Body=b"again"))
            answered(lambda: other.delete_object(Bucket=BUCKET, Key="again"))
        answered(lambda: creator.delete_bucket(Bucket=BUCKET))
    assert sum(worker.status()["pinnedBytes"] for worker in cluster.workers) == 0


@pytest.mark.slow("many rounds; the simulation deletes buckets under writes, too")
def test_an_acknowledged_object_is_never_in_a_bucket_that_is_gone(cluster, three):
    deletions = 0

    def delete_and_create():
        nonlocal deletions
        deleter, creator = three[0], three[1]
        while deletions < 5:
            code = code_of(deleter.delete_bucket)
            assert code in (None, GONE, "BucketNotEmpty", *IN_BETWEEN), code
            deletions += code is None
            assert code_of(creator.create_bucket) in (None, *IN_BETWEEN)

    def write(number):
        key, written = f"objects/{number}", 0
        for client in itertools.cycle(three):
            if deletions >= 5:
                return written
            code = code_of(client.put_object, Key=key, Body=b"value")
            if code is None:
                written += 1
                assert answered(lambda: client.get_object(Bucket=BUCKET, Key=key))["Body"].read() == b"value"
                answered(lambda: client.delete_object(Bucket=BUCKET, Key=key))
            assert code in (None, GONE, *IN_BETWEEN), code

    three[0].create_bucket(Bucket=BUCKET)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, number) for number in range(2)]
        pool.submit(delete_and_create).result()
        assert all(writer.result() > 0 for writer in writers)


def test_a_bucket_is_not_deleted_behind_the_back_of_a_worker_that_stalls(cluster, three):
    three[0].create_bucket(Bucket=BUCKET)
    for key in range(12):
        answered(lambda: three[1].put_object(Bucket=BUCKET, Key=f"{key}", Body=b"value"))
        answered(lambda: three[1].delete_object(Bucket=BUCKET, Key=f"{key}"))
    stalled = cluster.workers[2]
    stalled.wait_until_drained()
    stalled.pause()
    assert code_of(three[0].delete_bucket) in IN_BETWEEN
    answered(lambda: three[0].delete_bucket(Bucket=BUCKET), LEASE_SECONDS + 25)
    stalled.resume()
    assert answered(lambda: code_of_late(three[2])) == GONE


def code_of_late(client):
    """Raises what a worker says that has to join again."""
    code = code_of(client.put_object, Key="late", Body=b"late")
    if code in IN_BETWEEN:
        raise ClientError({"Error": {"Code": code}}, "PutObject")
    return code
