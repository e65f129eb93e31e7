"""A request that stands still."""

import socket

from harness.clients import sign
from harness.raw import SECONDS, request

# As much as the kernel takes on behalf of a client that does not read.
RECEIVE_BYTES = 64 << 10


class Slow:
    """Of the body of a PUT as much is sent as its client wants, of that of a GET little is read."""

    def __init__(self, server, method, key, body=b"", sent=0):
        target = f"/{server.bucket}/{key}"
        headers = sign(server, method, target, {"Content-Length": str(len(body))} if body else None, body)
        self.body, self.rest = body, body[sent:]
        self.connection = socket.socket()
        self.connection.settimeout(SECONDS)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.connection.connect(("127.0.0.1", server.port))
        headers |= {"Host": f"127.0.0.1:{server.port}", "Connection": "close"}
        self.connection.sendall(request(method, target, headers, body[:sent]))

    def finish(self):
        """The status and the body of the answer."""
        self.connection.sendall(self.rest)
        return self.answer()

    def has_begun(self):
        """Waits for the first byte of the answer."""
        return bool(self.connection.recv(1, socket.MSG_PEEK))

    def answer(self):
        head, _, body = self.connection.makefile("rb").read().partition(b"\r\n\r\n")
        self.connection.close()
        self.head = head.decode().lower()
        return int(head.split()[1]), body
