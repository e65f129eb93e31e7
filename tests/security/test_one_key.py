"""However a key is spelled: policy, grants and storage see the same one, and none of them is a path of a file."""

import hashlib
import itertools
import json
import os
import random
import urllib.parse

import pytest

import test_admin_routes as admin
from guarded import WRITER, Guarded
from harness.clients import boto, send, sign
from test_hostile_under_store import Keys

POLICIES = """
[[policy]]
path = "/bucket/ro/"
writeMode = "READ_ONLY"

[[policy]]
path = "/bucket/own/ro/"
writeMode = "READ_ONLY"
"""
# Pieces of a path as they stand in a request line.
PIECES = [
    "own", "ro", "OWN", "Own", "other", "", ".", "..", "%2e", "%2e%2e", "%2E.", "own%2Fx", "own%2fx", "%6fwn", "%72o", "ow%6E", "own%252Fx",
    "%25%32%46", "..%2f..%2fro", "..%252fro", "own%5c..", "own;x", "own%3Bx", "own%3Fx", "own%23x", "own+x", "own%20x", "own%20", "%20own",
    "%C3%A9", "e%CC%81", "%EF%BC%8F", "%E2%88%95", "own%E2%80%AE", "own%0a", "own%0d%0ax", "own%09", "own%7f", "ro.", "ro%20", "r%6F%2Fx", "~own", "%",
]  # fmt: skip
IMPOSSIBLE = ["own/a%00b", "own/%C0%AF", "own/%C0%AE%C0%AE/x", "own/%FF", "own/%E0%80%AF", "own/%ED%A0%80"]
SEED = int(os.environ.get("FOREBAY_TEST_SEED", "20261122"))


def spelled():
    """Request targets behind `/bucket/`, and the one key that each stands for."""
    chosen = random.Random(SEED)
    targets = [f"{first}/{second}" for first, second in itertools.product(("own", "ro"), PIECES)]
    targets += ["/".join(chosen.choice(PIECES) for _ in range(chosen.randint(1, 4))) for _ in range(150)]
    for target in dict.fromkeys(targets):
        key = urllib.parse.unquote(target, errors="strict")
        if key:
            yield target, key


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    # What lies around it is nobody else's.
    directory = tmp_path_factory.mktemp("one-key") / "worker"
    directory.mkdir()
    server = Guarded(directory, config=POLICIES).start()
    boto(server).create_bucket(Bucket="bucket")
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def ask(server, method, target, query="", headers=None, body=b""):
    """Sends a spelling with the signature of the key that it stands for: it is the decoded key that is signed."""
    canonical = urllib.parse.quote(urllib.parse.unquote(target, errors="surrogateescape"), safe="/~", errors="surrogateescape")
    signed = sign(server, method, f"/bucket/{canonical}{query}", headers, body)
    return send(server, method, f"/bucket/{target}{query}", signed, body)


def keys_of(server):
    pages = boto(server).get_paginator("list_objects_v2").paginate(Bucket="bucket")
    return {found["Key"] for page in pages for found in page.get("Contents", [])}


def is_read_only(key):
    return key.startswith(("ro/", "own/ro/"))


def test_policy_grants_and_storage_see_one_key(worker):
    print(f"FOREBAY_TEST_SEED={SEED}")
    writer = Keys(worker, *WRITER)
    root = admin.basic(worker.access_key, worker.secret_key)
    wrong, stored = [], set()
    for target, key in spelled():
        body = key.encode()
        # `own` itself is not below `/bucket/own/`.
        allowed = key.startswith("own/") and not is_read_only(key)
        answer = ask(writer, "PUT", target, body=body)
        if answer.status != (200 if allowed else 403):
            wrong.append(f"PUT {target} for {key!r}: {answer}")
            continue
        status, said = admin.ask(worker, "GET", f"/api/v1/policies/resolve?path={urllib.parse.quote(f'/bucket/{key}')}", root)
        if status != 200 or (b"READ_ONLY" in said) != is_read_only(key):
            wrong.append(f"policy of {key!r}: {status} {said[:300]}")
        if not allowed:
            continue
        stored.add(key)
        # By the same spelling, and by the one of another client.
        for spelling in (target, urllib.parse.quote(key, safe="")):
            read = ask(writer, "GET", spelling)
            if (read.status, read.body) != (200, body):
                wrong.append(f"GET {spelling} for {key!r}: {read}")
    assert not wrong, "\n".join(wrong)
    assert keys_of(worker) == stored and len(stored) > 30


def test_what_is_no_key_is_none_for_anybody(worker):
    before = keys_of(worker)
    for target in IMPOSSIBLE:
        answer = ask(worker, "PUT", target, body=b"x")
        assert answer.status in (400, 403), (target, answer)
    assert keys_of(worker) == before


