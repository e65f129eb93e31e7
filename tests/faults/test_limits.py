"""Too few descriptors, too little memory: service gets slower or says no, and comes back by itself."""

import contextlib
import http.client
import resource
import socket
import threading

from harness.clients import boto, sign
from harness.faults import memory_peak, processor_seconds
from harness.ledger import OK, REFUSED, UNKNOWN, Ledger
from harness.servers import eventually

REFUSALS_SEEN = 8
# The pause of the accept loop after a failure, in seconds: as in crates/s3/src/service.rs.
ACCEPT_PAUSE = 0.1
# Objects that fill several segments of 2 MiB.
OBJECT, SEVERAL_SEGMENTS = 200_000, 40
MEMORY_BYTES = 256 << 20
LARGE = 24 << 20


def complaints(server):
    return server.log.read_text().count("connection not accepted")


class SlowPut:
    """A request in flight: its head and half of its body are sent."""

    def __init__(self, server, key):
        self.body = bytes(200_000)
        target = f"/{server.bucket}/{key}"
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.putrequest("PUT", target, skip_host=True, skip_accept_encoding=True)
        host = f"127.0.0.1:{server.port}"
        headers = sign(server, "PUT", target, {"Content-Length": str(len(self.body))}, self.body, host=host)
        for name, value in headers.items():
            self.connection.putheader(name, value)
        self.connection.endheaders()
        self.connection.send(self.body[:100_000])
        eventually("the request is in flight", lambda: server.metrics()["forebay_connections"] >= 1)

    def finish(self):
        self.connection.send(self.body[100_000:])
        assert self.connection.getresponse().status == 200, "a request in flight is finished"
        self.connection.close()


@contextlib.contextmanager
def idle_connections(server, count):
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    yield
    for connection in connections:
        connection.close()


def check_service(server, ledger):
    """All is as it was written, here and behind, and nothing has been given up."""
    assert ledger.put("ledger/after", 10_000) == OK
    # Then its circuit is closed again, and it can be listed.
    server.wait_until_drained()
    ledger.check_all()
    assert server.is_healthy()
    eventually("descriptors come back", lambda: server.metrics()["process_open_fds"] < 50)
    ledger.check_directory(server.under / server.bucket)


def test_few_descriptors_go_to_disks_and_uploads_before_connections(start):
    server = start(mode="WRITE_BACK", before=["prlimit", "--nofile=64:64"])
    ledger = Ledger(server)
    assert ledger.put("ledger/before", 10_000) == OK
    slow = SlowPut(server, "slow")
    with idle_connections(server, 100):
        for number in range(SEVERAL_SEGMENTS):
            assert ledger.put(f"ledger/{number}", OBJECT) == OK, "new segments and uploads find descriptors"
    slow.finish()
    assert complaints(server) == 0
    check_service(server, ledger)


def test_a_server_that_runs_out_of_descriptors_refuses_and_goes_on_when_there_are_some(start):
    server = start(mode="WRITE_BACK")
    ledger = Ledger(server)
    assert ledger.put("ledger/before", 10_000) == OK
    server.wait_until_drained()
    slow = SlowPut(server, "slow")
    before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    with idle_connections(server, 30):
        eventually("connections are taken", lambda: server.metrics()["forebay_connections"] >= 30)
        open_files = int(server.metrics()["process_open_fds"])
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_files - 10, before[1]))
        outcomes = [ledger.put(f"ledger/{number}", OBJECT) for number in range(SEVERAL_SEGMENTS)]
        assert REFUSED in outcomes, "there is no descriptor for another segment"
        assert ledger.read("ledger/before") is not None, "what needs no new descriptor still works"
    slow.finish()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
    assert boto(server).get_object(Bucket=server.bucket, Key="slow")["Body"].read() == slow.body
    check_service(server, ledger)


def test_the_server_does_not_spin_on_connections_that_it_has_no_descriptor_for(start):
    server = start(mode="WRITE_BACK")
    before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    with idle_connections(server, 10):
        eventually("no descriptor is left", lambda: complaints(server) > 0)
        first, busy = complaints(server), processor_seconds(server.process)
        eventually("more refusals", lambda: complaints(server) >= first + REFUSALS_SEEN)
        busy = processor_seconds(server.process) - busy
        # One try for each pause; spinning would take all of a processor.
        assert busy < REFUSALS_SEEN * ACCEPT_PAUSE, f"{busy} s of processor time for {REFUSALS_SEEN} refusals"
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
    check_service(server, Ledger(server))


def test_little_memory_is_enough_for_many_large_objects(start):
    """Sixteen bodies at once are half as much again as the process may have: they are streamed."""
    server = start(mode="WRITE_BACK", size="3 GiB", before=["prlimit", f"--data={MEMORY_BYTES}"])
    ledgers = [Ledger(server, f"writer-{number}", seed=number + 1) for number in range(16)]
    outcomes = []
    put = lambda ledger: outcomes.append(ledger.put(f"{ledger.name}/large", LARGE))  # noqa: E731
    threads = [threading.Thread(target=put, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.process.poll() is None, server.log.read_text()[-2000:]
    assert len(outcomes) == 16 and UNKNOWN not in outcomes, "200 or a refusal"
    assert memory_peak(server.process) < MEMORY_BYTES
    for ledger in ledgers:
        ledger.check_all()
    server.wait_until_drained(120)
    assert server.is_healthy()
