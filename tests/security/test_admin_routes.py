"""Every operation of the admin API, as its own description names them, with everything that can be wrong about who asks."""

import base64
import json
import urllib.error
import urllib.request

import pytest

from guarded import STRANGER
from harness import signing
from harness.clients import send

PUBLIC = {("GET", "/api/v1/openapi.json"), ("POST", "/api/v1/session")}
# Bodies that are right, so that only who asks is wrong.
BODIES = {
    ("PUT", "/api/v1/policies"): b"[]",
    ("POST", "/api/v1/policies/check"): b"[]",
    ("POST", "/api/v1/policies/rollback"): b'{"version": 1}',
    ("POST", "/api/v1/jobs"): b'{"kind": "free", "path": "/bucket"}',
}
# A user in its own right, so that the brake on guessing at one key does not answer for the others.
OTHER_USER = "USER{number}KEY"


def ask(server, method, target, headers=None, body=b"{}"):
    """The status, and the body."""
    request = urllib.request.Request(server.admin + target, method=method, data=body if method != "GET" else None)
    for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# Of parameters, by their types.
VALUES = {"string": "/bucket/object", "integer": "1"}


def basic(access_key, secret_key):
    return {"Authorization": "Basic " + base64.b64encode(f"{access_key}:{secret_key}".encode()).decode()}


@pytest.fixture(scope="module")
def described(guarded):
    """Method and target of every operation."""
    paths = json.loads(ask(guarded, "GET", "/api/v1/openapi.json")[1])["paths"]
    found = []
    for path, item in paths.items():
        for method, operation in item.items():
            needed = [p for p in operation.get("parameters", []) if p["in"] == "query" and p["required"]]
            query = "&".join(f"{p['name']}={VALUES[p['schema']['type']]}" for p in needed)
            found.append((method.upper(), path, path.format(id="1", version="1") + (f"?{query}" if query else "")))
    return found


def wrong_askers(server, method, target, number):
    """What is wrong about who asks, and the answer that it gets."""
    keys = basic(server.access_key, server.secret_key)["Authorization"]
    cut = basic(OTHER_USER.format(number=number), server.secret_key)["Authorization"][:-8]
    signed = signing.in_header(server, signing.Request(method, target, {}, b""), server.access_key, server.secret_key)
    presigned = signing.in_query(server, signing.Request(method, target, {}, b""), server.access_key, server.secret_key)
    yield "nobody", target, {}, 401
    yield "unknown key", target, basic(OTHER_USER.format(number=number), server.secret_key), 401
    yield "key without its secret", target, basic(OTHER_USER.format(number=number), ""), 401
    yield "no key", target, basic("", ""), 401
    yield "keys in another scheme", target, {"Authorization": keys.replace("Basic", "Bearer")}, 401
    yield "keys that are cut", target, {"Authorization": cut}, 401
    yield "a signature of S3", target, {"Authorization": signed.headers["Authorization"]}, 401
    yield "keys in the query", presigned.target, {}, 401
    yield "a session that never was", target, {"Cookie": "forebay_session=" + "0" * 64, "x-forebay-csrf": "0" * 64}, 401
    yield "no grant", target, basic(*STRANGER), 403


def test_nobody_gets_in(guarded, described):
    state = lambda: [ask(guarded, "GET", f"/api/v1/{page}", root)[1] for page in ("policies", "jobs", "objects?path=/bucket")]  # noqa: E731
    root = basic(guarded.access_key, guarded.secret_key)
    before = state()
    let_in = []
    for number, (method, path, target) in enumerate(described):
        if (method, path) in PUBLIC:
            continue
        for name, asked, headers, expected in wrong_askers(guarded, method, target, number):
            status, said = ask(guarded, method, asked, headers, BODIES.get((method, path), b"{}"))
            # Lists of jobs hold what the asker administers: nothing here.
            nothing = name == "no grant" and path.startswith("/api/v1/jobs") and (status == 404 or said in (b"[]", b'{"jobs":[]}'))
            # Who has no session, and keys of no administrator, has nothing to end.
            no_session = name == "no grant" and path == "/api/v1/session" and status == 401
            # The brake on guessing comes before the comparison.
            if status not in (expected, 429) and not nothing and not no_session:
                let_in.append(f"{method} {asked}, {name}: {status} {said[:200]}")
    assert not let_in, "\n".join(let_in)
    assert len(described) > 30
    assert state() == before


def test_the_admin_api_is_not_on_the_port_of_s3(guarded):
    """A client that reaches only S3 gets no metrics, no configuration and no profile: they are names of buckets there."""
    for page in ("/metrics", "/healthz", "/readyz", "/console/", "/api/v1/configuration", "/debug/pprof/", "/minio/health/live"):
        answer = send(guarded, "GET", page)
        assert answer.status == 403 and b"<Code>AccessDenied<" in answer.body, (page, answer)


def test_there_is_no_debugging_page(guarded):
    root = basic(guarded.access_key, guarded.secret_key)
    for page in ("/debug/pprof/", "/debug/vars", "/env", "/api/v1/environment", "/actuator/env", "/minio/bootstrap/v1/verify"):
        assert ask(guarded, "GET", page, root)[0] == 404, page


def test_a_wrong_secret_is_refused_everywhere(guarded, described):
    """One key, guessed at: refused from the first try to the last, at every door. The last test here, since the brake is on then."""
    for method, path, target in described:
        if (method, path) not in PUBLIC:
            status, _ = ask(guarded, method, target, basic(guarded.access_key, "not-the-secret"))
            assert status in (401, 429), f"{method} {target}: {status}"
    answer = ask(guarded, "POST", "/api/v1/session", body=json.dumps({"accessKey": guarded.access_key, "secretKey": "no"}).encode())
    assert answer[0] in (401, 429)
