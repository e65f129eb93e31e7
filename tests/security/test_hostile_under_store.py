"""An under store that sends elsewhere, says too much, or lies: clients hear none of it, and nobody else is asked."""

import contextlib
import http.client
import re

import pytest

from fake_store import EMPTY_LIST, Authority, FakeStore
from guarded import READER, Guarded
from harness.clients import boto, send, send_signed, sign
from harness.faults import FAKETIME
from harness.servers import REGION, eventually

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
    ("GET", "/bucket?cors=", b""),
    ("GET", "/bucket/object?tagging=", b""),
    ("PUT", "/bucket?versioning=", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
    ("PUT", "/new-bucket", b""),
    # Without an answer that makes sense, a bucket takes no writes for a while.
    ("DELETE", "/doomed", b""),
    ("POST", "/bucket/object?uploads=", b""),
]


@pytest.fixture(scope="module")
def stores():
    with FakeStore() as behind, FakeStore() as elsewhere:
        yield behind, elsewhere


# Writes without an answer that makes sense are waited for: not long.
IMPATIENT = (
    '[cache]\nsettle_time = "1 s"\n[under_store_s3]\nrequest_timeout = "1 s"\n'
    '[under_store_limits]\nread_tries = 1\ncircuit_failures = 10000\n[[policy]]\npath = "/"\nmetadataTtl = "0 s"\n'
)


@pytest.fixture(scope="module")
def worker(tmp_path_factory, stores):
    behind, _ = stores
    server = Guarded(tmp_path_factory.mktemp("hostile"), mode="NO_CACHE", behind=behind, config=IMPATIENT).start()
    # It knows the bucket before anything goes wrong.
    for bucket in ("bucket", "doomed"):
        assert send_signed(server, "GET", f"/{bucket}?list-type=2").status == 200
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
    # Nothing is sent for what an earlier test has left without an answer that makes sense, until that is settled.
    behind.answer = (204, {"x-amz-request-id": "1"}, b"")
    for path in ("/bucket/object", "/doomed/object"):
        eventually(f"{path} is settled", lambda path=path: send_signed(worker, "DELETE", path).status == 204)
    behind.asked.clear()
    target = f"{elsewhere.endpoint}/latest/meta-data/iam"
    behind.fail_with(status, "TemporaryRedirect", TOLD, {"Location": target, "x-amz-bucket-region": "eu-west-1"})
    for method, path, body in QUESTIONS:
        answer = send_signed(worker, method, path, body=body)
        # An upload begins here, and goes there when it is complete.
        assert (answer.status == 200) if method == "POST" else (answer.status >= 400), (method, path, answer)
        assert elsewhere.endpoint.encode() not in answer.body and "location" not in answer.headers, answer
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


@pytest.mark.parametrize(
    "status,code,expected",
    [
        (403, "AccessDenied", 403),
        (403, "InvalidAccessKeyId", 503),
        (403, "SignatureDoesNotMatch", 503),
        (400, "ExpiredToken", 503),
        (400, "AuthorizationHeaderMalformed", 503),
    ],
)
def test_that_our_keys_are_wrong_is_no_fault_of_a_client(worker, stores, status, code, expected):
    """What clients may do is another question, and SDKs ask again after a 503."""
    behind, _ = stores
    # Of a bucket that the worker does not know it asks by HEAD, whose refusals have no code.
    assert send_signed(worker, "GET", "/bucket?list-type=2").status == 200
    behind.fail_with(status, code, TOLD)
    # A key of its own: for others, earlier requests may still be in flight.
    path = f"/bucket/{code}"
    for method, body in (("GET", b""), ("PUT", b"x"), ("DELETE", b"")):
        assert send_signed(worker, method, path, body=body).status == expected, method
    assert send_signed(worker, "GET", f"{path}?versionId=7").status == expected


def test_every_internal_error_has_a_line_in_the_log(worker, stores):
    behind, _ = stores
    # Nothing that a client could be told.
    behind.fail_with(307, "TemporaryRedirect", TOLD)
    answers = [send_signed(worker, method, path, body=body) for method, path, body in QUESTIONS]
    ids = {answer.headers["x-amz-request-id"] for answer in answers if answer.status == 500}
    assert ids
    logged = lambda: {found for found in ids for line in worker.log.read_text().splitlines() if " ERROR " in line and found in line}  # noqa: E731
    eventually("a line for each", lambda: logged() == ids)


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


# Who is silent is given up after 20 s.
SLOW_LIES = {"silence": pytest.mark.slow("three bodies are each waited for until they are given up")}


@pytest.mark.parametrize("lie", [pytest.param(lie, id=name, marks=SLOW_LIES.get(name, ())) for name, lie in LIES.items()])
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
        if "cors" in path or "versioning" in path:
            headers = sign(Keys(worker, *READER), method, path, {}, body)
            assert send(worker, method, path, headers, body).status == 403, path
    assert behind.asked == []


def mount(bucket, store):
    url = f"s3://{bucket}?endpoint={store.endpoint}&region={REGION}"
    return f'[mounts.{bucket}]\nurl = "{url}"\naccess_key = "{store.access_key}"\nsecret_key = "{store.secret_key}"\n'


