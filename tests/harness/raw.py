"""Bytes on a socket: requests that no HTTP library would send, and what comes back."""

import contextlib
import re
import socket

# Far above any answer here; a connection that nobody ends fails the test.
SECONDS = 60
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


class Exchange:
    """All that a server said to some bytes, and whether it closed the connection by itself."""

    def __init__(self, said, closed):
        self.said = said
        self.closed = closed
        self.statuses = [int(status) for status in STATUS.findall(said)]

    def __repr__(self):
        return f"{self.statuses} closed={self.closed} {self.said[:2000]!r}"


def connect(server, port=None):
    return socket.create_connection(("127.0.0.1", port or server.port), timeout=SECONDS)


def exchange(server, data, port=None, wait=SECONDS):
    """Sends bytes on a connection of their own, and reads until the server ends it, or says nothing for `wait` seconds."""
    with connect(server, port) as connection:
        # A server that has seen enough may close while we send.
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        connection.settimeout(wait)
        said = b""
        try:
            while received := connection.recv(1 << 16):
                said += received
        except ConnectionError:
            return Exchange(said, True)
        except TimeoutError:
            return Exchange(said, False)
        return Exchange(said, True)


def request(method, target, headers, body=b""):
    """A request as bytes; a header may come twice when given as pairs."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
