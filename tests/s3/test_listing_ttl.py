"""Listings from pages that are kept, with requests counted in front of a real S3 server."""

import time

import pytest

from harness.clients import boto
from harness.servers import Forebay, S3Server, eventually

POLICIES = """
[[policy]]
path = "/kept/"
listTtl = "1 h"

[[policy]]
path = "/brief/"
listTtl = "1 s"

[[policy]]
path = "/asked/"
listTtl = "0 s"
"""


@pytest.fixture(params=["WRITE_BACK", "WRITE_THROUGH"])
def pair(request, tmp_path):
    behind = S3Server(tmp_path / "s3").start()
    forebay = Forebay(tmp_path / "forebay", mode=request.param, behind=behind, config=POLICIES).start()
    yield behind, forebay
    for server in (forebay, behind):
        if server.process.poll() is None:
            server.kill()


def sent(forebay, kind):
    """Requests of a class that were sent to the under store."""
    return forebay.metrics().get(f'forebay_under_store_requests_total{{class="{kind}"}}', 0)


def lists(forebay):
    return sent(forebay, "list")


def names(s3, bucket, **more):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **more)
    found = [page for page in pages]
    objects = [item["Key"] for page in found for item in page.get("Contents", [])]
    return sorted(objects + [item["Prefix"] for page in found for item in page.get("CommonPrefixes", [])])


def no_cache(forebay):
    """A client that says that it wants no answer of before."""
    s3 = boto(forebay)
    s3.meta.events.register("before-sign.s3", lambda request, **_: request.headers.add_header("Cache-Control", "no-cache"))
    return s3


def test_listings_of_others_changes_wait_for_the_ttl_and_no_longer(pair):
    behind, forebay = pair
    s3, direct = boto(forebay), boto(behind)
    buckets = ("kept", "brief", "asked")
    # First: a bucket that is made drops the pages of all.
    for bucket in buckets:
        s3.create_bucket(Bucket=bucket)
    for bucket in buckets:
        direct.put_object(Bucket=bucket, Key="first", Body=b"out")
        assert names(s3, bucket) == ["first"]
        direct.put_object(Bucket=bucket, Key="second", Body=b"out")
    assert names(s3, "asked") == ["first", "second"]
    eventually("the TTL is over", lambda: names(s3, "brief") == ["first", "second"])
    assert names(s3, "kept") == ["first"]
    assert names(no_cache(forebay), "kept") == ["first", "second"]
    assert names(s3, "kept") == ["first", "second"], "the newer page is kept"


def test_a_repeated_listing_asks_the_under_store_once_whatever_is_written_here(pair):
    _, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="kept")
    keys = [f"table/part={part}/{file}" for part in range(3) for file in range(4)]
    for key in keys:
        s3.put_object(Bucket="kept", Key=key, Body=b"x")
    forebay.wait_until_drained()

    def partition(part):
        return names(s3, "kept", Prefix=f"table/part={part}/", Delimiter="/")

    def all_of_it():
        assert names(s3, "kept", Prefix="table/", Delimiter="/") == [f"table/part={part}/" for part in range(3)]
        return [partition(part) for part in range(3)]

    before = all_of_it()
    so_far = lists(forebay)
    assert sum(before, []) == keys
    for _ in range(5):
        assert all_of_it() == before
    s3.put_object(Bucket="kept", Key="table/part=1/new", Body=b"x")
    s3.delete_object(Bucket="kept", Key="table/part=2/0")
    assert partition(1) == [*before[1], "table/part=1/new"]
    assert partition(2) == before[2][1:]
    forebay.wait_until_drained()
    assert partition(1) == [*before[1], "table/part=1/new"]
    assert partition(2) == before[2][1:]
    # A page is asked for again while an upload of one of its keys ends.
    asked, metrics = lists(forebay) - so_far, forebay.metrics()
    assert asked <= 2
    assert metrics['forebay_requests_avoided_total{operation="list"}'] == 24 - asked
    assert metrics['forebay_list_pages_total{source="cache"}'] == 24 - asked
    assert metrics["forebay_list_cache_bytes"] > 0


def test_pages_with_thousands_of_names_are_kept(pair):
    behind, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="kept")
    for number in range(2100):
        (behind.objects / "kept" / f"{number:05}").write_bytes(b"x")
    before = names(s3, "kept")
    assert len(before) == 2100
    so_far = lists(forebay)
    assert names(s3, "kept") == before
    assert lists(forebay) == so_far
    s3.delete_object(Bucket="kept", Key="01500")
    forebay.wait_until_drained()
    assert names(s3, "kept") == [name for name in before if name != "01500"]
    assert lists(forebay) <= so_far + 1


def has(s3, key):
    try:
        return s3.head_object(Bucket="kept", Key=key)["ContentLength"] > 0
    except s3.exceptions.ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 404, error
        return False


def test_what_the_under_store_does_not_have_is_not_asked_for_again(pair):
    behind, forebay = pair
    s3, direct = boto(forebay), boto(behind)
    s3.create_bucket(Bucket="kept")
    assert not has(s3, "own") and not has(s3, "other")
    before = sent(forebay, "read")
    for _ in range(5):
        assert not has(s3, "own")
        with pytest.raises(s3.exceptions.NoSuchKey):
            s3.get_object(Bucket="kept", Key="own")
    assert sent(forebay, "read") == before
    s3.put_object(Bucket="kept", Key="own", Body=b"x")
    assert has(s3, "own")
    forebay.wait_until_drained()
    assert has(s3, "own")
    direct.put_object(Bucket="kept", Key="other", Body=b"x")
    assert not has(s3, "other")
    assert has(no_cache(forebay), "other")
    assert has(s3, "other")


@pytest.mark.parametrize("pair", ["WRITE_BACK"], indirect=True)
def test_the_time_of_an_object_moves_once_when_the_under_store_has_it(pair):
    behind, forebay = pair
    s3 = boto(forebay)
    s3.create_bucket(Bucket="asked")
    s3.list_objects_v2(Bucket="asked")
    behind.kill()
    s3.put_object(Bucket="asked", Key="key", Body=b"value")
    written = s3.head_object(Bucket="asked", Key="key")["LastModified"]
    eventually("another second", lambda: time.time() >= written.timestamp() + 2)
    behind.start()
    forebay.wait_until_drained()
    arrived = boto(behind).head_object(Bucket="asked", Key="key")["LastModified"]
    assert arrived > written

    def listed():
        return s3.list_objects_v2(Bucket="asked")["Contents"][0]["LastModified"].replace(microsecond=0)

    eventually("the time of the under store", lambda: listed() == arrived)
    assert s3.head_object(Bucket="asked", Key="key")["LastModified"] == written
    assert s3.get_object(Bucket="asked", Key="key")["LastModified"] == written
