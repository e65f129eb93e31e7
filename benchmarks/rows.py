"""What is measured: a function for each section of the report. Each starts its servers and stops them."""

import contextlib
import signal
import threading
import time

import cluster
import hostile
import under_load
import load
import moves
import peers
import tenants
import trino
from harness.clients import boto
from load import cpu_seconds, figures, interleaved, medians, resident_bytes
from report import Section


class Setting:
    """Where servers lie, and for how long they are measured."""

    def __init__(self, directory, rounds, seconds):
        self.directory, self.rounds, self.seconds = directory, rounds, seconds
        self.number = 0

    @contextlib.contextmanager
    def started(self, kind, *arguments, **options):
        self.number += 1
        server = kind(self.directory / f"{self.number}-{kind.__name__.lower()}", *arguments, **options).start()
        try:
            yield server
        finally:
            server.kill()

    def peers(self, stack):
        """The S3 servers of others, by name."""
        kinds = {"MinIO": peers.MinIO, "versitygw": peers.servers.S3Server, "rclone serve s3": peers.Rclone}
        return {name: stack.enter_context(self.started(kind)) for name, kind in kinds.items()}

    def words(self, size, concurrent, *more):
        return ["--obj.size", size, "--concurrent", concurrent, "--duration", f"{self.seconds}s", *more]


def putting(setting, server, size, concurrent, drain=None):
    """Measures PUTs of new objects in each round; `drain` is what must be empty before the next one begins."""

    def measure(number):
        prefix = f"put/{size}/{concurrent}/{number}/"
        words = ["put", *setting.words(size, concurrent), "--bucket", "bench", "--prefix", prefix, "--noclear"]
        measured = figures(load.run(server, *words), "PUT")
        if drain is not None:
            drain.wait_until_drained(600)
        return measured

    return measure


def getting(setting, server, size, concurrent, objects, *more):
    """Measures GETs of objects that are written before the first round."""

    def measure(number):
        words = ["get", *setting.words(size, concurrent), "--bucket", "bench", "--prefix", f"get/{size}/", "--noclear"]
        again = ["--prepared"] if number or more else []
        return figures(load.run(server, *words, "--objects", objects, *again, *more), "GET")

    return measure


def small_puts(setting):
    """PUT of 10 KiB at 1 and at 64 connections."""
    size = "10KiB"
    with contextlib.ExitStack() as stack:
        others = setting.peers(stack)
        store = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms"))
        near = stack.enter_context(setting.started(peers.Forebay, behind=store))
        local = stack.enter_context(setting.started(peers.Forebay))
        pure = stack.enter_context(setting.started(peers.Forebay, mode="TRANSIENT"))
        distant = peers.Distant(others["MinIO"]).start()
        stack.callback(distant.stop)

        def contenders(concurrent):
            ours = {
                "Forebay": putting(setting, near, size, concurrent, drain=near),
                "Forebay in front of a directory": putting(setting, local, size, concurrent, drain=local),
                "Forebay, TRANSIENT": putting(setting, pure, size, concurrent),
            }
            return ours | {name: putting(setting, server, size, concurrent) for name, server in others.items()}

        def raw(_):
            append = load.limits(setting.directory, "--obj.size", size, "--duration", f"{setting.seconds}s")["appendMs"]
            return {"p50": append["p50"], "p99": append["p99"], "rate": 1000 / append["mean"], "cpu": None}

        alone = {"append and fdatasync": raw} | contenders(1) | {"MinIO at 30 ms": putting(setting, distant, size, 1)}
        one = interleaved(setting.rounds, alone)
        many = interleaved(setting.rounds, contenders(64))
    columns = ("p50", "p99", "rate", "cpu")
    first = Section("put-1", "PUT 10 KiB, 1 connection", columns, one)
    over = one["Forebay"]["p50"] - one["append and fdatasync"]["p50"]
    first.at_most("p50 at most 0.3 ms above an append with `fdatasync`", over, 0.3, " ms")
    first.at_least("at least 15x faster than S3 at 30 ms", one["MinIO at 30 ms"]["p50"] / one["Forebay"]["p50"], 15)
    second = Section("put-64", "PUT 10 KiB, 64 connections", columns, many, chart="cpu")
    ours = many["Forebay"]
    second.at_least("at least 15x MinIO's rate", ours["rate"] / many["MinIO"]["rate"], 15)
    second.at_least("MinIO's processor time per PUT at least 20x Forebay's", many["MinIO"]["cpu"] / ours["cpu"], 20)
    second.at_least("versitygw's processor time per PUT at least 8x Forebay's", many["versitygw"]["cpu"] / ours["cpu"], 8)
    second.at_most("p99 at most 5x p50", ours["p99"] / ours["p50"], 5)
    second.notes.append(
        "Forebay's processor time includes the uploads in the background. They go to an S3 that answers in 30 ms, or to a directory on the same "
        "disk, where each file and its name are synced. TRANSIENT uploads nothing."
    )
    return [first, second]


