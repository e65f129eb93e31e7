"""docs/threat-model.md names tests that exist."""

import re

from harness.servers import ROOT

DOCUMENT = ROOT / "docs/threat-model.md"


def rows():
    """The lines of its tables of threats."""
    text = DOCUMENT.read_text().partition("## What is checked")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| threat"))]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def test_every_threat_has_tests_that_exist():
    wrong, named = [], 0
    targets = (ROOT / "fuzz/src/targets.rs").read_text()
    for row in rows():
        shown = row[-1]
        references = re.findall(r"`([\w/.-]+)::(\w+)`", shown)
        if not references and shown != "nothing to show":
            wrong.append(f"no test: {row[0]}")
        for file, function in references:
            named += 1
            text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
            if not re.search(rf"\b(fn|def) {function}\(", text):
                wrong.append(f"{file}::{function}")
        wrong += [target for target in re.findall(r"fuzz target `([\w-]+)`", shown) if f'"{target}"' not in targets]
    assert not wrong, "\n".join(wrong)
    assert len(rows()) > 25 and named > 60


def test_every_test_of_security_stands_for_a_threat():
    """One that nobody finds from the table is one whose threat is not written down."""
    text = DOCUMENT.read_text()
    files = {path.name for path in (ROOT / "tests/security").glob("test_*.py")}
    assert {name for name in files if name not in text} <= {"test_threat_model.py", "test_deployment.py"}
