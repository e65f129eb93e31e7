"""A weekly and a monthly job of Spark at the same time, on HDFS directly and through Forebay: a memory tier beside the kernel's page cache."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import urllib.request

import peers
from harness import hdfs, servers
from report import Section

INSTALLED = peers.ROOT / ".tools" / "spark"
JOB = pathlib.Path(__file__).with_name("tenants_job.py")
# What Spark 4 and Hadoop 3.4 run on: later ones lack the SecurityManager.
JDKS = range(17, 24)

MIB = 1 << 20
# Of DataNode and Forebay together, their page cache included.
MEMORY_BYTES = 1024 * MIB
FILE_BYTES = 64 * MIB
# This week, which fits into the memory, and the four weeks before it: together more than three times the memory. If the month had this week in it, one job
# would bring to the page cache what the other one reads, for a part of the time.
WEEK_FILES, MONTH_FILES = 11, 44
assert (WEEK_FILES + MONTH_FILES) * FILE_BYTES > 3 * MEMORY_BYTES
# What one hard disk gives when two streams take turns. The disks of test machines are faster than those of most DataNodes, and vary more.
DISK_BYTES_PER_SECOND = 100_000_000
RECORD_BYTES = 256 << 10
RUNS_MAX = 3
# Of a scenario, and of writing the files, on a slow machine.
SECONDS_MAX, WRITE_SECONDS_MAX = 3600, 600

BUCKET = "lake"
# What each job reads: paths of their own, so that each can have a policy.
JOBS = {"weekly": "events/week", "monthly": "events/month"}
# Some files are enough for the compilers of the JVM. Forebay shall have all of the week.
WARM_UP = {"weekly": "events/week", "monthly": "events/month/part-0*"}
WARM_UP_SECONDS = 40
KINDS = {
    "I/O": "max(octet_length(value))",
    # About as much work as makes one core slower than its half of the disk.
    "CPU": "max(array_max(transform(sequence(1, 8), i -> sha2(concat(value, encode(string(i), 'utf-8')), 512))))",
}
# How often a run of the weekly job reads its week. Through Forebay an I/O-bound one would take less than a second, and so measure the pauses of its JVM.
WEEKLY_READS = {"I/O": 10, "CPU": 1}
DIRECT, THROUGH = "HDFS alone", "Forebay"

# The memory tier holds whole objects. It has two halves (more, if `memory_object_max` is smaller), to which objects fall by hash: with twice the week, each
# half could take all of it. Nothing else is in that path, so no more than the week is ever in memory.
CONFIG = """
memory_size = "16 MiB"
memory_object_max = "1 GiB"
[mounts]
{bucket} = "{url}"
[[policy]]
path = "/{bucket}/{month}/"
cacheReads = false
[[policy]]
path = "/{bucket}/{week}/"
memoryQuota = "{quota} MiB"
metadataTtl = "30 d"
"""


class Group:
    """A limit of memory, the page cache included, and of reading from one disk, for several processes: by cgroups, for which one must be root."""

    ROOT = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, device):
        self.device = device
        self.unified = (self.ROOT / "cgroup.controllers").exists()
        name = f"forebay-bench-{os.getpid()}-tenants"
        self.memory, self.disk = (self.ROOT / kind / name for kind in (("", "") if self.unified else ("memory", "blkio")))
        if self.unified:
            (self.ROOT / "cgroup.subtree_control").write_text("+memory +io")
        for directory in {self.memory, self.disk}:
            directory.mkdir()
        if self.unified:
            (self.memory / "memory.max").write_text(str(MEMORY_BYTES))
            (self.disk / "io.max").write_text(f"{device} rbps={DISK_BYTES_PER_SECOND}")
        else:
            (self.memory / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
            (self.disk / "blkio.throttle.read_bps_device").write_text(f"{device} {DISK_BYTES_PER_SECOND}")

    @classmethod
    def is_possible(cls):
        return os.geteuid() == 0 and ((cls.ROOT / "cgroup.controllers").exists() or all((cls.ROOT / kind).is_dir() for kind in ("memory", "blkio")))

    def take(self, process):
        for directory in {self.memory, self.disk}:
            (directory / "cgroup.procs").write_text(str(process.pid))

    def disk_bytes(self):
        """How many it has read from the disk."""
        file, form = ("io.stat", r"{} .*?rbytes=(\d+)") if self.unified else ("blkio.throttle.io_service_bytes", r"{} Read (\d+)")
        found = re.search(form.format(self.device), (self.disk / file).read_text())
        return int(found.group(1)) if found else 0

    def end(self):
        for directory in {self.memory, self.disk}:
            directory.rmdir()


def disk_of(directory):
    """The number of the disk that a directory is on, as cgroups name it; None where it is on no disk."""
    number = os.stat(directory).st_dev
    device = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        return None
    # Limits are those of whole disks.
    whole = device.resolve().parent if (device / "partition").exists() else device
    return (whole / "dev").read_text().strip()


class DataNode:
    """HDFS with a group for its DataNode, and what that has sent."""

    def __init__(self, directory, group):
        port = servers.free_port()
        self.jmx = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity-*"
        self.hdfs = hdfs.Hdfs(directory, {"dfs.datanode.http.address": f"127.0.0.1:{port}"})
        self.group = group

    def start(self):
        self.hdfs.start()
        self.group.take(self.hdfs.datanode)

    def sent_bytes(self):
        with urllib.request.urlopen(self.jmx, timeout=60) as response:
            (activity,) = json.load(response)["beans"]
        return activity["BytesRead"]

    def write_files(self, directory):
        """Puts the same random bytes into each file: nobody compares or compresses them."""
        first = directory / "file"
        first.write_bytes(os.urandom(FILE_BYTES))
        for path, count in zip(JOBS.values(), (WEEK_FILES, MONTH_FILES), strict=True):
            source = directory / path
            source.mkdir(parents=True)
            for number in range(count):
                os.link(first, source / f"part-{number:02}")
        self.hdfs.make(f"/{BUCKET}")

        def written():
            # Fails as long as the NameNode does not know the DataNode.
            with contextlib.suppress(AssertionError):
                self.hdfs.shell("-put", "-f", directory / "events", f"/{BUCKET}", seconds=WRITE_SECONDS_MAX)
                return True

        servers.eventually("the files in HDFS", written, WRITE_SECONDS_MAX)


@dataclasses.dataclass
class Job:
    """What tenants_job.py runs."""

    settings: dict
    path: str
    warm_up_path: str
    expression: str
    reads: int = 1
    record_bytes: int = RECORD_BYTES
    warm_up_seconds: int = WARM_UP_SECONDS


class Running:
    """A job, on its share of the cores."""

    def __init__(self, directory, job, cores):
        directory.mkdir()
        self.output = directory / "runs"
        with open(self.output, "wb") as output, open(directory / "log", "wb") as log:
            self.process = subprocess.Popen(
                [str(INSTALLED / "bin" / "python"), str(JOB), json.dumps(dataclasses.asdict(job))],
                env=environment(), stdin=subprocess.PIPE, stdout=output, stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, cores), start_new_session=True,
            )  # fmt: skip

    def lines(self):
        code = self.process.poll()
        assert code is None, f"the job ended with code {code}: {self.output.with_name('log').read_text()[-4000:]}"
        return self.output.read_text().count("\n")

    def begin(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def runs(self):
        """How many seconds each run took. The first line only says that the job is warm."""
        return [float(line) for line in self.output.read_text().splitlines()[1:]]

    def end(self):
        # The JVM too.
        os.killpg(self.process.pid, 9)
        self.process.wait()


def environment():
    """HDFS runs on the `java` of the path, so Spark does."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"HADOOP_USER_NAME": hdfs.USER, "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_settings(cores, forebay=None):
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # For both file systems: reads in few large pieces.
        "spark.hadoop.io.file.buffer.size": MIB,
    }
    if forebay is None:
        return settings
    s3a = {
        "endpoint": forebay.endpoint,
        "endpoint.region": servers.REGION,
        "path.style.access": "true",
        "access.key": forebay.access_key,
        "secret.key": forebay.secret_key,
        # One GET for each file, and one task, as with the blocks of HDFS.
        "input.fadvise": "sequential",
        "block.size": "128M",
    }
    return settings | {"spark.driver.extraClassPath": f"{INSTALLED}/s3a/*"} | {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}


