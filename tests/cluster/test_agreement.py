"""Workers of a cluster compare what all of them need alike, and tell operators what differs."""

import subprocess

import botocore.exceptions
import pytest

from harness.clients import boto
from harness.cluster import wait_until_shared
from harness.command_line import CommandLine
from harness.faults import Clock
from harness.servers import eventually

USERS = """
[[user]]
name = "ada"
access_key = "ADA"
secret_key = "{secret}"
grants = [{{ path = "/", allow = ["read"] }}]
"""

POLICY = """
[[policy]]
path = "/logs"
writeMode = "READ_ONLY"
"""


def add(worker, text):
    worker.config.write_text(worker.config.read_text() + text)


def title(worker, notice):
    return next((found["title"] for found in worker.ask("notices") if found["id"] == notice), "")


def differing(worker):
    found = {}
    for name, value in worker.metrics().items():
        if name.startswith("forebay_cluster_differing_workers{"):
            found[name.split('of="')[1].split('"')[0]] = value
    return found


def problem(worker, of):
    return next(found["problem"] or "" for found in worker.ask("cluster")["workers"] if found["id"] == of)


def test_other_settings_are_told_until_they_are_alike(cluster):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    without = second.config.read_text()
    add(second, POLICY)
    first.start()
    second.start()
    for worker, other in ((first, "w2"), (second, "w1")):
        shown = f"other workers have other settings than this one: policy ({other})"
        eventually("a notice", lambda: title(worker, "cluster-settings-differ") == shown)
        assert differing(worker) == {"settings": 1, "clock": 0}
        # An answer that comes late is another problem for a moment.
        eventually("the problem", lambda: problem(worker, of=other) == f"other settings than {worker.name}: policy")
        assert problem(worker, of=worker.name) == ""
    assert second.stop() == 0
    second.config.write_text(without)
    second.start()
    eventually("no notice", lambda: not title(first, "cluster-settings-differ") and not title(second, "cluster-settings-differ"))
    assert differing(first) == {"settings": 0, "clock": 0}


def users_files(tmp_path, workers, secret):
    files = [tmp_path / f"users-{worker.name}.toml" for worker in workers]
    for worker, file in zip(workers, files):
        file.write_text(USERS.format(secret=secret))
        file.chmod(0o600)
        add(worker, f'[server]\nusers_file = "{file}"\n')
    return files


def lets_in(worker, secret):
    try:
        boto(worker, "ADA", secret).list_buckets()
    except botocore.exceptions.ClientError as error:
        code = error.response["Error"]["Code"]
        assert code in ("SignatureDoesNotMatch", "AccessDenied"), error
        return code == "AccessDenied"
    return True


def test_a_change_of_one_users_file_is_in_force_on_all_workers_and_stays(cluster, tmp_path):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    files = users_files(tmp_path, [first, second], "one secret")
    for worker in (first, second):
        worker.start()
    wait_until_shared([first, second])
    files[0].write_text(USERS.format(secret="another secret"))
    for worker in (first, second):
        eventually("the new secret", lambda: lets_in(worker, "another secret"))
        assert not lets_in(worker, "one secret")
    eventually("a notice", lambda: "newest change, on worker w1" in title(second, "users-file-outdated"))
    for worker in (first, second):
        assert worker.stop() == 0
    # The worker with the old file is the first.
    for worker in (second, first):
        worker.start()
    wait_until_shared([first, second])
    for worker in (first, second):
        assert lets_in(worker, "another secret") and not lets_in(worker, "one secret")
    # With another cluster key, the users stay as well.
    for worker in (first, second):
        assert worker.stop() == 0
    key = tmp_path / "cluster.key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    options = ["--cluster-engine", cluster.etcd.engine, "--cluster-name", cluster.name, "--cluster-key-file", str(key)]
    subprocess.run([first.binary, "cluster", "rekey", *options], check=True, capture_output=True, timeout=60)
    for worker in (second, first):
        worker.more = ["--cluster-key-file", str(key)]
        worker.start()
    wait_until_shared([first, second])
    for worker in (first, second):
        assert lets_in(worker, "another secret") and not lets_in(worker, "one secret")
        assert not title(worker, "cluster-users-refused")


@pytest.mark.slow("a difference is reported after several looks")
def test_a_clock_that_goes_wrong_is_told(cluster, tmp_path):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    clock, variables = Clock(tmp_path), second.environment
    second.environment = lambda: variables() | clock.variables()
    first.start()
    second.start()
    clock.move(100)
    eventually("a notice", lambda: " s ahead of this one (w2)" in title(first, "cluster-clocks-differ"))
    assert differing(first) == {"settings": 0, "clock": 1}
    eventually("the problem", lambda: "its clock is" in problem(first, of="w2"))
    clock.move(0)
    eventually("its end", lambda: not title(first, "cluster-clocks-differ"))


def rules(worker):
    return {rule["path"]: rule["writeMode"] for rule in CommandLine(worker).json("policy", "get") if "writeMode" in rule}


def test_a_worker_with_an_older_file_does_not_take_back_the_rules_of_all(cluster):
    """As when a machine crashes while a change of the files is on its way through the cluster."""
    first, second = cluster.worker("w1"), cluster.worker("w2")
    first.start()
    second.start()
    wait_until_shared([first, second])
    before = rules(first)
    assert second.stop() == 0
    add(second, POLICY)
    second.start()
    eventually("the new rule on all", lambda: "/logs" in rules(first))
    CommandLine(first).text("policy", "set", "/kept/", "--write-mode", "READ_ONLY")
    now = before | {"/logs": "READ_ONLY", "/kept/": "READ_ONLY"}
    first.kill()
    first.start()
    wait_until_shared([first, second])
    for worker in (first, second):
        eventually("the rules of all", lambda: rules(worker) == now)
    # Its turn comes, and it has nothing to add.
    assert first.stop() == 0
    add(first, POLICY)
    first.start()
    wait_until_shared([first, second])
    assert rules(first) == rules(second) == now
    # A worker that joins with another file changes nothing.
    third = cluster.worker("w3")
    third.start()
    wait_until_shared([first, second, third])
    assert rules(third) == now
