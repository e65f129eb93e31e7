"""Every operation of S3, signed in every way, with everything that can be wrong about a signature: nothing gets past it.

The operations are those that boto3 knows and those that the server names itself: a new one has its rows here without anybody's doing.
"""

import functools
import re

import pytest

from guarded import STRANGER
from harness import chunks, signing
from harness.clients import boto, md5_base64, send, send_signed, sign
from harness.model import ELSEWHERE, MODEL
from harness.servers import ROOT

OPERATIONS = sorted(MODEL["operations"].keys() - ELSEWHERE)
BODY = b"kept"
# A form has its signature in its body: test_signatures.py asks for it.
FORM = {"PostObject"}
ENDINGS = {"DeleteBucket", "DeleteObject", "DeleteObjects", "PutObject", "CopyObject"}
# What a request may say of its body instead of a hash, and what it may not.
UNSIGNED = "UNSIGNED-PAYLOAD"
UNKNOWN = ["STREAMING-UNSIGNED-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "unsigned-payload", ""]


@pytest.fixture(scope="module")
def worker(in_front_of_s3):
    s3 = boto(in_front_of_s3)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="object", Body=BODY)
    return in_front_of_s3


def send_as_it_is(server, request):
    return send(server, request.method, request.target, request.headers, request.body)


def wrong_requests(server, request):
    """The request with everything that can be wrong about who sends it, by name."""
    yield "nobody", request
    for way, sign_so in signing.WAYS.items():
        yield f"{way}, wrong secret", sign_so(server, request, server.access_key, "not-the-secret")
        yield f"{way}, unknown key", sign_so(server, request, "AKNOBODY", server.secret_key)
        yield f"{way}, empty secret", sign_so(server, request, server.access_key, "")
        yield f"{way}, tampered", signing.tampered(sign_so(server, request, server.access_key, server.secret_key))
        yield f"{way}, no grant", sign_so(server, request, *STRANGER)
    good = signing.in_header(server, request, server.access_key, server.secret_key)
    twice = signing.in_query(server, request, server.access_key, server.secret_key)
    yield "header and query", signing.Request(good.method, twice.target, good.headers, good.body)
    old = request.with_header("Authorization", f"AWS {server.access_key}:c2lnbmF0dXJl")
    yield "header of version 2", old


def expected(operation, name, known):
    """The statuses that are right."""
    if operation == "ListBuckets" and name.endswith("no grant"):
        # Any client that signs may list the buckets, and sees those that it may use.
        return (200,)
    if name in ("header of version 2", "header and query"):
        return (400,)
    # What the server does not know it does for nobody, and may say so at once.
    return (403,) if known else (403, 501)


def payload_ways():
    """Ways to sign that say of the body something else than its hash, by what they say."""
    for kind, word in chunks.PAYLOADS.items():
        yield word, functools.partial(signing.in_chunks, kind)
    for word in (UNSIGNED, *UNKNOWN):
        yield word, functools.partial(signing.in_header_with_payload, word)


def wrong_payloads(server, request):
    """The request with everything that can be said of its body, and something wrong about who sends it, by name."""
    for word, sign_so in payload_ways():
        good = sign_so(server, request, server.access_key, server.secret_key)
        yield f"{word}, nobody", signing.without(good)
        yield f"{word}, wrong secret", sign_so(server, request, server.access_key, "not-the-secret")
        yield f"{word}, unknown key", sign_so(server, request, "AKNOBODY", server.secret_key)
        yield f"{word}, tampered", signing.tampered(good)
        yield f"{word}, no grant", sign_so(server, request, *STRANGER)
        if word in UNKNOWN:
            yield f"{word}, signed rightly", good
        said = request.with_header("x-amz-content-sha256", word)
        yield f"{word}, presigned with a wrong secret", signing.in_query(server, said, server.access_key, "not-the-secret")
        old = signing.in_query_version_2(server, request, server.access_key, "not-the-secret")
        yield f"{word}, presigned in version 2 with a wrong secret", old.with_header("x-amz-content-sha256", word)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nobody_gets_in(worker, operation):
    request = signing.of_operation(worker, operation, Bucket="bucket", Key="object", CopySource="bucket/object")
    good = signing.in_header(worker, request, worker.access_key, worker.secret_key)
    # These would end what the others are asked about.
    known = operation in ENDINGS or send_as_it_is(worker, good).status != 501
    before = worker.requests_behind()
    let_in = []
    for name, wrong in wrong_requests(worker, request):
        answer = send_as_it_is(worker, wrong)
        if answer.status not in expected(operation, name, known) or (answer.status == 200 and b"bucket</Name>" in answer.body):
            let_in.append(f"{name}: {answer}")
    assert not let_in, "\n".join(let_in)
    lists = len(signing.WAYS) if operation == "ListBuckets" else 0
    assert worker.requests_behind() == before + lists, "the storage was reached"
    assert boto(worker).get_object(Bucket="bucket", Key="object")["Body"].read() == BODY
    # Signed rightly it is let in: what was refused above was not wrong in another way.
    assert operation in ENDINGS or send_as_it_is(worker, good).status != 403


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nobody_gets_in_by_what_is_said_of_the_body(worker, operation):
    request = signing.of_operation(worker, operation, Bucket="bucket", Key="object", CopySource="bucket/object")
    before = worker.requests_behind()
    let_in, lists = [], 0
    for name, wrong in wrong_payloads(worker, request):
        answer = send_as_it_is(worker, wrong)
        # Any client that signs may list the buckets, and sees those that it may use.
        is_list = operation == "ListBuckets" and name.endswith("no grant") and answer.status == 200 and b"bucket</Name>" not in answer.body
        lists += is_list
        # What no request may say of its body gets 400 or 501, for any client.
        if answer.status not in (400, 403, 501) and not is_list:
            let_in.append(f"{name}: {answer}")
    assert not let_in, "\n".join(let_in)
    assert worker.requests_behind() == before + lists, "the storage was reached"
    assert boto(worker).get_object(Bucket="bucket", Key="object")["Body"].read() == BODY


