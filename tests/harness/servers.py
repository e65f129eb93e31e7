"""Starts the real servers: Forebay, and the S3 server that stands behind it."""

import base64
import contextlib
import functools
import itertools
import json
import os
import pathlib
import secrets
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REGION = "us-east-1"
# The host name under which virtual-host style requests name their bucket.
DOMAIN = "s3.forebay.test"
# Of the owner of all buckets.
ACCOUNT = "111122223333"
# A start replays the tail of the store and binds two ports: far below this even on a busy machine.
START_SECONDS = 60


def eventually(what, condition, seconds=30):
    """Waits until condition() gives something true, and returns it."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        pause.wait(0.02)


class Ports:
    """Ports for servers that are started later, and again: no other process takes them in between.

    They lie below those that the kernel gives to outgoing connections (32768 and up). Each process of tests has its own
    thousand: a name of the kernel, which ends with the process, says that it is taken.
    """

    def __init__(self):
        self.claim = socket.socket(socket.AF_UNIX)
        for first in range(16_000, 32_000, 1_000):
            with contextlib.suppress(OSError):
                self.claim.bind(f"\0forebay-test-ports-{first}")
                self.ports = itertools.cycle(range(first, first + 1_000))
                return
        raise AssertionError("too many processes run tests: no ports are left")

    def next(self):
        for port in itertools.islice(self.ports, 1_000):
            with contextlib.suppress(OSError), socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
                return port
        raise AssertionError("no port is free")


@functools.cache
def ports():
    return Ports()


def free_port():
    return ports().next()


def answers(url):
    """Whether a GET of url is answered with 200."""
    with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    return False


def accepts_connections(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def fresh_keys():
    return "AK" + secrets.token_hex(8).upper(), secrets.token_hex(20)


class Server:
    """A server process with one root user. Its output goes to a file, which a failed start shows."""

    def __init__(self, directory):
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        self.port = free_port()
        self.access_key, self.secret_key = fresh_keys()
        self.process = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        raise NotImplementedError

    def is_ready(self):
        raise NotImplementedError

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), env=os.environ | self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(f"start of {self.command()[0]}", self._is_ready_or_dead, START_SECONDS)
        return self

    def _is_ready_or_dead(self):
        code = self.process.poll()
        assert code is None, f"ended with code {code}:\n{self.log.read_text()[-4000:]}"
        return self.is_ready()

    def stop(self):
        """Asks it to end, and returns its exit code."""
        self.process.terminate()
        return self._ended()

    def kill(self):
        self.process.kill()
        return self._ended()

    def _ended(self):
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not end within 60 s:\n{self.log.read_text()[-4000:]}") from None


class S3Server(Server):
    """versitygw over a directory: a real S3 server, for the under store and for checking the tests themselves."""

    binary = ROOT / ".tools" / "bin" / "versitygw"

    def __init__(self, directory):
        super().__init__(directory)
        assert self.binary.exists(), "the tests' S3 server is not installed: run `make setup`"
        self.objects = directory / "objects"
        self.objects.mkdir(exist_ok=True)

    def command(self):
        arguments = ["--port", f"127.0.0.1:{self.port}", "--virtual-domain", DOMAIN, "--quiet", "posix", str(self.objects)]
        return [str(self.binary), *arguments]

    def environment(self):
        return {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def is_ready(self):
        return accepts_connections(self.port)


class Forebay(Server):
    """The binary under test, in front of a directory or of an S3 server."""

    binary = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "target" / "debug" / "forebay"))

    def __init__(self, directory, mode="WRITE_THROUGH", behind=None, config="", arguments=(), before=(), variables=None):
        """`behind` is an S3Server, or None for a directory; `config` is TOML; `arguments` go to `forebay serve`; `before` is
        a command that starts it, such as `prlimit`; `variables` are for its environment."""
        super().__init__(directory)
        assert self.binary.exists(), f"{self.binary} is not built: run `cargo build -p forebay`"
        self.admin_port = free_port()
        self.mode = mode
        self.behind = behind
        self.arguments = list(arguments)
        self.before = list(before)
        self.variables = variables or {}
        self.under = directory / "under"
        self.under.mkdir(exist_ok=True)
        self.data = directory / "data"
        self.config = directory / "forebay.toml"
        self.config.write_text(config)

    @property
    def admin(self):
        return f"http://127.0.0.1:{self.admin_port}"

    def under_store_url(self):
        if self.behind is None:
            return f"file://{self.under}"
        return f"s3://?endpoint={self.behind.endpoint}&region={REGION}"

    def command(self):
        options = {
            "--config": self.config,
            "--data-dir": self.data,
            "--listen": f"127.0.0.1:{self.port}",
            "--admin-listen": f"127.0.0.1:{self.admin_port}",
            "--under-store": self.under_store_url(),
            "--mode": self.mode,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [*self.before, str(self.binary), "serve", *words, *self.arguments]

    def environment(self):
        keys = {"FOREBAY_ROOT_ACCESS_KEY": self.access_key, "FOREBAY_ROOT_SECRET_KEY": self.secret_key} | self.variables
        if self.behind is not None:
            keys |= {"AWS_ACCESS_KEY_ID": self.behind.access_key, "AWS_SECRET_ACCESS_KEY": self.behind.secret_key}
        return keys

    def is_ready(self):
        return answers(f"{self.admin}/readyz")

    def is_healthy(self):
        return answers(f"{self.admin}/healthz")

    def status(self):
        """What `GET /api/v1/status` says."""
        return self.ask("status")

    def ask(self, page):
        """A page of the admin API, with the root keys."""
        request = urllib.request.Request(f"{self.admin}/api/v1/{page}")
        keys = base64.b64encode(f"{self.access_key}:{self.secret_key}".encode()).decode()
        request.add_header("Authorization", f"Basic {keys}")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())

    def metrics(self):
        """All samples of /metrics as {'name{labels}': value}."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def is_drained(self):
        """Whether the under store has everything."""
        metrics = self.metrics()
        return metrics["forebay_dirty_objects"] == 0 and metrics["forebay_tombstones"] == 0

    def wait_until_drained(self, seconds=60):
        eventually("everything persisted", self.is_drained, seconds)


class Bare(Server):
    """An S3 that keeps nothing (`forebay-bench bare-server`): it takes all writes, and gives the same bytes for every key."""

    binary = Forebay.binary.with_name("forebay-bench")

    def __init__(self, directory, *options):
        super().__init__(directory)
        self.options = options

    def command(self):
        return [str(self.binary), "bare-server", "--listen", f"127.0.0.1:{self.port}", *self.options]

    def environment(self):
        return {}

    def is_ready(self):
        return accepts_connections(self.port)
