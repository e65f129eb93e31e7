"""The load generator under test, which lies beside the server."""

import json
import os
import subprocess

from harness.servers import Forebay

# Far above what any run of these tests needs.
SECONDS = 120


class Bench:
    """Runs `forebay-bench` against one server, with nothing of the surroundings but its keys."""

    binary = Forebay.binary.with_name("forebay-bench")

    def __init__(self, server, directory):
        self.server = server
        self.directory = directory

    def run(self, *words):
        keys = {"FOREBAY_ACCESS_KEY": self.server.access_key, "FOREBAY_SECRET_KEY": self.server.secret_key}
        command = [str(self.binary), *(str(word) for word in words)]
        environment = {"PATH": os.environ["PATH"]} | keys
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )

    def report(self, *words):
        """The JSON report of a run that goes well; what it prints has the same numbers for people."""
        file = self.directory / "report.json"
        done = self.run(*words, "--host", self.server.endpoint, "--server-pid", self.server.process.pid, "--json", file)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "OPS/S" in done.stdout and "server" in done.stdout
        return json.loads(file.read_text())

    def workload(self, name, *words, objects=40, bucket="bench"):
        """A short run of a workload that leaves its objects; gives the only run of the report."""
        (run,) = self.report(
            *(name, "--bucket", bucket, "--noclear", "--objects", objects, "--concurrent", 3),
            *("--duration", "500ms", "--obj.size", "uniform:1KiB,20KiB", *words),
        )["runs"]
        return run

    def refused(self, *words, code=2):
        """The one line of a run that goes wrong."""
        done = self.run(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        (line,) = done.stderr.splitlines()
        assert line.startswith("forebay-bench: "), line
        return line
