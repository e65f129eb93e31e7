"""Clients that open connections and take their time: everybody else is served all the while, and they are thrown out."""

import base64
import contextlib
import resource
import socket
import statistics
import time

import pytest

from guarded import WRITER, Guarded
from harness import chunks, raw, signing
from harness.clients import boto, md5_base64, send, sign
from harness.servers import eventually

HALF_OPEN = 500
# More than a request takes on a busy machine, and far less than what a queue behind slow clients would cost.
PATIENCE_SECONDS = 5


@pytest.fixture(scope="module", autouse=True)
def enough_files():
    """On this side, where each of them is a file too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * HALF_OPEN
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted, hard))


@contextlib.contextmanager
def half_open(server, count, head, port=None):
    """Connections on which a client has sent the beginning of a request, and sends nothing more."""
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            address = ("127.0.0.1", port or server.port)
            connections.append(stack.enter_context(socket.create_connection(address, timeout=60)))
            # A server that has seen enough may close while we send.
            with contextlib.suppress(ConnectionError):
                connections[-1].sendall(head)
        yield connections


def served(server, times=50):
    """How long each of some normal requests took, with a connection of its own."""
    seconds = []
    for number in range(times):
        began = time.monotonic()
        headers = sign(server, "PUT", f"/bucket/normal-{number}", body=b"x")
        assert send(server, "PUT", f"/bucket/normal-{number}", headers, b"x").status == 200
        seconds.append(time.monotonic() - began)
    return seconds


@pytest.fixture(scope="module")
def worker(guarded):
    boto(guarded).create_bucket(Bucket="bucket")
    return guarded


HEADS = {
    "nothing": b"",
    "half a line": b"GET /buck",
    "half a head": b"GET /bucket HTTP/1.1\r\nHost: h\r\nX-A:",
    "half a body": b"PUT /bucket/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nx",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_a_normal_client_is_served_beside_half_open_ones(worker, head):
    alone = statistics.quantiles(served(worker), n=100)[98]
    with half_open(worker, HALF_OPEN, head):
        beside = statistics.quantiles(served(worker), n=100)[98]
    assert beside < PATIENCE_SECONDS, f"p99 {beside:.3f} s beside {HALF_OPEN} half-open connections, {alone:.3f} s without"


@pytest.mark.slow("the server waits 10 s for a head; the tests of forebay-s3 have it wait for less")
def test_half_open_connections_end_by_themselves(worker):
    """The server's limit for a head is 10 s; a client that sends a byte now and then gets no more time."""
    with half_open(worker, 20, HEADS["half a head"]) as connections:
        for connection in connections:
            connection.settimeout(1)
        began = time.monotonic()
        while connections:
            assert time.monotonic() - began < 40, f"{len(connections)} are still open"
            connections = [connection for connection in connections if is_open(connection)]
    eventually("all forgotten", lambda: worker.metrics()["forebay_connections"] == 0)


def is_open(connection):
    try:
        connection.sendall(b"x")
        return connection.recv(1000) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_one_address_does_not_take_all_connections(tmp_path):
    """Those above its number are closed at once, and are counted; what ends makes room."""
    server = Guarded(tmp_path, config="connections_max = 200\nconnections_per_address_max = 20\n").start()
    boto(server).create_bucket(Bucket="bucket")
    eventually("no connection", lambda: server.metrics()["forebay_connections"] == 0)
    with half_open(server, 20, HEADS["half a head"]):
        eventually("all accepted", lambda: server.metrics()["forebay_connections"] == 20)
        with contextlib.suppress(ConnectionError), raw.connect(server) as one_more:
            one_more.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert one_more.recv(1000) == b""
        assert server.metrics()["forebay_connections_refused_total"] >= 1
        # Another address of this machine.
        with socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=("127.0.0.2", 0)) as other:
            other.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert other.recv(1000).startswith(b"HTTP/1.1 403")
    eventually("room again", lambda: server.metrics()["forebay_connections"] == 0)
    assert send(server, "GET", "/").status == 403
    assert server.stop() == 0


