"""An under store that sends elsewhere, says too much, or lies: clients hear none of it, and nobody else is asked."""

import contextlib
import http.client

import pytest

from fake_store import EMPTY_LIST, FakeStore
from guarded import READER, Guarded
from harness.clients import boto, send, send_signed, sign
from harness.servers import eventually

TOLD = "User: arn:aws:iam::123456789012:user/cache is not authorized on internal-host-7"
ETAG = '"' + "0" * 32 + '"'
OBJECT = {"ETag": ETAG, "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}
# What a client may ask for, and what makes the worker ask behind it.
QUESTIONS = [
    ("GET", "/bucket/object", b""),
    ("HEAD", "/bucket/object", b""),
    ("GET", "/bucket/object?versionId=7", b""),
    ("PUT", "/bucket/object", b"x"),
    ("DELETE", "/bucket/object", b""),
    ("GET", "/bucket?list-type=2", b""),
    ("GET", "/", b""),
    ("GET", "/bucket?acl=", b""),
    ("GET", "/bucket/object?tagging=", b""),
    ("PUT", "/bucket?versioning=", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
    ("PUT", "/new-bucket", b""),
    ("DELETE", "/bucket", b""),
    ("POST", "/bucket/object?uploads=", b""),
]


@pytest.fixture(scope="module")
def stores():
    with FakeStore() as behind, FakeStore() as elsewhere:
        yield behind, elsewhere


@pytest.fixture(scope="module")
def worker(tmp_path_factory, stores):
    # Writes without an answer that makes sense are waited for: not long.
    config = (
        '[cache]\nsettle_time = "1 s"\n[under_store_s3]\nrequest_timeout = "1 s"\n'
        '[under_store_limits]\nread_tries = 1\ncircuit_failures = 10000\n[[policy]]\npath = "/"\nmetadataTtl = "0 s"\n'
    )
    behind, _ = stores
    server = Guarded(tmp_path_factory.mktemp("hostile"), mode="NO_CACHE", behind=behind, config=config).start()
    # It knows the bucket before anything goes wrong.
    assert send_signed(server, "GET", "/bucket?list-type=2").status == 200
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def forgets(stores):
    for store in stores:
        store.answer = (200, {}, EMPTY_LIST)
        store.asked.clear()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(worker, stores, status):
    """Requests carry a signature, and the other host may be the metadata service of a cloud."""
    behind, elsewhere = stores
    target = f"{elsewhere.endpoint}/latest/meta-data/iam"
    behind.fail_with(status, "TemporaryRedirect", TOLD, {"Location": target, "x-amz-bucket-region": "eu-west-1"})
    for method, path, body in QUESTIONS:
        answer = send_signed(worker, method, path, body=body)
        assert answer.status >= 400 and elsewhere.endpoint.encode() not in answer.body, (method, path, answer)
        assert "location" not in answer.headers, answer
    assert len(behind.asked) >= len(QUESTIONS) - 2 and elsewhere.asked == []


@pytest.mark.parametrize(
    "status,code",
    [(400, "InvalidArgument"), (403, "AccessDenied"), (403, "InvalidAccessKeyId"), (404, "NoSuchKey"), (500, "InternalError"), (503, "SlowDown")],
)
def test_what_it_says_of_an_error_stays_inside(worker, stores, status, code):
    behind, _ = stores
    behind.fail_with(status, code, TOLD, {"x-amz-request-id": "behind-request", "x-amz-id-2": "behind-host", "server": "behind"})
    for method, path, body in QUESTIONS:
        answer = send_signed(worker, method, path, body=body)
        said = answer.body + str(answer.headers).encode()
        for word in (b"arn:aws", b"internal-host", b"behind-", behind.access_key.encode(), behind.endpoint.encode()[7:]):
            assert word not in said, (method, path, word, answer)
    assert behind.asked


def test_nobody_gets_its_keys_or_hears_of_ours(worker, stores):
    """What is sent behind carries the signature of the worker, and nothing of the client's."""
    behind, _ = stores
    url = boto(worker).generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "object"})
    for method, path, body in QUESTIONS:
        headers = {"Cookie": "session=client-cookie", "Referer": "http://client-referer", "User-Agent": "client-agent", "X-Forwarded-For": "10.1.2.3"}
        signed = sign(worker, method, path, headers, body)
        with contextlib.suppress(ConnectionError):
            send(worker, method, path, signed, body)
    send(worker, "GET", url.partition(str(worker.port))[2])
    sent = str(behind.asked)
    assert f"Credential={behind.access_key}/" in sent
    for word in (worker.access_key, worker.secret_key, behind.secret_key, "client-cookie", "client-referer", "10.1.2.3"):
        assert word not in sent, word


