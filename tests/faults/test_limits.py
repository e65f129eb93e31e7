"""Too few descriptors, too little memory: service gets slower or says no, and comes back by itself."""

import http.client
import socket
import threading

from harness.clients import boto, sign
from harness.faults import memory_peak, processor_seconds
from harness.ledger import OK, UNKNOWN, Ledger
from harness.servers import eventually

REFUSALS_SEEN = 8
# The pause of the accept loop after a failure, in seconds: as in crates/s3/src/service.rs.
ACCEPT_PAUSE = 0.1
MEMORY_BYTES = 256 << 20
LARGE = 24 << 20


def complaints(server):
    return server.log.read_text().count("connection not accepted")


def test_without_descriptors_what_is_served_finishes_and_the_server_does_not_spin(start):
    server = start(mode="WRITE_BACK", before=["prlimit", "--nofile=64:64"])
    ledger = Ledger(server)
    assert ledger.put("ledger/before", 10_000) == OK
    # A request that is under way: its head and half of its body.
    body = bytes(200_000)
    target = f"/{server.bucket}/slow"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("PUT", target, skip_host=True, skip_accept_encoding=True)
    host = f"127.0.0.1:{server.port}"
    headers = sign(server, "PUT", target, {"Content-Length": str(len(body))}, body, host=host)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(body[:100_000])
    eventually("the request is under way", lambda: server.metrics()["forebay_connections"] >= 1)

    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    eventually("no descriptor is left", lambda: complaints(server) > 0)
    first, busy = complaints(server), processor_seconds(server.process)
    eventually("more refusals", lambda: complaints(server) >= first + REFUSALS_SEEN)
    busy = processor_seconds(server.process) - busy
    # One try for each pause; spinning would take all of a processor.
    assert busy < REFUSALS_SEEN * ACCEPT_PAUSE, f"{busy} s of processor time for {REFUSALS_SEEN} refusals"
    connection.send(body[100_000:])
    assert connection.getresponse().status == 200, "what was under way is finished"
    connection.close()
    for one in idle:
        one.close()
    assert ledger.put("ledger/after", 10_000) == OK
    ledger.check_all()
    assert boto(server).get_object(Bucket=server.bucket, Key="slow")["Body"].read() == body
    eventually("descriptors come back", lambda: server.metrics()["process_open_fds"] < 40)
    server.wait_until_drained()
    ledger.check_directory(server.under / server.bucket)


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
