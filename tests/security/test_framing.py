"""Where a request ends: what two readers could read differently is refused and the connection closed, and no bytes of one
request are ever taken for another."""

import concurrent.futures

import pytest

from harness import raw
from harness.clients import boto, sign

# Behind each request on the same connection: the one that somebody else's would be.
SECRET = b"only-the-second-request-may-read-this"


@pytest.fixture(scope="module")
def worker(guarded):
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="secret", Body=SECRET)
    return guarded


def second(server):
    headers = {"Host": f"127.0.0.1:{server.port}"} | sign(server, "GET", "/bucket/secret")
    return raw.request("GET", "/bucket/secret", headers)


def put(server, rest):
    """A signed PUT up to its length, which no signature covers; then `rest`."""
    headers = {"Host": f"127.0.0.1:{server.port}"} | sign(server, "PUT", "/bucket/object", sign_payload=False)
    headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    return raw.request("PUT", "/bucket/object", headers)[:-2] + rest


CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: 5\r\n"
BODY = b"\r\nhello"
CHUNKS = b"\r\n5\r\nhello\r\n0\r\n\r\n"

REFUSED = {
    "both, the length first": LENGTH + CHUNKED + CHUNKS,
    "both, the length last": CHUNKED + LENGTH + CHUNKS,
    "both, no chunks": CHUNKED + LENGTH + BODY,
    "two lengths": LENGTH + b"Content-Length: 6\r\n" + BODY,
    "a list of lengths": b"Content-Length: 5, 6\r\n" + BODY,
    "a sign": b"Content-Length: +5\r\n" + BODY,
    "negative": b"Content-Length: -5\r\n" + BODY,
    "hexadecimal": b"Content-Length: 0x5\r\n" + BODY,
    "a blank inside": b"Content-Length: 5 5\r\n" + BODY,
    "beyond 64 bits": b"Content-Length: 18446744073709551621\r\n" + BODY,
    "no length": b"Content-Length: \r\n" + BODY,
    "a blank before the colon": b"Content-Length : 5\r\n" + BODY,
    "a folded line": b"X-A: b\r\n c\r\n" + LENGTH + BODY,
    "a folded length": b"Content-Length:\r\n 5\r\n" + BODY,
    "a lone carriage return": b"X-A: b\rTransfer-Encoding: chunked\r\n" + LENGTH + BODY,
    "a NUL": b"X-A: b\0c\r\n" + LENGTH + BODY,
    "a name with a blank": b"Transfer-Encoding x: chunked\r\n" + LENGTH + BODY,
    "a name with a control character": b"\x0bTransfer-Encoding: chunked\r\n" + LENGTH + BODY,
    "another coding": b"Transfer-Encoding: xchunked\r\n" + CHUNKS,
    "identity": b"Transfer-Encoding: identity\r\n" + LENGTH + BODY,
    "chunked is not the last": b"Transfer-Encoding: chunked, identity\r\n" + CHUNKS,
    "a control character before the coding": b"Transfer-Encoding: \x0bchunked\r\n" + LENGTH + BODY,
    "a coding in front": b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKS,
    "the coding twice": CHUNKED + CHUNKED + CHUNKS,
    "the coding twice in one": b"Transfer-Encoding: chunked, chunked\r\n" + CHUNKS,
    "a quoted coding": b'Transfer-Encoding: "chunked"\r\n' + CHUNKS,
    "a chunk size with a sign": CHUNKED + b"\r\n+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a prefix": CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a chunk size that is none": CHUNKED + b"\r\nhello\r\nhello\r\n0\r\n\r\n",
    "a chunk line that ends early": CHUNKED + b"\r\n5\nhello\r\n0\r\n\r\n",
    "an extension that ends early": CHUNKED + b"\r\n5;a=b\nhello\r\n0\r\n\r\n",
    "an extension without end": CHUNKED + b"\r\n5;" + b"a" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n",
    # S3 wants to know how long a body is, and what stands behind one without a length may be meant as its bytes.
    "chunks": CHUNKED + CHUNKS,
    "a chunk with an extension": CHUNKED + b"\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "a length as a trailer": CHUNKED + b"\r\n5\r\nhello\r\n0\r\nContent-Length: 100\r\nHost: other\r\n\r\n",
    "a coding in capitals": b"Transfer-Encoding: CHUNKED\r\n" + CHUNKS,
    "neither length nor coding": BODY,
    "a chunk longer than its size": CHUNKED + b"\r\n5\r\nhelloX\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("rest", REFUSED.values(), ids=REFUSED.keys())
def test_what_two_could_read_differently_ends_the_connection(worker, rest):
    got = raw.exchange(worker, put(worker, rest) + second(worker))
    # 411 and 501: the body is never looked at, since S3 wants to know how long it is.
    assert got.closed and got.statuses in ([400], [411], [501]) and SECRET not in got.said, got
    assert "Contents" not in boto(worker).list_objects_v2(Bucket="bucket", Prefix="object")


HARMLESS = {
    # RFC 9110, section 8.6: the same length twice is that length, and nobody reads it as another.
    "the same length twice": (LENGTH + LENGTH + BODY, 200),
    # RFC 9112, section 2.2: a line feed alone may end a line. It ends it for the length too, so nothing is left over.
    "line feeds": (b"X-A: b\n" + LENGTH.replace(b"\r", b"") + b"\nhello", 200),
}


@pytest.mark.parametrize("rest,status", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_all_read_alike_leaves_the_next_request_whole(worker, rest, status):
    got = raw.exchange(worker, put(worker, rest) + second(worker).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert got.statuses == [status, 200], got
    # One answer after the other, and the object is in the second.
    assert got.said.count(SECRET) == 1 and got.said.index(SECRET) > got.said.rindex(b"HTTP/1.1 200"), got
    boto(worker).delete_object(Bucket="bucket", Key="object")


def test_what_stands_behind_a_body_is_a_request_of_its_own_or_nothing(worker):
    for rest in (b"GARBAGE\r\n\r\n", b"GET /bucket/secret\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET /bucket/secret HTTP/1.1\r\n\r\n"):
        got = raw.exchange(worker, put(worker, LENGTH + BODY) + rest + second(worker), wait=5)
        assert got.statuses[:2] == [200, 400], (rest, got)
    # A request inside a body is part of the body.
    inner = second(worker)
    got = raw.exchange(worker, put(worker, f"Connection: close\r\nContent-Length: {len(inner)}\r\n\r\n".encode()) + inner)
    assert got.statuses == [200] and SECRET not in got.said, got
    assert boto(worker).get_object(Bucket="bucket", Key="object")["Body"].read() == inner
    boto(worker).delete_object(Bucket="bucket", Key="object")


def test_a_body_that_is_refused_is_not_the_next_request(worker):
    """The rest of a body that nobody wants to have, which looks like a request."""
    inner = second(worker)
    cases = [
        (403, {}),
        (400, {"x-amz-date": "never"}),
        (400, {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}),
        (411, {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}),
        (405, {}),
    ]

    def exchange(status, headers):
        method = "PATCH" if status == 405 else "PUT"
        plain = {"Host": f"127.0.0.1:{worker.port}", "Content-Length": str(len(inner))} | headers
        return raw.exchange(worker, raw.request(method, "/bucket/object", plain, inner), wait=2)

    # Side by side: for each it is waited whether there is another answer.
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        for (status, headers), got in zip(cases, pool.map(exchange, *zip(*cases))):
            assert SECRET not in got.said and len(got.statuses) == 1 and got.statuses[0] in (status, 403), (headers, got)


def test_many_requests_on_one_connection_get_their_own_answers_in_order(worker):
    s3 = boto(worker)
    for number in range(20):
        s3.put_object(Bucket="bucket", Key=f"many/{number}", Body=f"<{number}>".encode())
    data = b""
    for number in range(20):
        target = f"/bucket/many/{number}"
        headers = {"Host": f"127.0.0.1:{worker.port}"} | sign(worker, "GET", target)
        data += raw.request("GET", target, headers | ({"Connection": "close"} if number == 19 else {}))
    got = raw.exchange(worker, data)
    assert got.statuses == [200] * 20
    places = [got.said.index(f"<{number}>".encode()) for number in range(20)]
    assert places == sorted(places)


def test_other_versions_of_http_are_not_spoken(worker):
    for line in (b"GET /bucket/secret HTTP/2.0", b"GET /bucket/secret HTTP/0.9", b"GET /bucket/secret", b"PRI * HTTP/2.0"):
        got = raw.exchange(worker, line + b"\r\nHost: h\r\n\r\nSM\r\n\r\n")
        assert got.closed and got.statuses in ([], [400]), (line, got)
    # An upgrade is not taken up.
    upgrade = {"Host": "h", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    assert raw.exchange(worker, raw.request("GET", "/bucket/secret", upgrade), wait=2).statuses == [403]


def test_the_head_of_a_request_is_bounded(worker):
    for head in (
        raw.request("GET", "/bucket/" + "k" * (1 << 20), {"Host": "h"}),
        raw.request("GET", "/bucket", {"Host": "h", "X-A": "b" * (1 << 20)}),
        raw.request("GET", "/bucket", [("Host", "h"), *((f"X-{number}", "b") for number in range(10_000))]),
    ):
        got = raw.exchange(worker, head)
        assert got.closed and got.statuses in ([], [400], [414], [431]), got


def test_the_admin_port_reads_requests_as_strictly(worker):
    for rest in (
        LENGTH + CHUNKED + CHUNKS,
        LENGTH + b"Content-Length: 6\r\n" + BODY,
        b"Content-Length: +5\r\n" + BODY,
        b"X-A: b\r\n c\r\n" + LENGTH + BODY,
        b"Transfer-Encoding: xchunked\r\n" + CHUNKS,
    ):
        head = raw.request("POST", "/api/v1/persist?prefix=/", {"Host": "h"})[:-2]
        smuggled = raw.request("GET", "/metrics", {"Host": "h"})
        got = raw.exchange(worker, head + rest + smuggled, port=worker.admin_port)
        assert got.closed and b"forebay_" not in got.said and len(got.statuses) == 1, (rest, got)