def test_what_is_read_only_is_never_written(worker):
    """By no spelling, by no operation, and not for root either."""
    s3 = boto(worker)
    s3.put_object(Bucket="bucket", Key="source", Body=b"x")
    before = keys_of(worker)
    let_in = []
    read_only = [(target, key) for target, key in spelled() if is_read_only(key)]
    assert len(read_only) > 40
    for target, key in read_only:
        for method, query, headers, body in (
            ("PUT", "", {}, b"x"),
            ("PUT", "", {"x-amz-copy-source": "/bucket/source"}, b""),
            ("POST", "?uploads=", {}, b""),
            ("DELETE", "", {}, b""),
            ("PUT", "?tagging=", {}, b"<Tagging><TagSet></TagSet></Tagging>"),
        ):
            answer = ask(worker, method, target, query, headers, body)
            # There is nothing there that could be deleted or tagged.
            if answer.status != 403 and not (answer.status == 404 and query == "?tagging="):
                let_in.append(f"{method} {target}{query}: {answer}")
        content = f"/api/v1/objects/content?path={urllib.parse.quote(f'/bucket/{key}')}"
        status, said = admin.ask(worker, "PUT", content, admin.basic(worker.access_key, worker.secret_key), b"x")
        if status < 400:
            let_in.append(f"admin PUT {key!r}: {status} {said}")
    deleted = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for _, key in read_only if key.isprintable()]})
    assert not let_in, "\n".join(let_in)
    assert not deleted.get("Deleted") and {error["Code"] for error in deleted["Errors"]} == {"AccessDenied"}
    assert keys_of(worker) == before


MODES = """
[[policy]]
path = "/"
writeMode = "TRANSIENT"

[[policy]]
path = "/bucket/direct/"
writeMode = "NO_CACHE"

[[policy]]
path = "/bucket/back/"
writeMode = "WRITE_BACK"
"""
# Of a word with a rule and of another one.
SPELLINGS = [
    "{0}/{1}", "{0}%2F{1}", "{0}%2f{1}", "{0}%252F{1}", "{0}%25252F{1}", "{0}//{1}", "{0}%2F%2F{1}", "/{0}/{1}", "//{0}/{1}", "%2F{0}/{1}",
    "./{0}/{1}", "../{0}/{1}", "{0}/./{1}", "{0}/../{1}/x", "{0}/%2e%2e/{1}/x", "{0}/%2E%2E%2F{1}%2Fx", "{0}%2F..%2F{1}/x", "{0}/..%252F{1}/x",
    "{0}/x/../{1}", "{0}/x/../../{1}/x", "{1}/../{0}/x", "x/../{0}/y", "{0}/", "{0}%2F", "{0}//", "{0}/.", "{0}/..", "{0}%2F%2E%2E", "{0}", "{0}x/y",
    "{0}%20/x", "%20{0}/x", "{0}%5C{1}", "{0}%5Cx/y", "{0};a=b/{1}", "{0}%3Fx/y", "{0}%23/x", "{0}%2B/x", "{0}+/x", "{0}%0A/x", "{0}%7F/x",
    "{0}%E2%88%95x", "{0}%EF%BC%8Fx", "{0}./x", "{0}%2E/x", "~{0}/x", "x/{0}/y", "{0}%2Fx%2F", "{0}/x%2F", "{0}/x/",
]  # fmt: skip


def misspelled(word):
    """The word in letters that look or sort like its own, and as it may be encoded."""
    yield from (word, word.upper(), word.capitalize(), word[:-1] + word[-1].upper(), f"%{ord(word[0]):02X}{word[1:]}")
    yield from ("".join(f"%{ord(letter):02x}" for letter in word), f"%25{ord(word[0]):02X}{word[1:]}", word[0] + "%CC%81" + word[1:])


def mode_of(key):
    """What the rules say of the key byte by byte."""
    return "NO_CACHE" if key.startswith("direct/") else "WRITE_BACK" if key.startswith("back/") else "TRANSIENT"


def stored_as(detail):
    """The write mode by which an object was stored, once everything is persisted that will be."""
    if "remoteEtag" not in detail:
        return "TRANSIENT"
    return "WRITE_BACK" if detail["cachedBytes"] else "NO_CACHE"


def test_the_write_mode_is_that_of_the_key_however_it_is_spelled(tmp_path):
    """By what is stored where, and by what the admin API says: no spelling takes a write past the rule, or under that of another key."""
    server = Guarded(tmp_path / "worker", mode="TRANSIENT", config=MODES).start()
    boto(server).create_bucket(Bucket="bucket")
    root = admin.basic(server.access_key, server.secret_key)
    words = [(word, other) for rule, other in (("direct", "back"), ("back", "direct")) for word in misspelled(rule)]
    targets = dict.fromkeys(spelling.format(word, other) for word, other in words for spelling in SPELLINGS)
    keys, wrong = {}, []
    for target in targets:
        key = urllib.parse.unquote(target, errors="strict")
        keys.setdefault(key, []).append(target)
        answer = ask(server, "PUT", target, body=key.encode())
        if answer.status != 200:
            wrong.append(f"PUT {target}: {answer}")
    server.wait_until_drained()
    for key, spellings in keys.items():
        path = urllib.parse.quote(f"/bucket/{key}", safe="")
        detail = json.loads(admin.ask(server, "GET", f"/api/v1/objects/detail?path={path}", root)[1])
        rule = json.loads(admin.ask(server, "GET", f"/api/v1/policies/resolve?path={path}", root)[1])
        (said,) = (setting["value"] for setting in rule["settings"] if setting["setting"] == "writeMode")
        if (stored_as(detail), said) != (mode_of(key), mode_of(key)):
            wrong.append(f"{key!r} as {spellings}: stored as {stored_as(detail)}, rule {said}, not {mode_of(key)}")
    assert not wrong, "\n".join(wrong)
    assert keys_of(server) == set(keys)
    assert {mode_of(key) for key in keys} == {"NO_CACHE", "WRITE_BACK", "TRANSIENT"} and len(keys) < len(targets)
    assert server.stop() == 0


