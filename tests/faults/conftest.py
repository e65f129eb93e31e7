"""Servers under faults: short times, so that recovery is a matter of seconds, and small segments, so that faults hit their changes."""

import itertools
import signal

import pytest

from harness.clients import boto
from harness.faults import Clock, Ext4, Tmpfs
from harness.relay import Relay
from harness.servers import Forebay

BUCKET_NUMBERS = itertools.count(1)
CONFIG = """
[store]
size = "{size}"
segment_size = "2 MiB"
snapshot_log_size = "1 MiB"
[cache]
memory_size = "{memory}"
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "1 s"
drain_timeout = "10 s"
[under_store_limits]
circuit_pause_max = "1 s"
[under_store_s3]
request_timeout = "{patience}"
{more}
"""


@pytest.fixture
def start(tmp_path):
    """Starts Forebays with a bucket of their own; what still runs at the end of the test is killed."""
    started = []

    def start(data=None, under=None, size="256 MiB", memory="0 B", patience="5 s", more="", **options):
        config = CONFIG.format(size=size, memory=memory, patience=patience, more=more)
        server = Forebay(tmp_path / f"forebay-{len(started)}", config=config, **options)
        server.data, server.under = data or server.data, under or server.under
        started.append(server.start())
        server.bucket = f"faults-{next(BUCKET_NUMBERS)}"
        boto(server).create_bucket(Bucket=server.bucket)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            # A stopped process would not end.
            server.process.send_signal(signal.SIGCONT)
            server.kill()


@pytest.fixture
def mounts(tmp_path):
    """Makes file systems that are gone after the test."""
    made = []

    def mount(kind, mib, below=None):
        at = tmp_path / f"mounted-{len(made)}"
        if kind is Ext4:
            image = (below or tmp_path) / f"image-{len(made)}"
            made.append(Ext4(image, at, mib))
        else:
            made.append(Tmpfs(at, mib))
        return made[-1].mount()

    yield mount
    for one in reversed(made):
        one.detach()


@pytest.fixture
def relay(s3_server):
    made = Relay(s3_server)
    yield made
    made.close()


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)
