"""The servers that are measured, each a process on a free port of this machine."""

import asyncio
import multiprocessing
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import servers  # noqa: E402

TOOLS = ROOT / ".tools" / "bin"
BENCH = ROOT / "target" / "release" / "forebay-bench"
# Answers of a distant store come this much later.
DELAY_SECONDS = 0.030


class Forebay(servers.Forebay):
    """A release build, with room for what the measurements leave behind."""

    binary = ROOT / "target" / "release" / "forebay"

    def __init__(self, directory, mode="WRITE_BACK", behind=None, config="", size="24 GiB", store=""):
        # Most of the cache may be dirty: what is measured is the cache, not when it says no.
        settings = f'[store]\nsize = "{size}"\n{store}\n[cache]\npinned_ratio = 0.9\n{config}'
        super().__init__(directory, mode=mode, behind=behind, config=settings)


class MinIO(servers.Server):
    def command(self):
        return [str(TOOLS / "minio"), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(self.directory / "objects")]

    def environment(self):
        # Without the console, and without asking for newer versions.
        quiet = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        return {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key} | quiet

    def is_ready(self):
        return servers.answers(f"{self.endpoint}/minio/health/ready")


class Rclone(servers.Server):
    """`rclone serve s3` over a directory, with its write-back cache of files."""

    def command(self):
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        return [
            *(str(TOOLS / "rclone"), "serve", "s3", str(objects), "--config", "/dev/null"),
            *("--addr", f"127.0.0.1:{self.port}", "--auth-key", f"{self.access_key},{self.secret_key}"),
            *("--vfs-cache-mode", "writes", "--cache-dir", str(self.directory / "cache")),
        ]

    def environment(self):
        return {}

    def is_ready(self):
        return servers.accepts_connections(self.port)


class Bare(servers.Bare):
    binary = BENCH


class Distant:
    """A server whose answers take DELAY_SECONDS longer, as if it were elsewhere. For a few connections: the relay is Python."""

    def __init__(self, server):
        self.access_key, self.secret_key, self.process = server.access_key, server.secret_key, server.process
        self.port = servers.free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.relay = multiprocessing.Process(target=_run_relay, args=(self.port, server.port), daemon=True)

    def start(self):
        self.relay.start()
        servers.eventually("start of the relay", lambda: servers.accepts_connections(self.port))
        return self

    def stop(self):
        self.relay.terminate()
        self.relay.join()


def _run_relay(port, target):
    asyncio.run(_relay(port, target))


async def _relay(port, target):
    loop = asyncio.get_running_loop()

    async def copy(reader, writer, delay):
        while data := await reader.read(1 << 16):
            loop.call_later(delay, writer.write, data)
        loop.call_later(delay, writer.close)

    async def serve(reader, writer):
        to_server = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, to_server[1], 0), copy(to_server[0], writer, DELAY_SECONDS), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()
