"""Forebay reports what goes wrong: a full disk, mounts that can't be used, writes that are refused, a users file with a mistake."""

import os
import re
import subprocess

import pytest
from harness.clients import boto, refused
from harness.command_line import CommandLine
from harness.faults import Tmpfs
from harness.servers import REGION, Forebay, S3Server, eventually, free_port

SMALL = '[store]\nsize = "{size}"\nsegment_size = "2 MiB"\n[cache]\nmemory_size = "0 B"\n'


def notice(server, identifier):
    """The notice of this name, if it holds."""
    return next((notice for notice in server.ask("notices") if notice["id"] == identifier), None)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(server):
        started.append(server)
        return server.start()

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


def test_a_disk_that_others_fill_is_told_with_its_directory_and_its_reason(start, tmp_path):
    disk = Tmpfs(tmp_path / "disk", 48).mount()
    try:
        server = Forebay(tmp_path / "server", mode="TRANSIENT", config=SMALL.format(size="128 MiB"))
        server.data = disk.at / "data"
        s3 = boto(start(server))
        s3.create_bucket(Bucket="full")
        hog = disk.fill()
        told = eventually("the notice of the full disk", lambda: notice(server, "disk-full"))
        assert told["severity"] == "critical" and told["subject"] == str(server.data), told
        assert "ENOSPC" in told["title"] and "others" in told["title"] and "du" in told["cure"], told
        status = server.status()
        parts = ("pinnedBytes", "evictableBytes", "freeBytes", "unavailableBytes", "overheadBytes")
        assert sum(status[part] for part in parts) == status["capacityBytes"], status
        assert status["freeBytes"] < 4 << 20 and status["unavailableBytes"] > 64 << 20, status
        refused("SlowDown", s3.put_object, Bucket="full", Key="more", Body=os.urandom(1 << 20))
        assert server.metrics()[f'forebay_disk_full{{directory="{server.data}"}}'] == 1
        hog.unlink()
        eventually("the end of the notice", lambda: notice(server, "disk-full") is None)
        s3.put_object(Bucket="full", Key="more", Body=os.urandom(1 << 20))
        assert server.metrics()[f'forebay_disk_full{{directory="{server.data}"}}'] == 0
        log = server.log.read_text()
        assert "ENOSPC" in log and "a notice is over" in log
    finally:
        disk.detach()


def test_mounts_that_cannot_be_used_are_told_from_the_start(start, tmp_path, s3_server):
    place = f"?endpoint={s3_server.endpoint}&region={REGION}"
    behind = boto(s3_server)
    behind.create_bucket(Bucket="there-notices")
    keys = f'access_key = "{s3_server.access_key}"\nsecret_key = '
    config = f"""
[mounts.good]
url = "s3://there-notices{place}"
{keys}"{s3_server.secret_key}"
[mounts.typo]
url = "s3://not-there-notices{place}"
{keys}"{s3_server.secret_key}"
[mounts.wrong]
url = "s3://there-notices/below{place}"
{keys}"not the secret"
"""
    server = start(Forebay(tmp_path / "server", config=config))
    # Both wait for the first checks after the start.
    shown = CommandLine(server).run("mounts")
    assert shown.returncode == 1 and shown.stdout.count("unusable") == 2 and "not checked" not in shown.stdout, shown
    health = CommandLine(server).run("health")
    assert health.returncode == 1 and "NoSuchBucket" in health.stdout and "SignatureDoesNotMatch" in health.stdout, health
    missing = eventually("the notice of the bucket", lambda: notice(server, "bucket-missing"))
    assert "not-there-notices" in missing["subject"] and "NoSuchBucket" in missing["title"], missing
    wrong = eventually("the notice of the keys", lambda: notice(server, "credentials-refused"))
    assert "below" in wrong["subject"] and "SignatureDoesNotMatch" in wrong["title"] and "secret key" in wrong["cure"], wrong
    states = {state["buckets"][0]: state["problem"] for state in server.ask("under-stores") if state["buckets"]}
    assert states["good"] is None and "does not exist" in states["typo"] and "keys" in states["wrong"], states
    unusable = [value for name, value in server.metrics().items() if name.startswith("forebay_under_store_unusable")]
    assert sorted(unusable) == [0, 0, 1, 1], unusable
    assert "the bucket behind it does not exist" in server.log.read_text()

    s3 = boto(server)
    s3.put_object(Bucket="good", Key="key", Body=b"x")
    error = refused("NoSuchBucket", s3.put_object, Bucket="typo", Key="key", Body=b"x")
    assert "behind" in error["Error"]["Message"], error
    # The notice ends by itself.
    behind.create_bucket(Bucket="not-there-notices")
    eventually("the end of the notice", lambda: notice(server, "bucket-missing") is None, 60)
    s3.put_object(Bucket="typo", Key="key", Body=b"x")


