"""A tenant that behaves, beside others that hold on to what they get: what each of them takes is bounded by docs/threat-model.md."""

import contextlib
import os
import select
import socket
import threading
import time

import load
import peers
from harness import chunks, signing
from harness.clients import boto
from harness.ledger import outcome_of
from harness.raw import request
from harness.servers import eventually
from report import Section
from under_load import by_period

GREEDY = ("GREEDYKEY", "greedy-secret-of-a-tenant")
USERS = """
[[user]]
name = "greedy"
access_key = "{}"
secret_key = "{}"
grants = [{{ path = "/theirs/", allow = ["read", "write", "list"] }}]
"""
POLICIES = '[[policy]]\npath = "/theirs/through/"\nwriteMode = "WRITE_THROUGH"\n'
LARGE_BYTES = 8 << 20
# As many levels as a directory under store takes.
DEEP = "d/" * 127
DEEP_THROUGH = "d/" * 125
NAMES = 100_000
LOADS = {
    "PUT 10 KiB": ("put", "--obj.size", "10KiB", "--rate", 100, "--concurrent", 16, "--bucket", "ours", "--prefix", "put/"),
    "GET 10 KiB": ("get", "--obj.size", "10KiB", "--rate", 200, "--concurrent", 16, "--bucket", "ours", "--prepared", "--objects", 1_000),
    "LIST 1,000 keys": ("list", "--rate", 2, "--bucket", "ours", "--prepared", "--prefix", "put/"),
}
OPERATIONS = {"put": "PUT", "get": "GET", "list": "LIST"}


class Neighbours:
    """Connections that are kept open and hardly move, in one thread, and whatever works beside them. Who is thrown out comes back."""

    def __init__(self, server):
        self.server, self.ended, self.threads = server, threading.Event(), []

    def keep(self, count, head, move=b"", port=None, seconds=5):
        """Connections that send `head`, and every few seconds `move`, and read a little."""

        def run():
            with contextlib.ExitStack() as stack:
                open_ones = {}
                while not self.ended.is_set():
                    while len(open_ones) < count:
                        one = stack.enter_context(socket.socket())
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                        one.settimeout(5)
                        with contextlib.suppress(OSError):
                            one.connect(("127.0.0.1", port or self.server.port))
                            one.sendall(head)
                        open_ones[one.fileno()] = one
                    self.ended.wait(seconds)
                    readable, _, _ = select.select(list(open_ones.values()), [], [], 0)
                    for one in readable:
                        with contextlib.suppress(OSError):
                            if not one.recv(4096):
                                del open_ones[one.fileno()]
                                one.close()
                    for number, one in list(open_ones.items()):
                        try:
                            one.sendall(move)
                        except OSError:
                            del open_ones[number]
                            one.close()

        self._start(run)

    def repeat(self, work, seconds):
        """Work that is done again and again, and may be refused."""

        def run():
            # Elsewhere they have processors of their own: here they take none that the server or the tenant wants.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
            number = 0
            while not self.ended.wait(seconds):
                outcome_of(lambda number=number: work(number))
                number += 1

        self._start(run)

    def _start(self, run):
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def slow_readers(neighbours, server):
    """Of large objects, which are overwritten all the time."""
    theirs = boto(server, *GREEDY)
    theirs.put_object(Bucket="theirs", Key="read", Body=bytes(LARGE_BYTES))
    neighbours.keep(100, request("GET", "/theirs/read", signed(server, "GET", "/theirs/read")), seconds=2)
    neighbours.repeat(lambda _: theirs.put_object(Bucket="theirs", Key="read", Body=bytes(LARGE_BYTES)), 1)


def deep_keys(neighbours, server):
    theirs = boto(server, *GREEDY)
    neighbours.repeat(lambda number: theirs.put_object(Bucket="theirs", Key=f"{number}/{DEEP}key", Body=b"x"), 0.05)


def deep_keys_through(neighbours, server):
    """Eight at once, each of which waits until it is in the under store."""
    theirs = boto(server, *GREEDY)
    for writer in range(8):
        put = lambda number, writer=writer: theirs.put_object(Bucket="theirs", Key=f"through/{writer}-{number}/{DEEP_THROUGH}key", Body=b"x")
        neighbours.repeat(put, 0)


def long_listings(neighbours, server):
    """Listings of a directory that another tenant has filled and keeps changing."""
    theirs, directory = boto(server, *GREEDY), server.under / "theirs" / "many"
    directory.mkdir()
    for number in range(NAMES):
        (directory / f"{number:06}").touch()
    neighbours.repeat(lambda number: (directory / f"{number:06}").unlink(), 1)
    for reader in range(8):
        begin = lambda number, reader=reader: f"many/{(number * 7919 + reader * 10_007) % NAMES:06}"
        neighbours.repeat(lambda number, begin=begin: theirs.list_objects_v2(Bucket="theirs", Prefix="many/", StartAfter=begin(number)), 0)


