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
    cli.text("policy", "set", "s3://box/x/", "--write-mode", "NO_CACHE", "--cache-quota", "1.5GiB", "--cache-reads", "false")
    made = rule(cli, "/box/x/")
    assert made == {"path": "/box/x/", "writeMode": "NO_CACHE", "cacheQuota": "1536 MiB", "cacheReads": False}
    changed = cli.json("policy", "set", "/box/x/", "--write-mode", "READ_ONLY", "--unset", "cache-reads", "--metadata-ttl", "5 s")
    assert changed == rule(cli, "s3://box/x/")
    assert changed == {"path": "/box/x/", "writeMode": "READ_ONLY", "cacheQuota": "1536 MiB", "metadataTtl": "5 s"}


def test_limits_by_size_are_set_shown_explained_and_unset(cli):
    limits = ["--write-back-max-size", "8MiB", "--read-cache-max-size", "1.5 GiB"]
    made = cli.json("policy", "set", "/box/s/", "--write-mode", "WRITE_BACK", *limits)
    expected = {"path": "/box/s/", "writeMode": "WRITE_BACK", "writeBackMaxSize": "8 MiB", "readCacheMaxSize": "1536 MiB"}
    assert made == rule(cli, "/box/s/") == expected
    lines = [line.split() for line in cli.text("policy", "resolve", "s3://box/s/key").splitlines()]
    assert ["writeBackMaxSize", "8", "MiB", "/box/s/"] in lines and ["readCacheMaxSize", "1536", "MiB", "/box/s/"] in lines
    elsewhere = [line.split() for line in cli.text("policy", "resolve", "s3://box/other").splitlines()]
    assert ["writeBackMaxSize", "-", "default"] in elsewhere and ["readCacheMaxSize", "-", "default"] in elsewhere
    refused = cli.refused("policy", "set", "/box/s/", "--write-mode", "NO_CACHE")
    assert "/box/s/" in refused and "writeBackMaxSize" in refused and "NO_CACHE" in refused
    assert rule(cli, "/box/s/") == expected
    changed = cli.json("policy", "set", "/box/s/", "--write-mode", "NO_CACHE", "--unset", "write-back-max-size")
    assert changed == {"path": "/box/s/", "writeMode": "NO_CACHE", "readCacheMaxSize": "1536 MiB"}


def test_get_shows_every_setting_of_every_rule(cli):
    cli.text("policy", "set", "/box/y/", "--eviction", "S3-FIFO")
    lines = [line.split() for line in cli.text("policy", "get").splitlines()]
    assert lines[0] == ["PATH", "SETTING", "VALUE"]
    assert ["/box/y/", "eviction", "S3-FIFO"] in lines and ["/", "writeMode", "WRITE_BACK"] in lines
    assert [line.split() for line in cli.text("policy", "get", "/box/y/").splitlines()][1:] == [["/box/y/", "eviction", "S3-FIFO"]]


def test_delete_takes_one_rule_away(cli):
    cli.text("policy", "set", "/box/z/", "--durability", "os")
    assert cli.text("policy", "delete", "s3://box/z/") == ""
    cli.refused("policy", "get", "/box/z/")
    cli.refused("policy", "delete", "/box/z/")


def test_history_says_who_changed_what_and_rollback_brings_it_back(cli):
    cli.text("policy", "set", "/box/h/", "--write-mode", "TRANSIENT")
    before = cli.json("policy", "history")[0]
    cli.text("policy", "set", "/box/h/", "--write-mode", "NO_CACHE")
    version = cli.json("policy", "history")[0]["version"]
    assert version > before["version"]
    (change,) = cli.json("policy", "history", version)["changes"]
    assert (change["path"], change["setting"]) == ("/box/h/", "writeMode")
    head, line = cli.text("policy", "history", version).splitlines()
    assert head.split() == ["PATH", "SETTING", "BEFORE", "AFTER"]
    assert "TRANSIENT" in line and "NO_CACHE" in line
    assert str(version) in cli.text("policy", "history").splitlines()[1]
    rules = cli.json("policy", "rollback", before["version"])
    assert rules == cli.json("policy", "get") and rule(cli, "/box/h/")["writeMode"] == "TRANSIENT"
    again = cli.run("policy", "rollback", before["version"])
    assert again.returncode == 0 and "nothing has changed" in again.stderr, again
    cli.refused("policy", "history", 999999)
    cli.refused("policy", "rollback", 999999)


def test_resolve_names_the_rule_of_each_setting(cli):
    cli.text("policy", "set", "/box/r/", "--eviction", "FIFO")
    lines = [line.split() for line in cli.text("policy", "resolve", "s3://box/r/key").splitlines()]
    assert ["eviction", "FIFO", "/box/r/"] in lines and ["writeMode", "WRITE_BACK", "/"] in lines
    assert ["durability", "fsync", "default"] in lines
    resolved = cli.json("policy", "resolve", "/box/r/key")
    assert (resolved["path"], resolved["rule"]) == ("/box/r/key", "/box/r/")


def test_rules_that_cannot_hold_are_refused(cli):
    before = cli.json("policy", "get")
    assert "writeReplicas" in cli.refused("policy", "set", "/box/w/", "--write-replicas", "3")
    assert "--write-mode" in cli.refused("policy", "set", "/box/w/", "--write-mode", "WRITEBACK")
    assert "--write-back-max-size" in cli.refused("policy", "set", "/box/w/", "--write-back-max-size", "much")
    through = cli.refused("policy", "set", "/box/w/", "--write-mode", "WRITE_THROUGH", "--write-back-max-size", "1MiB")
    assert "writeBackMaxSize" in through and "WRITE_THROUGH" in through
    assert "--write-mode" in cli.refused("policy", "set", "/box/w/")
    cli.refused("policy", "set", "b/w", "--write-mode", "WRITE_BACK")
    cli.refused("policy", "resolve", "/box")
    assert cli.json("policy", "get") == before
