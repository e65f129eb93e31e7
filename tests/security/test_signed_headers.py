"""No `x-amz-*` header counts that the signature does not cover: anybody who relays a signed request could add it."""

import pytest

from harness import signing
from harness.clients import boto, send
from harness.model import MODEL


def known_headers():
    """Every such header that boto3 knows, and those that it does not."""
    for shape in MODEL["shapes"].values():
        for member in shape.get("members", {}).values():
            name = member.get("locationName", "").lower()
            if member.get("location") == "header" and name.startswith("x-amz-"):
                yield name
    yield from ("x-amz-meta-a", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "x-amz-decoded-content-length")
    yield from ("x-amz-trailer", "x-amz-grant-write", "x-amz-no-such-header", "x-amz-")


# What a signer of botocore signs by itself cannot be left unsigned.
OWN = {"x-amz-date", "x-amz-content-sha256"}
HEADERS = sorted(set(known_headers()) - OWN)
# Some are refused for what they are before anybody looks at the signature.
REFUSED = (400, 403, 411, 501)


@pytest.fixture(scope="module")
def worker(guarded):
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="source", Body=b"secret")
    return guarded


def test_the_list_is_that_of_s3():
    assert len(HEADERS) > 60 and "x-amz-copy-source" in HEADERS and "x-amz-tagging" in HEADERS and "x-amz-acl" in HEADERS


@pytest.mark.parametrize("way", signing.WAYS)
def test_a_header_that_is_not_signed_is_refused(worker, way):
    let_in = []
    for name in HEADERS:
        for method in ("PUT", "GET", "DELETE"):
            request = signing.Request(method, "/bucket/object", {}, b"")
            signed = signing.WAYS[way](worker, request, worker.access_key, worker.secret_key)
            answer = send(worker, method, signed.target, signed.headers | {name: "/bucket/source"})
            if answer.status not in REFUSED:
                let_in.append(f"{method} {name}: {answer}")
    assert not let_in, "\n".join(let_in)
    assert [found["Key"] for found in boto(worker).list_objects_v2(Bucket="bucket")["Contents"]] == ["source"]


@pytest.mark.parametrize("way", signing.WAYS)
def test_a_header_that_is_signed_cannot_be_changed(worker, way):
    request = signing.Request("PUT", "/bucket/object", {"x-amz-meta-a": "signed"}, b"")
    signed = signing.WAYS[way](worker, request, worker.access_key, worker.secret_key)
    for name in ("x-amz-meta-a", "X-Amz-Meta-A"):
        headers = {own: value for own, value in signed.headers.items() if own.lower() != name.lower()}
        assert send(worker, "PUT", signed.target, headers | {name: "changed"}).status in (400, 403)
    moved = signed.target.replace("signed", "changed")
    assert way == "header" or moved == signed.target or send(worker, "PUT", moved, signed.headers).status in REFUSED
    for key, value in (("Authorization", None), ("X-Amz-Date", "20200101T000000Z"), ("Host", "other")):
        if way == "header":
            changed = {own: given for own, given in signed.headers.items() if own != key} | ({key: value} if value else {})
            assert send(worker, "PUT", signed.target, changed).status in (400, 403), key
    assert boto(worker).list_objects_v2(Bucket="bucket")["KeyCount"] == 1


def test_every_part_of_a_presigned_url_is_bound(worker):
    """Method, host, path, and each parameter: another value, twice, or one more."""
    request = signing.Request("GET", "/bucket/source?response-content-type=text/plain", {}, b"")
    good = signing.in_query(worker, request, worker.access_key, worker.secret_key)
    assert send(worker, "GET", good.target).body == b"secret"
    path, query = good.target.split("?")
    parameters = query.split("&")
    for number, parameter in enumerate(parameters):
        name, value = parameter.split("=")
        others = parameters[:number] + parameters[number + 1 :]
        for changed in ([], [f"{name}={value[:-1]}{'1' if value[-1] != '1' else '2'}"], [parameter, parameter], [f"{name}="]):
            target = f"{path}?{'&'.join(others + changed)}"
            answer = send(worker, "GET", target)
            assert answer.status in REFUSED and b"secret" not in answer.body, (target, answer)
    for more in ("response-content-disposition=inline", "versionId=null", "x-amz-security-token=a", "partNumber=1"):
        assert send(worker, "GET", f"{good.target}&{more}").status == 403, more
    for method in ("PUT", "DELETE", "POST"):
        assert send(worker, method, good.target).status == 403, method
    assert send(worker, "GET", good.target, {"Host": "other.example"}).status == 403
    assert send(worker, "GET", good.target.replace("/bucket/", "/bucket//")).status == 403


@pytest.mark.parametrize("seconds", ["604801", "1e3", "", "9" * 30, "-1", "-604800", "-" + "9" * 30])
def test_a_presigned_url_lives_for_a_week_at_most(worker, seconds, monkeypatch):
    monkeypatch.setattr(signing, "SECONDS", seconds)
    signed = signing.in_query(worker, signing.Request("GET", "/bucket/source", {}, b""), worker.access_key, worker.secret_key)
    answer = send(worker, "GET", signed.target)
    assert answer.status == 400 and b"AuthorizationQueryParametersError" in answer.body, answer


def test_a_presigned_url_that_was_over_before_it_began(worker, monkeypatch):
    monkeypatch.setattr(signing, "SECONDS", "0")
    signed = signing.in_query(worker, signing.Request("GET", "/bucket/source", {}, b""), worker.access_key, worker.secret_key)
    answer = send(worker, "GET", signed.target)
    assert answer.status == 403 and b"Request has expired" in answer.body, answer
