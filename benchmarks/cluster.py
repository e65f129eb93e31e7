"""Three workers beside one, each with a quarter of a core; and what the engine of a cluster costs."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

import load
import peers
from harness.cluster import CONFIG, Cluster, Worker, answered, wait_until_shared
from load import cpu_seconds, figures, interleaved
from report import Section

BUCKET = "bench"
SHARE = 0.25
PERIOD_US = 100_000
# The under store is one that gives the same bytes for every key: nothing is read from there.
MORE = f"""
[[policy]]
path = "/"
metadataTtl = "1 h"
[[policy]]
path = "/{BUCKET}/cold/"
spreadReads = false
"""
# Reads of all of them fit into the memory of each worker.
HOT = 200
APART = "three workers, each alone"


class Quota:
    """A share of a core for each process, by cgroups: for that one must be root."""

    ROOTS = [pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")]

    def __init__(self, name, share):
        root = next(root for root in self.ROOTS if (root / "cgroup.procs").exists())
        self.group = root / f"forebay-bench-{os.getpid()}-{name}"
        self.group.mkdir()
        quota = str(int(share * PERIOD_US))
        if (self.group / "cpu.cfs_quota_us").exists():
            self._write("cpu.cfs_period_us", PERIOD_US)
            self._write("cpu.cfs_quota_us", quota)
        else:
            self._write("cpu.max", f"{quota} {PERIOD_US}")

    def _write(self, name, value):
        (self.group / name).write_text(str(value))

    def take(self, process):
        self._write("cgroup.procs", process.pid)

    def end(self):
        self.group.rmdir()


class Of:
    """A cluster of some workers, each with a share of a core, or with what the machine has."""

    def __init__(self, setting, count, behind, share=None, beside=None):
        setting.number += 1
        Worker.binary = peers.Forebay.binary
        self.cluster = Cluster(setting.directory / f"{setting.number}-cluster", beside=beside)
        self.config = CONFIG.format(lease=10).replace("256 MiB", "8 GiB").replace("16 MiB", "64 MiB").replace("2 MiB", "16 MiB") + MORE
        names = [f"{setting.number}-{number}" for number in range(count)]
        self.workers = [self.cluster.worker(name, config=self.config, behind=behind).start() for name in names]
        wait_until_shared(self.workers)
        answered(lambda: self.workers[0].s3().create_bucket(Bucket=BUCKET))
        for worker in self.workers:
            answered(lambda: worker.s3().head_bucket(Bucket=BUCKET))
        self.quotas = [Quota(name, share) for name in names] if share else []
        for worker, quota in zip(self.workers, self.quotas):
            quota.take(worker.process)

    def close(self):
        self.cluster.close()
        for quota in self.quotas:
            quota.end()

    def hosts(self, knows_homes):
        """How forebay-bench reaches it: each key at its home, or connections dealt out in turn."""
        if knows_homes:
            return ["--cluster", self.workers[0].admin]
        return ["--host", ",".join(worker.endpoint for worker in self.workers)]

    def run(self, knows_homes, *words):
        before = self.cpu_seconds()
        only = self.load(self.hosts(knows_homes), *words)
        return only, self.cpu_seconds() - before

    def load(self, hosts, *words):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            access, secret = self.cluster.keys
            keys = {"FOREBAY_ACCESS_KEY": access, "FOREBAY_SECRET_KEY": secret}
            load.call(*words, *hosts, "--bucket", BUCKET, "--noclear", "--json", file.name, keys=keys)
            (only,) = json.load(file)["runs"]
        return only

    def transactions(self):
        """How many the engine has committed for all workers."""
        return sum(
            value
            for worker in self.workers
            for name, value in worker.metrics().items()
            if name.startswith("forebay_cluster_engine_call_duration_seconds_count") and 'operation="commit"' in name
        )

    def uploaded(self):
        """How many uploads in the background have ended: each of them is a commit, too."""
        return sum(worker.metrics()["forebay_persisted_objects_total"] for worker in self.workers)

    def cpu_seconds(self):
        return sum(cpu_seconds(worker.process.pid) for worker in self.workers)


class Apart:
    """As many workers, each a cluster of its own: what this machine gives to them when they share nothing but an etcd. Each has all objects."""

    def __init__(self, setting, count, behind, share):
        first = Of(setting, 1, behind, share)
        self.each = [first, *(Of(setting, 1, behind, share, beside=first.cluster) for _ in range(count - 1))]

    def close(self):
        for cluster in self.each:
            cluster.close()

    def run(self, is_prepared, *words):
        """Connections are dealt out in turn; what is to be there before is written to each."""
        if not is_prepared:
            for cluster in self.each:
                cluster.run(True, *words)
            return None
        first = self.each[0]
        before = self.cpu_seconds()
        hosts = ["--host", ",".join(cluster.workers[0].endpoint for cluster in self.each)]
        return first.load(hosts, *words), self.cpu_seconds() - before

    def cpu_seconds(self):
        return sum(cluster.cpu_seconds() for cluster in self.each)


def measured(cluster, knows_homes, operation, *words):
    """A contender: what one round gives."""

    def measure(number):
        only, cpu = cluster.run(knows_homes, *(str(word).replace("{round}", str(number)) for word in words))
        (one,) = only["rounds"]
        count = one["operations"][operation]["count"]
        # Of all workers together.
        server = {"cpuUs": 1e6 * cpu / count, "memoryPeakBytes": None, "writeAmplification": None, "readAmplification": None}
        return figures(only["median"] | {"server": server}, operation)

    return measure


def scaling(setting):
    """Rates of three workers, of clients that know the homes and of clients that do not, against one worker's."""
    seconds = ["--duration", f"{setting.seconds}s"]
    # Connections of each worker: enough that it always has work to do when it may run.
    small, large = ("10KiB", 64), ("10MiB", 4)
    with contextlib.ExitStack() as stack:
        behind = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms"))
        one, three = (stack.enter_context(contextlib.closing(Of(setting, count, behind, SHARE))) for count in (1, 3))
        apart = stack.enter_context(contextlib.closing(Apart(setting, 3, behind, SHARE)))
        # Written before they are measured.
        for prefix, count, size in (("hot/", HOT, "10KiB"), ("cold/", 20_000, "10KiB"), ("large/", 24, "10MiB")):
            write = ["get", "--prefix", prefix, "--objects", count, "--obj.size", size, "--duration", "1s", "--concurrent", 8]
            for cluster in (one, three):
                cluster.run(True, *write)
            apart.run(False, *write)

        def contenders(operation, kind, *words):
            size, connections = kind
            # Large bodies take the generator as much time as the workers.
            threads = ["--threads", min(os.cpu_count(), 2)] if kind is large else []
            words = [operation.lower(), *words, "--obj.size", size, *threads, *seconds, "--concurrent"]
            return {"one worker": measured(one, True, operation, *words, connections)} | {
                f"three workers, {name}": measured(three, known, operation, *words, 3 * connections)
                for name, known in (("homes known", True), ("in turn", False))
            } | {APART: measured(apart, True, operation, *words, 3 * connections)}

        rows = {
            "PUT 10 KiB": contenders("PUT", small, "--prefix", "put/{round}/"),
            "GET 10 KiB, hot": contenders("GET", small, "--prefix", "hot/", "--objects", HOT, "--prepared"),
            "GET 10 KiB, cold": contenders("GET", small, "--prefix", "cold/", "--objects", 20_000, "--prepared"),
            "GET 10 MiB": contenders("GET", large, "--prefix", "large/", "--objects", 24, "--prepared"),
            "PUT 10 MiB": contenders("PUT", large, "--prefix", "put-large/{round}/"),
        }
        found = {name: interleaved(setting.rounds, row) for name, row in rows.items()}
    bars = {"PUT 10 KiB": (2.7, 2.1), "GET 10 KiB, hot": (2.7, 2.6), "GET 10 KiB, cold": (2.7, 1.6), "GET 10 MiB": (2.7, None), "PUT 10 MiB": (2.7, None)}
    sections = []
    for name, (known, in_turn) in bars.items():
        section = Section(f"cluster-{name.lower().replace(' ', '-').replace(',', '')}", f"{name}, by workers with a quarter of a core", ("rate", "bytes", "p50", "p99", "cpu"), found[name])
        single, direct, dealt, apart = found[name].values()
        section.at_least(f"three workers whose homes clients know: at least {known}x one", direct["rate"] / single["rate"], known, digits=2)
        section.at_least(f"... at least {known / 3:.1f}x three of which each is alone", direct["rate"] / apart["rate"], known / 3, digits=2)
        if in_turn:
            section.at_least(f"three workers in turn: at least {in_turn}x one", dealt["rate"] / single["rate"], in_turn, digits=2)
        if name == "GET 10 KiB, cold":
            # Two of three connections in turn are not at the home of a key.
            forwarded = (dealt["cpu"] - direct["cpu"] / 3) * 3 / 2
            section.at_most("processor time of a forwarded GET: at most 2.2x that of a direct one", forwarded / direct["cpu"], 2.2, "x")
        sections.append(section)
    sections[-1].notes.append("Of the clients that know the homes, a third stays with each worker, and takes keys at home there.")
    sections[-1].notes.append(
        "Three workers that share nothing but an etcd have the same clients and the same quotas: what they do together, and what a request costs them, is what this machine "
        "gives to three processes. The cores of many machines are hyper-threads: the more run at once, the less each does in its time."
    )
    return sections