def test_an_under_store_is_asked_only_behind_a_certificate_that_is_right(tmp_path):
    """From an authority that is believed, for its host, and of today: otherwise not a byte of a request gets there."""
    assert FAKETIME, "libfaketime is not installed: run `make setup`"
    believed, other = Authority(tmp_path / "believed"), Authority(tmp_path / "other")
    last_month = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": "-30d"}
    certificates = {
        "good": believed.certify("good"),
        "unknown": other.certify("unknown"),
        "self-signed": (other.certificate, other.key),
        "misnamed": believed.certify("misnamed", host="IP:127.0.0.2,DNS:localhost"),
        "expired": believed.certify("expired", variables=last_month),
    }
    with contextlib.ExitStack() as stack:
        stores = {bucket: stack.enter_context(FakeStore(certified)) for bucket, certified in certificates.items()}
        mounts = "".join(mount(bucket, store) for bucket, store in stores.items())
        variables = {"SSL_CERT_FILE": str(believed.certificate)}
        server = Guarded(tmp_path / "server", mode="NO_CACHE", config=IMPATIENT + mounts, variables=variables).start()
        for bucket, store in stores.items():
            store.asked.clear()
            store.disagreed.clear()
            for method, path, body in QUESTIONS:
                # An upload begins here, and goes there when it is complete.
                if path.startswith("/bucket") and method != "POST":
                    answer = send_signed(server, method, path.replace("/bucket", f"/{bucket}"), body=body)
                    assert bucket == "good" or answer.status >= 500, (bucket, method, path, answer)
        for bucket, store in stores.items():
            assert (store.asked == []) == (bucket != "good"), (bucket, store.asked)
            assert (store.disagreed == []) == (bucket == "good"), (bucket, store.disagreed)
        assert send_signed(server, "GET", "/good?list-type=2").status == 200
        server.kill()


def test_a_key_that_climbs_goes_to_no_gateway_wherever_it_was_named(tmp_path, stores):
    """The environment may name another endpoint for S3 than for the rest of Amazon."""
    behind, _ = stores
    url = f's3://mounted?region={REGION}'
    config = f'[mounts.mounted]\nurl = "{url}"\naccess_key = "{behind.access_key}"\nsecret_key = "{behind.secret_key}"\n'
    endpoints = {"AWS_ENDPOINT_URL": "https://s3.us-east-1.amazonaws.com", "AWS_ENDPOINT_URL_S3": behind.endpoint}
    server = Guarded(tmp_path / "server", mode="NO_CACHE", config=IMPATIENT + config, variables=endpoints).start()
    assert send_signed(server, "GET", "/mounted?list-type=2").status == 200
    assert send_signed(server, "PUT", "/mounted/n/../a", body=b"x").status == 400
    assert send_signed(server, "GET", "/mounted/n/../a").status == 404
    assert behind.names() and not [path for path in behind.names() if ".." in path], behind.names()
    assert server.stop() == 0


# What would name or give credentials on the machine of a test.
CREDENTIALS = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
]  # fmt: skip
SOURCES = [
    "http://169.254.169.254/latest/meta-data/", "//169.254.169.254/latest", "169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/latest/x",
]  # fmt: skip


class Penniless(Guarded):
    """Has no keys for the under store that it is in front of."""

    def __init__(self, directory, behind, config="", before=(), variables=None):
        files = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "HOME": str(directory)}
        without = [word for name in CREDENTIALS for word in ("-u", name)]
        set_again = [f"{name}={value}" for name, value in (variables or {}).items()]
        started_by = ["env", *without, *set_again, *before]
        super().__init__(directory, mode="NO_CACHE", behind=behind, config=IMPATIENT + config, before=started_by, variables=files)

    def try_everything(self):
        for method, path, body in QUESTIONS:
            answer = send_signed(self, method, path, body=body)
            assert answer.status >= 400, (method, path, answer)
        for source in SOURCES:
            for target in ("/paid/copy", "/paid/copy?partNumber=1&uploadId=0", "/bucket/copy"):
                answer = send_signed(self, "PUT", target, {"x-amz-copy-source": source})
                assert answer.status >= 400, (target, source, answer)


@pytest.fixture
def stores_of_nobody_else():
    """The worker of the other tests has keys, and probes its under store at any time."""
    with FakeStore() as behind, FakeStore() as elsewhere:
        yield behind, elsewhere


def test_a_worker_without_keys_asks_nobody_for_them(tmp_path, stores_of_nobody_else):
    """Not the metadata service of a cloud, nor any other place than the one that is configured, whatever clients name."""
    behind, _ = stores_of_nobody_else
    calls = tmp_path / "calls"
    traced = ["strace", "-D", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,exit_group", "-e", "signal=none", "-o", str(calls)]
    server = Penniless(tmp_path / "server", behind, config=mount("paid", behind), before=traced).start()
    server.try_everything()
    assert not [path for path in behind.names() if not path.startswith("/paid")]
    assert send_signed(server, "GET", "/paid?list-type=2").status == 200
    assert server.stop() == 0
    text = eventually("the last call", lambda: "exit_group(" in calls.read_text() and calls.read_text())
    asked = re.findall(r'sin_port=htons\((\d+)\), sin_addr=inet_addr\("([\d.]+)"\)', text)
    assert {address for _, address in asked} == {"127.0.0.1"} and (str(behind.server.server_port), "127.0.0.1") in asked, asked
    assert "AF_INET6" not in text


def test_a_metadata_service_is_asked_only_by_who_wants_it(tmp_path, stores_of_nobody_else):
    behind, metadata = stores_of_nobody_else
    variables = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.endpoint, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata.endpoint}/keys"}
    server = Penniless(tmp_path / "without", behind, variables=variables).start()
    server.try_everything()
    assert metadata.asked == [] and behind.asked == []
    assert server.stop() == 0
    wanted = "instance_credentials = true\n"
    server = Penniless(tmp_path / "with", behind, variables=variables)
    server.config.write_text(server.config.read_text().replace("[under_store_s3]\n", f"[under_store_s3]\n{wanted}"))
    server.start()
    send_signed(server, "GET", "/bucket/object")
    assert metadata.asked != []
    server.kill()


class Keys:
    """A server as another user sees it."""

    def __init__(self, server, access_key, secret_key):
        self.port, self.access_key, self.secret_key = server.port, access_key, secret_key
