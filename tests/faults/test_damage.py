"""Bits flip, headers go, files are lost: on disk, under a server that runs or before it starts."""

import os
import pathlib
import shutil
import struct
import tarfile
import threading

import pytest

from harness.clients import boto, refused
from harness.faults import contents, ended_start, flip, system_calls
from harness.golden import golden_bytes
from harness.ledger import OK, Ledger, outcome_of
from harness.servers import eventually

GOLDEN = pathlib.Path(__file__).parent / "golden" / "data-v1.tar.gz"
# A needle that is in no file but for the object that holds it.
LARGE = 3_000_000
# As docs/on-disk-format.md has them.
SEGMENT_HEADER_BYTES = 64
DURABLE_BEFORE_AT = 40
COMMIT = 3
# Half of a record, whose write the power cut ended: nobody has an acknowledgement for it.
TORN = b"FBR1\x01\x01" + os.urandom(300)


def place_of(server, needle):
    """The file of the store, and the offset, where some bytes are."""
    for path in sorted(server.data.iterdir()):
        if path.suffix in (".log", ".bulk", ".fill") and (offset := path.read_bytes().find(needle)) >= 0:
            return path, offset
    raise AssertionError("these bytes are in no segment")


def corrupt_records(server):
    return server.metrics()["forebay_store_corrupt_records_total"]


def put(server, key, size):
    body = os.urandom(size)
    boto(server).put_object(Bucket=server.bucket, Key=key, Body=body)
    return body


def get(server, key, **more):
    return boto(server).get_object(Bucket=server.bucket, Key=key, **more)["Body"].read()


@pytest.mark.parametrize("size", [50_000, LARGE])
@pytest.mark.parametrize("part", ["payload", "head"])
def test_a_damaged_clean_copy_is_fetched_again(start, size, part):
    server = start(mode="WRITE_THROUGH")
    body = put(server, "clean", size)
    assert get(server, "clean") == body
    path, offset = place_of(server, body[: 1 << 12])
    # The CRCs of the blocks stand before the payload: they are the end of the head.
    flip(path, offset + 1000 if part == "payload" else offset - 2)
    assert get(server, "clean") == body, "from the under store"
    eventually("a count", lambda: corrupt_records(server) > 0)
    assert get(server, "clean") == body


@pytest.mark.parametrize("size", [50_000, LARGE])
@pytest.mark.parametrize("part", ["payload", "head"])
def test_a_damaged_dirty_object_is_an_error_and_goes_nowhere(start, relay, size, part):
    server = start(mode="WRITE_BACK", behind=relay)
    before = put(server, "dirty", 1000)
    server.wait_until_drained()
    relay.set(gone=True)
    body = put(server, "dirty", size)
    path, offset = place_of(server, body[: 1 << 12])
    flip(path, offset + 1000 if part == "payload" else offset - 2)
    refused("InternalError", get, server, "dirty")
    (told,) = eventually("a line", lambda: [line for line in server.log.read_text().splitlines() if "stored bytes are damaged" in line])
    assert str(server.data) in told and path.name in told and "offset=" in told, told
    relay.set()
    corrupt = 'forebay_persist_failures_total{kind="Corrupt"}'
    eventually("a failed upload", lambda: server.metrics().get(corrupt, 0) > 0, 60)
    assert server.metrics()["forebay_dirty_objects"] == 1, "it is kept for examination"
    behind = boto(relay).get_object(Bucket=server.bucket, Key="dirty")["Body"].read()
    assert behind == before, "the damaged one was not uploaded"
    assert corrupt_records(server) == 1, "each place counts once, however often it is read"
    notices = lambda: [notice for notice in server.ask("notices") if notice["id"] == "corruption"]  # noqa: E731
    (notice,) = eventually("a notice", notices)
    assert f"{server.data}/{path.name} at byte " in notice["title"], notice
    refused("InternalError", get, server, "dirty")
    # The key is not lost to its users.
    body = put(server, "dirty", 2000)
    server.wait_until_drained()
    assert get(server, "dirty") == body


