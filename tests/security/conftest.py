"""Fixtures: a worker with users of every kind, and both logs."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
# What reads the logs back stands beside the tests of the logs.
sys.path[:0] = [str(HERE), str(HERE.parent / "logs")]

from guarded import Guarded  # noqa: E402
from harness.servers import S3Server  # noqa: E402


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """In front of a directory, which has everything that was written at once."""
    started = Guarded(tmp_path_factory.mktemp("guarded")).start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def in_front_of_s3(tmp_path_factory):
    """NO_CACHE in front of an S3 server: whatever it lets through is seen there."""
    behind = S3Server(tmp_path_factory.mktemp("behind")).start()
    started = Guarded(tmp_path_factory.mktemp("in-front"), mode="NO_CACHE", behind=behind).start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]
    behind.kill()
