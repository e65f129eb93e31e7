"""Bodies that cannot come to their end: of answers whose bytes are gone, and of requests whose clients or server are."""

import contextlib
import os
import socket
import struct

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from harness.clients import boto, refused, sign
from harness.faults import flip
from harness.raw import SECONDS, connect, request
from harness.relay import Fault
from harness.servers import eventually

# Many pages of the cache and extents of the store, and far more than the kernel and Forebay hold for a client that does not read.
LARGE = 24 << 20
FEW_PAGES_AHEAD = {"FOREBAY_CACHE_READ_AHEAD_PAGES": "2"}
# This many bytes of an object are enough to find its place in a file of the store.
NEEDLE_BYTES = 4096
# Of a body that breaks off, all but the last part is sent.
WHOLE, SENT = 6 << 20, 5 << 20
# What may be pinned of a cache of this size is enough for the bodies in flight at once. All that break off are more than the cache.
SIZE, ROUNDS = "112 MiB", 8
# As much as the kernel takes on behalf of a reader.
RECEIVE_BYTES = 256 << 10


def put(server, key, size=LARGE):
    body = os.urandom(size)
    boto(server).put_object(Bucket=server.bucket, Key=key, Body=body)
    return body


def get(server, key, **more):
    return boto(server).get_object(Bucket=server.bucket, Key=key, **more)["Body"].read()


class Download:
    """A GET whose answer is read as it comes on the wire."""

    def __init__(self, server, key, headers=None):
        target = f"/{server.bucket}/{key}"
        headers = {"Host": f"127.0.0.1:{server.port}"} | sign(server, "GET", target, headers)
        self.connection = socket.socket()
        self.connection.settimeout(SECONDS)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.connection.connect(("127.0.0.1", server.port))
        self.connection.sendall(request("GET", target, headers))
        answer = self.connection.makefile("rb")
        self.answer = answer
        self.status = int(answer.readline().split()[1])
        lines = iter(lambda: answer.readline().strip().decode().lower(), "")
        self.headers = dict(line.split(": ", 1) for line in lines)
        self.length = int(self.headers["content-length"])

    def rest(self):
        """What comes until the server ends the connection."""
        pieces = []
        try:
            while piece := self.answer.read1(1 << 20):
                pieces.append(piece)
        except ConnectionError:
            pass
        self.connection.close()
        return b"".join(pieces)


def check_broken(download, body):
    """The bytes of the object, and fewer than announced: what no client can take for all."""
    assert download.status in (200, 206) and "transfer-encoding" not in download.headers
    assert download.length == len(body)
    got = download.rest()
    assert len(got) < len(body) and body.startswith(got)


def place_of(server, needle):
    """The file of the store, and the offset, where some bytes are; the last files first."""
    for path in sorted(server.data.glob("*.bulk"), reverse=True):
        # Reclaim may remove it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if (offset := path.read_bytes().find(needle)) >= 0:
                return path, offset
    return None


@pytest.mark.parametrize("mode", ["TRANSIENT", "WRITE_BACK"])
def test_a_damaged_page_behind_the_first_breaks_the_answer_off(start, relay, mode):
    server = start(mode=mode, behind=relay)
    relay.set(gone=True)
    body = put(server, "large")
    damaged = 10 << 20
    path, offset = place_of(server, body[damaged : damaged + NEEDLE_BYTES])
    flip(path, offset + 1000)
    check_broken(Download(server, "large"), body)
    check_broken(Download(server, "large", {"Range": "bytes=1000-"}), body[1000:])
    # Damage in the first page is found before the head is sent: the status reports it.
    error = refused("InternalError", get, server, "large", Range=f"bytes={damaged}-")
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert get(server, "large", Range=f"bytes=0-{damaged - (1 << 20)}") == body[: damaged - (1 << 20) + 1]
    assert server.is_healthy()
    flip(path, offset + 1000)
    assert get(server, "large") == body


@pytest.mark.parametrize("mode", ["NO_CACHE", "WRITE_THROUGH"])
def test_an_under_store_that_goes_in_mid_body_breaks_the_answer_off(start, relay, mode):
    server = start(mode=mode, behind=relay, patience="2 s", variables=FEW_PAGES_AHEAD)
    body = os.urandom(LARGE)
    boto(relay).put_object(Bucket=server.bucket, Key="theirs", Body=body)
    download = Download(server, "theirs")
    relay.set(gone=True)
    check_broken(download, body)
    # Now it is known before the first byte.
    refused("ServiceUnavailable", get, server, "theirs", Range=f"bytes={LARGE - 1000}-")
    relay.set()
    whole = lambda: attempted(server, "theirs")  # noqa: E731
    assert eventually("service", whole) == body, "and nothing cut was kept"


