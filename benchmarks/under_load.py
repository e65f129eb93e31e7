"""What is measured of a cache that is full, busy, large or just started: percentiles of short periods, at fixed rates."""

import concurrent.futures
import contextlib
import os
import statistics
import threading
import time

import load
import peers
from load import figures, resident_bytes
from report import Section

# Loads that run at the same time, at rates that two cores can sustain. They read two and a half times what the full cache holds.
MIXED = {
    "PUT 10 KiB": ("put", "--obj.size", "10KiB", "--rate", 200, "--concurrent", 32, "--bucket", "bench"),
    "GET 256 KiB": (
        *("get", "--obj.size", "256KiB", "--rate", 150, "--concurrent", 32, "--bucket", "bench"),
        *("--keys", "zipf", "--objects", 20_000, "--prepared"),
    ),
    "LIST 1,000 keys": ("list", "--rate", 5, "--concurrent", 4, "--bucket", "kept", "--prepared"),
    "upload of 32 MiB": (
        *("multipart", "--obj.size", "32MiB", "--part.size", "8MiB", "--rate", 0.5, "--concurrent", 4, "--bucket", "bench"),
    ),
}
OPERATIONS = {"put": "PUT", "get": "GET", "list": "LIST", "multipart": "MULTIPART"}
# Of every period the percentiles are taken; the tables show their medians, and the longest request of all.
PERIOD_SECONDS = 10
COLUMNS = ("p50", "p99", "p999", "max", "errors")
# Objects of this bucket stay in the cache alone.
KEPT = '[[policy]]\npath = "/kept"\nwriteMode = "TRANSIENT"\n'
DISK = "append and fdatasync at the same time"


@contextlib.contextmanager
def before_an_s3(setting, object_size, size="24 GiB", config=KEPT, store=""):
    """Forebay before an S3 that answers every GET after 5 ms with an object of this size. `config` begins within the table `cache`."""
    with contextlib.ExitStack() as stack:
        behind = stack.enter_context(setting.started(peers.Bare, "--delay", "5ms", "--obj.size", object_size))
        yield stack.enter_context(setting.started(peers.Forebay, behind=behind, size=size, config=config, store=store))


def names(server, count, prefix="forebay-bench/"):
    """Makes tiny objects in the bucket `kept`."""
    words = ["stat", "--bucket", "kept", "--prefix", prefix, "--objects", count, "--obj.size", "1B", "--concurrent", 64]
    load.run(server, *words, "--noclear", "--duration", "1s")


def measure(server, loads, periods, seconds=PERIOD_SECONDS):
    """Percentiles by the name of a load; all loads run at the same time."""
    words = ["--duration", f"{seconds}s", "--rounds", periods, "--noclear"]
    measured = load.together(server, {name: [*command, *words] for name, command in loads.items()})
    return {name: by_period(rounds, OPERATIONS[loads[name][0]]) for name, rounds in measured.items()}


def by_period(rounds, operation):
    """Of one operation: medians of its percentiles, the longest of all, and how many failed."""
    figures = [round["operations"][operation] for round in rounds]
    latencies = [one["latencyMs"] for one in figures]
    found = {name: statistics.median(one[name] for one in latencies) for name in ("p50", "p99", "p999")}
    failed = sum(sum(one["errors"].values()) for one in figures)
    rates = {"bytes": statistics.median(one["bytesPerSecond"] for one in figures), "rate": statistics.median(one["operationsPerSecond"] for one in figures)}
    return found | rates | {"max": max(one["max"] for one in latencies), "errors": failed}


