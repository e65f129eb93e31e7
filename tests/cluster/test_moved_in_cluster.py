"""Changes that wait in a cluster go to the under store that they were meant for, and to no other one."""

import os
import subprocess

from harness.clients import boto
from harness.cluster import CONFIG, LEASE_SECONDS, UnderStore, start_with_bucket, wait_until_shared
from harness.faults import ended_start
from harness.servers import eventually

SHORT = CONFIG.format(lease=LEASE_SECONDS).replace('drain_timeout = "10 s"', 'drain_timeout = "100 ms"\npersist_backoff_max = "1 s"')
KEYS = [f"key-{number}" for number in range(32)]


def refused(worker):
    done = subprocess.run(worker.command(), env=os.environ | worker.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    return done.stderr.splitlines()[-1]


def body(s3, key):
    try:
        return s3.get_object(Bucket="lake", Key=key)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None  # A delete that waited has arrived since the listing.


def bodies(server):
    s3 = boto(server)
    found = s3.list_objects_v2(Bucket="lake").get("Contents", [])
    return {each["Key"]: body(s3, each["Key"]) for each in found}


def test_what_waits_is_not_sent_to_a_store_that_all_workers_have_since(cluster, under_store, tmp_path):
    second = UnderStore(tmp_path / "second").start()
    workers = [cluster.worker(name, behind=under_store, config=SHORT) for name in ("w1", "w2")]
    try:
        for server in (under_store, second):
            boto(server).create_bucket(Bucket="lake")
            for key in [*KEYS, "deleted"]:
                boto(server).put_object(Bucket="lake", Key=key, Body=b"theirs")
        start_with_bucket(workers, "lake")
        under_store.kill()
        s3 = workers[0].s3()
        s3.delete_object(Bucket="lake", Key="deleted")
        for key in KEYS:
            s3.put_object(Bucket="lake", Key=key, Body=b"mine")
        dirty = [worker.ask("status")["dirtyObjects"] for worker in workers]
        assert all(dirty) and sum(dirty) == len(KEYS), "both are homes of some of these keys"
        assert [worker.stop() for worker in workers] == [0, 0]
        under_store.start()

        for worker in workers:
            worker.behind = second
        # It sees what waits at the other one, too.
        line = refused(workers[0])
        for part in ("under_store.url", f"{len(KEYS) + 1} changes wait", "bucket lake", under_store.endpoint, second.endpoint, "moved_buckets"):
            assert part in line, line
        assert bodies(second) == {key: b"theirs" for key in [*KEYS, "deleted"]}

        for worker in workers:
            worker.behind = under_store
            worker.start()
        eventually("what waits is sent", lambda: bodies(under_store) == {key: b"mine" for key in KEYS})
        for worker in workers:
            worker.wait_until_drained()
        assert [worker.stop() for worker in workers] == [0, 0]
        for worker in workers:
            worker.behind = second
            worker.start()
        wait_until_shared(workers)
        eventually("the other store is read", lambda: bodies(workers[1]) == {key: b"theirs" for key in [*KEYS, "deleted"]})
    finally:
        second.kill()


def test_no_worker_starts_with_another_directory_in_the_place_of_a_bucket(cluster):
    lake, away = cluster.under / "lake", cluster.directory / "away"
    lake.mkdir()
    workers = [cluster.worker(name, config=SHORT) for name in ("w1", "w2")]
    start_with_bucket(workers, "lake")
    for key in KEYS:
        workers[0].s3().put_object(Bucket="lake", Key=key, Body=b"mine")
    for worker in workers:
        worker.wait_until_drained()
    # Both have sent some, and have found the same mark.
    assert len((lake / ".forebay" / "bucket").read_text()) == 32
    assert [worker.stop() for worker in workers] == [0, 0]

    # As a worker sees it that lacks the mount. Other workers may have changes for the bucket at any time.
    lake.rename(away)
    lake.mkdir()
    code, said = ended_start(workers[0])
    assert code == 1 and f"the directory {lake} of the bucket lake is not the one" in said and "moved_buckets" in said, said
    assert not list(lake.iterdir())

    workers[0].config.write_text(SHORT + '[under_store]\nmoved_buckets = "lake"\n')
    workers[0].start()
    workers[1].start()
    wait_until_shared(workers)
    for key in KEYS:
        workers[1].s3().put_object(Bucket="lake", Key=key, Body=b"later")
    for worker in workers:
        worker.wait_until_drained()
    assert sorted(path.name for path in lake.iterdir()) == sorted([".forebay", *KEYS])