UPLOADS = """
[cache]
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "1 s"
"""


@pytest.fixture
def behind(tmp_path):
    server = S3Server(tmp_path / "behind").start()
    yield server
    server.kill()


def write_three(server):
    for number in range(3):
        boto(server).put_object(Bucket="kept", Key=f"key-{number}", Body=b"x")


@pytest.mark.parametrize("kind", ["directory", "server"])
def test_a_bucket_that_the_under_store_has_lost_is_told(start, tmp_path, behind, kind):
    server = Forebay(tmp_path / "server", "WRITE_BACK", behind if kind == "server" else None, UPLOADS)
    for name in ("kept", "other"):
        boto(server if server.process else start(server)).create_bucket(Bucket=name)
    bucket = (behind.objects if kind == "server" else server.under) / "kept"
    bucket.rename(bucket.parent.parent / "away")
    write_three(server)

    def is_told():
        told = eventually("the notice", lambda: notice(server, "uploads-refused"))
        assert told["severity"] == "critical" and "refuses what waits for bucket kept" in told["title"], told

    is_told()
    # It is not known any more that there was such a bucket.
    server.kill()
    server.start()
    is_told()
    done = CommandLine(server).run("verify", "/")
    assert done.returncode == 1 and "/kept" in done.stdout + done.stderr, done
    (bucket.parent.parent / "away").rename(bucket)
    eventually("the end of the notice", lambda: notice(server, "uploads-refused") is None)
    server.wait_until_drained()
    assert CommandLine(server).run("verify", "/").returncode == 0


def test_a_full_directory_under_store_is_told_with_its_reason(start, tmp_path):
    place = Tmpfs(tmp_path / "place", 1).mount()
    try:
        config = f'{UPLOADS}[mounts]\nsmall = "file://{place.at}"\n'
        server = start(Forebay(tmp_path / "server", "WRITE_BACK", config=config))
        for number in range(3):
            boto(server).put_object(Bucket="small", Key=f"key-{number}", Body=os.urandom(600_000))
        reason = "No space left on device"
        eventually("the reason in the log", lambda: reason in server.log.read_text())
        eventually("the reason beside the mount", lambda: reason in CommandLine(server).run("mounts").stdout)
        told = eventually("the notice", lambda: notice(server, "under-store-full"))
        assert reason in told["title"] and str(place.at) in told["subject"], told
    finally:
        server.kill()
        place.detach()


def test_keys_that_may_not_write_are_told_when_something_is_uploaded(start, tmp_path, behind):
    server = start(Forebay(tmp_path / "server", "WRITE_BACK", behind, UPLOADS))
    boto(server).create_bucket(Bucket="kept")
    behind.kill()
    may_write = behind.command
    behind.command = lambda: [may_write()[0], "--readonly", *may_write()[1:]]
    behind.start()
    write_three(server)
    told = eventually("the notice", lambda: notice(server, "uploads-refused"))
    assert told["severity"] == "critical" and "AccessDenied" in told["title"] and "grant" in told["cure"], told
    behind.kill()
    behind.command = may_write
    behind.start()
    eventually("the end of the notice", lambda: notice(server, "uploads-refused") is None)
    server.wait_until_drained()


