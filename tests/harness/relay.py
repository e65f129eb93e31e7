"""A relay between Forebay and its under store that spoils connections: slow, cut, damaged, silent, gone."""

import contextlib
import dataclasses
import socket
import threading

from harness.servers import free_port

# Pieces shorter than this may hold nothing but the head of a request or an answer; in longer ones the middle is body.
BODY_BYTES_MIN = 4096


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to the bytes of one direction: `up` to the under store, `down` from it."""

    direction: str = "down"
    # Seconds before each piece, and the most bytes in one.
    delay: float = 0
    piece: int = 64 << 10
    # A bit of every long piece is flipped.
    flips: bool = False
    # The connection ends after this many bytes of this direction.
    cut_after: int | None = None
    # Nothing is passed on at all.
    hangs: bool = False


WELL = Fault()


class Relay:
    """Stands for the server behind it, with the same keys, at one of its ports."""

    def __init__(self, server, port=None):
        self.access_key, self.secret_key = server.access_key, server.secret_key
        self.behind = port or server.port
        self.port = free_port()
        self.fault = WELL
        self.is_gone = False
        self.spoiled = 0
        self.changed = threading.Condition()
        self.connections = set()
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def set(self, fault=WELL, gone=False):
        """From now on. It closes the connections of before, because they would keep their old fault for ever."""
        with self.changed:
            self.fault, self.is_gone = fault, gone
            connections, self.connections = self.connections, set()
            self.changed.notify_all()
        for connection in connections:
            _close(connection)

    def close(self):
        self.set(gone=True)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                if self.is_gone:
                    _close(client)
                    continue
                server = socket.create_connection(("127.0.0.1", self.behind))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                continue
            with self.changed:
                fault = self.fault
                self.connections |= {client, server}
            for source, sink, direction in ((client, server, "up"), (server, client, "down")):
                mine = fault if fault.direction == direction else WELL
                threading.Thread(target=self._pump, args=(source, sink, mine), daemon=True).start()

    def _pump(self, source, sink, fault):
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(fault.piece):
                if fault.hangs or fault.delay:
                    self._wait(fault)
                if fault.flips and len(data) >= BODY_BYTES_MIN:
                    middle = len(data) // 2
                    data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
                    self.spoiled += 1
                if fault.cut_after is not None and passed + len(data) > fault.cut_after:
                    sink.sendall(data[: fault.cut_after - passed])
                    self.spoiled += 1
                    break
                sink.sendall(data)
                passed += len(data)
        _close(source)
        _close(sink)

    def _wait(self, fault):
        """For the time of a delay; for a silence until the fault is another."""
        with self.changed:
            self.changed.wait_for(lambda: self.fault is not fault, None if fault.hangs else fault.delay)


def _close(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
