"""Runs `forebay-bench`, and keeps what it measured."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
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
    """Runs load until the block ends, normally or with an exception."""
    command = [str(BENCH), *(str(word) for word in words), "--host", server.endpoint]
    keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ | keys, **quiet)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def together(server, loads):
    """Puts several loads on a server at the same time. `loads` are words by name; gives the rounds of each, in which operations may have failed."""
    with tempfile.TemporaryDirectory() as directory:
        files = {name: f"{directory}/{number}.json" for number, name in enumerate(loads)}
        keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key}
        with concurrent.futures.ThreadPoolExecutor(len(loads)) as pool:
            options = ["--host", server.endpoint, "--json"]
            running = [pool.submit(attempt, *words, *options, files[name], keys=keys) for name, words in loads.items()]
            for load in running:
                load.result()
        return {name: json.loads(pathlib.Path(file).read_text())["runs"][0]["rounds"] for name, file in files.items()}


def limits(directory, *words):
    """What disk and processor can do at most."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        call("limits", "--directory", directory, "--json", file.name, *words)
        return json.load(file)


def call(*words, keys=None):
    done = attempt(*words, keys=keys)
    assert done.returncode == 0, (done.args, done.stdout[-2000:], done.stderr[-2000:])


def attempt(*words, keys=None):
    command = [str(BENCH), *(str(word) for word in words)]
    return subprocess.run(command, env=os.environ | (keys or {}), capture_output=True, text=True, stdin=subprocess.DEVNULL)


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


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