def small_gets(setting):
    """GET of 10 KiB that was just written."""
    size, objects = "10KiB", 2000
    with contextlib.ExitStack() as stack:
        servers = setting.peers(stack) | {"Forebay": stack.enter_context(setting.started(peers.Forebay))}
        bare = stack.enter_context(setting.started(peers.Bare, "--obj.size", size, "--threads", "2"))

        def contenders(concurrent):
            known = {name: getting(setting, server, size, concurrent, objects) for name, server in servers.items()}
            return known | {"hyper alone": getting(setting, bare, size, concurrent, objects)}

        one = interleaved(setting.rounds, contenders(1))
        many = interleaved(setting.rounds, contenders(64))
    columns = ("p50", "p99", "rate", "cpu")
    first = Section("get-1", "GET 10 KiB just written, 1 connection", columns, one)
    first.at_most("p50 at most 0.3 ms", one["Forebay"]["p50"], 0.3, " ms")
    second = Section("get-64", "GET 10 KiB just written, 64 connections", columns, many, chart="cpu")
    ours = many["Forebay"]["cpu"]
    second.at_least("MinIO's processor time per GET at least 15x Forebay's", many["MinIO"]["cpu"] / ours, 15)
    second.at_least("versitygw's processor time per GET at least 4x Forebay's", many["versitygw"]["cpu"] / ours, 4)
    second.at_most("processor time at most 2.5x that of hyper alone", ours / many["hyper alone"]["cpu"], 2.5)
    return [first, second]


def large_puts(setting):
    """PUT of 10 MiB, and uploads of 1 GiB in parts."""
    size = "10MiB"
    with contextlib.ExitStack() as stack:
        # Uploads to a directory would take the disk's time too: here only what clients wait for is measured.
        servers = {"Forebay, TRANSIENT": stack.enter_context(setting.started(peers.Forebay, mode="TRANSIENT"))}
        servers |= setting.peers(stack)

        def uploading(server):
            def measure(number):
                words = ["multipart", *setting.words("1GiB", 2), "--part.size", "16MiB", "--bucket", "bench"]
                words += ["--prefix", f"multipart/{number}/"]
                return figures(load.run(server, *words), "MULTIPART")

            return measure

        def cleared(server, concurrent):
            def measure(number):
                words = ["put", *setting.words(size, concurrent), "--bucket", "bench", "--prefix", f"large/{number}/"]
                return figures(load.run(server, *words), "PUT")

            return measure

        puts = interleaved(setting.rounds, {name: cleared(server, 4) for name, server in servers.items()})
        parts = interleaved(setting.rounds, {name: uploading(server) for name, server in servers.items()})
        found = medians([load.limits(setting.directory, "--duration", "2s") | {"appendMs": 0} for _ in range(setting.rounds)])
    hashing = 1 / (1 / found["sha256BytesPerSecond"] + 1 / found["md5BytesPerSecond"])
    disk = found["directWriteBytesPerSecond"]
    sections = []
    for name, title, rows in (
        ("put-large", "PUT 10 MiB, 4 connections", puts),
        ("multipart", "Uploads of 1 GiB in parts of 16 MiB, 2 connections", parts),
    ):
        section = Section(name, title, ("p50", "p99", "bytes", "cpu"), rows, chart="bytes")
        ours = rows["Forebay, TRANSIENT"]
        section.at_least("MinIO's processor time per byte at least 4x Forebay's", rows["MinIO"]["cpu"] / ours["cpu"], 4)
        share = 100 * ours["bytes"] / min(hashing, disk)
        section.at_least("at least 60 % of the bandwidth of the disk or of hashing, whichever is lower", share, 60, " %")
        section.notes.append(
            f"The disk takes {disk / 1e6:,.0f} MB/s; one core hashes {hashing / 1e6:,.0f} MB/s with both SHA-256 and MD5."
        )
        sections.append(section)
    return sections


