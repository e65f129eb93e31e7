"""Runs `forebay-bench`, and keeps what it measured."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile

from peers import BENCH


def run(server, *words):
    """Puts load on a server; gives the medians of forebay-bench's only run."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ["--host", server.endpoint, "--json", file.name, "--server-pid", server.process.pid]
        keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key}
        call(*words, *options, keys=keys)
        (only,) = json.load(file)["runs"]
        return only["median"]


@contextlib.contextmanager
def background(server, *words):
    """Load that goes on until the end of the block, whatever becomes of it."""
    command = [str(BENCH), *(str(word) for word in words), "--host", server.endpoint]
    keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ | keys, **quiet)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def limits(directory, *words):
    """What disk and processor can do at most."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        call("limits", "--directory", directory, "--json", file.name, *words)
        return json.load(file)


def call(*words, keys=None):
    command = [str(BENCH), *(str(word) for word in words)]
    done = subprocess.run(command, env=os.environ | (keys or {}), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])


def figures(measured, operation):
    """What tables show of one operation: milliseconds, per second, bytes per second, microseconds of the server."""
    one = measured["operations"][operation]
    server = measured["server"]
    return {
        "p50": one["latencyMs"]["p50"],
        "p99": one["latencyMs"]["p99"],
        "first": (one["firstByteMs"] or {}).get("p50"),
        "rate": one["operationsPerSecond"],
        "bytes": one["bytesPerSecond"],
        "cpu": server["cpuUs"],
        "memory": server["memoryPeakBytes"],
        "amplification": server["writeAmplification"],
        "read": server["readAmplification"],
    }


def medians(rounds):
    """Of dictionaries with the same keys; what is missing in one of them is missing."""
    return {
        name: None if any(one[name] is None for one in rounds) else statistics.median(one[name] for one in rounds)
        for name in rounds[0]
    }


def interleaved(rounds, contenders):
    """Calls each contender once in every round, so that what the machine does meanwhile meets all of them. `contenders` are functions by
    name, which give figures; returns medians by name."""
    measured = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            measured[name].append(measure(number))
    return {name: medians(every) for name, every in measured.items()}

