"""Fixtures: a worker, the load generator, and a bucket of its own for each test."""

import pytest
from harness.bench import Bench
from harness.clients import boto
from harness.servers import Forebay


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """WRITE_BACK, in front of a directory."""
    started = Forebay(tmp_path_factory.mktemp("bench"), mode="WRITE_BACK").start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]


@pytest.fixture
def bench(worker, tmp_path):
    return Bench(worker, tmp_path)


@pytest.fixture
def contents(worker):
    """Gives what a bucket holds: sizes by key."""
    s3 = boto(worker)

    def contents(bucket):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {found["Key"]: found["Size"] for page in pages for found in page.get("Contents", [])}

    return contents