def large_gets(setting):
    """GET of 10 MiB that are cached."""
    size, objects = "10MiB", 60
    with contextlib.ExitStack() as stack:
        servers = setting.peers(stack) | {"Forebay": stack.enter_context(setting.started(peers.Forebay))}
        bare = stack.enter_context(setting.started(peers.Bare, "--obj.size", size, "--threads", "2"))
        reads = {name: getting(setting, server, size, 16, objects) for name, server in servers.items()}
        rows = interleaved(setting.rounds, reads | {"hyper alone": getting(setting, bare, size, 16, objects)})
    section = Section("get-large", "GET 10 MiB cached, 16 connections", ("p50", "p99", "bytes", "cpu"), rows, chart="cpu")
    ours = rows["Forebay"]
    section.at_most("processor time at most 1.5x that of hyper alone", ours["cpu"] / rows["hyper alone"]["cpu"], 1.5)
    section.at_most("processor time no more than versitygw's", ours["cpu"] / rows["versitygw"]["cpu"], 1)
    section.at_least("at least 3x MinIO's rate", ours["bytes"] / rows["MinIO"]["bytes"], 3)
    return [section]


def ranges(setting):
    """Ranges of 64 KiB of a cached object of 1 GiB."""
    with setting.started(peers.Forebay) as server:
        read = getting(setting, server, "1GiB", 1, 1, "--range", "64KiB")
        words = ["put", "--obj.size", "1GiB", "--concurrent", 1, "--duration", "1ms", "--bucket", "bench", "--overwrite"]
        load.run(server, *words, "--objects", 1, "--prefix", "get/1GiB/", "--noclear")
        rows = {"Forebay": medians([read(number) for number in range(setting.rounds)])}
    section = Section("ranges", "Ranges of 64 KiB of 1 GiB, 1 connection", ("p50", "p99", "rate", "cpu", "read"), rows)
    section.at_most("p50 at most 0.5 ms", rows["Forebay"]["p50"], 0.5, " ms")
    # Ranges begin anywhere, and the disk is read in blocks of 4 KiB.
    section.at_most("bytes read from disk per byte sent: at most 1, plus two blocks per range", rows["Forebay"]["read"], 1 + 2 * 4 / 64)
    return [section]


def persisting(setting):
    """How fast the backlog goes to an S3 that answers in 30 ms, and what clients see of it."""
    size = "10KiB"
    with contextlib.ExitStack() as stack:
        distant = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms", "--threads", "1"))
        near = stack.enter_context(setting.started(peers.Forebay, behind=distant))

        def paced(number, name):
            words = ["put", *setting.words(size, 64, "--rate", 200), "--bucket", "bench", "--noclear"]
            return figures(load.run(near, *words, "--prefix", f"{name}/{number}/"), "PUT")

        def fill(number, name):
            words = ["put", "--obj.size", size, "--concurrent", 64, "--duration", f"{2 * setting.seconds}s", "--bucket", "bench"]
            # Uploads wait meanwhile, so that there is a backlog at all: as soon as the bucket is there.
            pause = threading.Timer(0.5, distant.process.send_signal, [signal.SIGSTOP])
            pause.start()
            load.run(near, *words, "--noclear", "--prefix", f"{name}/{number}/")
            pause.join()
            distant.process.send_signal(signal.SIGCONT)

        idle, busy, drains = [], [], []
        for number in range(setting.rounds):
            idle.append(paced(number, "idle"))
            near.wait_until_drained(600)
            fill(number, "fill-1")
            busy.append(paced(number, "busy"))
            near.wait_until_drained(600)
            fill(number, "fill-2")
            drains.append(drain(near))
            near.wait_until_drained(600)
    rows = {"PUT, no backlog": medians(idle), "PUT, while a backlog drains": medians(busy), "uploads": medians(drains)}
    section = Section("persist", "Uploads of 10 KiB to an S3 at 30 ms", ("p50", "p99", "rate", "cpu"), rows)
    section.at_least("at least 2,000 objects per second", rows["uploads"]["rate"], 2000, "/s", 0)
    section.at_most("at most 500 µs of processor time per upload", rows["uploads"]["cpu"], 500, " µs", 0)
    ratio = rows["PUT, while a backlog drains"]["p99"] / rows["PUT, no backlog"]["p99"]
    section.at_most("p99 of PUT at most 2x while a backlog drains", ratio, 2)
    return [section]