def test_a_segment_header_that_is_gone_costs_a_running_server_nothing(start):
    server = start(mode="WRITE_BACK")
    ledger = Ledger(server)
    for number in range(40):
        assert ledger.put(f"ledger/{number}", 100_000 if number % 2 else 400_000) == OK
    for path in server.data.iterdir():
        if path.suffix in (".log", ".bulk"):
            with open(path, "r+b") as file:
                file.write(bytes(64))
    ledger.check_all()
    server.wait_until_drained()
    ledger.check_directory(server.under / server.bucket)
    server.kill()
    server.start()
    ledger.check_all()


def test_a_destroyed_header_before_a_start_loses_nothing(start, relay):
    """Every record is bound to its segment, so the header is not needed to read it."""
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    for number in range(40):
        assert ledger.put(f"ledger/{number}", 100_000 if number % 2 else 400_000) == OK
    server.kill()
    for path in server.data.iterdir():
        if path.suffix in (".log", ".bulk"):
            flip(path, 20)
    server.start()
    ledger.check_keys()
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


@pytest.mark.parametrize("loss", ["removed", "damaged", "cut"])
def test_an_index_that_is_lost_is_made_again_from_the_segments(start, relay, loss):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    for number in range(40):
        assert ledger.put(f"ledger/{number}", 30_000) == OK
    for number in range(0, 40, 4):
        assert ledger.delete(f"ledger/{number}") == OK
    assert server.stop() == 0
    snapshot = server.data / "snapshot"
    assert snapshot.exists(), "a clean stop writes one"
    if loss == "removed":
        snapshot.unlink()
    elif loss == "damaged":
        flip(snapshot, snapshot.stat().st_size // 2)
    else:
        os.truncate(snapshot, snapshot.stat().st_size // 2)
    server.start()
    ledger.check_keys()
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


def last_log(directory):
    return max((path for path in directory.iterdir() if path.suffix == ".log"), key=lambda path: path.name)


def test_a_torn_end_is_cut_and_nothing_before_it(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    for number in range(20):
        assert ledger.put(f"ledger/{number}", 3_000) == OK
    server.kill()
    with open(last_log(server.data), "ab") as file:
        file.write(TORN)
    server.start()
    ledger.check_keys()
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


@pytest.mark.slow("two syncs are each held for 15 s; the crash test of forebay-store tears groups of writes")
def test_an_end_of_several_writes_is_cut_where_it_is_torn_and_not_before(start):
    """They are in the log when the process dies in the middle of their sync; the disk has any part of them."""
    server = start(mode="TRANSIENT")
    kept = {f"kept{number}": put(server, f"kept{number}", 3_000) for number in range(3)}
    bodies = {f"late{number}": os.urandom(3_000) for number in range(4)}
    answered = []

    def write(key):
        if outcome_of(lambda: boto(server).put_object(Bucket=server.bucket, Key=key, Body=bodies[key])) == OK:
            answered.append(key)

    threads = [threading.Thread(target=write, args=(key,)) for key in bodies]
    # The first of them is synced alone, and meanwhile the others come together.
    with system_calls(server.process, "fdatasync", "delay_enter=15000000"):
        for thread in threads:
            thread.start()
        eventually("several are in the log, not synced", lambda: len(unsynced(bodies, last_log(server.data))) >= 2)
        server.kill()
    for thread in threads:
        thread.join()
    log = last_log(server.data)
    whole = log.read_bytes()
    waiting = unsynced({key: body for key, body in bodies.items() if key not in answered}, log)
    # The answer of a synced write may have been on its way. What was not written yet is nowhere.
    synced = {key: body for key, body in bodies.items() if body in whole and key not in waiting}
    acknowledged = kept | synced | {key: bodies[key] for key in answered}
    unwritten = bodies.keys() - acknowledged.keys() - waiting.keys()
    assert len(waiting) >= 2
    first = min(whole.find(body) for body in waiting.values())
    places = list(records(log))
    after = max(number for number, (offset, _) in enumerate(places) if offset < first)
    shutil.copytree(server.data, server.directory / "as it was")
    for offset, head in places[after:]:
        torn = [whole[: offset + head // 2], whole[:offset] + bytes(len(whole) - offset)]
        # A hole: the disk had what follows, and not this.
        torn.append(whole[:offset] + bytes(head) + whole[offset + head :])
        for end in torn:
            shutil.rmtree(server.data)
            shutil.copytree(server.directory / "as it was", server.data)
            log.write_bytes(end)
            server.start()
            for key, body in acknowledged.items():
                assert get(server, key) == body
            for key, body in waiting.items():
                # A write is there when the commit that names it is.
                if whole.rfind(key.encode()) < offset:
                    assert get(server, key) == body
                else:
                    refused("NoSuchKey", get, server, key)
            for key in unwritten:
                refused("NoSuchKey", get, server, key)
            more = put(server, "more", 3_000)
            server.kill()
            server.start()
            assert get(server, "more") == more
            server.kill()


def test_damage_before_acknowledged_records_stops_the_start_and_changes_nothing(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    bodies = {key: put(server, key, 3_000) for key in ("first", "second", "third")}
    path, offset = place_of(server, bodies["second"])
    server.kill()
    flip(path, offset)
    before = contents(server.data)
    code, said = ended_start(server)
    assert code not in (0, None) and path.name in said, said
    assert contents(server.data) == before, "nothing was cut"
    flip(path, offset)
    server.start()
    for key, body in bodies.items():
        assert get(server, key) == body


def test_a_damaged_log_in_one_directory_changes_nothing_in_any(start, relay, tmp_path):
    other = tmp_path / "other"
    server = start(mode="WRITE_BACK", behind=relay, arguments=["--data-dir", str(other)])
    relay.set(gone=True)
    ledger = Ledger(server)
    for number in range(20):
        assert ledger.put(f"ledger/{number}", 3_000) == OK
    for damaged, torn in ((server.data, other), (other, server.data)):
        server.kill()
        log = last_log(damaged)
        offset, head = list(records(log))[1]
        flip(log, offset + head // 2)
        # What a start without the damage would cut.
        with open(last_log(torn), "ab") as file:
            file.write(TORN)
        before = contents(damaged), contents(torn)
        code, said = ended_start(server)
        assert code not in (0, None) and str(log) in said, said
        assert (contents(damaged), contents(torn)) == before
        flip(log, offset + head // 2)
        server.start()
        ledger.check_keys()
        for number in range(20):
            assert ledger.put(f"ledger/{number}", 3_000) == OK
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


def test_a_segment_that_is_gone_is_an_error_and_never_an_older_version(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    put(server, "key", 1_000)
    server.wait_until_drained()
    relay.set(gone=True)
    body = put(server, "key", LARGE)
    path, _ = place_of(server, body[: 1 << 12])
    server.kill()
    path.unlink()
    server.start()
    error = refused("ServiceUnavailable|InternalError", get, server, "key")
    assert error["ResponseMetadata"]["HTTPStatusCode"] in (500, 503)
    relay.set()
    refused("ServiceUnavailable|InternalError", get, server, "key")
    body = put(server, "key", 2_000)
    server.wait_until_drained()
    assert get(server, "key") == body == boto(relay).get_object(Bucket=server.bucket, Key="key")["Body"].read()


@pytest.mark.parametrize("gone", range(4))
def test_a_log_that_is_gone_is_missed(start, relay, gone):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    for life in range(4):
        for number in range(15):
            assert ledger.put(f"ledger/{life}-{number}", 3_000) == OK
        server.kill()
        if life < 3:
            server.start()
    logs = sorted(path for path in server.data.iterdir() if path.suffix == ".log")
    away = logs[gone].rename(server.directory / "away")
    before = contents(server.data)
    code, said = ended_start(server)
    assert code == 1 and f"{logs[gone]} is missing" in said, said
    assert contents(server.data) == before
    away.rename(logs[gone])
    server.start()
    ledger.check_keys()
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


def crc32c(data):
    """Castagnoli, a bit at a time: for headers it is fast enough."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(segment):
    """Where the records of a segment begin, and the bytes of their heads."""
    data, offset = segment.read_bytes(), SEGMENT_HEADER_BYTES
    while data[offset : offset + 4] == b"FBR1":
        head, payload = struct.unpack_from("<II", data, offset + 8)
        yield offset, head
        offset += (head + payload + 7) // 8 * 8


def unsynced(bodies, log):
    """Those of them that are in the log, where its last record does not say that they are on stable storage."""
    whole = log.read_bytes()
    last = max((offset for offset, _ in records(log)), default=None)
    durable = struct.unpack_from("<Q", whole, last + DURABLE_BEFORE_AT)[0] if last is not None else 0
    return {key: body for key, body in bodies.items() if whole.find(body) >= durable}


def raise_version(path, version_at, start, size, crc_at, by=1):
    """The checksum of the `size` bytes from `start` holds afterwards, too."""
    data = bytearray(path.read_bytes())
    data[start + version_at] += by
    # It may stand among what it covers: then its own place counts as zeros.
    data[start + crc_at : start + crc_at + 4] = bytes(4)
    data[start + crc_at : start + crc_at + 4] = struct.pack("<I", crc32c(data[start : start + size]))
    path.write_bytes(data)


def raise_header(path, size, by=1):
    raise_version(path, 4, 0, size, size, by)


def raise_record(path):
    offset, head = list(records(path))[-1]
    raise_version(path, 5, offset, head, 20)


def raise_value(path, prefix, by=1):
    """The last value of the catalog whose key begins so, in the commit that wrote it."""
    data = path.read_bytes()
    for offset, head in reversed(list(records(path))):
        # The writes are the last part of a commit: the key, that there is a value, its length, and then its version.
        key_at = data.rfind(prefix, offset, offset + head)
        if data[offset + 4] == COMMIT and key_at >= 0:
            value_at = key_at + data[key_at - 1]
            assert data[value_at] == data[value_at + 2] == 1 and data[value_at + 1] < 128
            return raise_version(path, value_at + 2 - offset, offset, head, 20, by)
    raise AssertionError("no commit has written it")


def first(server, suffix):
    return min(path for path in server.data.iterdir() if path.suffix == suffix)


def in_file(find, change):
    """Changes a file of a data directory; a refusal must name it."""

    def change_one(server):
        path = find(server)
        change(path)
        return str(path)

    return change_one


def in_directory(change):
    """What concerns all of a directory: a refusal must name that."""

    def change_one(server):
        change(server.data)
        return str(server.data)

    return change_one


def in_catalog(prefix, name, by=1):
    """The catalog is in no one file: a refusal must name the kind of record."""

    def change_one(server):
        raise_value(last_log(server.data), prefix, by)
        return f"the {name} record"

    return change_one


NEWER = {
    "identity": in_directory(lambda directory: raise_header(directory / "identity", 20)),
    "snapshot": in_file(lambda server: server.data / "snapshot", lambda path: raise_header(path, 8, by=2)),
    "log": in_file(lambda server: last_log(server.data), lambda path: raise_header(path, 60)),
    "bulk segment": in_file(lambda server: first(server, ".bulk"), lambda path: raise_header(path, 60)),
    "fill segment": in_file(lambda server: first(server, ".fill"), lambda path: raise_header(path, 60)),
    "record of a log": in_file(lambda server: last_log(server.data), raise_record),
    "record of a fill": in_file(lambda server: first(server, ".fill"), raise_record),
    "object": in_catalog(b"o/", "object", by=3),
    "upload": in_catalog(b"u/", "upload", by=3),
    "part": in_catalog(b"p/", "part", by=3),
    "policies": in_catalog(b"policy\x01", "policy"),
}


@pytest.mark.parametrize("what", NEWER)
def test_a_newer_format_is_refused_and_nothing_is_changed(start, what):
    server = start(mode="TRANSIENT")
    s3 = boto(server)
    kept, large = put(server, "kept", 3_000), put(server, "large", LARGE)
    (server.under / server.bucket / "read").write_bytes(bytes(5_000))
    assert get(server, "read") == bytes(5_000)
    upload = s3.create_multipart_upload(Bucket=server.bucket, Key="upload")["UploadId"]
    s3.upload_part(Bucket=server.bucket, Key="upload", UploadId=upload, PartNumber=1, Body=kept)
    # A clean stop writes a snapshot, and after a kill everything stands in the segments.
    end = server.stop if what == "snapshot" else server.kill
    end()
    old = {path: path.read_bytes() for path in server.data.iterdir()}
    name = NEWER[what](server)
    before = contents(server.data)
    code, said = ended_start(server)
    known = {"identity": 2, "snapshot": 2, "upload": 3, "object": 3, "part": 3}.get(what, 1)
    assert code not in (0, None) and f"version {known + 1}" in said and name in said, said
    assert contents(server.data) == before
    for path, data in old.items():
        path.write_bytes(data)
    server.start()
    assert (get(server, "kept"), get(server, "large")) == (kept, large)
    parts = s3.list_parts(Bucket=server.bucket, Key="upload", UploadId=upload)["Parts"]
    assert [part["Size"] for part in parts] == [len(kept)]


def cut_a_torn_end(server, other):
    with open(last_log(server.data), "ab") as file:
        file.write(TORN)


def store_other_policies(server, other):
    server.mode = "WRITE_BACK"


def take_a_directory_in(server, other):
    server.arguments = ["--data-dir", str(other)]


@pytest.mark.parametrize("task", [cut_a_torn_end, store_other_policies, take_a_directory_in])
def test_a_newer_catalog_is_refused_before_a_start_does_what_it_has_to_do(start, tmp_path, task):
    server, other = start(mode="TRANSIENT"), tmp_path / "other"
    other.mkdir()
    put(server, "kept", 3_000)
    server.kill()
    NEWER["object"](server)
    task(server, other)
    before = contents(server.data)
    code, said = ended_start(server)
    assert code not in (0, None) and "version 4" in said, said
    assert contents(server.data) == before
    assert set(contents(other)) <= {"lock"}


def test_a_directory_of_the_first_format_is_read(start, tmp_path):
    """`golden/data-v1.tar.gz` was written by the first release; the objects' bytes follow from their keys."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    server = start(data=tmp_path / "golden" / "data", under=tmp_path / "golden" / "under", mode="WRITE_BACK")
    s3 = boto(server)
    expected = {"dirty/small": 3_000, "dirty/large": 300_000, "dirty/parts": 9_000, "clean/small": 3_000, "clean/large": 300_000}
    listed = {entry["Key"]: entry["Size"] for entry in s3.list_objects_v2(Bucket="golden")["Contents"]}
    # Unpacking has made other files of those in the under store: the delete that waits will meet what it takes for somebody
    # else's, and leave it.
    listed.pop("deleted", None)
    assert listed == expected | {"kept/transient": 3_000}
    for key, size in listed.items():
        assert s3.get_object(Bucket="golden", Key=key)["Body"].read() == golden_bytes(key, size), key
    assert s3.head_object(Bucket="golden", Key="dirty/small")["Metadata"] == {"color": "blue"}
    assert len(s3.list_multipart_uploads(Bucket="golden")["Uploads"]) == 1
    server.wait_until_drained()
    for key, size in expected.items():
        assert (server.under / "golden" / key).read_bytes() == golden_bytes(key, size), key
    assert not (server.under / "golden" / "kept").exists(), "a transient object stays here"
    conflict = next(line for line in server.log.read_text().splitlines() if "conflict: another writer" in line)
    assert "golden/deleted" in conflict, "the delete that waited was known"


def test_a_directory_that_unclean_starts_had_used_up_keeps_its_objects_and_takes_writes(start, tmp_path):
    """`golden/generations-used-up-v1.tar.gz` was written by a build of version 0.1.0 that was killed after each of 156 writes. Then
    every write failed; a new bucket was still taken."""
    with tarfile.open(GOLDEN.with_name("generations-used-up-v1.tar.gz")) as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    server = start(data=tmp_path / "golden" / "data", under=tmp_path / "golden" / "under", mode="TRANSIENT")
    # The last writes that were taken, each to one of seven keys in turn.
    expected = {f"k{write % 7}": str(write).encode() for write in range(149, 156)}
    for life in range(3):
        s3 = boto(server)
        for key, body in expected.items():
            assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == body, key
        key = f"k{life}"
        expected[key] = os.urandom(100)
        s3.put_object(Bucket="bucket", Key=key, Body=expected[key])
        server.kill()
        server.start()
    assert server.log.read_text().count("the counter is repaired") == 1