@contextlib.contextmanager
def probing(directory):
    """Appends to a file and syncs it, fifty times a second: what the disk itself takes meanwhile. The dictionary gets the percentiles."""
    took, ended, found = [], threading.Event(), {}

    def probe():
        with open(directory / "probe", "wb", buffering=0) as file:
            while not ended.wait(0.02):
                begin = time.perf_counter()
                file.write(bytes(10 << 10))
                os.fdatasync(file.fileno())
                took.append(1000 * (time.perf_counter() - begin))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
    took.sort()
    found |= {name: took[int(len(took) * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    found |= {"max": took[-1], "errors": 0}


def full(setting):
    """The same mixed load on a cache that has room for all of it, and on a full one."""
    rows = {}
    for name, size in (("empty", "24 GiB"), ("full", "2 GiB")):
        with before_an_s3(setting, "256KiB", size) as server:
            names(server, 20_000)
            if name == "full":
                # More than it holds, so that room must be made from the first second on.
                words = ["put", "--obj.size", "1MiB", "--concurrent", 8, "--bucket", "bench", "--prefix", "before/", "--noclear"]
                load.run(server, *words, "--duration", "20s")
                server.wait_until_drained(600)
            # Until what is read often is there.
            measure(server, MIXED, 3)
            with probing(setting.directory) as disk:
                measured = measure(server, MIXED, 2 * setting.rounds)
        rows |= {f"{what}, {name}": row for what, row in (measured | {DISK: disk}).items()}
    section = Section("full", "A mixed load on a cache with room for everything, and on a full cache", COLUMNS, rows)
    for what in MIXED:
        ratio = rows[f"{what}, full"]["p99"] / rows[f"{what}, empty"]["p99"]
        section.at_most(f"{what}: p99 on the full cache at most 2x", ratio, 2)
    section.at_most("no request fails", sum(row["errors"] for row in rows.values()), 0, "", 0)
    put = rows["PUT 10 KiB, full"]["max"] - rows[f"{DISK}, full"]["max"]
    section.at_most("longest PUT on the full cache at most 100 ms above the disk's own time", put, 100, " ms", 0)
    section.notes.append(
        "Each second has 200 PUTs of 10 KiB, 150 GETs (Zipf distribution over 20,000 objects), 5 pages of listings and half an upload. "
        "The under store is an S3 at 5 ms. The full cache has 2 GiB."
    )
    return [section]


def beside(setting):
    """Small PUTs beside what takes the disk and the processors: cold reads of 1 GiB, and listings."""
    puts = {"PUT 10 KiB": ("put", "--obj.size", "10KiB", "--rate", 500, "--concurrent", 64, "--bucket", "kept", "--overwrite", "--objects", 20_000)}
    # A load that ends later than the PUTs would count them beside nothing.
    others = {
        "first GETs of 1 GiB": ("get", "--obj.size", "1GiB", "--rate", 0.2, "--concurrent", 4, "--bucket", "bench", "--prepared", "--keys", "sequential", "--objects", 1_000_000),
        "LIST 1,000 keys": ("list", "--rate", 50, "--concurrent", 8, "--bucket", "kept", "--prefix", "list/", "--prepared"),
    }
    rows = {}
    with before_an_s3(setting, "1GiB", "4 GiB") as server:
        names(server, 100_000, "list/")
        measure(server, puts, 1)
        # The cache is full from here on.
        measure(server, {name: others[name] for name in ("first GETs of 1 GiB",)}, 3)
        for name, load_beside in ((None, {}), *((name, {name: command}) for name, command in others.items())):
            with probing(setting.directory) as disk:
                measured = measure(server, puts | load_beside, setting.rounds)
            label = f"next to {name}" if name else "alone"
            rows[f"PUT 10 KiB, {label}"] = measured["PUT 10 KiB"]
            if name:
                rows[name] = measured[name]
            rows[f"{DISK}, {label}"] = disk
    section = Section("beside", "500 PUTs of 10 KiB per second next to other loads, TRANSIENT, on a full cache", (*COLUMNS, "bytes"), rows)
    for name in others:
        ratio = rows[f"PUT 10 KiB, next to {name}"]["p99"] / rows["PUT 10 KiB, alone"]["p99"]
        section.at_most(f"p99 next to {name} at most 2x", ratio, 2)
    section.notes.append("A read of 1 GiB begins every 5 s, which makes 205 MB/s. These objects leave the cache without a second read. The listing load requests 50 pages per second.")
    return [section]


def snapshots(setting, count=1_000_000):
    """PUTs at a fixed rate among a million small objects, while snapshots of all of them are written."""
    # As much log as the index takes, twice in a minute.
    puts = {"PUT 10 KiB": ("put", "--obj.size", "10KiB", "--rate", 1_000, "--concurrent", 64, "--bucket", "kept", "--overwrite", "--objects", 1_000)}
    rows, written = {}, 0
    for name, objects in (("few objects", 1_000), (f"{count:,} objects", count)):
        with before_an_s3(setting, "1KiB", store='snapshot_log_size = "16 MiB"') as server:
            names(server, objects, "many/")
            measure(server, puts, 1)
            before = server.metrics()["forebay_store_snapshots_total"]
            with probing(setting.directory) as disk:
                rows |= {f"{what}, {name}": row for what, row in measure(server, puts, max(6, 2 * setting.rounds)).items()}
            rows[f"{DISK}, {name}"] = disk
            written = server.metrics()["forebay_store_snapshots_total"] - before
    section = Section("snapshots", f"1,000 PUTs of 10 KiB per second among {count:,} objects, while snapshots are written", COLUMNS, rows)
    many = rows[f"PUT 10 KiB, {count:,} objects"]
    section.at_most("p99 at most 2x", many["p99"] / rows["PUT 10 KiB, few objects"]["p99"], 2)
    section.at_most("longest PUT at most 100 ms above the disk's own time", many["max"] - rows[f"{DISK}, {count:,} objects"]["max"], 100, " ms", 0)
    section.at_least("at least one snapshot is written", written, 1, "", 0)
    return [section]


def restarts(setting, count=1_000_000, before=10, after=40):
    """How long a restart under load takes until requests are as quick as they were."""
    loads = {
        "PUT 1 KiB": ("put", "--obj.size", "1KiB", "--rate", 200, "--concurrent", 32, "--bucket", "kept"),
        "GET 1 B": ("get", "--obj.size", "1B", "--rate", 200, "--concurrent", 32, "--bucket", "kept", *("--prefix", "many/", "--objects", count, "--prepared")),
    }
    rows = {}
    with before_an_s3(setting, "1KiB") as server:
        names(server, count, "many/")
        for name, end in (("after a clean stop", server.stop), ("after SIGKILL", server.kill)):
            words = ["--duration", "1s", "--rounds", before + after, "--noclear", "--timeout", "1s"]
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(load.together, server, {what: [*command, *words] for what, command in loads.items()})
                time.sleep(before + 1)
                end()
                begin = time.monotonic()
                server.start()
                ready = {"ready": time.monotonic() - begin}
            seconds = running.result()
            rows |= {f"{what}, {name}": ready | recovery(seconds[what], OPERATIONS[loads[what][0]], before) for what in loads}
    section = Section("restarts", f"A restart under load, with {count:,} objects", ("ready", "normal", "p99"), rows)
    section.notes.append("*Recovered* means three consecutive seconds without an error, and with a p99 of at most twice that before the restart.")
    return [section]


def recovery(seconds, operation, before):
    """The p99 of a second before the restart, and how many seconds went by after it until it was as before."""
    seconds = [second["operations"].get(operation) for second in seconds]
    # The first one connects, and the last one may hold the end.
    calm = statistics.median(second["latencyMs"]["p99"] for second in seconds[1 : before - 1])
    normal = [second is not None and not second["errors"] and second["latencyMs"]["p99"] <= 2 * calm for second in seconds]
    again = next((at for at in range(before, len(normal) - 2) if all(normal[at : at + 3]) and not all(normal[before : at + 1])), None)
    return {"p99": calm, "normal": None if again is None else again - before}


def connections(setting, count=2_000, rate=400):
    """Connections that are kept open and seldom used: each every few seconds, before the server closes it."""
    rows = {}
    with before_an_s3(setting, "10KiB") as server:
        words = ["get", "--obj.size", "10KiB", "--rate", rate, "--bucket", "kept", "--objects", 1_000, "--noclear"]
        load.run(server, *words, "--concurrent", 10, "--duration", "5s")
        words.append("--prepared")
        for number in (10, count):
            memory, during = resident_bytes(server.process.pid), []
            look = threading.Timer(25, lambda during=during: during.append(resident_bytes(server.process.pid)))
            look.start()
            measured = load.run(server, *words, "--concurrent", number, "--duration", "60s")
            look.join()
            rows[f"{number:,} connections"] = figures(measured, "GET") | {"each": (during[0] - memory) / number / 1024}
    section = Section("connections", f"{rate} GETs of 10 KiB per second, over few and over many connections", ("p50", "p99", "cpu", "each"), rows)
    many, few = rows[f"{count:,} connections"], rows["10 connections"]
    section.at_most("p99 over many connections at most 2x", many["p99"] / few["p99"], 2)
    section.notes.append("The time includes connecting. With 2,000 connections, each is used once in five seconds, for a minute.")
    section.at_most("processor time at most 1.5x", many["cpu"] / few["cpu"], 1.5)
    section.at_most("memory per connection at most 64 KiB", many["each"], 64, " KiB", 0)
    return [section]


# The scan's part of the cache, where it has a limit.
SCAN_QUOTA = "64 MiB"


def eviction(setting, seconds=40):
    """What each order of eviction keeps of a Zipf trace next to a scan, and what it writes for that; and what a quota of the scan changes."""
    quota = f'[[policy]]\npath = "/scan/"\ncacheQuota = "{SCAN_QUOTA}"\n'
    contenders = {
        "LRU, without the scan": ("LRU", "", False),
        "LRU": ("LRU", "", True),
        "FIFO": ("FIFO", "", True),
        "S3-FIFO": ("S3-FIFO", "", True),
        "LRU, and a `cacheQuota` for the scan": ("LRU", quota, True),
    }
    rows = {}
    for name, (order, more, scans) in contenders.items():
        config = f'memory_size = "16 MiB"\n[[policy]]\npath = "/"\neviction = "{order}"\n{more}'
        with before_an_s3(setting, "64KiB", "1 GiB", config) as server:
            common = ["--obj.size", "64KiB", "--noclear", "--prepared", "--duration", f"{seconds}s"]
            loads = {"trace": ["get", *common, "--rate", 600, "--concurrent", 16, "--bucket", "trace", "--keys", "zipf", "--objects", 40_000]}
            if scans:
                loads["scan"] = ["get", *common, "--rate", 200, "--concurrent", 4, "--bucket", "scan", "--keys", "sequential", "--objects", 40_000]
            load.together(server, loads)
            before, written = reads(server, "trace"), written_bytes(server.process.pid)
            measured = load.together(server, loads)
            after = reads(server, "trace")
            written = written_bytes(server.process.pid) - written
            total = {tier: after[tier] - before.get(tier, 0) for tier in after}
            read = sum(rounds[0]["operations"]["GET"]["bytesPerSecond"] for rounds in measured.values()) * seconds
            hits = total.get("memory", 0) + total.get("disk", 0)
            rows[name] = by_period(measured["trace"], "GET") | {"hits": 100 * hits / sum(total.values()), "amplification": written / read}
    section = Section("eviction", "GETs of 64 KiB in a Zipf distribution next to a scan, over 2.5 times what the cache holds", ("hits", "amplification", "p50", "p99"), rows)
    limited, alone = rows["LRU, and a `cacheQuota` for the scan"], rows["LRU, without the scan"]
    section.at_least("with a quota for the scan, at least 95 % of the hits without it", 100 * limited["hits"] / alone["hits"], 95, " %")
    section.notes.append(
        "600 GETs per second read 40,000 objects, and a sequential scan reads 200 of another 40,000 per second. The cache has 1 GiB, and its memory tier 16 MiB. "
        f'The quota is {SCAN_QUOTA}. "Bytes written per byte" counts the bytes that both loads read.'
    )
    return [section]


def reads(server, bucket):
    """Reads of a bucket by tier."""
    samples = {name: value for name, value in server.metrics().items() if name.startswith("forebay_reads_total{") and f'bucket="{bucket}"' in name}
    tiers = {tier: sum(value for name, value in samples.items() if f'tier="{tier}"' in name) for tier in ("memory", "disk", "under_store")}
    assert sum(tiers.values()), samples
    return tiers


def written_bytes(pid):
    with open(f"/proc/{pid}/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))