def drain(server, seconds=None):
    """Rate and processor time of uploads while nobody else asks for anything."""
    begin, before, used = time.monotonic(), server.metrics()["forebay_dirty_objects"], cpu_seconds(server.process.pid)
    deadline = begin + (seconds or 30)
    left = before
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = server.metrics()["forebay_dirty_objects"]
    took, done = time.monotonic() - begin, before - left
    cpu = 1e6 * (cpu_seconds(server.process.pid) - used) / done
    return {"p50": None, "p99": None, "rate": done / took, "cpu": cpu}


def burst(setting):
    """Ten times what the under store bears, for a minute."""
    size, rate = "10KiB", 200
    with contextlib.ExitStack() as stack:
        options = ("--delay", "30ms", "--rate", str(rate), "--threads", "1")
        distant = stack.enter_context(setting.started(peers.Bare, *options))
        near = stack.enter_context(setting.started(peers.Forebay, behind=distant))

        def paced(name, operations, seconds):
            words = ["put", "--obj.size", size, "--concurrent", 256, "--rate", operations, "--duration", f"{seconds}s"]
            return figures(load.run(near, *words, "--bucket", "bench", "--noclear", "--prefix", f"{name}/"), "PUT")

        calm = paced("calm", rate // 2, 10)
        near.wait_until_drained(600)
        wild = paced("burst", 10 * rate, 60)
        drained = drain(near, 30)
    rows = {"PUT, calm": calm, "PUT, burst": wild, "uploads afterwards": drained}
    section = Section("burst", f"60 s of {10 * rate:,} PUTs per second to an S3 that accepts {rate}", ("p50", "p99", "rate", "cpu"), rows)
    section.bar("no request fails", "none failed", True)
    section.at_most("p99 at most 2x that without the burst", wild["p99"] / calm["p99"], 2)
    section.at_least("uploads continue at the full rate of the under store", 100 * drained["rate"] / rate, 90, " %")
    return [section]


def misses(setting):
    """First reads through a distance of 30 ms."""
    with contextlib.ExitStack() as stack:
        small = stack.enter_context(setting.started(peers.Bare, "--delay", "30ms", "--obj.size", "10KiB"))
        behind = stack.enter_context(setting.started(peers.Forebay, behind=small))

        def reading(server, size, objects, *more):
            def measure(number):
                words = ["get", *setting.words(size, 1), "--bucket", "bench", "--prefix", f"{number}/", "--noclear", "--prepared"]
                return figures(load.run(server, *words, "--keys", "sequential", "--objects", objects, *more), "GET")

            return measure

        many = 1_000_000
        first = interleaved(
            setting.rounds,
            {"S3 at 30 ms": reading(small, "10KiB", many), "Forebay in front of it": reading(behind, "10KiB", many)},
        )
        # What one connection to S3 carries: 85 to 90 MB/s, says "Performance guidelines for Amazon S3".
        options = ("--delay", "30ms", "--obj.size", "1GiB", "--stream-bandwidth", "90MiB")
        large = stack.enter_context(setting.started(peers.Bare, *options))
        before = stack.enter_context(setting.started(peers.Forebay, behind=large))
        cold = {"S3 at 30 ms": reading(large, "1GiB", many), "Forebay in front of it": reading(before, "1GiB", many)}
        streams = interleaved(min(setting.rounds, 3), cold)
    one = Section("miss", "First GET of 10 KiB, 1 connection", ("first", "p50", "p99", "cpu"), first)
    over = first["Forebay in front of it"]["first"] - first["S3 at 30 ms"]["first"]
    one.at_most("first byte at most 1 ms later than from the under store", over, 1, " ms")
    two = Section("cold-stream", "First GET of 1 GiB, 1 connection", ("first", "p50", "bytes", "cpu"), streams)
    two.at_least("at least 3x the rate of one stream", streams["Forebay in front of it"]["bytes"] / streams["S3 at 30 ms"]["bytes"], 3)
    two.notes.append("One connection to the under store carries 90 MiB/s. Amazon's performance guidelines give this figure for S3.")
    return [one, two]


# What an under store may be like, as options of the bare server.
TROUBLED = {
    "slow, 250 ms and 500 KB/s": ("--delay", "250ms", "--stream-bandwidth", "500KB"),
    "silent": ("--delay", "1h"),
    "trickling, 1 KB/s": ("--stream-bandwidth", "1KB"),
}


def neighbours(setting, objects=100):
    """A mount that is well, beside one that is not: 100 readers of 1 MiB and 200 writes per second go there."""
    reads, uploads = {}, {}
    for name, options in TROUBLED.items():
        with contextlib.ExitStack() as stack:
            near = stack.enter_context(setting.started(peers.Bare, "--delay", "5ms", "--obj.size", "10KiB"))
            troubled = stack.enter_context(setting.started(peers.Bare, *options, "--obj.size", "1MiB"))
            directory = setting.directory / f"near-{setting.number}"
            directory.mkdir()
            places = {"near": near, "troubled": troubled}
            mounts = "".join(f'{key} = "s3://bench?endpoint={at.endpoint}&region=us-east-1"\n' for key, at in places.items())
            config = f'[mounts]\n{mounts}kept = "file://{directory}"\n'
            server = stack.enter_context(setting.started(peers.Forebay, behind=near, config=config))

            def reading(number):
                words = ["get", *setting.words("10KiB", 8), "--bucket", "near", "--prefix", f"{number}/", "--noclear", "--prepared"]
                return figures(load.run(server, *words, "--keys", "sequential", "--objects", 1_000_000), "GET")

            def persisting(number):
                return until_persisted(boto(server), directory, f"{number}-", objects)

            rounds = range(setting.rounds)
            alone = [medians([measure(number) for number in rounds]) for measure in (reading, persisting)]
            to_troubled = ["--bucket", "troubled", "--noclear", "--duration", "1h"]
            stack.enter_context(load.background(server, "get", "--obj.size", "1MiB", "--concurrent", 100, "--prepared", *to_troubled))
            writes = ("put", "--obj.size", "100KiB", "--concurrent", 16, "--rate", 200, "--prefix", "put/")
            stack.enter_context(load.background(server, *writes, *to_troubled))
            time.sleep(5)
            rounds = range(setting.rounds, 2 * setting.rounds)
            beside = [medians([measure(number) for number in rounds]) for measure in (reading, persisting)]
        for rows, before, after in zip((reads, uploads), alone, beside, strict=True):
            rows[f"alone, before: {name}"], rows[f"next to: {name}"] = before, after
    titles = ("First GET of 10 KiB from an S3 at 5 ms, next to a mount that is failing", "Time until an object is persisted to a directory, next to a mount that is failing")
    sections = []
    for title, rows, columns in zip(titles, (reads, uploads), (("p50", "p99", "rate"), ("p50", "p99")), strict=True):
        section = Section("neighbours-" + ("reads" if rows is reads else "uploads"), title, columns, rows)
        for name in TROUBLED:
            ratio = rows[f"next to: {name}"]["p99"] / rows[f"alone, before: {name}"]["p99"]
            section.at_most(f"p99 at most 2x next to: {name}", ratio, 2)
        sections.append(section)
    return sections


def until_persisted(s3, directory, prefix, objects):
    """How long small objects take from their acknowledgement to a directory, one after the other, in milliseconds."""
    took = []
    for number in range(objects):
        key = f"{prefix}{number}"
        s3.put_object(Bucket="kept", Key=key, Body=b"value")
        begin = time.perf_counter()
        while not (directory / key).exists():
            time.sleep(0.0005)
        took.append(1000 * (time.perf_counter() - begin))
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}


