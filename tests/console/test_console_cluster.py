"""The page of a cluster: any worker shows all of them, and a worker that is alone has no such page."""

import re

import pytest
from playwright.sync_api import expect

from harness.cluster import LEASE_SECONDS, Cluster, answered, wait_until_shared
from harness.console import DESKTOP, PHONE, complaints, settled
from harness.servers import eventually

BUCKET = "lake"
# What is written stays dirty: the only bytes are those of one worker.
SLOWLY = {"FOREBAY_UNDER_STORE_LIMITS_REQUESTS_PER_SECOND": "1"}


def has_lost_bytes(worker):
    found = {found["id"]: found for found in worker.ask("cluster")["workers"]}
    return found["w2"]["state"] == "lost" and found["w1"]["slots"] == 1024 and found["w1"]["status"]["copiesUnavailable"] > 0


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A worker whose cluster had another one, which is gone with what only it has."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    workers = [cluster.worker(name, variables=SLOWLY) for name in ("w1", "w2")]
    try:
        for worker in workers:
            worker.start()
        wait_until_shared(workers)
        s3 = workers[0].s3()
        s3.create_bucket(Bucket=BUCKET)
        for number in range(24):
            answered(lambda: s3.put_object(Bucket=BUCKET, Key=f"in/{number:02}", Body=b"only here"))
        workers[1].kill()
        eventually("bytes that nobody has", lambda: has_lost_bytes(workers[0]), LEASE_SECONDS + 25)
        yield workers[0]
    finally:
        cluster.close()


def link(page):
    return page.get_by_role("navigation").get_by_role("link", name="Cluster", exact=True)


def test_a_worker_that_is_alone_has_no_such_page(console):
    with console.page.expect_response("**/api/v1/cluster") as answer:
        page = console.open()
    assert answer.value.status == 404
    expect(page.get_by_role("navigation").get_by_role("link", name="Jobs")).to_be_visible()
    expect(link(page)).to_have_count(0)


def test_all_workers_the_engine_and_what_is_unavailable_are_shown(new_console, left):
    page = new_console(server=left).log_in().open()
    link(page).click()
    expect(page.get_by_role("heading", name="Cluster", level=1)).to_be_visible()
    now = page.get_by_role("region", name="All workers")
    for words in ("live, of 2", "1,024", "all have a home", "get 503"):
        expect(now).to_contain_text(words)
    workers = page.get_by_role("group", name="Workers", exact=True)
    row = workers.get_by_role("row", name=re.compile("^w1"))
    expect(row).to_contain_text("live")
    expect(row).to_contain_text(f"127.0.0.1:{left.port}")
    expect(workers.get_by_role("row", name=re.compile("^w2"))).to_contain_text("lost")
    engine = page.get_by_role("group", name="Engine", exact=True)
    expect(engine.get_by_role("row", name=re.compile(str(left.cluster.etcd.port)))).to_contain_text("answers")
    unavailable = page.get_by_role("group", name="Unavailable objects", exact=True)
    expect(unavailable.get_by_role("row").filter(has_text=f"/{BUCKET}/in/").first).to_contain_text("worker w2")


@pytest.mark.parametrize("theme,size", [("light", PHONE), ("dark", DESKTOP)], ids=["light-phone", "dark-desktop"])
def test_the_page_is_for_everybody(new_console, left, theme, size):
    page = settled(new_console(theme, size, server=left).log_in().open("#/cluster"))
    expect(page.get_by_role("group", name="Unavailable objects", exact=True)).to_be_visible()
    assert complaints(page) == []
    widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widths[0] <= widths[1]
