"""Every operation of S3, signed in every way, with everything that can be wrong about a signature: nothing gets past it.

The operations are those that boto3 knows and those that the server names itself: a new one has its rows here without anybody's doing.
"""

import re

import pytest

from guarded import STRANGER
from harness import signing
from harness.clients import boto, send
from harness.model import ELSEWHERE, MODEL
from harness.servers import ROOT

OPERATIONS = sorted(MODEL["operations"].keys() - ELSEWHERE)
BODY = b"kept"
# A form has its signature in its body: test_signatures.py asks for it.
FORM = {"PostObject"}
ENDINGS = {"DeleteBucket", "DeleteObject", "DeleteObjects", "PutObject", "CopyObject"}


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
    for way, sign in signing.WAYS.items():
        yield f"{way}, wrong secret", sign(server, request, server.access_key, "not-the-secret")
        yield f"{way}, unknown key", sign(server, request, "AKNOBODY", server.secret_key)
        yield f"{way}, empty secret", sign(server, request, server.access_key, "")
        yield f"{way}, tampered", signing.tampered(sign(server, request, server.access_key, server.secret_key))
        yield f"{way}, no grant", sign(server, request, *STRANGER)
    good = signing.in_header(server, request, server.access_key, server.secret_key)
    twice = signing.in_query(server, request, server.access_key, server.secret_key)
    yield "header and query", signing.Request(good.method, twice.target, good.headers, good.body)
    old = request.with_header("Authorization", f"AWS {server.access_key}:c2lnbmF0dXJl")
    yield "header of version 2", old


def expected(operation, name, known):
    """The statuses that are right."""
    if operation == "ListBuckets" and name.endswith("no grant"):
        # Whoever signs may ask which buckets there are, and sees those that he may use.
        return (200,)
    # What the server does not know it does for nobody, and may say so at once.
    return (403,) if known else (403, 501)


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


def test_every_operation_of_the_server_has_its_rows():
    for source in ("authorize.rs", "query.rs"):
        text = (ROOT / "crates/s3/src" / source).read_text()
        table = re.search(r"const OPERATIONS.*?\n\];", text, re.DOTALL).group()
        names = set(re.findall(r'\("([A-Z]\w+)"|^        "([A-Z]\w+)"', table, re.MULTILINE))
        names = {one or other for one, other in names}
        assert len(names) == 29 and names - FORM <= set(OPERATIONS), names - set(OPERATIONS)