def growth(setting, small=10_000, large=5_000_000):
    """The same work before and after millions of objects."""
    size = "1KiB"
    with setting.started(peers.Forebay, mode="TRANSIENT") as server:

        def measure(count):
            words = ["--bucket", "bench", "--prefix", "grow/", "--noclear", "--prepared", "--objects", count]
            puts = load.run(server, "put", "--overwrite", *setting.words(size, 64), *words)
            gets = load.run(server, "get", *setting.words(size, 64), *words)
            return medians([figures(puts, "PUT")]), medians([figures(gets, "GET")])

        def grow(count):
            words = ["stat", "--obj.size", size, "--concurrent", 64, "--duration", "1s", "--objects", count]
            load.run(server, *words, "--bucket", "bench", "--prefix", "grow/", "--noclear")

        grow(small)
        few = [measure(small) for _ in range(setting.rounds)]
        grow(large)
        many = [measure(large) for _ in range(setting.rounds)]
        server.stop()
        clean = restart(server)
        memory = resident_bytes(server.process.pid)
        server.kill()
        killed = restart(server)
    rows = {}
    for count, all_rounds in ((small, few), (large, many)):
        rows[f"PUT among {count:,}"] = medians([puts for puts, _ in all_rounds])
        rows[f"GET among {count:,}"] = medians([gets for _, gets in all_rounds])
    section = Section("growth", f"From {small:,} to {large:,} objects of 1 KiB", ("p50", "p99", "rate", "cpu", "memory"), rows)
    for name in ("PUT", "GET"):
        ratio = rows[f"{name} among {large:,}"]["rate"] / rows[f"{name} among {small:,}"]["rate"]
        section.at_least(f"rate of {name} at least 80 % of that with few objects", 100 * ratio, 80, " %")
    section.at_most("memory after a restart at most 1 GiB", memory / (1 << 20), 1024, " MiB", 0)
    section.at_most("ready within 5 s after a clean stop", clean, 5, " s", 1)
    section.at_most("ready within 20 s after SIGKILL", killed, 20, " s", 1)
    return [section]


