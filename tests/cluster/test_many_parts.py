"""A multipart upload has up to 10,000 parts, and a transaction of etcd 128 writes."""

import concurrent.futures
import itertools

import pytest

from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared
from harness.servers import eventually

BUCKET = "parts"
CONFIG_OF_PARTS = (
    CONFIG.format(lease=LEASE_SECONDS).replace("[cache]\n", '[cache]\npart_size_min = "1 KB"\n')
    + """
[[policy]]
path = "/"
writeReplicas = 2
"""
)
PARTS = 300


def upload(clients, key, pool):
    """Uploads the parts through the workers in turn. Returns the upload, and how a completion names its parts."""
    name = {"Bucket": BUCKET, "Key": key}
    name["UploadId"] = answered(lambda: clients[0].create_multipart_upload(Bucket=BUCKET, Key=key))["UploadId"]

    def send(number, client):
        part = answered(lambda: client.upload_part(**name, PartNumber=number, Body=body_of(number)))
        return {"PartNumber": number, "ETag": part["ETag"]}

    return name, list(pool.map(send, range(1, PARTS + 1), itertools.cycle(clients)))


def body_of(number):
    return number.to_bytes(2) * 500


@pytest.mark.slow("300 parts of their own requests, twice")
def test_uploads_of_many_parts_are_completed_and_aborted(cluster):
    workers = [cluster.worker(name, config=CONFIG_OF_PARTS) for name in ("w1", "w2")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    clients = [worker.s3() for worker in workers]
    clients[0].create_bucket(Bucket=BUCKET)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        completed, parts = upload(clients, "completed", pool)
        answered(lambda: clients[1].complete_multipart_upload(**completed, MultipartUpload={"Parts": parts}))
        aborted, _ = upload(clients, "aborted", pool)
        clients[0].abort_multipart_upload(**aborted)
    expected = b"".join(map(body_of, range(1, PARTS + 1)))
    for client in clients:
        assert client.get_object(Bucket=BUCKET, Key="completed")["Body"].read() == expected
        assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)
    for worker in workers:
        worker.wait_until_drained()
    assert (cluster.under / BUCKET / "completed").read_bytes() == expected
    assert not (cluster.under / BUCKET / "aborted").exists()
    # Neither the parts nor their copies stay.
    eventually("nothing pinned", lambda: not any(worker.status()["pinnedBytes"] for worker in workers), 60)
