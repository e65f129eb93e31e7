"""The connections of one access key to a worker that passes its requests on."""

import contextlib
import select
import socket

import pytest

from harness import raw
from harness.clients import boto, send_signed, sign
from harness.cluster import CONFIG, LEASE_SECONDS, wait_until_shared
from harness.servers import eventually
from test_homes import forwarded

PLACES = 32
# One key has 15 times as many as it leaves.
KEPT = PLACES * 15 // 16
REFUSAL = b"HTTP/1.1 503 "
OTHER = ("OTHERKEY", "other-secret-1")
USERS = f"""
[[user]]
name = "other"
access_key = "{OTHER[0]}"
secret_key = "{OTHER[1]}"
grants = [{{ path = "/", allow = ["read", "write", "list"] }}]
"""


@pytest.fixture
def passing(cluster, tmp_path):
    """A worker with few places, and a large object whose home is another worker."""
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    limits = f'[server]\nconnections_max = {PLACES}\nconnections_per_address_max = {10 * PLACES}\nusers_file = "{users}"\n'
    workers = [cluster.worker(name, config=limits + CONFIG.format(lease=LEASE_SECONDS)) for name in ("w1", "w2")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    s3 = boto(workers[0])
    s3.create_bucket(Bucket="crowd")
    for number in range(64):
        before = forwarded(workers[0])
        s3.put_object(Bucket="crowd", Key=f"{number}", Body=bytes(8 << 20))
        if forwarded(workers[0]) > before:
            return workers[0], f"/crowd/{number}"
    raise AssertionError("the other worker is the home of no key")


@contextlib.contextmanager
def crowd(worker, method, target, headers=None):
    """Connections that hold on to their requests as long as they are let."""
    if "X-Amz-Signature" in target:
        signed = {}
    else:
        signed = sign(worker, method, target, headers)
    request = raw.request(method, target, {"Host": f"127.0.0.1:{worker.port}"} | signed)
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(2 * PLACES):
            held.append(stack.enter_context(raw.connect(worker)))
            held[-1].sendall(request)
        yield held


def beginning(connection):
    """What has come so far of an answer, or None when the server still has nothing to say. It stays there."""
    if not select.select([connection], [], [], 0)[0]:
        return None
    try:
        return connection.recv(len(REFUSAL), socket.MSG_PEEK)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("how", ["uploads whose bodies do not come", "downloads that nobody reads", "presigned downloads"])
def test_one_key_that_holds_on_to_connections_leaves_some_to_others(passing, how):
    worker, target = passing
    method, headers = ("PUT", {"Content-Length": "1000000"}) if how.startswith("uploads") else ("GET", None)
    if how.startswith("presigned"):
        bucket, key = target.strip("/").split("/")
        url = boto(worker).generate_presigned_url("get_object", {"Bucket": bucket, "Key": key})
        target = url.removeprefix(worker.endpoint)
    with crowd(worker, method, target, headers) as held:
        # They are taken in any order.
        refused = lambda: [connection for connection in held if beginning(connection) in (REFUSAL, b"")]  # noqa: E731
        eventually("all that are too many are refused", lambda: len(refused()) >= len(held) - KEPT)
        if not how.startswith("presigned"):
            answer, said = next(connection for connection in held if beginning(connection) == REFUSAL), b""
            # Not to the end: the server may wait for the rest of the request before it closes.
            while b"</Error>" not in said:
                more = answer.recv(4096)
                assert more, said
                said += more
            assert b"<Code>SlowDown</Code>" in said and b"connection: close\r\n" in said.lower(), said
        other = boto(worker, *OTHER)
        other.put_object(Bucket="crowd", Key="other", Body=b"other")
        assert other.get_object(Bucket="crowd", Key="other")["Body"].read() == b"other"