def measure(setting, stack, group, datanode, kinds, through):
    """Both jobs until each has run often enough: their runs in seconds by name, and the bytes read meanwhile."""
    forebay = None
    lake = f"hdfs://127.0.0.1:{datanode.hdfs.port}/{BUCKET}"
    if through:
        url = datanode.hdfs.url(f"/{BUCKET}")
        config = CONFIG.format(bucket=BUCKET, url=url, week=JOBS["weekly"], month=JOBS["monthly"], quota=2 * WEEK_FILES * FILE_BYTES // MIB)
        forebay = stack.enter_context(setting.started(peers.Forebay, mode="WRITE_THROUGH", config=config))
        group.take(forebay.process)
        lake = f"s3a://{BUCKET}"
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    running = {}
    for (name, path), kind, own in zip(JOBS.items(), kinds, (cores[:half], cores[half : 2 * half]), strict=True):
        reads = WEEKLY_READS[kind] if name == "weekly" else 1
        job = Job(spark_settings(half, forebay), f"{lake}/{path}", f"{lake}/{WARM_UP[name]}", KINDS[kind], reads)
        setting.number += 1
        running[name] = Running(setting.directory / f"{setting.number}-{name}", job, own)
        stack.callback(running[name].end)

    def all_have(lines):
        return lambda: all(job.lines() >= lines for job in running.values())

    servers.eventually("warm jobs", all_have(1), SECONDS_MAX)
    sent, read = datanode.sent_bytes(), group.disk_bytes()
    for job in running.values():
        job.begin()
    servers.eventually("runs of both jobs", all_have(1 + min(setting.rounds, RUNS_MAX)), SECONDS_MAX)
    together = {"hdfs": datanode.sent_bytes() - sent, "disk": group.disk_bytes() - read}
    return {name: job.runs() for name, job in running.items()}, together


def row(runs):
    return {"runs": len(runs), "median": statistics.median(runs), "shortest": min(runs), "longest": max(runs)}


def section(kinds, found):
    """One scenario. `found` is what `measure` has found by contender."""
    weekly, monthly = kinds
    rows = {}
    for contender, (jobs, together) in found.items():
        rows |= {f"{contender}, {name} job": row(runs) for name, runs in jobs.items()}
        rows[f"{contender}, both"] = together
    made = Section(
        f"tenants-{weekly}-{monthly}".lower().replace("/", ""),
        f"Spark on HDFS: a weekly {weekly}-bound job beside a monthly {monthly}-bound one",
        ("runs", "median", "shortest", "longest", "hdfs", "disk"),
        rows,
    )
    ours = rows[f"{THROUGH}, weekly job"]
    if weekly == "I/O":
        made.at_least("weekly job at least 5x faster at the median", rows[f"{DIRECT}, weekly job"]["median"] / ours["median"], 5)
        made.at_most("longest run of the weekly job at most 1.2x the shortest", ours["longest"] / ours["shortest"], 1.2)
    faster = rows[f"{DIRECT}, monthly job"]["median"] / rows[f"{THROUGH}, monthly job"]["median"]
    made.at_least("monthly job no slower at the median", faster, 1, digits=2)
    return made


def missing(directory):
    """Why this cannot be measured, if so."""
    if not INSTALLED.exists() or not hdfs.is_installed():
        return "Maven or a JDK is missing"
    version = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    if int(re.search(r'version "(\d+)', version).group(1)) not in JDKS:
        return f"`java` is none of the versions {JDKS[0]} to {JDKS[-1]}"
    if len(os.sched_getaffinity(0)) < 2:
        return "each job needs a core of its own"
    if not Group.is_possible():
        return "only root can limit memory, by the cgroup controllers of memory and disks"
    if disk_of(directory) is None:
        return "the directory is on no disk whose reads can be limited"
    return None


def tenants(setting):
    """Four scenarios: each job is bound by reading or by computing."""
    if reason := missing(setting.directory):
        print(f"tenants: skipped, because {reason}", flush=True)
        return []
    with contextlib.ExitStack() as stack:
        group = Group(disk_of(setting.directory))
        stack.callback(group.end)
        datanode = DataNode(setting.directory / "hdfs", group)
        stack.callback(datanode.hdfs.stop)
        datanode.start()
        datanode.write_files(setting.directory)
        sections = []
        for kinds in itertools.product(KINDS, repeat=2):
            found = {}
            for contender in (DIRECT, THROUGH):
                with contextlib.ExitStack() as jobs:
                    found[contender] = measure(setting, jobs, group, datanode, kinds, contender == THROUGH)
            sections.append(section(kinds, found))
    return noted(sections)


def noted(sections):
    gib = MEMORY_BYTES / (1 << 30)
    sections[-1].notes += [
        f"DataNode and Forebay share {gib:g} GiB of memory, page cache included, and read from disk at {DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s, as from one "
        f"hard disk. The weekly job reads {WEEK_FILES} files of {FILE_BYTES // MIB} MiB, which Forebay keeps in memory. The monthly job reads {MONTH_FILES} "
        f"others, which Forebay passes through. A run of the weekly job reads its files {WEEKLY_READS['I/O']} times if it is I/O-bound.",
        "Each job has half of the cores, and starts again when it ends. DataNode and Forebay run on all cores. Runs begin when both jobs are warm. "
        f"A job reads records of {RECORD_BYTES >> 10} KiB; if it is CPU-bound, it computes SHA-512 of each eight times.",
        "Bytes from HDFS are those that the DataNode sent, over a socket (short-circuit reads are off). Bytes from disk include those of Forebay.",
    ]
    return sections