def restart(server):
    begin = time.monotonic()
    server.start()
    return time.monotonic() - begin


def listing(setting, count=1_000_000):
    """Pages of 1,000 keys out of a million."""
    with setting.started(peers.Forebay, mode="TRANSIENT") as server:
        words = ["--bucket", "bench", "--prefix", "list/", "--noclear", "--objects", count, "--obj.size", "1B"]
        load.run(server, "stat", "--concurrent", 64, "--duration", "1s", *words)
        pages = [
            figures(load.run(server, "list", "--concurrent", 1, "--duration", f"{setting.seconds}s", "--prepared", *words), "LIST")
            for _ in range(setting.rounds)
        ]
        s3 = boto(server)
        anywhere = []
        for number in range(200):
            after = f"list/{number * count // 200:010}"
            for delimiter in ({}, {"Delimiter": "/"}, {"Delimiter": "5"}):
                begin = time.perf_counter()
                s3.list_objects_v2(Bucket="bench", Prefix="list/", StartAfter=after, **delimiter)
                anywhere.append(1000 * (time.perf_counter() - begin))
    anywhere.sort()
    python = {"p50": anywhere[len(anywhere) // 2], "p99": anywhere[len(anywhere) * 99 // 100], "rate": None, "cpu": None}
    rows = {"consecutive pages": medians(pages), "pages from anywhere, with and without a delimiter (boto3)": python}
    section = Section("list", f"Pages of 1,000 keys out of {count:,}", ("p50", "p99", "rate", "cpu"), rows)
    section.at_most("p50 at most 15 ms", rows["consecutive pages"]["p50"], 15, " ms", 1)
    section.notes.append("The second line includes the time in which boto3 parses a page, about 20 ms.")
    return [section]


def amplification(setting):
    """Bytes written to disk for each byte that was acknowledged."""
    rows = {}
    with setting.started(peers.Forebay, mode="TRANSIENT") as server:
        for size, concurrent in (("10KiB", 64), ("10KiB", 1), ("1MiB", 4), ("10MiB", 4)):
            measure = putting(setting, server, size, concurrent)
            rows[f"{size}, {concurrent} connections"] = medians([measure(number) for number in range(setting.rounds)])
    section = Section("amplification", "Bytes to disk", ("amplification", "rate", "bytes"), rows)
    for name, row in rows.items():
        section.at_most(f"{name}: at most 1.3x the acknowledged bytes", row["amplification"], 1.3)
    return [section]


ALL = {
    "small-puts": small_puts,
    "small-gets": small_gets,
    "large-puts": large_puts,
    "large-gets": large_gets,
    "ranges": ranges,
    "persisting": persisting,
    "burst": burst,
    "misses": misses,
    "neighbours": neighbours,
    "full": under_load.full,
    "beside": under_load.beside,
    "snapshots": under_load.snapshots,
    "restarts": under_load.restarts,
    "connections": under_load.connections,
    "eviction": under_load.eviction,
    "hostile": hostile.hostile,
    "growth": growth,
    "listing": listing,
    "amplification": amplification,
    "cluster": cluster.scaling,
    "engine": cluster.engine,
    "moves": moves.moves,
    "trino": trino.trino,
    "tenants": tenants.tenants,
}
