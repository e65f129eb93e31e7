"""What the under store refuses: Forebay reports it, offers a way out, and refuses more of its kind before it acknowledges it."""

import contextlib
import urllib.parse

import pytest
from harness.command_line import CommandLine
from harness.clients import boto, refused
from harness.servers import Forebay, eventually
from harness.stand_in import StandIn, answers, error, page

CONFIG = """
[cache]
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "500 ms"
[under_store_limits]
circuit_pause_max = "1 s"
"""


def is_odd(name):
    """What MinIO has no object under."""
    parts = name.split("/")
    return any(part in (".", "..") for part in parts) or "" in parts[1:-1]


def as_minio(exchange, rule):
    """It refuses such names of objects, and listings that begin with one or behind one that has dots."""
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(exchange.path).query))
    dots = {".", ".."}
    if is_odd(exchange.key) or is_odd(query.get("prefix", "")) or dots & set(query.get("start-after", "").split("/")):
        exchange.read()
        return error(400, "XMinioInvalidObjectName", "Object name contains unsupported characters.")
    return exchange.forward()


class Picky(CommandLine):
    """The command line of a worker before a server that is as picky as MinIO."""

    def __init__(self, server, front):
        super().__init__(server)
        self.front, self.bucket, self.s3, self.there = front, server.bucket, boto(server), boto(front.behind)

    def put(self, key, body=b"value"):
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    @contextlib.contextmanager
    def holding(self):
        """Nothing arrives meanwhile, and nothing is refused for good."""
        hold = self.front.on("put", answers(error(503, "SlowDown")), times=None)
        with self.front.lock:
            self.front.rules.insert(0, self.front.rules.pop())
        yield
        hold.release()

    def put_all(self, keys):
        with self.holding():
            for key in keys:
                self.put(key, key.encode())

    def keys_there(self, prefix):
        listed = self.there.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [found["Key"] for found in listed.get("Contents", [])]

    def path(self, key):
        return f"s3://{self.bucket}/{key}"

    def undeliverable(self, prefix=""):
        return self.json("undeliverable", "list", self.path(prefix))

    def wait_for(self, prefix, count=1):
        return eventually("it is undeliverable", lambda: len(found := self.undeliverable(prefix)) == count and found)


@pytest.fixture
def picky(s3_server, tmp_path):
    front = StandIn(s3_server)
    front.rule = front.on("any", as_minio, times=None)
    server = Forebay(tmp_path, "WRITE_BACK", front, CONFIG).start()
    server.bucket = tmp_path.name.replace("_", "-")[:60].strip("-")
    boto(server).create_bucket(Bucket=server.bucket)
    yield Picky(server, front)
    assert server.stop() == 0
    front.close()


def test_what_is_refused_is_listed_with_the_reason_and_can_be_renamed_kept_or_discarded(picky):
    keys = ["d//1", "d//2", "d//3"]
    picky.put_all(keys)
    found = picky.wait_for("d/", 3)
    assert [one["path"] for one in found] == [f"/{picky.bucket}/{key}" for key in keys]
    assert all(one["change"] == "write" and one["size"] == 4 and one["tries"] >= 3 for one in found)
    shown = picky.text("undeliverable", "list")
    assert shown.count("XMinioInvalidObjectName") == 3, shown
    eventually("a notice", lambda: "undeliverable" in [notice["id"] for notice in picky.json("status")["notices"]])
    assert picky.server.metrics()["forebay_undeliverable_objects"] == 3
    assert picky.text("undeliverable", "rename", picky.path("d//1"), picky.path("d/1")).startswith("rename: ")
    picky.text("undeliverable", "keep", picky.path("d//2"))
    picky.text("undeliverable", "discard", picky.path("d//3"))
    assert picky.undeliverable() == [] and picky.text("undeliverable", "list").strip() == "nothing is undeliverable"
    picky.server.wait_until_drained()
    listed = picky.s3.list_objects_v2(Bucket=picky.bucket, Prefix="d/")
    assert [one["Key"] for one in listed["Contents"]] == ["d//2", "d/1"]
    for key, body in {"d/1": b"d//1", "d//2": b"d//2"}.items():
        assert picky.s3.get_object(Bucket=picky.bucket, Key=key)["Body"].read() == body
    assert picky.json("stat", picky.path("d//2"))["state"] == "transient"
    assert picky.keys_there("d/") == ["d/1"]
    assert picky.server.metrics()["forebay_undeliverable_objects"] == 0


def test_what_is_like_it_is_refused_before_it_is_acknowledged(picky):
    picky.put("a//b")
    picky.wait_for("a/")
    said = refused("InvalidArgument", picky.put, "c//d")
    assert "storage behind this cache refuses the key" in said["Error"]["Message"]
    refused("404", picky.s3.head_object, Bucket=picky.bucket, Key="c//d")
    refused("NoSuchKey", picky.s3.get_object, Bucket=picky.bucket, Key="c//d")
    picky.put("c/d")
    # What it takes by now is written, and believed to be possible from then on.
    picky.front.rule.release()
    picky.put("c//d")
    picky.server.wait_until_drained()
    assert picky.undeliverable() == []


