"""A directory under store that is not there: its disk is not mounted."""

import shutil

import pytest

from harness.clients import boto, refused
from harness.command_line import CommandLine
from harness.faults import ended_start
from harness.servers import Forebay, eventually


def test_a_missing_or_empty_under_store_is_refused_and_not_made(start):
    server = start(mode="WRITE_BACK")
    s3 = boto(server)
    s3.put_object(Bucket=server.bucket, Key="key", Body=b"x")
    server.wait_until_drained()
    assert server.stop() == 0
    away = server.under.with_name("away")
    server.under.rename(away)
    code, said = ended_start(server)
    assert code == 2 and f"{server.under} is missing" in said and "not mounted" in said and "mkdir" in said, said
    assert not server.under.exists()
    # As a mount point looks that nothing is mounted on.
    server.under.mkdir()
    code, said = ended_start(server)
    assert code == 1 and f"{server.under} has no buckets" in said and server.bucket in said and "not mounted" in said, said
    assert not list(server.under.iterdir())
    server.under.rmdir()
    away.rename(server.under)
    server.start()
    assert boto(server).get_object(Bucket=server.bucket, Key="key")["Body"].read() == b"x"


def test_a_new_under_store_is_taken_when_it_is_meant(start):
    server = start(mode="WRITE_BACK")
    assert server.stop() == 0
    shutil.rmtree(server.under)
    (server.under / "another").mkdir(parents=True)
    server.start()
    boto(server).put_object(Bucket="another", Key="key", Body=b"x")


QUICK = """
[cache]
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "1 s"
[under_store_limits]
circuit_pause_max = "1 s"
"""


@pytest.fixture
def lake(tmp_path):
    """A server with a bucket `lake` in a directory of its own, `server.lake`."""
    place = tmp_path / "lake"
    place.mkdir()
    server = Forebay(tmp_path / "server", mode="WRITE_BACK", config=f'{QUICK}[mounts]\nlake = "file://{place}"\n').start()
    server.lake = place
    yield server
    server.kill()


@pytest.mark.parametrize("ending", ["empty", "read"])
def test_an_empty_directory_of_a_mount_is_refused_when_it_had_objects(lake, ending):
    s3 = boto(lake)
    if ending == "empty":
        s3.put_object(Bucket="lake", Key="key", Body=b"x")
        lake.wait_until_drained()
    else:
        (lake.lake / "key").write_bytes(b"x")
        assert s3.get_object(Bucket="lake", Key="key")["Body"].read() == b"x"
    assert lake.stop() == 0
    away = lake.lake.with_name("away")
    lake.lake.rename(away)
    lake.lake.mkdir()
    code, said = ended_start(lake)
    assert code == 1 and f"mounts.lake: the directory {lake.lake} is empty" in said and "not mounted" in said, said
    assert not list(lake.lake.iterdir())
    # It is meant to be empty.
    (lake.lake / ".forebay").mkdir()
    lake.start()
    assert lake.stop() == 0
    shutil.rmtree(lake.lake)
    away.rename(lake.lake)
    lake.start()
    assert boto(lake).get_object(Bucket="lake", Key="key")["Body"].read() == b"x"


@pytest.mark.parametrize("is_mount, leaves", [(True, "nothing"), (True, "an empty directory"), (False, "another directory")])
def test_a_directory_that_is_unmounted_while_the_server_runs_is_out_of_reach(lake, is_mount, leaves):
    place, bucket = (lake.lake, "lake") if is_mount else (lake.under, "made-here")
    s3 = boto(lake)
    if not is_mount:
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="before", Body=b"1")
    lake.wait_until_drained()
    away = place.with_name("away")
    place.rename(away)
    if leaves != "nothing":
        (place / bucket if leaves == "another directory" else place).mkdir(parents=True)
    refused("ServiceUnavailable|SlowDown", s3.get_object, Bucket=bucket, Key="never read")
    s3.put_object(Bucket=bucket, Key="meanwhile", Body=b"2")

    def told():
        return any(str(place) in str(notice) for notice in lake.ask("notices"))

    eventually("a notice", told, 60)
    assert "meanwhile" not in [path.name for path in place.rglob("*")]
    assert lake.status()["dirtyObjects"] == 1
    if leaves != "nothing":
        shutil.rmtree(place)
    away.rename(place)
    lake.wait_until_drained()
    assert [path.read_bytes() for path in place.rglob("meanwhile")] == [b"2"]
    assert s3.get_object(Bucket=bucket, Key="before")["Body"].read() == b"1"
    eventually("no notice", lambda: not told(), 60)


