"""Each workload against the real server: what is reported is what is in the bucket."""

import csv
import xml.etree.ElementTree

import pytest


def count(run, operation):
    """How often an operation succeeded; none has failed."""
    figures = run["median"]["operations"][operation]
    assert figures["errors"] == {} and figures["count"] > 0, figures
    latency = figures["latencyMs"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    return figures["count"]


def test_put_writes_as_many_objects_as_it_reports(bench, contents):
    run = bench.workload("put", bucket="put")
    found = contents("put")
    assert len(found) == count(run, "PUT")
    figures = run["median"]["operations"]["PUT"]
    assert sum(found.values()) == pytest.approx(figures["bytesPerSecond"] * run["median"]["seconds"])
    assert run["median"]["server"]["memoryPeakBytes"] > 1 << 20 and run["median"]["generatorCpuUs"] > 0


def test_put_writes_the_same_objects_again_when_asked(bench, contents):
    run = bench.workload("put", "--overwrite", "--keys", "sequential", objects=5, bucket="overwrite")
    assert len(contents("overwrite")) == min(count(run, "PUT"), 5)


def test_get_reads_what_was_prepared_and_compares_it(bench, contents):
    for more in ([], ["--signatures", "cached"], ["--unsigned-payload"], ["--keys", "zipf"]):
        run = bench.workload("get", "--verify", *more, bucket="get")
        assert count(run, "GET") > 0 and len(contents("get")) == 40
        assert run["median"]["operations"]["GET"]["firstByteMs"]["p50"] > 0


def test_stat_and_list_look_and_leave(bench, contents):
    assert count(bench.workload("stat", bucket="look"), "STAT") > 0
    run = bench.workload("list", "--max-keys", 7, bucket="look")
    listed = run["median"]["operations"]["LIST"]
    assert count(run, "LIST") > 0
    # Pages of seven, and a shorter one at the end of each round.
    assert 5 <= listed["objectsPerSecond"] / listed["operationsPerSecond"] <= 7
    assert len(contents("look")) == 40


@pytest.mark.parametrize("batch", [1, 7])
def test_delete_takes_away_what_it_reports(bench, contents, batch):
    bucket = f"delete-{batch}"
    run = bench.workload("delete", "--batch", batch, objects=400, bucket=bucket)
    figures = run["median"]["operations"]["DELETE"]
    deleted = figures["objectsPerSecond"] * run["median"]["seconds"]
    assert count(run, "DELETE") > 0 and len(contents(bucket)) == pytest.approx(400 - deleted)


def test_mixed_leaves_what_was_put_and_not_deleted(bench, contents):
    run = bench.workload("mixed", bucket="mixed")
    operations = run["median"]["operations"]
    put = count(run, "PUT")
    deleted = operations.get("DELETE", {"count": 0})["count"]
    assert count(run, "GET") > 0 and len(contents("mixed")) == 40 + put - deleted


def test_read_after_write_compares_every_time(bench):
    run = bench.workload("read-after-write", bucket="raw")
    assert count(run, "PUT") == count(run, "GET")


def test_multipart_uploads_are_whole_objects(bench, contents):
    (run,) = bench.report(
        *("multipart", "--bucket", "multipart", "--noclear", "--obj.size", "11MiB", "--part.size", "5MiB"),
        *("--concurrent", 1, "--duration", "1s"),
    )["runs"]
    found = contents("multipart")
    assert len(found) == count(run, "MULTIPART") and set(found.values()) == {11 << 20}
    assert count(run, "PART") == 3 * len(found)


def test_an_open_loop_keeps_its_rate(bench):
    (run,) = bench.report(
        *("stat", "--bucket", "rate", "--objects", 5, "--obj.size", "1KiB", "--concurrent", 8, "--rate", 50, "--duration", "2s")
    )["runs"]
    assert run["rate"] == 50 and count(run, "STAT") + run["median"]["missed"] == 100


def test_sweeps_and_rounds_give_all_files(bench, contents):
    page, table = bench.directory / "page.html", bench.directory / "table.csv"
    report = bench.report(
        *("get", "--bucket", "sweep", "--objects", 10, "--obj.size", "1KiB", "--concurrent", "1,2,4", "--rounds", 3),
        *("--duration", "200ms", "--html", page, "--csv", table),
    )
    assert [run["connections"] for run in report["runs"]] == [1, 2, 4]
    assert all(len(run["rounds"]) == 3 for run in report["runs"])
    assert xml.etree.ElementTree.fromstring(page.read_text()).tag == "html"
    with open(table, newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 * 4
    # Without --noclear nothing is left.
    assert contents("sweep") == {}


def test_bad_input_is_refused_in_one_line(bench, worker):
    host = ("--host", worker.endpoint)
    for words, named in [
        (["get", "--host", "https://127.0.0.1:1"], "https"),
        (["get", "--obj.size", "ten"], "ten"),
        (["get", *host, "--objects", "0"], "--objects 0"),
        (["get", *host, "--concurrent", "4,0"], "--concurrent 0"),
        (["get", *host, "--rate", "0"], "--rate 0"),
        (["get", *host, "--rounds", "0"], "--rounds 0"),
        (["get", *host, "--threads", "1000"], "--threads 1000"),
        (["get", *host, "--server-pid", "999999999"], "999999999"),
        (["get", *host, "--prefix", ""], "--prefix"),
        (["list", *host, "--max-keys", "1001"], "--max-keys 1001"),
        (["mixed", *host, "--delete-distrib", "50"], "--delete-distrib 50"),
        (["cosbench", "/none.xml"], "/none.xml"),
    ]:
        assert named in bench.refused(*words)
    assert "InvalidAccessKeyId" in bench.refused("get", *host, "--access-key", "nobody", code=1)
