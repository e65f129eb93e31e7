"""policy get, set, delete, history, rollback and resolve."""

import pytest


@pytest.fixture(autouse=True)
def clean(cli):
    """One rule, of `/`, before each test."""
    yield
    for rule in cli.json("policy", "get"):
        if rule["path"] != "/":
            cli.text("policy", "delete", rule["path"])


def rule(cli, path):
    return cli.json("policy", "get", path)


def test_set_makes_a_rule_and_changes_only_what_is_named(cli):
    cli.text("policy", "set", "s3://b/x/", "--write-mode", "NO_CACHE", "--cache-quota", "1.5GiB", "--cache-reads", "false")
    made = rule(cli, "/b/x/")
    assert made == {"path": "/b/x/", "writeMode": "NO_CACHE", "cacheQuota": "1536 MiB", "cacheReads": False}
    changed = cli.json("policy", "set", "/b/x/", "--write-mode", "READ_ONLY", "--unset", "cache-reads", "--metadata-ttl", "5 s")
    assert changed == rule(cli, "s3://b/x/")
    assert changed == {"path": "/b/x/", "writeMode": "READ_ONLY", "cacheQuota": "1536 MiB", "metadataTtl": "5 s"}


def test_get_shows_every_setting_of_every_rule(cli):
    cli.text("policy", "set", "/b/y/", "--eviction", "S3-FIFO")
    lines = [line.split() for line in cli.text("policy", "get").splitlines()]
    assert lines[0] == ["PATH", "SETTING", "VALUE"]
    assert ["/b/y/", "eviction", "S3-FIFO"] in lines and ["/", "writeMode", "WRITE_BACK"] in lines
    assert [line.split() for line in cli.text("policy", "get", "/b/y/").splitlines()][1:] == [["/b/y/", "eviction", "S3-FIFO"]]


def test_delete_takes_one_rule_away(cli):
    cli.text("policy", "set", "/b/z/", "--durability", "os")
    assert cli.text("policy", "delete", "s3://b/z/") == ""
    cli.refused("policy", "get", "/b/z/")
    cli.refused("policy", "delete", "/b/z/")


def test_history_says_who_changed_what_and_rollback_brings_it_back(cli):
    cli.text("policy", "set", "/b/h/", "--write-mode", "TRANSIENT")
    before = cli.json("policy", "history")[0]
    cli.text("policy", "set", "/b/h/", "--write-mode", "NO_CACHE")
    version = cli.json("policy", "history")[0]["version"]
    assert version > before["version"]
    (change,) = cli.json("policy", "history", version)["changes"]
    assert (change["path"], change["setting"]) == ("/b/h/", "writeMode")
    head, line = cli.text("policy", "history", version).splitlines()
    assert head.split() == ["PATH", "SETTING", "BEFORE", "AFTER"]
    assert "TRANSIENT" in line and "NO_CACHE" in line
    assert str(version) in cli.text("policy", "history").splitlines()[1]
    rules = cli.json("policy", "rollback", before["version"])
    assert rules == cli.json("policy", "get") and rule(cli, "/b/h/")["writeMode"] == "TRANSIENT"
    cli.refused("policy", "history", 999999)
    cli.refused("policy", "rollback", 999999)


def test_resolve_names_the_rule_of_each_setting(cli):
    cli.text("policy", "set", "/b/r/", "--eviction", "FIFO")
    lines = [line.split() for line in cli.text("policy", "resolve", "s3://b/r/key").splitlines()]
    assert ["eviction", "FIFO", "/b/r/"] in lines and ["writeMode", "WRITE_BACK", "/"] in lines
    assert ["durability", "fsync", "default"] in lines
    resolved = cli.json("policy", "resolve", "/b/r/key")
    assert (resolved["path"], resolved["rule"]) == ("/b/r/key", "/b/r/")


def test_rules_that_cannot_hold_are_refused(cli):
    before = cli.json("policy", "get")
    assert "writeReplicas" in cli.refused("policy", "set", "/b/w/", "--write-replicas", "3")
    assert "--write-mode" in cli.refused("policy", "set", "/b/w/", "--write-mode", "WRITEBACK")
    assert "--write-mode" in cli.refused("policy", "set", "/b/w/")
    cli.refused("policy", "set", "b/w", "--write-mode", "WRITE_BACK")
    cli.refused("policy", "resolve", "/b")
    assert cli.json("policy", "get") == before