def attempted(server, key):
    try:
        return get(server, key)
    except (BotoCoreError, ClientError):
        return None


@pytest.mark.parametrize("mode", ["TRANSIENT", "NO_CACHE"])
def test_a_kill_breaks_answers_off_and_objects_are_whole_afterwards(start, mode):
    server = start(mode=mode)
    body = put(server, "large")
    downloads = [Download(server, "large") for _ in range(4)]
    server.kill()
    for download in downloads:
        check_broken(download, body)
    server.start()
    assert get(server, "large") == body


class Upload:
    """A PUT in the middle of its body."""

    def __init__(self, server, key, query=""):
        target, body = f"/{server.bucket}/{key}{query}", os.urandom(WHOLE)
        headers = sign(server, "PUT", target, {"Content-Length": str(len(body))}, body)
        self.connection = connect(server)
        headers |= {"Host": f"127.0.0.1:{server.port}"}
        self.connection.sendall(request("PUT", target, headers, body[:SENT]))
        eventually("a part of it is here", lambda: place_of(server, body[:NEEDLE_BYTES]))

    def close(self):
        self.connection.close()

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class Before:
    """What a bucket has, and must have after all that breaks off: an object, and an upload with a part."""

    def __init__(self, server):
        self.server, self.s3 = server, boto(server)
        self.object, self.part = put(server, "key", 300_000), os.urandom(5 << 20)
        self.upload = {"Key": "upload", "UploadId": self.s3.create_multipart_upload(Bucket=server.bucket, Key="upload")["UploadId"]}
        self.etag = self.s3.upload_part(Bucket=server.bucket, **self.upload, PartNumber=1, Body=self.part)["ETag"]
        server.wait_until_drained()
        self.pinned = self.pinned_bytes()
        self.query = f"?partNumber=1&uploadId={self.upload['UploadId']}"

    def pinned_bytes(self):
        return self.server.metrics()["forebay_store_pinned_bytes"]

    def check(self):
        bucket = self.server.bucket
        assert get(self.server, "key") == self.object
        refused("NoSuchKey", get, self.server, "new")
        listed = self.s3.list_objects_v2(Bucket=bucket)["Contents"]
        assert [(entry["Key"], entry["Size"]) for entry in listed] == [("key", len(self.object))]
        parts = self.s3.list_parts(Bucket=bucket, **self.upload)["Parts"]
        assert [(part["PartNumber"], part["ETag"]) for part in parts] == [(1, self.etag)]
        eventually("space comes back", lambda: self.pinned_bytes() == self.pinned)

    def check_room(self):
        body = put(self.server, "new", WHOLE)
        assert get(self.server, "new") == body
        parts = [{"PartNumber": 1, "ETag": self.etag}]
        self.s3.complete_multipart_upload(Bucket=self.server.bucket, **self.upload, MultipartUpload={"Parts": parts})
        assert get(self.server, "upload") == self.part


def targets(before):
    return [("key", ""), ("new", ""), ("upload", before.query)]


@pytest.mark.parametrize("mode", ["TRANSIENT", "WRITE_BACK", "WRITE_THROUGH", "NO_CACHE"])
def test_an_upload_that_its_client_breaks_off_changes_nothing(start, mode):
    server = start(mode=mode, size=SIZE)
    before = Before(server)
    connections = lambda: server.metrics()["forebay_connections"]  # noqa: E731
    for end in (Upload.close, Upload.reset) * (ROUNDS // 2):
        idle = connections()
        for target in targets(before):
            end(Upload(server, *target))
        eventually("the ends are seen", lambda: connections() <= idle)
    before.check()
    before.check_room()


@pytest.mark.parametrize("mode", ["TRANSIENT", "WRITE_BACK", "WRITE_THROUGH", "NO_CACHE"])
def test_an_upload_that_a_kill_breaks_off_changes_nothing(start, mode):
    server = start(mode=mode, size=SIZE)
    before = Before(server)
    for _ in range(ROUNDS):
        uploads = [Upload(server, *target) for target in targets(before)]
        server.kill()
        for upload in uploads:
            upload.close()
        server.start()
    before.check()
    before.check_room()


@pytest.mark.parametrize("mode", ["TRANSIENT", "WRITE_BACK", "WRITE_THROUGH"])
def test_clean_copies_make_room_for_a_body_of_any_size_that_may_be_pinned(start, mode):
    server = start(mode=mode, size="96 MiB")
    for number in range(100):
        (server.under / server.bucket / f"clean{number}").write_bytes(bytes(1 << 20))
        get(server, f"clean{number}")
    for size in (1 << 20, 8 << 20, 16 << 20):
        assert server.metrics()["forebay_store_evictable_bytes"] > 2 * size
        body = put(server, "large", size)
        assert get(server, "large") == body
        server.wait_until_drained()