@pytest.fixture
def buckets(start):
    """A server with two buckets, each with the object `before` in the under store."""
    server = start(mode="WRITE_BACK")
    s3 = boto(server)
    s3.create_bucket(Bucket="other")
    for bucket in (server.bucket, "other"):
        s3.put_object(Bucket=bucket, Key="before", Body=b"1")
    server.wait_until_drained()
    server.place = server.under / server.bucket
    return server


def leave_an_empty_directory(place):
    """As a disk does that was mounted there. Returns where the other one is now."""
    away, empty = (place.parent.with_name(name) for name in ("away", "empty"))
    empty.mkdir()
    place.rename(away)
    empty.rename(place)
    return away


def test_an_empty_directory_of_a_bucket_is_refused_when_changes_of_its_objects_wait(buckets):
    place = buckets.place
    away = leave_an_empty_directory(place)
    boto(buckets).delete_object(Bucket=buckets.bucket, Key="before")
    buckets.kill()
    code, said = ended_start(buckets)
    expected = f"the directory {place} of the bucket {buckets.bucket} is not the one"
    assert code == 1 and expected in said and "not mounted" in said and ".forebay" in said, said
    assert not list(place.iterdir())
    place.rmdir()
    away.rename(place)
    buckets.start()
    buckets.wait_until_drained()
    assert not (place / "before").exists()
    # Nothing waits any more, so somebody may have emptied it.
    assert buckets.stop() == 0
    leave_an_empty_directory(place)
    buckets.start()
    told = [notice["subject"] for notice in buckets.ask("notices") if notice["id"] == "bucket-directory-replaced"]
    assert told == [buckets.bucket]
    boto(buckets).put_object(Bucket=buckets.bucket, Key="later", Body=b"2")
    buckets.wait_until_drained()
    assert (place / "later").read_bytes() == b"2"


def test_an_empty_directory_of_a_bucket_that_only_others_wrote_to_is_refused_when_changes_of_its_objects_wait(start):
    server = start(mode="WRITE_BACK")
    s3, place = boto(server), server.under / server.bucket
    (place / "theirs").write_bytes(b"1")
    assert s3.get_object(Bucket=server.bucket, Key="theirs")["Body"].read() == b"1"
    away = leave_an_empty_directory(place)
    s3.delete_object(Bucket=server.bucket, Key="theirs")
    server.kill()
    code, said = ended_start(server)
    assert code == 1 and f"the directory {place} of the bucket {server.bucket} is empty" in said and "not mounted" in said, said
    away.rename(place)
    server.start()
    server.wait_until_drained()
    assert not (place / "theirs").exists()


@pytest.fixture
def waiting(buckets):
    """The same. A delete and an overwrite wait, and it was not known what the under store had. `server.away` is the bucket."""
    s3, bucket = boto(buckets), buckets.bucket
    s3.put_object(Bucket=bucket, Key="deleted", Body=b"1")
    buckets.wait_until_drained()
    CommandLine(buckets).text("free", f"s3://{bucket}")
    buckets.away = leave_an_empty_directory(buckets.place)
    s3.put_object(Bucket=bucket, Key="before", Body=b"2")
    s3.delete_object(Bucket=bucket, Key="deleted")
    buckets.kill()
    return buckets


def check_refused(server, files):
    code, said = ended_start(server)
    expected = f"the directory {server.place} of the bucket {server.bucket} is not the one"
    assert code == 1 and expected in said and "not mounted" in said and "moved_buckets" in said, said
    assert [path.name for path in server.place.iterdir()] == files


def test_changes_are_not_sent_to_the_mount_point_of_a_bucket_of_which_little_was_known(waiting):
    check_refused(waiting, [])
    (waiting.place / "leftover").write_bytes(b"x")
    check_refused(waiting, ["leftover"])
    # Anybody can make a directory.
    (waiting.place / "leftover").unlink()
    (waiting.place / ".forebay").mkdir()
    check_refused(waiting, [".forebay"])
    shutil.rmtree(waiting.place)
    waiting.away.rename(waiting.place)
    waiting.start()
    waiting.wait_until_drained()
    assert (waiting.place / "before").read_bytes() == b"2" and not (waiting.place / "deleted").exists()


