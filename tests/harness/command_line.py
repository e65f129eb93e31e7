"""The command line under test."""

import json
import os
import subprocess

from harness.servers import Forebay

# Far above what any command of these tests needs.
SECONDS = 60


class CommandLine:
    """Runs `forebay` as a user of one server would, with nothing of the surroundings but what is given."""

    def __init__(self, server):
        self.server = server

    def environment(self, **more):
        keys = {"FOREBAY_ACCESS_KEY": self.server.access_key, "FOREBAY_SECRET_KEY": self.server.secret_key}
        endpoint = {"FOREBAY_ADMIN_ENDPOINT": self.server.admin}
        return {"PATH": os.environ["PATH"], "TMPDIR": str(self.server.directory)} | endpoint | keys | more

    def run(self, *words, **more):
        command = [str(Forebay.binary), *(str(word) for word in words)]
        return subprocess.run(
            command, env=self.environment(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )

    def text(self, *words, **more):
        """Standard output of a command that goes well."""
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def json(self, *words, **more):
        """The one document of a command that goes well."""
        return json.loads(self.text(*words, "--output", "json", **more))

    def refused(self, *words, code=2, **more):
        """The one line of a command that goes wrong."""
        done = self.run(*words, **more)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("forebay: "), (words, done.stderr)
        assert done.stdout == "", (words, done.stdout)
        return lines[0]