def test_the_admin_port_answers_while_clients_of_s3_are_slow(worker):
    with half_open(worker, HALF_OPEN, HEADS["half a head"]):
        eventually("all accepted", lambda: worker.metrics()["forebay_connections"] >= HALF_OPEN)
        assert worker.is_ready()


def get_admin(server, path, source="127.0.0.1", headers=None):
    """The status of a request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", server.admin_port), timeout=PATIENCE_SECONDS, source_address=(source, 0)) as connection:
        connection.sendall(raw.request("GET", path, {"Host": "admin", "Connection": "close"} | (headers or {})))
        return int(connection.recv(1000).split()[1])


def test_clients_that_hold_on_to_the_admin_port_stop_neither_probes_nor_others(worker):
    """The body of a login is read before it is known who sends it."""
    keys = base64.b64encode(f"{worker.access_key}:{worker.secret_key}".encode()).decode()
    by_root = {"Authorization": f"Basic {keys}"}
    trickle = raw.request("POST", "/api/v1/session", {"Host": "admin", "Content-Type": "application/json", "Content-Length": "60000"}, b"{")
    with half_open(worker, 400, trickle, worker.admin_port) as connections:
        for _ in range(5):
            for path in ("/healthz", "/readyz", "/metrics"):
                assert get_admin(worker, path) == 200, path
            assert get_admin(worker, "/api/v1/status", headers=by_root) == 503
            assert get_admin(worker, "/api/v1/status", "127.0.0.2", by_root) == 200
            for connection in connections:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b" ")
    eventually("room again", lambda: get_admin(worker, "/api/v1/status", headers=by_root) == 200)


def chunk_begun(server, came, size=16 << 20):
    """A PUT with a signature of which the first chunk has come so far."""
    target = "/bucket/large-chunk"
    headers, _ = chunks.request(server, target, bytes(size), "signed")
    headers = {"Host": f"127.0.0.1:{server.port}"} | headers
    return raw.request("PUT", target, headers, f"{size:x};chunk-signature={'0' * 64}\r\n".encode() + bytes(came))


def test_bodies_that_are_held_as_a_whole_share_a_budget(worker):
    """A chunk is held until its signature can be checked, a document until its end."""
    before, chunk = worker.metrics()["process_resident_memory_bytes"], chunk_begun(worker, (15 << 20) + (4 << 10))
    document = b"<Delete>" + bytes(1 << 20)

    def delete(keys=(worker.access_key, worker.secret_key)):
        request = signing.Request("POST", "/bucket?delete=", {"Content-MD5": md5_base64(document)}, document)
        signed = signing.in_header(worker, request, *keys)
        return send(worker, "POST", signed.target, signed.headers, document)

    assert delete().status == 400
    # Eight take all that one key may have of it; the server refuses those that come later.
    with half_open(worker, 12, chunk):
        eventually("no more is taken", lambda: delete().status == 503)
        answer = delete()
        assert b"<Code>SlowDown<" in answer.body and answer.headers["retry-after"], answer
        got = raw.exchange(worker, chunk)
        assert got.statuses == [503] and b"<Code>SlowDown<" in got.said, got
        # What is small is free, and others have a share of their own.
        served(worker, 5)
        headers, body = chunks.request(worker, "/bucket/small-chunks", bytes(500_000), "signed")
        assert send(worker, "PUT", "/bucket/small-chunks", headers, body).status == 200
        assert delete(WRITER).status in (400, 403)
        assert worker.metrics()["process_resident_memory_bytes"] - before < 300 << 20
    eventually("it is given back", lambda: delete().status == 400)


def test_a_reader_that_takes_nothing_holds_no_memory(worker):
    """An object is sent as it is read: what nobody takes stays on the disk."""
    s3 = boto(worker)
    size = 64 << 20
    s3.put_object(Bucket="bucket", Key="large", Body=bytes(size))
    before = worker.metrics()["process_resident_memory_bytes"]
    request = raw.request("GET", "/bucket/large", {"Host": f"127.0.0.1:{worker.port}"} | sign(worker, "GET", "/bucket/large"))
    with half_open(worker, 20, request):
        served(worker, 10)
        grown = worker.metrics()["process_resident_memory_bytes"] - before
    assert grown < 5 * size, f"{grown >> 20} MiB for 20 readers of {size >> 20} MiB each"
