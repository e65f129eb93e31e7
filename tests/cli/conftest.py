"""Fixtures: a worker, and the command line that talks to it."""

import pytest
from harness.command_line import CommandLine
from harness.clients import boto
from harness.servers import Forebay
from terminal import Screen


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """WRITE_BACK, in front of a directory."""
    started = Forebay(tmp_path_factory.mktemp("cli"), mode="WRITE_BACK").start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def cli(worker):
    return CommandLine(worker)


@pytest.fixture(scope="module")
def objects(worker):
    """The client, after a bucket `shelf` with objects at two levels."""
    s3 = boto(worker)
    s3.create_bucket(Bucket="shelf")
    for key, size in {"top": 1, "a/one": 3000, "a/two": 0, "b/three": 2 << 20}.items():
        s3.put_object(Bucket="shelf", Key=key, Body=b"x" * size, Metadata={"of": key}, ContentType="text/x-shelf")
    worker.wait_until_drained()
    return s3


@pytest.fixture
def screen(cli, objects):
    """Opens terminals with a command on each."""
    opened = []

    def open_screen(*words, **more):
        opened.append(Screen([str(cli.server.binary), *words], cli.environment(**more)))
        return opened[-1]

    yield open_screen
    for one in opened:
        one.close()
