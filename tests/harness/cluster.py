"""Several workers that are one cache: Forebays on one etcd."""

import collections
import concurrent.futures
import contextlib
import itertools
import signal
import socket
import threading

from harness.clients import boto
from harness.faults import stand_still
from harness.servers import ROOT, Forebay, S3Server, Server, answers, eventually, free_port, fresh_keys

# The shortest that there is: what a silent worker had comes back after it.
LEASE_SECONDS = 3

CONFIG = """
[store]
size = "256 MiB"
segment_size = "2 MiB"
[cache]
memory_size = "16 MiB"
settle_time = "1 s"
drain_timeout = "10 s"
[cluster]
lease = "{lease} s"
"""


class Pausable(Server):
    def pause(self):
        """As a machine that stalls does."""
        stand_still(self.process)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class UnderStore(S3Server, Pausable):
    """An S3 server that can be stopped for a while."""


class Etcd(Pausable):
    """The engine of a cluster: one member, or one of several."""

    binary = ROOT / ".tools" / "bin" / "etcd"

    def __init__(self, directory):
        super().__init__(directory)
        assert self.binary.exists(), "etcd is not installed: run `make setup`"
        self.peer_port = free_port()
        self.members = [self]

    @property
    def peer(self):
        return f"http://127.0.0.1:{self.peer_port}"

    def command(self):
        name, client, peer = self.directory.name, self.endpoint, self.peer
        members = ",".join(f"{member.directory.name}={member.peer}" for member in self.members)
        return [
            *[str(self.binary), "--name", name, "--data-dir", str(self.directory / "data"), "--log-level", "warn"],
            *["--listen-client-urls", client, "--advertise-client-urls", client],
            *["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", members],
        ]

    def environment(self):
        return {}

    def is_ready(self):
        return answers(f"{self.endpoint}/health")

    @property
    def engine(self):
        return f"etcd://127.0.0.1:{self.port}"


class Etcds:
    """Three members, of which two are enough."""

    def __init__(self, directory):
        self.members = [Etcd(directory / f"etcd{number}") for number in (1, 2, 3)]
        for member in self.members:
            member.members = self.members

    def start(self):
        # A member is ready only with another.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(Etcd.start, self.members))
        return self


class Worker(Forebay, Pausable):
    """A Forebay of a cluster."""

    def __init__(self, cluster, name, **options):
        options = {"mode": cluster.mode, "config": CONFIG.format(lease=LEASE_SECONDS)} | options
        super().__init__(cluster.directory / name, **options)
        self.cluster, self.name, self.under = cluster, name, cluster.under
        self.access_key, self.secret_key = cluster.keys
        self.peer_port = free_port()
        # How it reaches the engine, when not as the others do.
        self.engine = None
        self.more = []

    def command(self):
        options = {
            "--cluster-engine": self.engine or self.cluster.etcd.engine,
            "--cluster-name": self.cluster.name,
            "--cluster-listen": f"127.0.0.1:{self.peer_port}",
            "--worker-id": self.name,
        }
        return [*super().command(), *[word for pair in options.items() for word in pair], *self.more]

    def s3(self):
        return boto(self)


class Cluster:
    """Workers before the same directory. All have the same root keys."""

    def __init__(self, directory, mode="WRITE_BACK", etcd=Etcd, beside=None):
        """`beside` is a cluster whose etcd and root keys this one shares, and nothing else."""
        self.directory, self.mode = directory, mode
        self.under = directory / "under"
        self.under.mkdir(parents=True)
        self.name = "lake" if beside is None else directory.name
        self.keys = fresh_keys() if beside is None else beside.keys
        self.etcd = etcd(directory / "etcd").start() if beside is None else beside.etcd
        self.workers = []

    def worker(self, name, **options):
        """A worker that has not started yet."""
        self.workers.append(Worker(self, name, **options))
        return self.workers[-1]

    def close(self):
        for server in [*self.workers, *self.etcd.members]:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()


def start_with_bucket(workers, bucket):
    """Starts workers until they share the slots, and each of them knows that the under store has this bucket."""
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    for worker in workers:
        worker.s3().list_objects_v2(Bucket=bucket)


def wait_until_shared(workers):
    """Waits until each of these workers sees that all of them live, and that all slots are where they belong."""

    def is_shared(worker):
        # One that was taken for lost begins again.
        try:
            seen = worker.ask("cluster")
        except OSError:
            return False
        live = {found["id"]: found["slots"] for found in seen["workers"] if found["state"] == "live"}
        share = -(-seen["slots"] // len(workers))
        return set(live) == {worker.name for worker in workers} and seen["slotsWithoutHome"] == 0 and max(live.values()) <= share

    eventually("slots for all workers", lambda: all(is_shared(worker) for worker in workers))


def answered(call, seconds=30):
    """What a call gives once the cluster has an answer: until then it says that it is unavailable."""

    def attempt():
        with contextlib.suppress(OSError):
            try:
                return [call()]
            except Exception as error:
                code = getattr(error, "response", {}).get("Error", {}).get("Code")
                if code not in ("ServiceUnavailable", "SlowDown", "InternalError") and "onnect" not in str(error):
                    raise
        return None

    return eventually("an answer of the cluster", attempt, seconds)[0]


class RoundRobin:
    """Deals connections to several ports in turn, as a load balancer does."""

    def __init__(self, ports):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.ports = itertools.cycle(ports)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", next(self.ports)))
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(256 << 10):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Front:
    """Three workers behind a load balancer: what a client of S3 takes for one server."""

    behind = None

    def __init__(self, directory, mode, config):
        self.mode, self.directory = mode, directory
        self.cluster = Cluster(directory, mode)
        self.access_key, self.secret_key = self.cluster.keys
        self.under = self.cluster.under
        for name in ("w1", "w2", "w3"):
            # Those who follow redirects are a few.
            redirect = 'redirect = "known-clients"\n'
            self.cluster.worker(name, config=CONFIG.format(lease=LEASE_SECONDS) + redirect + config)

    def start(self):
        try:
            for worker in self.cluster.workers:
                worker.start()
            wait_until_shared(self.cluster.workers)
        except BaseException:
            self.cluster.close()
            raise
        self.balancer = RoundRobin([worker.port for worker in self.cluster.workers])
        self.port = self.balancer.port
        self.admin, self.admin_port = self.first.admin, self.first.admin_port
        return self

    @property
    def first(self):
        return self.cluster.workers[0]

    @property
    def log(self):
        return self.first.log

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, page):
        return self.first.ask(page)

    def metrics(self):
        """The samples of all workers, added up."""
        total = collections.Counter()
        for worker in self.cluster.workers:
            total.update(worker.metrics())
        return dict(total)

    def is_drained(self):
        return all(worker.is_drained() for worker in self.cluster.workers)

    def wait_until_drained(self, seconds=60):
        eventually("everything persisted", self.is_drained, seconds)

    def stop(self):
        """The worst exit code."""
        self.balancer.close()
        codes = [worker.stop() for worker in self.cluster.workers]
        self.cluster.close()
        return max(codes)
