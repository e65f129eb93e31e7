"""Jobs: begun, watched, cancelled, and what they found."""

import re

import pytest
from playwright.sync_api import expect


def start(page, kind, path, dry_run=False, **fields):
    page.get_by_label("Kind").select_option(kind)
    page.get_by_label("Path").fill(path)
    for label, value in fields.items():
        page.get_by_label(label.replace("_", " ")).fill(value)
    page.get_by_label("Dry run").set_checked(dry_run)
    page.get_by_role("button", name=re.compile("^Start ")).click()
    expect(page.get_by_role("heading", name=re.compile("^Job "))).to_be_visible()


@pytest.mark.parametrize("kind", ["load", "free", "persist", "verify", "scrub"])
def test_a_job_of_each_kind_ends_well(console, kind):
    page = console.open("#/jobs")
    start(page, kind, "/lake/many/")
    expect(page.get_by_text("done", exact=True)).to_be_visible()
    expect(page.get_by_text("It found nothing.")).to_be_visible()
    page.get_by_role("link", name="All jobs").click()
    expect(page.get_by_role("group", name="Jobs").get_by_role("row", name=re.compile(f"{kind} .*done")).first).to_be_visible()


def test_a_dry_run_is_one(console):
    page = console.open("#/jobs?path=/lake/many/")
    expect(page.get_by_label("Path")).to_have_value("/lake/many/")
    start(page, "free", "/lake/many/", dry_run=True)
    expect(page.get_by_text("free, dry run")).to_be_visible()
    expect(page.get_by_text("Would be done")).to_be_visible()


def test_findings_lead_to_their_objects(console):
    page = console.open("#/jobs")
    start(page, "free", "/lake/scratch/")
    row = page.get_by_role("group", name="Findings").get_by_role("row", name="/lake/scratch/shuffle-1")
    expect(row).to_contain_text("pinned")
    row.get_by_role("link").click()
    expect(page.get_by_text("transient", exact=True)).to_be_visible()


def test_a_job_is_cancelled(console, console_server):
    cold = console_server.under / "lake" / "cold"
    cold.mkdir(exist_ok=True)
    for number in range(50):
        (cold / f"object-{number}").write_bytes(b"c" * 100_000)
    page = console.open("#/jobs")
    start(page, "load", "/lake/cold/", Bytes_per_second="10 KiB", Objects_at_once="1")
    expect(page.get_by_text("running", exact=True)).to_be_visible()
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Cancel …")).to_have_count(0)


def test_what_is_wrong_with_a_job_is_told(console):
    page = console.open("#/jobs")
    page.get_by_label("Path").fill("/no-such-bucket/")
    page.get_by_label("Bytes per second").fill("fast")
    page.get_by_role("button", name="Start load").click()
    expect(page.get_by_role("alert")).to_contain_text("fast")
    page.get_by_label("Bytes per second").fill("")
    page.get_by_role("button", name="Start load").click()
    expect(page.get_by_role("alert")).not_to_contain_text("fast")
    expect(page.get_by_role("alert")).to_be_visible()
