#!/usr/bin/env python3
"""Load under kills, stops and outages, for the given time; in the end nothing may be lost and nothing may have grown.

usage: soak.py MINUTES      (FOREBAY_BIN names the binary)
"""

import itertools
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness.clients import boto  # noqa: E402
from harness.crowd import Crowd, allow_descriptors  # noqa: E402
from harness.ledger import Ledger, Load  # noqa: E402
from harness.relay import Relay  # noqa: E402
from harness.servers import Forebay, S3Server, eventually  # noqa: E402

CONNECTIONS = 10_000
STORE_BYTES = 512 << 20
CONFIG = f"""
[server]
connections_max = {CONNECTIONS + 1_000}
connections_per_address_max = {CONNECTIONS + 1_000}
[store]
size = "{STORE_BYTES >> 20} MiB"
segment_size = "8 MiB"
snapshot_log_size = "16 MiB"
[cache]
memory_size = "64 MiB"
settle_time = "1 s"
persist_backoff_max = "1 s"
[under_store_limits]
circuit_pause_max = "1 s"
[[policy]]
path = "/soak/writer-0/"
writeMode = "WRITE_THROUGH"
"""
# Operations of a round, in all writers together.
OPERATIONS = 600
# The index, buffers, the memory tier, and what ten thousand connections need.
MEMORY_BYTES_MAX = 1500 << 20
DESCRIPTORS_MAX = 200
# Segments that reclaim writes before it removes others, and a snapshot.
STORE_BYTES_MAX = STORE_BYTES * 5 // 4
# What may be there more in the second half than in the first: allocators and tables settle.
GROWTH_MAX = 1.25
EVENTS = ("nothing", "kill", "stop", "outage", "crowd")


class Soak:
    def __init__(self, directory):
        self.behind = S3Server(directory / "s3").start()
        self.relay = Relay(self.behind)
        self.server = Forebay(directory / "forebay", mode="WRITE_BACK", behind=self.relay, config=CONFIG).start()
        self.server.bucket = "soak"
        boto(self.server).create_bucket(Bucket="soak")
        self.load = Load(self.server, writers=6, keys=200, sizes=(700, 3_000, 20_000, 300_000, 2_000_000))
        self.choice = random.Random(self.load.seed)
        self.samples = []

    def round(self, event):
        enough = self.load.acknowledged() + OPERATIONS
        with self.load.running():
            if event == "outage":
                self.relay.set(gone=True)
            eventually("half of a round", lambda: self.load.acknowledged() >= enough - OPERATIONS // 2, 600)
            if event == "kill":
                self.server.kill()
            elif event == "stop":
                assert self.server.stop() == 0
            elif event == "crowd":
                self.crowd()
            if event in ("kill", "stop"):
                self.server.start()
            self.relay.set()
            # Writers whose server was gone have given up.
        with self.load.running():
            eventually("a round", lambda: self.load.acknowledged() >= enough, 600)
        self.server.wait_until_drained(600)
        self.load.check_all()
        return self.sample()

    def crowd(self):
        """Holds a crowd of connections while the writers continue, and times the answers to one more client."""
        client, times = Ledger(self.server, "timed", seed=1 << 20), []
        metrics = self.server.metrics
        with Crowd(self.server, CONNECTIONS - 2_400, 1_500, 1_500).present():
            eventually("a crowd", lambda: metrics()["forebay_connections"] >= CONNECTIONS, 120)
            for number in range(100):
                began = time.monotonic()
                client.put(f"timed/{number}", 3_000)
                client.check(f"timed/{number}")
                times.append(time.monotonic() - began)
            resident = metrics()["process_resident_memory_bytes"]
        eventually("the end of the crowd", lambda: metrics()["forebay_connections"] < 100, 120)
        worst = sorted(times)[-2]
        print(
            f"  {CONNECTIONS} connections: {resident / (1 << 20):.0f} MiB resident; "
            f"a write and a read took {statistics.median(times) * 1000:.0f} ms at the median, {worst * 1000:.0f} ms at the 99th percentile"
        )
        assert resident < MEMORY_BYTES_MAX

    def sample(self):
        metrics = self.server.metrics()
        taken = {
            "memory": metrics["process_resident_memory_bytes"],
            "descriptors": metrics["process_open_fds"],
            "disk": sum(path.stat().st_size for path in self.server.data.iterdir()),
            "dirty": metrics["forebay_dirty_objects"] + metrics["forebay_tombstones"],
            "pinned": metrics["forebay_store_pinned_bytes"],
        }
        assert taken["dirty"] == taken["pinned"] == 0, taken
        assert taken["memory"] < MEMORY_BYTES_MAX and taken["descriptors"] < DESCRIPTORS_MAX, taken
        assert taken["disk"] < STORE_BYTES_MAX, taken
        assert metrics["forebay_conflict_objects"] == 0
        self.samples.append(taken)
        return taken

    def check_growth(self):
        """Of the second half of the rounds against the first, without its beginning, in which everything fills."""
        settled = self.samples[len(self.samples) // 4 :]
        first, second = settled[: len(settled) // 2], settled[len(settled) // 2 :]
        for name in ("memory", "descriptors", "disk"):
            before, after = (statistics.median(sample[name] for sample in half) for half in (first, second))
            print(f"{name}: {before:.0f} in the first half, {after:.0f} in the second")
            assert after <= before * GROWTH_MAX, f"{name} grows"

    def end(self):
        for server in (self.server, self.behind):
            if server.process.poll() is None:
                server.kill()
        self.relay.close()


def main(minutes):
    allow_descriptors(CONNECTIONS + 2_000)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="forebay-soak-"))
    soak = Soak(directory)
    deadline = time.monotonic() + minutes * 60
    try:
        for number in itertools.count(1):
            event = EVENTS[number % len(EVENTS)]
            taken = soak.round(event)
            print(
                f"round {number} ({event}): {soak.load.acknowledged()} operations acknowledged; {taken['memory'] / (1 << 20):.0f} MiB of memory, "
                f"{taken['descriptors']:.0f} descriptors, {taken['disk'] / (1 << 20):.0f} MiB on disk",
                flush=True,
            )
            if time.monotonic() > deadline and number >= 2 * len(EVENTS):
                break
        soak.check_growth()
        assert soak.server.stop() == 0
    except BaseException:
        print(f"the end of the server's log, {soak.server.log}:\n{soak.server.log.read_text()[-4000:]}")
        raise
    finally:
        soak.end()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