def test_writes_that_are_refused_are_told_as_long_as_they_are(start, tmp_path):
    config = SMALL.format(size="64 MiB") + "pinned_ratio = 0.1\n"
    server = start(Forebay(tmp_path / "server", mode="TRANSIENT", config=config))
    s3 = boto(server)
    s3.create_bucket(Bucket="pinned")
    number = 0
    while True:
        try:
            s3.put_object(Bucket="pinned", Key=f"kept-{number}", Body=os.urandom(300_000))
        except s3.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "SlowDown", error
            break
        number += 1
        assert number < 100
    for more in range(20):
        refused("SlowDown", s3.put_object, Bucket="pinned", Key=f"more-{more}", Body=os.urandom(300_000))
    told = eventually("the notice", lambda: notice(server, "writes-rejected"))
    assert told["severity"] == "critical" and "503 SlowDown" in told["title"] and "write-through" in told["cure"], told
    status = server.status()
    assert status["rejectedPinnedFull"] == 21 and 0 < status["pinnedBytes"] <= status["pinnedBytesMax"], status
    lines = [line for line in server.log.read_text().splitlines() if "a write is refused" in line]
    assert 1 <= len(lines) <= 5 and "pinned/" in lines[0], lines


def test_a_users_file_with_a_mistake_is_told_until_it_is_mended(start, tmp_path):
    users = tmp_path / "users.toml"
    good = '[[user]]\nname = "etl"\naccess_key = "ETLKEY0000000000"\nsecret_key = "a-long-secret"\ngrants = []\n'
    users.write_text(good)
    server = start(Forebay(tmp_path / "server", config=f'[server]\nusers_file = "{users}"\n'))
    users.write_text(good.replace("grants", "grant"))
    told = eventually("the notice", lambda: notice(server, "users-file-refused"))
    assert "grant" in told["title"] and "users check" in told["cure"], told
    users.unlink()
    eventually("the other reason", lambda: "No such file" in (notice(server, "users-file-refused") or told)["title"])
    users.write_text(good)
    eventually("the end of the notice", lambda: notice(server, "users-file-refused") is None)


@pytest.mark.slow("the test before it waits for the same look at the file")
def test_a_users_file_without_users_is_told(start, tmp_path):
    """A tool that failed half-way leaves an empty file, and all users lose their access."""
    users = tmp_path / "users.toml"
    user = '[[user]]\nname = "me"\naccess_key = "{key}"\nsecret_key = "12345678"\n'
    users.write_text(user.format(key="me-too"))
    server = start(Forebay(tmp_path / "server", config=f'[server]\nusers_file = "{users}"\n'))
    users.write_text("")
    told = eventually("the notice", lambda: notice(server, "users-file-empty"))
    assert "403" in told["title"] and told["severity"] == "warning", told
    assert "only the root user" in subprocess.run([server.binary, "users", "check", users], capture_output=True, text=True).stdout
    users.write_text('[[anonymous]]\npath = "/public/"\nallow = ["read"]\n')
    eventually("the end of the notice", lambda: notice(server, "users-file-empty") is None)
    # Nobody could use it: the root user comes first.
    users.write_text(user.format(key=server.access_key))
    told = eventually("the refusal", lambda: notice(server, "users-file-refused"))
    assert "root user" in told["title"], told


def test_a_store_that_begins_anew_is_told_until_the_next_start(start, tmp_path):
    """It may be an empty mount point: nothing tells the two apart."""
    server = start(Forebay(tmp_path / "server"))
    told = notice(server, "store-new")
    assert told["severity"] == "info" and told["subject"] == str(server.data) and "mount" in told["cure"], told
    # What is written until then is not in the store that is mounted again.
    assert "forebay persist /" in told["cure"] and "TRANSIENT" in told["cure"], told
    assert "a new store has begun" in server.log.read_text()
    assert server.stop() == 0
    server.start()
    assert notice(server, "store-new") is None


