"""The entry of `make bench`."""

import argparse
import datetime
import pathlib
import platform
import subprocess
import tempfile

import report
import rows
from peers import ROOT


def main():
    parser = argparse.ArgumentParser(description="Measures Forebay beside its peers and writes docs/performance.md.")
    parser.add_argument("sections", nargs="*", choices=[*rows.ALL, []], help="what to measure; all when none is named")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which medians are shown")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "target", help="where the servers keep their data")
    parser.add_argument("--print", action="store_true", help="leave the document as it is")
    options = parser.parse_args()
    # Before this run itself changes the document.
    of = preface(options)
    for name in options.sections or rows.ALL:
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as directory:
            setting = rows.Setting(pathlib.Path(directory), options.rounds, options.seconds)
            sections = rows.ALL[name](setting)
        for section in sections:
            print(section.markdown(), flush=True)
        if sections and not options.print:
            report.write(ROOT / "docs" / "performance.md", ROOT / "docs" / "images", name, sections, of)


def preface(options):
    """What the figures are of."""
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    processor = f"{len(models)} x {models[0]}" if models else platform.machine()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT, check=True)
    return (
        f"Medians of {options.rounds} rounds of {options.seconds} s on {processor}, Linux {platform.release().split('-')[0]}, "
        f"of {commit.stdout.strip()} on {datetime.date.today()}."
    )


if __name__ == "__main__":
    main()
