"""Bits flip, headers go, files are lost: on disk, under a server that runs or before it starts."""

import hashlib
import os
import pathlib
import struct
import subprocess
import tarfile

import pytest

from harness.clients import boto, refused
from harness.faults import flip
from harness.golden import golden_bytes
from harness.ledger import OK, Ledger
from harness.servers import eventually

GOLDEN = pathlib.Path(__file__).parent / "golden" / "data-v1.tar.gz"
# A needle that is in no file but for the object that holds it.
LARGE = 3_000_000


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
    relay.set()
    corrupt = 'forebay_persist_failures_total{kind="Corrupt"}'
    eventually("a failed upload", lambda: server.metrics().get(corrupt, 0) > 0, 60)
    assert server.metrics()["forebay_dirty_objects"] == 1, "it is kept for examination"
    behind = boto(relay).get_object(Bucket=server.bucket, Key="dirty")["Body"].read()
    assert behind == before, "the damaged one was not uploaded"
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


def last_log(server):
    return max((path for path in server.data.iterdir() if path.suffix == ".log"), key=lambda path: path.name)


def test_a_torn_end_is_cut_and_nothing_before_it(start, relay):
    server = start(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    for number in range(20):
        assert ledger.put(f"ledger/{number}", 3_000) == OK
    server.kill()
    # Half of a record that was under way when the power went: nobody has an acknowledgement for it.
    with open(last_log(server), "ab") as file:
        file.write(b"FBR1\x01\x01" + os.urandom(300))
    server.start()
    ledger.check_keys()
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


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


def contents(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def ended_start(server):
    """A start that must fail: the exit code, and what it said."""
    done = subprocess.run(
        server.command(), env=os.environ | server.environment(), capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


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


def crc32c(data):
    """Castagnoli, a bit at a time: for headers it is fast enough."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_newer_format_is_refused_and_nothing_is_changed(start):
    server = start(mode="TRANSIENT")
    body = put(server, "kept", 3_000)
    server.kill()
    log = last_log(server)
    old = log.read_bytes()
    header = old[:4] + struct.pack("<I", 2) + old[8:60]
    with open(log, "r+b") as file:
        file.write(header + struct.pack("<I", crc32c(header)))
    before = contents(server.data)
    code, said = ended_start(server)
    assert code not in (0, None) and "version" in said and log.name in said, said
    assert contents(server.data) == before
    log.write_bytes(old)
    server.start()
    assert get(server, "kept") == body


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
    conflict = next(line for line in server.log.read_text().splitlines() if "somebody else has changed" in line)
    assert "golden/deleted" in conflict, "the delete that waited was known"
