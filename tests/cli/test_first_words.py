"""What people type first, and how Forebay reports typing mistakes."""

import json

import pytest
from harness.clients import boto
from harness.servers import Forebay


def test_mounts_and_health_say_what_can_be_used(cli):
    (place,) = cli.json("mounts")
    assert place["problem"] is None and place["buckets"] == []
    assert "(all others)  ready" in cli.text("mounts")
    assert cli.json("health") == [one for one in cli.json("status")["notices"]]
    done = cli.run("health")
    is_critical = any(one["severity"] == "critical" for one in cli.json("status")["notices"])
    assert done.returncode == int(is_critical), done.stderr


def test_the_configuration_is_shown_without_secrets_and_with_its_sources(cli, tmp_path):
    file = tmp_path / "forebay.toml"
    file.write_text('[server]\nregion = "eu-1"\nroot_access_key = "root"\nroot_secret_key = "hunter2hunter2"\n')
    entries = {entry["name"]: entry for entry in cli.json("config", "show", "--config", file)}
    assert entries["server.region"]["value"] == "eu-1" and entries["server.region"]["source"].endswith("forebay.toml:2")
    assert "hunter2" not in json.dumps(entries) and "store.size" not in entries
    assert "store.size" in cli.text("config", "show", "--all", "--config", file)


def test_a_users_file_is_checked_without_a_server(cli, tmp_path):
    file = tmp_path / "users.toml"
    file.write_text('[[user]]\nname = "a"\naccess_key = "AKEY"\nsecret_key = "long-enough-secret"\ngrants = []\n')
    assert "valid" in cli.text("users", "check", file)
    file.write_text("[[users]]\n")
    assert "users.toml" in cli.refused("users", "check", file)


def test_policy_list_is_policy_get(cli):
    assert cli.json("policy", "list") == cli.json("policy", "get")


@pytest.mark.parametrize(
    "words, part",
    [
        (["ls", "lake/raw/"], "did you mean s3://lake/raw/?"),
        (["policy", "set", "/b/", "--cache-quota", "10G"], "did you mean 10 GiB or 10 GB?"),
    ],
)
def test_a_slip_is_told_what_may_have_been_meant(cli, words, part):
    assert part in cli.refused(*words)


def test_a_name_that_is_not_there_is_told(cli, objects):
    done = cli.run("policy", "set", "/no-such-shelf/", "--write-mode", "NO_CACHE")
    assert done.returncode == 0 and "no bucket no-such-shelf" in done.stderr, done.stderr
    cli.text("policy", "delete", "/no-such-shelf/")
    done = cli.run("load", "s3://shelf/no-such-prefix/")
    assert done.returncode == 0 and "nothing is under /shelf/no-such-prefix/" in done.stderr, done.stderr


def test_all_buckets_can_be_checked_at_once(cli, objects):
    report = cli.json("check-cached", "/")
    shelf = cli.json("check-cached", "s3://shelf/", "--summary")
    assert report["path"] == "/" and report["total"]["objects"] >= shelf["total"]["objects"] > 0
    assert cli.json("check-cached", "/", "--summary")["total"] == report["total"]


def test_mounts_show_no_date_that_nobody_knows(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    server = Forebay(tmp_path / "server", config=f'[mounts]\nlake = "file://{place}"\n').start()
    try:
        assert {one["name"]: one["createdMs"] for one in server.ask("buckets")}["lake"] is None
        boto(server).put_object(Bucket="lake", Key="key", Body=b"x")
    finally:
        server.kill()
