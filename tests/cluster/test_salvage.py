"""When etcd has lost all it had, the bytes on the disks of workers are brought out without it."""

import os
import subprocess

from harness.clients import boto
from harness.cluster import start_with_bucket
from harness.servers import Forebay

LARGE, PART = os.urandom(5 << 20), os.urandom(5 << 20)
ABOUT = {"Metadata": {"key": "value"}, "ContentType": "text/x-test"}


def salvage(worker, to):
    """Without keys: they are of no use here."""
    command = [worker.binary, "salvage", "--config", worker.config, "--data-dir", worker.data, "--to", to]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)


def test_acknowledged_objects_are_brought_out_of_the_disks_without_etcd(cluster, under_store, tmp_path):
    boto(under_store).create_bucket(Bucket="lake")
    workers = [cluster.worker(name, behind=under_store) for name in ("w1", "w2")]
    start_with_bucket(workers, "lake")
    under_store.kill()
    s3 = workers[0].s3()
    expected = {f"dir/{number}": b"body %d" % number for number in range(20)} | {"large": LARGE, "parts": PART + b"end", "a//b": b"odd"}
    for key, body in expected.items():
        if key == "parts":
            upload = s3.create_multipart_upload(Bucket="lake", Key=key, **ABOUT)["UploadId"]
            tags = [s3.upload_part(Bucket="lake", Key=key, UploadId=upload, PartNumber=n, Body=b)["ETag"] for n, b in ((1, PART), (2, b"end"))]
            parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
            s3.complete_multipart_upload(Bucket="lake", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        else:
            s3.put_object(Bucket="lake", Key=key, Body=b"older")
            s3.put_object(Bucket="lake", Key=key, Body=body, **ABOUT)
    s3.put_object(Bucket="lake", Key="deleted", Body=b"x")
    s3.delete_object(Bucket="lake", Key="deleted")
    etags = {key: s3.head_object(Bucket="lake", Key=key)["ETag"] for key in expected}

    to = tmp_path / "salvaged"
    running = salvage(workers[0], to)
    assert running.returncode == 1 and "in use" in running.stderr, running
    for server in [*workers, cluster.etcd]:
        server.kill()
    written = [salvage(worker, to) for worker in workers]
    counts = [int(done.stdout.split()[0]) for done in written]
    assert [done.returncode for done in written] == [0, 0] and sum(counts) == len(expected) and all(counts), written
    again = salvage(workers[0], to)
    assert f"0 objects written to {to}" in again.stdout and f"{counts[0]} objects left out" in again.stdout, again

    with_them = Forebay(tmp_path / "server", mode="WRITE_THROUGH")
    with_them.under = to
    with_them.start()
    try:
        s3 = boto(with_them)
        assert {found["Key"] for found in s3.list_objects_v2(Bucket="lake")["Contents"]} == set(expected)
        for key, body in expected.items():
            found = s3.get_object(Bucket="lake", Key=key)
            assert (found["Body"].read(), found["ETag"]) == (body, etags[key]), key
            assert {name: found[name] for name in ABOUT} == ABOUT, key
    finally:
        with_them.kill()

    # Salvage has changed nothing that a start needs.
    for server in (cluster.etcd, under_store, *workers):
        server.start()
    for worker in workers:
        worker.wait_until_drained()
    s3 = boto(under_store)
    # versitygw takes "a//b" for "a/b".
    assert {found["Key"].replace("a/b", "a//b") for found in s3.list_objects_v2(Bucket="lake")["Contents"]} == set(expected)
    assert s3.get_object(Bucket="lake", Key="parts")["Body"].read() == expected["parts"]


def test_what_others_have_written_is_not_replaced(cluster, under_store, tmp_path):
    boto(under_store).create_bucket(Bucket="lake")
    worker = cluster.worker("w1", behind=under_store)
    start_with_bucket([worker], "lake")
    under_store.kill()
    for key in ("free", "taken"):
        worker.s3().put_object(Bucket="lake", Key=key, Body=b"acknowledged")
    worker.kill()
    to = tmp_path / "salvaged"
    (to / "lake").mkdir(parents=True)
    (to / "lake" / "taken").write_bytes(b"of somebody")
    done = salvage(worker, to)
    assert done.returncode == 1 and "lake/taken" in done.stderr and "1 object could not be written" in done.stderr, done
    assert (to / "lake" / "taken").read_bytes() == b"of somebody"
    assert (to / "lake" / "free").read_bytes() == b"acknowledged"
    for used in (worker.data / "more", worker.data.parent):
        done = salvage(worker, used)
        assert done.returncode == 2 and "--to:" in done.stderr and "used by the server" in done.stderr, done
    if os.geteuid() == 0:
        os.chown(worker.data / "identity", 54321, -1)
        done = salvage(worker, to)
        assert done.returncode == 2 and "the user with the id 54321" in done.stderr, done
    nothing = cluster.worker("w2")
    done = salvage(nothing, to)
    assert done.returncode == 2 and "there is no store in" in done.stderr, done
