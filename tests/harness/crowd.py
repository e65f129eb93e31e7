"""Thousands of connections in one thread: idle ones, readers that hardly read, writers that hardly write."""

import asyncio
import contextlib
import resource
import socket
import threading
import urllib.parse

import pytest

from harness.clients import boto

# More at once would overrun the queue of the listener.
CONNECTING_AT_ONCE = 300
# A slow client moves a little and often, so that it is slow and not dead. The server ends it when it is too slow for too long.
SLOW_BYTES, SLOW_SECONDS = 2_000, 3
# Larger than what the kernel buffers, so that a reader that does not read holds up the server.
OBJECT_BYTES = 4 << 20


def allow_descriptors(count):
    """For this process and what it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} descriptors are needed, and {hard} are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


class Crowd:
    """Holds its connections while it is `present`: it opens again what the server closes."""

    def __init__(self, server, idle, readers, writers):
        self.server = server
        s3 = boto(server)
        s3.put_object(Bucket=server.bucket, Key="crowd/read", Body=bytes(OBJECT_BYTES))
        kinds = (self._idle, idle), (self._read, readers), (self._write, writers)
        self.work = [kind for kind, count in kinds for _ in range(count)]
        targets = {}
        for method, key in (("get_object", "crowd/read"), ("put_object", "crowd/written")):
            url = s3.generate_presigned_url(method, Params={"Bucket": server.bucket, "Key": key}, ExpiresIn=7200)
            parts = urllib.parse.urlsplit(url)
            targets[method] = f"{parts.path}?{parts.query}"
        host = f"Host: 127.0.0.1:{server.port}\r\n"
        self.get = f"GET {targets['get_object']} HTTP/1.1\r\n{host}\r\n".encode()
        self.put = f"PUT {targets['put_object']} HTTP/1.1\r\n{host}Content-Length: {20 * SLOW_BYTES}\r\n\r\n".encode()

    @contextlib.contextmanager
    def present(self):
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._hold())
        thread = threading.Thread(target=self._run, args=(loop, task))
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()

    @staticmethod
    def _run(loop, task):
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    async def _hold(self):
        self.connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
        await asyncio.gather(*(self._again(kind) for kind in self.work))

    async def _again(self, kind):
        while True:
            # Whatever a server does with such a client, it comes back.
            with contextlib.suppress(OSError):
                async with self.connecting:
                    reader, writer = await asyncio.open_connection(sock=await self._connected(), limit=4096)
                try:
                    await kind(reader, writer)
                finally:
                    writer.transport.abort()

    async def _connected(self):
        connection = socket.socket()
        connection.setblocking(False)
        # What the kernel would take on behalf of a slow reader.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.server.port))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _idle(self, reader, writer):
        await reader.read()

    async def _read(self, reader, writer):
        writer.write(self.get)
        while await reader.read(SLOW_BYTES):
            await asyncio.sleep(SLOW_SECONDS)

    async def _write(self, reader, writer):
        writer.write(self.put)
        for _ in range(20):
            writer.write(bytes(SLOW_BYTES))
            await asyncio.sleep(SLOW_SECONDS)
            if reader.at_eof() or writer.transport.is_closing():
                return
        await reader.read(SLOW_BYTES)