def test_a_new_store_is_reported_after_a_first_start_that_failed(start, tmp_path):
    """That start has written to the directories, perhaps to those beneath a mount point."""
    engine = f'[cluster]\nengine = "etcd://127.0.0.1:{free_port()}"\nlisten = "127.0.0.1:{free_port()}"\n'
    server = Forebay(tmp_path / "server", config=engine)
    failed = subprocess.run(server.command(), env=os.environ | server.environment(), capture_output=True, text=True, timeout=120)
    assert failed.returncode == 2 and "cluster.engine" in failed.stderr, failed
    assert (server.data / "identity").exists(), "it failed after the store was opened"
    server.config.write_text("")
    start(server)
    assert notice(server, "store-new")["subject"] == str(server.data)
    assert server.stop() == 0
    server.start()
    assert notice(server, "store-new") is None


def test_rules_of_run_time_that_an_edit_of_the_file_replaces_are_told(start, tmp_path):
    rules = '[[policy]]\npath = "/lake/{path}/"\nwriteMode = "TRANSIENT"\n'
    server = start(Forebay(tmp_path / "server", config=rules.format(path="file")))
    command = lambda *words: subprocess.run(  # noqa: E731
        [str(server.binary), *words], env=server_environment(server), capture_output=True, text=True, check=True, timeout=60
    )
    command("policy", "set", "/lake/run-time/", "--write-mode", "NO_CACHE")
    assert server.stop() == 0
    assert "replace rules" not in server.log.read_text()
    server.config.write_text(rules.format(path="edited"))
    server.start()
    told = eventually("the notice", lambda: notice(server, "policies-replaced"))
    version = re.search(r"version (\d+)", told["title"])[1]
    assert "1 rules" in told["title"] and "rollback" in told["cure"], told
    (line,) = [line for line in server.log.read_text().splitlines() if "replace rules that were set at run time" in line]
    assert "WARN" in line and "rules=1" in line and f"policy rollback {version}" in line, line
    command("policy", "rollback", "--yes", version)
    assert any(rule["path"] == "/lake/run-time/" for rule in server.ask("policies"))
    eventually("the end of the notice", lambda: notice(server, "policies-replaced") is None)


def server_environment(server):
    keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key}
    return os.environ | {"FOREBAY_ADMIN_ENDPOINT": server.admin} | keys


@pytest.mark.slow("a denial must last for half a minute")
def test_clients_that_write_through_are_not_alone_with_a_denial(start, tmp_path, behind):
    """Nothing waits that could be refused, and a probe writes nothing."""
    server = start(Forebay(tmp_path / "server", "WRITE_THROUGH", behind))
    boto(server).create_bucket(Bucket="kept")
    behind.kill()
    may_write = behind.command
    behind.command = lambda: [may_write()[0], "--readonly", *may_write()[1:]]
    behind.start()
    for number in range(3):
        refused("AccessDenied", boto(server).put_object, Bucket="kept", Key=f"key-{number}", Body=b"x")
    told = eventually("the notice", lambda: notice(server, "permission-missing"))
    assert told["severity"] == "critical" and "AccessDenied" in told["title"], told
    mounts = CommandLine(server).run("mounts")
    assert "3 writes in a row were denied" in mounts.stdout and (mounts.returncode, mounts.stderr) == (1, "forebay: 1 under store can't be used\n"), mounts
    behind.kill()
    behind.command = may_write
    behind.start()
    boto(server).put_object(Bucket="kept", Key="key", Body=b"x")
    eventually("the end of the notice", lambda: notice(server, "permission-missing") is None)