@pytest.fixture(scope="module")
def forms(worker):
    """The fields of forms for the bucket, by what is wrong about them."""
    fields = lambda *keys: boto(worker, *keys).generate_presigned_post("bucket", "form")["fields"]  # noqa: E731
    made = {
        "no policy": {"key": "form"},
        "wrong secret": fields(worker.access_key, "not-the-secret"),
        "unknown key": fields("AKNOBODY", worker.secret_key),
        "no grant": fields(*STRANGER),
        "nothing": fields(),
    }
    return made | {"tampered": made["nothing"] | {"x-amz-signature": "0" * 64}}


def takes_forms(target):
    """A form makes an object in the bucket that its target names, and nothing else."""
    path, _, query = target.partition("?")
    return path == "/bucket" and all(name.startswith("x-") for name in query.split("&") if name)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_form_opens_no_route(worker, forms, operation):
    """Posted to where the operation is asked for, and as the body of the operation itself."""
    request = signing.of_operation(worker, operation, Bucket="bucket", Key="object", CopySource="bucket/object")
    before = worker.requests_behind()
    let_in = []
    for name, fields in forms.items():
        if name == "nothing" and takes_forms(request.target):
            continue
        form = signing.form(request.target, fields, b"x")
        other_case = form.with_header("Content-Type", form.headers["Content-Type"].replace("form-data", "Form-Data"))
        for sent in (form, other_case, signing.Request(request.method, form.target, request.headers | form.headers, form.body)):
            answer = send_as_it_is(worker, sent)
            if answer.status not in (400, 403, 405, 501):
                let_in.append(f"{sent.method}, wrong is {name}: {answer}")
    assert not let_in, "\n".join(let_in)
    assert worker.requests_behind() == before, "the storage was reached"


PASSED = "/bucket?policy="
POLICY = b'{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/*"}]}'
WRONG_CHUNKS = {
    "a wrong value": {"damage": "trailer"},
    "a byte changed": {"damage": "byte"},
    "no trailer": {"trailer": lambda *_: []},
    "another trailer": {"trailer": lambda *_: [("x-amz-meta-a", "b")]},
    "a trailer with a forged signature": {"trailer": lambda _, lines: [lines[0], (chunks.SIGNATURE, "0" * 64)]},
}
WRONG_DIGESTS = {
    "Content-MD5": md5_base64(b"other"),
    "x-amz-checksum-crc32": chunks.checksum(b"other"),
    "x-amz-checksum-sha256": "A" * 43 + "=",
}


def wrong_bodies(server):
    """Documents that are not those that their requests announce, by what is wrong."""
    # With blanks behind it, which mean nothing, and enough of them for the byte that is changed.
    document = POLICY.ljust(2000)
    for kind in chunks.PAYLOADS:
        for name, wrong in WRONG_CHUNKS.items():
            if kind != "signed" or name == "a byte changed":
                yield f"{kind}, {name}", *chunks.request(server, PASSED, document, kind, **wrong)
    for name, value in WRONG_DIGESTS.items():
        yield name, sign(server, "PUT", PASSED, {name: value}, document), document
    yield "the hash of another", sign(server, "PUT", PASSED, {}, document), POLICY


def test_a_document_that_passes_through_is_the_one_that_was_announced(worker):
    """Or nothing: nobody behind can compare what was said here."""
    s3 = boto(worker)
    let_in = []
    for name, headers, body in wrong_bodies(worker):
        answer = send(worker, "PUT", PASSED, headers, body)
        if answer.status not in (400, 403, 501):
            let_in.append(f"{name}: {answer}")
        if send_signed(worker, "GET", PASSED).status != 404:
            let_in.append(f"{name}: stored")
            s3.delete_bucket_policy(Bucket="bucket")
    assert not let_in, "\n".join(let_in)
    s3.put_bucket_policy(Bucket="bucket", Policy=POLICY.decode())
    s3.delete_bucket_policy(Bucket="bucket")


def test_every_operation_of_the_server_has_its_rows():
    for source in ("authorize.rs", "query.rs"):
        text = (ROOT / "crates/s3/src" / source).read_text()
        table = re.search(r"const OPERATIONS.*?\n\];", text, re.DOTALL).group()
        names = set(re.findall(r'\("([A-Z]\w+)"|^        "([A-Z]\w+)"', table, re.MULTILINE))
        names = {one or other for one, other in names}
        assert len(names) == 35 and names - FORM <= set(OPERATIONS), names - set(OPERATIONS)