def test_a_delete_of_what_was_refused_ends_it(picky):
    picky.put("a//b")
    picky.wait_for("a/")
    picky.s3.delete_object(Bucket=picky.bucket, Key="a//b")
    picky.server.wait_until_drained()
    assert "Contents" not in picky.s3.list_objects_v2(Bucket=picky.bucket)


def test_listings_go_through_names_that_the_under_store_refuses(picky):
    for key in ["a/-", "a/.hidden", "a/zz", "b/x", "x/z"]:
        picky.put(key)
    picky.server.wait_until_drained()
    picky.put_all(["b//y", "x//y", "x//z"])
    every = ["a/-", "a/.hidden", "a/zz", "b//y", "b/x", "x//y", "x//z", "x/z"]

    def listed(**request):
        pages = picky.s3.get_paginator("list_objects_v2").paginate(Bucket=picky.bucket, **request)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    for size in (1, 3, 1000):
        assert listed(MaxKeys=size) == every
        for prefix in ["x//", "x/", "b//", "a/.", "a/./", "..", "a/"]:
            assert listed(MaxKeys=size, Prefix=prefix) == [key for key in every if key.startswith(prefix)], prefix
        for after in ["a/./b", "a/.", "a/../c", "a/..", "x//y", "./x", "x//"]:
            assert listed(MaxKeys=size, StartAfter=after) == [key for key in every if key > after], after
            below = [key for key in every if key > after and key.startswith("a/")]
            assert listed(MaxKeys=size, StartAfter=after, Prefix="a/") == below, after
    groups = picky.s3.list_objects_v2(Bucket=picky.bucket, Prefix="x/", Delimiter="/", StartAfter="x/./a")
    assert [one["Key"] for one in groups["Contents"]] == ["x/z"]
    assert [one["Prefix"] for one in groups["CommonPrefixes"]] == ["x//"]


def test_an_object_below_an_object_waits_until_a_server_of_files_can_take_it(picky):
    picky.put("obj")
    picky.server.wait_until_drained()
    picky.put("obj/below")
    (found,) = picky.wait_for("obj")
    assert "ObjectParentIsFile" in found["reason"]
    picky.s3.delete_object(Bucket=picky.bucket, Key="obj")
    picky.server.wait_until_drained()
    assert picky.keys_there("obj") == ["obj/below"] and picky.undeliverable() == []


def test_all_below_a_prefix_are_discarded_at_once_and_nothing_else(picky):
    picky.put_all([*(f"d//{number}" for number in range(5)), "e//1"])
    picky.wait_for("", 6)
    assert len(picky.text("undeliverable", "discard", "--recursive", picky.path("d/")).splitlines()) == 5
    assert [one["path"] for one in picky.undeliverable()] == [f"/{picky.bucket}/e//1"]
    assert "not everything" in picky.refused("undeliverable", "discard", "--recursive", "/")
    picky.text("undeliverable", "discard", "--recursive", picky.path(""))
    picky.server.wait_until_drained()


def test_what_is_not_undeliverable_is_left_alone_with_a_word(picky):
    picky.put("well")
    for action in ("keep", "discard"):
        assert "is not undeliverable" in picky.refused("undeliverable", action, picky.path("well"), code=1)
        assert "names no object" in picky.refused("undeliverable", action, f"s3://{picky.bucket}")
    assert "nothing below" in picky.refused("undeliverable", "discard", "-r", picky.path("none"), code=1)
    assert "write s3://bucket/key" in picky.refused("undeliverable", "list", "well")
    assert "is not undeliverable" in picky.refused("undeliverable", "rename", picky.path("well"), picky.path("new"), code=1)


@pytest.mark.parametrize("status", [400, 404, 421])
def test_what_a_gateway_says_of_everything_is_not_said_of_objects(picky, status):
    picky.front.rule.release()
    rule = picky.front.on("any", answers(page(status)), times=None)
    # It may have been carried out, so the object is looked for before it is sent again.
    tries = [picky.front.on(operation, answers(page(status)), "a//b", times=None) for operation in ("put", "head")]
    with picky.front.lock:
        picky.front.rules[:0] = [picky.front.rules.pop() for _ in tries]
    picky.put("a//b")
    # More often than it would take.
    eventually("tries", lambda: sum(each.seen for each in tries) >= 5)
    assert picky.undeliverable() == []
    refused("ServiceUnavailable|SlowDown", picky.s3.get_object, Bucket=picky.bucket, Key="other")
    # Nothing has been learned of it.
    picky.put("c//d")
    for each in [rule, *tries]:
        each.release()
    picky.server.wait_until_drained()
    assert len(picky.keys_there("")) == 2
