"""Every day each case of the client tests runs, and together they meet every deployment with every client and every scenario."""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

import pytest

from harness.everyday import case_of, group_of

HERE = pathlib.Path(__file__).parent
SCENARIO = re.compile(r"::test_scenario\[(\w+)-(\w+)-([\w-]+)\]$")


def collected(*options):
    """The ids of client tests that a run has."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, "s3", "clients/test_clients.py"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_one_process_has_all_tests_of_a_directory_with_one_server():
    """And so starts that server once; other tests stay with those of their file."""
    one, other = "s3/test_one.py::test[directory-WRITE_BACK]", "s3/test_other.py::test[key-directory-WRITE_BACK-5]"
    assert group_of(one) == group_of(other)
    for elsewhere in ("s3/test_one.py::test[s3-WRITE_BACK]", "clients/test_one.py::test[directory-WRITE_BACK]"):
        assert group_of(one) != group_of(elsewhere)
    assert group_of("cli/test_top.py::test[a]") == group_of("cli/test_top.py::test_b") != group_of("cli/test_tls.py::test")
    # These start all that they need themselves, and take long.
    assert group_of("cluster/test_drain.py::test_a") != group_of("cluster/test_drain.py::test_b")


@pytest.fixture(scope="module")
def runs():
    """The ids of every day, and of everything that is not slow."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda options: collected(*options), [[], ["--everything", "-m", "not slow"]]))


def test_every_case_runs_every_day(runs):
    everyday, everything = runs
    assert set(everyday) < set(everything)
    assert {case_of(test_id) for test_id in everyday} == {case_of(test_id) for test_id in everything}


def test_clients_and_scenarios_take_turns_in_all_deployments(runs):
    everyday, everything = ([found.groups() for found in map(SCENARIO.search, run) if found] for run in runs)
    assert len(everyday) == len({(client, scenario) for client, scenario, _ in everything}), "each pair in one deployment"
    deployments = {deployment for _, _, deployment in everything}
    assert len(deployments) > 1
    for client in {client for client, _, _ in everyday}:
        assert {deployment for one, _, deployment in everyday if one == client} == deployments, client
    for scenario in {scenario for _, scenario, _ in everyday}:
        met = [deployment for _, one, deployment in everyday if one == scenario]
        assert len(set(met)) == min(len(met), len(deployments)), scenario