def test_changes_are_not_sent_to_a_directory_that_appears_where_the_bucket_was(waiting):
    waiting.place.rmdir()
    waiting.start()
    waiting.place.mkdir()
    eventually("a notice", lambda: any("is not the one" in str(notice) for notice in waiting.ask("notices")), 60)
    assert not waiting.is_drained() and not list(waiting.place.iterdir())
    # In one step: an empty directory is replaced.
    waiting.away.rename(waiting.place)
    waiting.wait_until_drained()
    assert (waiting.place / "before").read_bytes() == b"2" and not (waiting.place / "deleted").exists()


def test_a_bucket_that_is_missing_at_the_start_is_known_by_its_mark_when_it_is_back(buckets):
    assert buckets.stop() == 0
    place = buckets.place
    away = leave_an_empty_directory(place)
    place.rmdir()
    buckets.start()
    place.mkdir()
    for key in ("later", "latest"):
        boto(buckets).put_object(Bucket=buckets.bucket, Key=key, Body=b"2")
    eventually("a notice", lambda: any("is not the one" in str(notice) for notice in buckets.ask("notices")), 60)
    assert not list(place.iterdir())
    # In one step: an empty directory is replaced.
    away.rename(place)
    buckets.wait_until_drained()
    assert [(place / key).read_bytes() for key in ("before", "later", "latest")] == [b"1", b"2", b"2"]


def test_a_bucket_that_changes_wait_for_is_not_made_where_it_is_missing(waiting):
    waiting.place.rmdir()
    waiting.start()
    refused("ServiceUnavailable", boto(waiting).create_bucket, Bucket=waiting.bucket)
    assert not waiting.place.exists()
    waiting.away.rename(waiting.place)
    waiting.wait_until_drained()
    assert (waiting.place / "before").read_bytes() == b"2" and not (waiting.place / "deleted").exists()


def test_a_directory_is_taken_for_a_bucket_when_an_operator_says_so(waiting):
    config, s3 = waiting.config.read_text(), boto(waiting)
    waiting.config.write_text(f'{config}[under_store]\nmoved_buckets = "{waiting.bucket}"\n')
    waiting.start()
    waiting.wait_until_drained()
    assert (waiting.place / "before").read_bytes() == b"2"
    # It has a mark of its own by now.
    waiting.config.write_text(config)
    s3.put_object(Bucket=waiting.bucket, Key="before", Body=b"3")
    waiting.kill()
    waiting.start()
    waiting.wait_until_drained()
    assert (waiting.place / "before").read_bytes() == b"3"
    s3.delete_object(Bucket=waiting.bucket, Key="before")
    s3.delete_bucket(Bucket=waiting.bucket)
    assert not waiting.place.exists()


def test_a_bucket_whose_disk_is_unmounted_while_the_server_runs_is_out_of_reach(buckets):
    s3, place = boto(buckets), buckets.place
    away = leave_an_empty_directory(place)
    # As often as it takes to open the circuit.
    for _ in range(10):
        refused("ServiceUnavailable|SlowDown", s3.get_object, Bucket=buckets.bucket, Key="never read")
    for bucket in (buckets.bucket, "other"):
        s3.put_object(Bucket=bucket, Key="meanwhile", Body=b"2")
    s3.delete_object(Bucket=buckets.bucket, Key="before")
    eventually("a notice", lambda: any(str(place) in str(notice) for notice in buckets.ask("notices")), 60)
    eventually("an upload to the other bucket", lambda: buckets.status()["dirtyObjects"] == 1)
    assert (buckets.under / "other" / "meanwhile").read_bytes() == b"2"
    assert not list(place.iterdir())
    # In one step: an empty directory is replaced.
    away.rename(place)
    buckets.wait_until_drained()
    assert (place / "meanwhile").read_bytes() == b"2" and not (place / "before").exists()


@pytest.mark.parametrize("has_bucket", [False, True])
def test_a_store_without_buckets_starts_on_an_empty_directory(tmp_path, has_bucket):
    server = Forebay(tmp_path / "server")
    server.under.rmdir()
    for _ in range(2):
        server.start()
        s3 = boto(server)
        if has_bucket:
            s3.create_bucket(Bucket="for-a-while")
            s3.delete_bucket(Bucket="for-a-while")
        assert server.stop() == 0
