"""status, stat, ls and check-cached."""

from harness.fill import fill


def test_status_shows_backlog_and_space(cli, objects):
    shown = cli.text("status")
    for name in ("version", "up for", "dirty", "capacity", "pinned", "evictable", "free"):
        assert any(line.strip().startswith(name) for line in shown.splitlines()), shown
    overview = cli.json("status")
    assert overview["status"]["capacityBytes"] > 0 and overview["version"]


def test_ls_lists_buckets(cli, objects):
    assert "shelf" in cli.text("ls").split()
    assert "shelf" in [bucket["name"] for bucket in cli.json("ls", "s3://")]


def test_ls_lists_one_level_or_all(cli, objects):
    level = [line.split()[-1] for line in cli.text("ls", "s3://shelf").splitlines()]
    assert level == ["KEY", "a/", "b/", "top"]
    below = [line.split()[-1] for line in cli.text("ls", "/shelf/a/").splitlines()]
    assert below == ["KEY", "a/one", "a/two"]
    every = [line.split()[-1] for line in cli.text("ls", "s3://shelf", "-r").splitlines()]
    assert every == ["KEY", "a/one", "a/two", "b/three", "top"]
    head, one = cli.text("ls", "s3://shelf/a/one").splitlines()
    assert head.split() == ["STATE", "TIER", "CACHED", "SIZE", "MODIFIED", "KEY"]
    assert "clean" in one and "2.9 KiB" in one and "100.0 %" in one, one


def test_ls_in_json_is_one_page_of_all(cli, objects):
    page = cli.json("ls", "s3://shelf")
    assert page["prefixes"] == ["a/", "b/"] and "next" not in page
    (top,) = page["objects"]
    assert (top["key"], top["size"], top["state"]) == ("top", 1, "clean")
    assert [found["key"] for found in cli.json("ls", "s3://shelf", "--recursive")["objects"]] == ["a/one", "a/two", "b/three", "top"]
    assert cli.json("ls", "s3://shelf/none/") == {"objects": [], "prefixes": []}
    assert cli.text("ls", "s3://shelf/none/") == ""


def test_more_than_a_page_is_listed_as_a_whole(cli, objects):
    objects.create_bucket(Bucket="many")
    fill(cli.server, "many", [f"{number:04}" for number in range(1001)], b"")
    cli.server.wait_until_drained()
    assert len(cli.json("ls", "s3://many")["objects"]) == 1001
    keys = [line.split()[-1] for line in cli.text("ls", "s3://many").splitlines()]
    assert [key for key in keys if key != "KEY"] == [f"{number:04}" for number in range(1001)]
    assert cli.json("check-cached", "s3://many")["total"]["objects"] == 1001


def test_a_key_never_writes_on_the_terminal(cli, objects):
    objects.create_bucket(Bucket="odd")
    objects.put_object(Bucket="odd", Key="a\x1b[2Jb\nc", Body=b"")
    shown = cli.text("ls", "s3://odd")
    assert len(shown.splitlines()) == 2 and "\x1b" not in shown and r"a\u{1b}[2Jb\nc" in shown
    assert "\x1b" not in cli.text("stat", "s3://odd/a\x1b[2Jb\nc")
    assert [found["key"] for found in cli.json("ls", "s3://odd")["objects"]] == ["a\x1b[2Jb\nc"]


def test_stat_shows_one_object(cli, objects):
    shown = dict(line.split("  ", 1) for line in cli.text("stat", "s3://shelf/b/three").split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, value in shown.items()}
    assert fields["path"] == "/shelf/b/three" and fields["size"] == "2.0 MiB (2,097,152 bytes)"
    assert (fields["state"], fields["content type"], fields["metadata"]) == ("clean", "text/x-shelf", "of = b/three")
    detail = cli.json("stat", "/shelf/b/three")
    assert (detail["size"], detail["userMetadata"]) == (2 << 20, {"of": "b/three"})


def test_what_is_not_there_is_wrong_input(cli, objects):
    cli.refused("stat", "s3://shelf/none")
    cli.refused("ls", "s3://no-such-bucket/")
    assert "shelf/one" in cli.refused("ls", "shelf/one")
    cli.refused("stat", "s3://shelf")


def test_check_cached_counts_what_is_here(cli, objects):
    cli.text("load", "s3://shelf")
    report = cli.json("check-cached", "s3://shelf")
    assert (report["path"], report["total"]) == ("/shelf/", {"objects": 4, "bytes": 3001 + (2 << 20)})
    assert (report["cachedObjects"], report["cachedBytes"]) == (4, 3001 + (2 << 20))
    assert report["byState"] == {"clean": report["total"]}
    cli.text("free", "s3://shelf/b/")
    report = cli.json("check-cached", "s3://shelf/")
    assert (report["cachedObjects"], report["cachedBytes"], report["byTier"]["under_store"]["objects"]) == (3, 3001, 1)
    assert [object["cachedBytes"] == object["size"] for object in report["objects"]].count(False) == 1
    sums = {name: value for name, value in report.items() if name != "objects"}
    assert cli.json("check-cached", "s3://shelf/", "--summary") == sums
    assert cli.json("check-cached", "s3://shelf/none")["objects"] == []
    text = cli.text("check-cached", "s3://shelf")
    assert all(object["key"] in text for object in report["objects"]) and "dirty" not in text
    lines = {line.split("  ")[0]: line for line in cli.text("check-cached", "s3://shelf", "--summary").splitlines()}
    assert "4" in lines["all"] and "100.0 %" in lines["all"] and "under store" in lines