def slow_chunks(neighbours, server):
    """With a signature, of which 15 MiB are there."""
    target, size = "/theirs/chunk", 16 << 20
    headers, _ = chunks.request(server, target, bytes(size), "signed", keys=GREEDY)
    begun = f"{size:x};chunk-signature={'0' * 64}\r\n".encode() + bytes(15 << 20)
    neighbours.keep(10, request("PUT", target, {"Host": f"127.0.0.1:{server.port}"} | headers, begun), b"x" * 6000)


def slow_documents(neighbours, server):
    """Of nobody and of a tenant, at the S3 port and at the admin port."""
    length = {"Content-Length": str(4 << 20)}
    nobody = {"Host": f"127.0.0.1:{server.port}"}
    neighbours.keep(200, request("POST", "/theirs?delete=&x-Signature=1", nobody | length, bytes(1 << 20)), b" " * 6000)
    tenant = signed(server, "POST", "/theirs?delete=")
    neighbours.keep(50, request("POST", "/theirs?delete=", tenant | length, bytes(1 << 20)), b" " * 6000)
    login = {"Host": "admin", "Content-Type": "application/json", "Content-Length": "60000"}
    neighbours.keep(300, request("POST", "/api/v1/session", login, b"{"), b" ", server.admin_port)


HOSTILE = {
    "100 slow readers of overwritten objects": slow_readers,
    "keys with 128 levels": deep_keys,
    "8 writers of keys with 128 levels, WRITE_THROUGH": deep_keys_through,
    "8 listings of 100,000 changing names": long_listings,
    "10 slow chunks of 16 MiB": slow_chunks,
    "550 slow documents": slow_documents,
}


def signed(server, method, target):
    """The headers of a request of the greedy tenant, whatever its body is."""
    plain = signing.Request(method, target, {}, b"")
    return {"Host": f"127.0.0.1:{server.port}"} | signing.in_header_with_payload("UNSIGNED-PAYLOAD", server, plain, *GREEDY).headers


def until_persisted(server, number):
    """Milliseconds from an acknowledgement to the under store."""
    ours, key = boto(server), f"persisted/{number}"
    ours.put_object(Bucket="ours", Key=key, Body=b"x")
    begin = time.perf_counter()
    eventually("it is persisted", lambda: (server.under / "ours" / key).exists(), 120)
    return {"p50": 1000 * (time.perf_counter() - begin)}


def hostile(setting, seconds=20):
    """The same tenant alone, and beside each of the others."""
    users = setting.directory / "hostile-users.toml"
    users.write_text(USERS.format(*GREEDY))
    rows = {}
    with setting.started(peers.Forebay, config=f'[server]\nusers_file = "{users}"\n{POLICIES}', size="2 GiB") as server:
        for bucket in ("ours", "theirs"):
            boto(server).create_bucket(Bucket=bucket)
        load.run(server, "get", "--obj.size", "10KiB", "--bucket", "ours", "--objects", 1_000, "--duration", "1s", "--noclear")
        load.run(server, "put", "--obj.size", "1B", "--bucket", "ours", "--prefix", "put/", "--duration", "2s", "--noclear")

        def measure(name):
            loads = {load_name: (*words, "--noclear", "--duration", f"{seconds}s") for load_name, words in LOADS.items()}
            measured = load.together(server, loads)
            for load_name, rounds in measured.items():
                rows[f"{load_name}, {name}"] = by_period(rounds, OPERATIONS[LOADS[load_name][0]])
            rows[f"until persisted, {name}"] = until_persisted(server, len(rows))
            with contextlib.suppress(OSError):
                assert server.is_ready(), name

        measure("alone")
        for name, begin in HOSTILE.items():
            neighbours = Neighbours(server)
            try:
                begin(neighbours, server)
                time.sleep(5)
                measure(name)
            finally:
                neighbours.end()
    section = Section("hostile", "A tenant next to hostile tenants, WRITE_BACK to a directory", ("p50", "p99", "max", "errors"), rows)
    for name in HOSTILE:
        for operation in LOADS:
            ratio = rows[f"{operation}, {name}"]["p99"] / rows[f"{operation}, alone"]["p99"]
            section.at_most(f"{operation}: p99 at most 3x next to {name}", ratio, 3)
        section.at_most(f"until persisted at most 1 s next to {name}", rows[f"until persisted, {name}"]["p50"] / 1000, 1, " s")
    section.at_most("no request of the tenant fails", sum(row.get("errors", 0) for row in rows.values()), 0, "", 0)
    return [section]
