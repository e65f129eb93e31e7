"""An etcd that was brought back from an older backup knows nothing of what was written since."""

import os
import re
import shutil
import subprocess

from harness.clients import boto
from harness.cluster import answered, start_with_bucket, wait_until_shared


def refused(worker):
    environment = os.environ | worker.environment()
    done = subprocess.run(worker.command(), env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    return done.stderr.strip().splitlines()[-1]


def restore(etcd, directory):
    data = etcd.directory / "data"
    etcd.kill()
    shutil.rmtree(data)
    shutil.copytree(directory, data)
    etcd.start()


def start_and_back_up(worker, etcd, backup):
    """A worker with a bucket, and a backup of etcd from before this start of the worker."""
    worker.start()
    wait_until_shared([worker])
    answered(lambda: worker.s3().create_bucket(Bucket="kept"))
    assert worker.stop() == 0
    etcd.kill()
    shutil.copytree(etcd.directory / "data", backup)
    etcd.start()
    worker.start()
    wait_until_shared([worker])


def accept(worker, seen):
    worker.config.write_text(re.sub(r"(?m)^\[cluster\]$", f"[cluster]\naccept_older_engine = {seen}", worker.config.read_text()))


def test_a_worker_does_not_start_on_an_etcd_that_is_older_than_its_data(cluster):
    worker, etcd = cluster.worker("w1"), cluster.etcd
    data, backup, newest = (etcd.directory / name for name in ("data", "backup", "newest"))

    start_and_back_up(worker, etcd, backup)
    answered(lambda: worker.s3().put_object(Bucket="kept", Key="since", Body=b"acknowledged"))
    worker.kill()
    etcd.kill()
    shutil.copytree(data, newest)

    restore(etcd, backup)
    line = refused(worker)
    assert "older than at the last start" in line and "restore the newest data" in line, line
    seen = re.search(r"accept_older_engine = (\d+)", line)[1]
    # Under another name it still has the same data.
    worker.name = "w9"
    assert "older than at the last start" in refused(worker)
    worker.name = "w1"
    # The refused starts have removed nothing.
    restore(etcd, newest)
    worker.start()
    wait_until_shared([worker])
    assert answered(lambda: worker.s3().get_object(Bucket="kept", Key="since"))["Body"].read() == b"acknowledged"
    worker.kill()

    restore(etcd, backup)
    seen = re.search(r"accept_older_engine = (\d+)", refused(worker))[1]
    accept(worker, seen)
    worker.start()
    wait_until_shared([worker])
    answered(lambda: worker.s3().put_object(Bucket="kept", Key="later", Body=b"x"))
    worker.kill()
    # What was seen last is noted again, so the setting does no harm.
    worker.start()
    wait_until_shared([worker])
    assert worker.stop() == 0


def test_objects_of_an_older_etcd_are_not_mistaken_for_what_was_cached_since(cluster):
    """The older etcd does not know which generations it has given since, and caches know bytes by their generation."""
    worker, etcd = cluster.worker("w1"), cluster.etcd
    backup = etcd.directory / "backup"
    start_and_back_up(worker, etcd, backup)
    for number in range(10):
        answered(lambda: worker.s3().put_object(Bucket="kept", Key=f"since-{number}", Body=f"since {number:02}".encode()))
    worker.wait_until_drained()
    assert worker.stop() == 0

    restore(etcd, backup)
    accept(worker, re.search(r"accept_older_engine = (\d+)", refused(worker))[1])
    worker.start()
    wait_until_shared([worker])
    for number in range(30):
        answered(lambda: worker.s3().put_object(Bucket="kept", Key=f"later-{number}", Body=f"later {number:02}".encode()))
    for number in range(10):
        found = answered(lambda: worker.s3().get_object(Bucket="kept", Key=f"since-{number}"))["Body"].read()
        assert found == f"since {number:02}".encode(), number


def test_what_an_older_etcd_takes_for_pending_destroys_nothing_that_came_later(cluster, under_store):
    """The under store had the delete and the write long ago, and then newer objects."""
    boto(under_store).create_bucket(Bucket="kept")
    worker, etcd = cluster.worker("w1", behind=under_store), cluster.etcd
    start_with_bucket([worker], "kept")
    under_store.kill()
    worker.s3().delete_object(Bucket="kept", Key="deleted")
    worker.s3().put_object(Bucket="kept", Key="written", Body=b"older")
    worker.kill()
    etcd.kill()
    shutil.copytree(etcd.directory / "data", etcd.directory / "backup")
    etcd.start()
    under_store.start()
    worker.start()
    wait_until_shared([worker])
    worker.wait_until_drained()
    for key in ("deleted", "written"):
        answered(lambda: worker.s3().put_object(Bucket="kept", Key=key, Body=b"newer"))
    worker.wait_until_drained()
    assert worker.stop() == 0

    restore(etcd, etcd.directory / "backup")
    accept(worker, re.search(r"accept_older_engine = (\d+)", refused(worker))[1])
    worker.start()
    wait_until_shared([worker])
    worker.wait_until_drained()
    for key in ("deleted", "written"):
        assert answered(lambda: worker.s3().get_object(Bucket="kept", Key=key))["Body"].read() == b"newer", key
        assert boto(under_store).get_object(Bucket="kept", Key=key)["Body"].read() == b"newer", key


def test_what_others_do_with_an_older_etcd_hides_nothing(cluster):
    """A worker that joins ends the leases of those that it finds, and so writes their records."""
    first, second = workers = [cluster.worker(name) for name in ("w1", "w2")]
    etcd = cluster.etcd
    data, backup = etcd.directory / "data", etcd.directory / "backup"
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    answered(lambda: first.s3().create_bucket(Bucket="kept"))
    etcd.kill()
    shutil.copytree(data, backup)
    etcd.start()
    for number in range(20):
        answered(lambda: first.s3().put_object(Bucket="kept", Key=f"since-{number}", Body=b"acknowledged"))
    assert [worker.stop() for worker in workers] == [0, 0]

    restore(etcd, backup)
    accept(first, re.search(r"accept_older_engine = (\d+)", refused(first))[1])
    first.start()
    wait_until_shared([first])
    for number in range(20):
        answered(lambda: first.s3().put_object(Bucket="kept", Key=f"later-{number}", Body=b"x"))
    assert "older than at the last start" in refused(second)
