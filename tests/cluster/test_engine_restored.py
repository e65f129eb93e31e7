"""An etcd that was brought back from an older backup knows nothing of what was written since."""

import os
import re
import shutil
import subprocess

from harness.cluster import answered, wait_until_shared


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


def accept(worker, seen):
    worker.config.write_text(re.sub(r"(?m)^\[cluster\]$", f"[cluster]\naccept_older_engine = {seen}", worker.config.read_text()))


def test_a_worker_does_not_start_on_an_etcd_that_is_older_than_its_data(cluster):
    worker, etcd = cluster.worker("w1"), cluster.etcd
    data, backup, newest = (etcd.directory / name for name in ("data", "backup", "newest"))

    worker.start()
    wait_until_shared([worker])
    answered(lambda: worker.s3().create_bucket(Bucket="kept"))
    assert worker.stop() == 0
    etcd.kill()
    shutil.copytree(data, backup)
    etcd.start()
    worker.start()
    wait_until_shared([worker])
    answered(lambda: worker.s3().put_object(Bucket="kept", Key="since", Body=b"acknowledged"))
    worker.kill()
    etcd.kill()
    shutil.copytree(data, newest)

    restore(etcd, backup)
    line = refused(worker)
    assert "older than at the last start" in line and "restore the newest data" in line, line
    seen = re.search(r"accept_older_engine = (\d+)", line)[1]
    # The refused start has removed nothing.
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
