"""The console that is committed is the one that its sources give, and they hold together."""

import json
import re
import subprocess

import pytest

from harness.servers import ROOT

CONSOLE = ROOT / "console"
# New enough for the tools, whatever the system has.
NODE = ROOT / ".tools" / "clients" / "js" / "node"
TYPESCRIPT = CONSOLE / "node_modules" / "typescript" / "bin" / "tsc"


@pytest.mark.parametrize(
    "arguments",
    [["build.mjs", "--verify"], ["build.mjs", "--test"], [TYPESCRIPT, "--noEmit"]],
    ids=["built from its sources", "unit tests", "types"],
)
def test_sources(arguments):
    done = subprocess.run([NODE, *arguments], cwd=CONSOLE, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_is_found(tmp_path):
    """The check before can fail."""
    copy = tmp_path / "console"
    subprocess.run(["cp", "-r", CONSOLE, copy], check=True)
    with open(copy / "src" / "style" / "base.css", "a") as style:
        style.write("\n.added { color: red; }\n")
    done = subprocess.run([NODE, "build.mjs", "--verify"], cwd=copy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "app.css" in done.stderr, done.stderr


def test_packages_come_from_the_registry():
    lock = json.loads((CONSOLE / "package-lock.json").read_text())
    places = [package.get("resolved", "") for package in lock["packages"].values()]
    assert [place for place in places if not re.match(r"(https://registry\.npmjs\.org/|$)", place)] == []
