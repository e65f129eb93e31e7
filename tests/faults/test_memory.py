"""Memory: how much slow clients may hold, which requests the server refuses before it runs out, and a kill by the kernel when it has run out."""

import os
import pathlib
import select
import signal

import pytest

from harness.clients import boto
from harness.crowd import allow_descriptors
from harness.faults import memory_peak
from harness.ledger import OK, Ledger, Load
from harness.raw import SECONDS
from harness.servers import eventually
from harness.slow import Slow

# One access key gets 15 of 16 of them: see docs/configuration-reference.md.
CONNECTIONS = 64
SHARE = 60
LIMITS = f"[server]\nconnections_max = {CONNECTIONS}\nconnections_per_address_max = {CONNECTIONS}\n"
SMALL, LARGE = 1 << 20, 8 << 20
# `store.write_buffer`, and what a connection holds of a request, the piece that it works on included: see crates/s3/src/server.rs.
WRITE_BUFFER_BYTES, CONNECTION_BYTES = 64 << 20, 2 * (64 << 10)
UPLOADS = 200
# With what the kernel holds for the process; the memory tier alone may be larger.
GROUP_BYTES = 160 << 20


class Group:
    """A control group with a limit on its memory, by the files of either version of control groups."""

    def __init__(self, name, limit):
        first = pathlib.Path("/sys/fs/cgroup/memory")
        self.at = (first if first.is_dir() else first.parent) / name
        limits, self.events = ("memory.limit_in_bytes", "memory.oom_control") if first.is_dir() else ("memory.max", "memory.events")
        try:
            self.at.mkdir()
            (self.at / limits).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"limits of memory for a group of processes can't be set here: {error}")

    def command(self):
        """Puts itself into the group, then runs the words behind it."""
        return ["sh", "-c", f'echo $$ > {self.at}/cgroup.procs && exec "$@"', "sh"]

    def kills(self):
        return int((self.at / self.events).read_text().split("oom_kill ")[1].split()[0])

    def remove(self):
        eventually("its processes have gone", lambda: not (self.at / "cgroup.procs").read_text())
        self.at.rmdir()


@pytest.fixture
def group(tmp_path):
    made = []

    def make(limit):
        made.append(Group(f"{tmp_path.name}-{os.getpid()}", limit))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def connections(server):
    return server.metrics()["forebay_connections"]


def refusals(server):
    return server.metrics()["forebay_requests_over_share_total"]


def test_slow_bodies_beyond_a_share_are_refused_and_those_under_way_are_finished(start):
    server = start(mode="TRANSIENT", more=LIMITS)
    large = os.urandom(LARGE)
    boto(server).put_object(Bucket=server.bucket, Key="large", Body=large)
    half = SHARE // 2 - 1
    bodies = {f"put{number}": os.urandom(SMALL) for number in range(half)}
    writers = {key: Slow(server, "PUT", key, body, SMALL // 2) for key, body in bodies.items()}
    readers = [Slow(server, "GET", "large") for _ in range(half)]
    eventually("all are in flight", lambda: connections(server) >= 2 * half)
    assert refusals(server) == 0
    more = []
    while not refusals(server):
        assert len(more) < CONNECTIONS
        seen = connections(server)
        more.append(Slow(server, "PUT", f"more{len(more)}", os.urandom(SMALL)))
        eventually("it is refused or in flight", lambda: refusals(server) or connections(server) > seen)
    # No body was asked for: the refusal comes before it.
    answered, _, _ = select.select([one.connection for one in more], [], [], SECONDS)
    told = [one for one in more if one.connection in answered]
    for one in told:
        status, said = one.answer()
        assert status == 503 and b"<Code>SlowDown</Code>" in said, said
        assert "\r\nretry-after: " in one.head and "\r\nconnection: close" in one.head, one.head
    assert len(told) == refusals(server)
    taken = writers | {f"more{number}": one for number, one in enumerate(more) if one not in told}
    for one in taken.values():
        assert one.finish()[0] == 200
    for reader in readers:
        assert reader.answer() == (200, large)
    ledger = Ledger(server)
    for number in range(SHARE):
        assert ledger.put(f"ledger/{number}", 3_000) == OK
    ledger.check_keys()
    for key, one in taken.items():
        assert boto(server).get_object(Bucket=server.bucket, Key=key)["Body"].read() == one.body


@pytest.mark.parametrize("sent", [0, SMALL - 1])
def test_no_more_is_held_of_slow_bodies_than_has_come(start, sent):
    allow_descriptors(1_000)
    server = start(mode="TRANSIENT", size="2 GiB")
    before = memory_peak(server.process)
    body = os.urandom(SMALL)
    uploads = [Slow(server, "PUT", f"slow{number}", body, sent) for number in range(UPLOADS)]
    eventually("all are in flight", lambda: connections(server) >= UPLOADS)
    received = lambda: server.metrics()['forebay_request_bytes_total{direction="in"}']  # noqa: E731
    eventually("all is here that was sent", lambda: received() >= UPLOADS * sent)
    grown = memory_peak(server.process) - before
    print(f"{grown >> 20} MiB for {UPLOADS} bodies of which {sent} bytes came")
    for upload in uploads:
        assert upload.finish()[0] == 200
    assert grown < WRITE_BUFFER_BYTES + UPLOADS * (sent + CONNECTION_BYTES)


def test_a_kernel_that_kills_for_want_of_memory_costs_nothing_that_was_acknowledged(group, start, relay):
    few = group(GROUP_BYTES)
    server = start(mode="WRITE_BACK", behind=relay, memory="1 GiB", size="4 GiB", before=few.command())
    relay.set(gone=True)
    load = Load(server, sizes=(3_000, 300_000, 900_000), keys=300)
    with load.running():
        eventually("the end of the process", lambda: server.process.poll() is not None, 120)
    assert server.process.returncode == -signal.SIGKILL and few.kills() > 0
    server.before = []
    server.start()
    load.check_what_was_left(server, relay)
