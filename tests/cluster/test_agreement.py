"""Workers of a cluster compare what all of them need alike, and tell operators what differs."""

import pytest

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


def test_other_settings_are_told_until_they_are_alike(cluster, tmp_path):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    files = []
    for worker in (first, second):
        files.append(tmp_path / f"users-{worker.name}.toml")
        files[-1].write_text(USERS.format(secret="one secret"))
        files[-1].chmod(0o600)
        add(worker, f'[server]\nusers_file = "{files[-1]}"\n')
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
    # A change of one file that is not one of the other: until it is made there, too.
    files[1].write_text(USERS.format(secret="another secret"))
    eventually("both", lambda: "policy, server.users_file (w2)" in title(first, "cluster-settings-differ"))
    files[0].write_text(USERS.format(secret="another secret"))
    eventually("one again", lambda: "users_file" not in title(first, "cluster-settings-differ"))
    assert second.stop() == 0
    second.config.write_text(without)
    second.start()
    eventually("no notice", lambda: not title(first, "cluster-settings-differ") and not title(second, "cluster-settings-differ"))
    assert differing(first) == {"settings": 0, "clock": 0}


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
