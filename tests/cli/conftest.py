"""Fixtures: a worker, and the command line that talks to it."""

import json
import os
import subprocess

import pytest

from harness.clients import boto
from harness.servers import Forebay

# Far above what any command of these tests needs.
SECONDS = 60


class CommandLine:
    """Runs `forebay` as a user of one server would, with nothing of the surroundings but what is given."""

    def __init__(self, server):
        self.server = server

    def environment(self, **more):
        keys = {"FOREBAY_ACCESS_KEY": self.server.access_key, "FOREBAY_SECRET_KEY": self.server.secret_key}
        endpoint = {"FOREBAY_ADMIN_ENDPOINT": self.server.admin}
        return {"PATH": os.environ["PATH"], "TMPDIR": str(self.server.directory)} | endpoint | keys | more

    def run(self, *words, **more):
        command = [str(Forebay.binary), *(str(word) for word in words)]
        return subprocess.run(
            command, env=self.environment(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )

    def text(self, *words, **more):
        """Standard output of a command that goes well."""
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def json(self, *words, **more):
        """The one document of a command that goes well."""
        return json.loads(self.text(*words, "--output", "json", **more))

    def refused(self, *words, code=2, **more):
        """The one line of a command that goes wrong."""
        done = self.run(*words, **more)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("forebay: "), (words, done.stderr)
        assert done.stdout == "", (words, done.stdout)
        return lines[0]


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