LIES = {
    "no document": (200, {}, b"<html>not S3</html>"),
    "nothing": (200, {"Content-Length": "0"}, b""),
    "cut": (200, OBJECT | {"Content-Length": "1000", "Connection": "close"}, b"short"),
    "silence": (200, OBJECT | {"Content-Length": "1000"}, b"short"),
    "no length at all": (200, {"ETag": ETAG, "Transfer-Encoding": "chunked"}, b"zz\r\n"),
    "laughs": (200, {}, b'<!DOCTYPE d [<!ENTITY a "aaaa">]><ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>'),
    "nested": (200, {}, b"<ListBucketResult>" * 100_000),
    "negative sizes": (200, {}, b"<ListBucketResult><Contents><Key>k</Key><Size>-5</Size></Contents></ListBucketResult>"),
    "a key of another place": (200, {}, b"<ListBucketResult><Contents><Key>../../escape</Key><Size>5</Size></Contents></ListBucketResult>"),
    "a list without end": (
        200,
        {},
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken></ListBucketResult>",
    ),
    "an error in 200": (200, {}, b"<Error><Code>InternalError</Code><Message>late</Message></Error>"),
    "a code that is markup": (500, {}, b"<Error><Code>&lt;script&gt;alert(1)&lt;/script&gt;</Code></Error>"),
    "a status that is none": (999, {}, b""),
    "metadata": (200, OBJECT | {"x-amz-meta-a": "\xff\xfe", "Content-Type": "\x80"}, b"body"),
    "a time that is none": (200, {"ETag": ETAG, "Last-Modified": "yesterday"}, b"body"),
    "a tag that is none": (200, {"ETag": "x" * 5000, "Last-Modified": OBJECT["Last-Modified"]}, b"body"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_is_an_answer_or_an_error_and_the_worker_goes_on(worker, stores, lie):
    behind, _ = stores
    behind.answer = lie
    for method, path, body in QUESTIONS:
        # A response that has begun can only be broken off, and no lie is waited for as long as the client waits.
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            answer = send_signed(worker, method, path, body=body)
            assert b"<script>" not in answer.body and 200 <= answer.status < 600, answer
    behind.answer = (200, {}, EMPTY_LIST)
    assert worker.process.poll() is None
    eventually("it serves", lambda: send_signed(worker, "GET", "/bucket?list-type=2").status == 200)
    assert "panicked" not in worker.log.read_text()


def test_a_place_that_a_client_names_is_never_asked(worker, stores):
    """A source of a copy is a bucket and a key; hosts in headers, and whole URLs in the request line, name nobody."""
    behind, elsewhere = stores
    host = elsewhere.endpoint.removeprefix("http://")
    for source in (
        elsewhere.endpoint + "/bucket/object",
        f"//{host}/bucket/object",
        f"bucket/{elsewhere.endpoint}/object",
        f"bucket@{host}/object",
        "http://169.254.169.254/latest/meta-data/",
        "arn:aws:s3:us-east-1:1:accesspoint/x/object/y",
        "file:///etc/passwd",
        f"{host}/object",
    ):
        answer = send_signed(worker, "PUT", "/bucket/copy", {"x-amz-copy-source": source})
        assert answer.status >= 400 or source.startswith("bucket/"), (source, answer)
    for name in ("X-Forwarded-Host", "X-Forwarded-For", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "X-Host", "Via"):
        send_signed(worker, "GET", "/bucket/object", {name: host})
    send_signed(worker, "GET", "/bucket/object", host=host)
    assert send(worker, "GET", f"{elsewhere.endpoint}/bucket/object").status == 403
    website = {"x-amz-website-redirect-location": elsewhere.endpoint}
    send_signed(worker, "PUT", "/bucket/object", website, b"x")
    send_signed(worker, "GET", "/bucket/object")
    assert elsewhere.asked == [] and behind.asked


def test_a_grant_to_read_is_none_to_ask_behind(worker, stores):
    """Configuration of buckets and state of objects goes to the under store for administrators only."""
    behind, _ = stores
    for method, path, body in QUESTIONS:
        if "acl" in path or "versioning" in path:
            headers = sign(Keys(worker, *READER), method, path, {}, body)
            assert send(worker, method, path, headers, body).status == 403, path
    assert behind.asked == []


class Keys:
    """A server as another user sees it."""

    def __init__(self, server, access_key, secret_key):
        self.port, self.access_key, self.secret_key = server.port, access_key, secret_key