TRAVERSALS = [
    "../escape", "../../escape", "../../../../../../tmp/escape", "..%2f..%2fescape", "%2e%2e/%2e%2e/escape", "a/../../../escape", "./../escape",
    "....//....//escape", "..\\..\\escape", "..%5c..%5cescape", "%2e%2e%5cescape", "..;/escape", "/etc/escape", "//escape", "///", "/", "..", ".", "../",
    "a/..", "a/.", ".forebay/escape", ".forebay", ".forebay/meta/escape", "..%252f..%252fescape", "%", "%25", "%252E%252E/escape", "a%", "C:%5cescape",
    "~/escape", "$HOME/escape", "`escape`", "|escape", "-rf", "escape%00.txt", "lock", "development-credentials", "NUL", "a%0aescape", "%EF%BC%8Eescape",
    "x" * 300, "/".join("abcdefgh"), "%2F" * 40 + "escape", "a%2F..%2F..%2F..%2Fescape",
]  # fmt: skip


def everything_outside(server):
    """All files around what the worker may write, with what they hold."""
    own = (server.under / "bucket", server.data, server.access_log, server.audit_log, server.log)
    found = {}
    for path in sorted(server.directory.parent.rglob("*")):
        if not any(path == place or place in path.parents for place in own):
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found


def test_no_key_leaves_its_bucket_on_any_disk(worker):
    (worker.directory / "escape").write_text("kept")
    (worker.directory.parent / "victim").write_text("kept")
    before = everything_outside(worker)
    names_before = set(os.listdir("/tmp")) | set(os.listdir("/etc"))
    own = {path.name for path in worker.data.iterdir()}
    s3 = boto(worker)
    for target in TRAVERSALS:
        for method, query, headers, body in (
            ("PUT", "", {}, b"here"),
            ("GET", "", {}, b""),
            ("PUT", "", {"x-amz-copy-source": "/bucket/source"}, b""),
            ("PUT", "", {"x-amz-copy-source": f"/bucket/{target}"}, b""),
            ("POST", "?uploads=", {}, b""),
            ("DELETE", "", {}, b""),
            ("PUT", "", {}, b"here"),
        ):
            answer = ask(worker, method, target, query, headers, body)
            assert answer.status in (501, *range(200, 500)) and b"kept" not in answer.body, (method, target, answer)
        for bucket in (f"/{target}", f"/{target.split('/')[0]}", f"/{urllib.parse.quote(target, safe='')}/key"):
            for method in ("PUT", "GET", "DELETE"):
                answer = send(worker, method, bucket, sign(worker, method, bucket, {}, b""))
                assert answer.status in (501, *range(200, 500)) and b"kept" not in answer.body, (method, bucket, answer)
    s3.list_objects_v2(Bucket="bucket", Prefix="../../")
    after = {path: content for path, content in everything_outside(worker).items() if path.parent != worker.under}
    assert after == {path: content for path, content in before.items() if path.parent != worker.under}
    # Buckets are names of hosts, and nothing else has come beside them.
    assert all(path.is_dir() and path.name.replace("-", "").isalnum() for path in worker.under.iterdir())
    new = (set(os.listdir("/tmp")) | set(os.listdir("/etc"))) - names_before
    assert not any("escape" in name for name in new), new
    # In the data directory there are files of the store alone, whose names are numbers.
    assert {path.name.rstrip("0123456789abcdef-") for path in worker.data.iterdir()} <= {name.rstrip("0123456789abcdef-") for name in own}


def test_links_in_the_under_store_lead_nowhere(worker):
    """Who may write to the directory behind could lay one; who asks through the worker must not get beyond."""
    outside = worker.directory / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    (worker.under / "bucket" / "link").symlink_to(outside)
    (worker.under / "bucket" / "file-link").symlink_to(outside / "secret")
    s3 = boto(worker)
    for target in ("link/secret", "link/new", "file-link", "link"):
        path = f"/bucket/{target}"
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            answer = send(worker, method, path, sign(worker, method, path, {}, b"x" if method == "PUT" else b""), b"x" if method == "PUT" else b"")
            assert b"kept" not in answer.body, (method, path, answer)
            assert method not in ("GET", "HEAD") or answer.status >= 400 or answer.body == b"x", (method, path, answer)
    assert [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_text() == "kept"
    assert not any(found["Key"].startswith("link/") for found in s3.list_objects_v2(Bucket="bucket").get("Contents", []))