def engine(setting):
    """What a commit to the engine adds to a PUT, and how many commits share a transaction."""
    size, seconds = "10KiB", setting.seconds
    with contextlib.ExitStack() as stack:
        behind = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms"))
        alone = stack.enter_context(setting.started(peers.Forebay, behind=behind))
        one, three = (stack.enter_context(contextlib.closing(Of(setting, count, behind))) for count in (1, 3))

        def by_one_worker(connections):
            def measure(number):
                words = ["--obj.size", size, "--concurrent", connections, "--duration", f"{seconds}s", "--bucket", BUCKET, "--noclear"]
                return figures(load.run(alone, "put", *words, "--prefix", f"put/{connections}/{number}/"), "PUT") | {"batch": None}

            return measure

        def by_cluster(cluster, connections):
            words = ("put", "--prefix", f"put/{connections}/{{round}}/", "--obj.size", size, "--duration", f"{seconds}s", "--concurrent", connections)
            run = measured(cluster, True, "PUT", *words)

            def measure(number):
                transactions, uploaded = cluster.transactions(), cluster.uploaded()
                found = run(number)
                commits = found["rate"] * seconds + cluster.uploaded() - uploaded
                return found | {"batch": commits / (cluster.transactions() - transactions)}

            return measure

        def etcd(_):
            command = [str(peers.TOOLS / "etcd-latency"), f"127.0.0.1:{one.cluster.etcd.port}", str(seconds)]
            microseconds = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            return {"p50": microseconds / 1000, "p99": None, "rate": None, "cpu": None, "batch": None}

        def contenders(connections):
            return {
                "one worker, embedded engine": by_one_worker(connections),
                "one worker on etcd": by_cluster(one, connections),
                "three workers on etcd": by_cluster(three, connections),
            }

        single = interleaved(setting.rounds, contenders(1) | {"put to etcd": etcd})
        many = interleaved(setting.rounds, contenders(64))
    columns = ("p50", "p99", "rate", "cpu", "batch")
    first = Section("engine-1", "PUT 10 KiB on the engine of a cluster, 1 connection", columns, single)
    over = single["one worker on etcd"]["p50"] - single["one worker, embedded engine"]["p50"]
    first.at_most("p50 at most that of a worker alone, plus two puts to etcd", over / single["put to etcd"]["p50"], 2, " puts")
    second = Section("engine-64", "PUT 10 KiB on the engine of a cluster, 64 connections", columns, many)
    second.at_least("dozens of commits share a transaction of one worker", many["one worker on etcd"]["batch"], 24, digits=0, unit="")
    second.notes.append("Commits are PUTs and the ends of uploads in the background. All workers, etcd (one member) and the load generator share this machine's cores.")
    return [first, second]
