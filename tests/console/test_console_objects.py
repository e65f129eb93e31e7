"""Buckets, listings, objects: looking, sending, fetching, deleting."""

import re

import pytest
from botocore.exceptions import ClientError
from playwright.sync_api import expect

from harness.clients import boto
from harness.console import ODD_KEY
from harness.servers import eventually


def exists(s3, key):
    try:
        s3.head_object(Bucket="lake", Key=key)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "404", error
        return False
    return True


def test_one_goes_from_buckets_to_an_object_and_back(console):
    page = console.open("#/objects")
    page.get_by_role("link", name="lake").click()
    page.get_by_role("link", name="in/").click()
    row = page.get_by_role("row", name=re.compile("part-0001"))
    expect(row).to_contain_text("293 KiB")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Persistence")).to_be_visible()
    expect(page.get_by_text("WRITE")).to_have_count(0)
    page.get_by_role("navigation", name="Path").get_by_role("link", name="lake", exact=True).click()
    expect(page.get_by_role("link", name="readme.md")).to_be_visible()


def test_an_object_tells_its_state_its_pages_and_its_way(console):
    page = console.open("#/objects?object=/lake/in/part-0001.parquet")
    expect(page.get_by_text("clean", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("parts are wholly on disk"))).to_be_visible()
    expect(page.get_by_role("region", name="Persistence").get_by_text("stored")).to_be_visible()
    page = console.open("#/objects?object=/lake/scratch/shuffle-1")
    expect(page.get_by_text("transient", exact=True)).to_be_visible()
    page = console.open("#/objects?object=/lake/readme.md")
    expect(page.get_by_text("text/markdown")).to_be_visible()
    expect(page.get_by_role("definition").filter(has_text=re.compile("^data$"))).to_be_visible()


def test_an_object_that_is_here_in_part_shows_which(console, console_server):
    (console_server.under / "lake" / "table").write_bytes(b"t" * (16 << 20))
    boto(console_server).get_object(Bucket="lake", Key="table", Range="bytes=0-9")["Body"].read()
    page = console.open("#/objects?object=/lake/table")
    # Pages of one MiB; some may have been read ahead.
    expect(page.get_by_role("img", name=re.compile("^[1-9] of 16 parts are wholly on disk$"))).to_be_visible()
    page.get_by_text(re.compile("^1 range on disk$")).click()
    expect(page.get_by_text(re.compile("^bytes 0 to "))).to_be_visible()


def test_long_listings_come_in_pages(console):
    page = console.open("#/objects?path=/lake/many/")
    expect(page.get_by_text("200 objects and 0 prefixes so far")).to_be_visible()
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_text("210 objects and 0 prefixes", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="object-209")).to_be_visible()
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_a_path_is_taken_as_people_write_it(console):
    page = console.open("#/objects")
    field = page.get_by_label("Go to a path")
    field.fill("s3://lake/in/part-0001.parquet")
    field.press("Enter")
    expect(page.get_by_role("heading", name="Object", exact=True)).to_be_visible()
    field.fill("lake")
    field.press("Enter")
    expect(page.get_by_role("link", name="readme.md")).to_be_visible()


def test_what_is_not_there_is_told(console):
    page = console.open("#/objects?path=/empty/")
    expect(page.get_by_text("There is nothing under this path.")).to_be_visible()
    page = console.open("#/objects?object=/lake/absent")
    expect(page.get_by_role("alert")).to_be_visible()
    page = console.open("#/objects?path=/no-such-bucket/")
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_file_goes_up_comes_down_and_is_deleted(console, console_server, tmp_path):
    s3 = boto(console_server)
    body = bytes(range(256)) * 5000
    (tmp_path / "sent.bin").write_bytes(body)
    page = console.open("#/objects?path=/lake/in/")
    page.get_by_role("button", name="Upload …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("File").set_input_files(tmp_path / "sent.bin")
    expect(dialog.get_by_label("Path")).to_have_value("/lake/in/sent.bin")
    dialog.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("/lake/in/sent.bin is uploaded.")).to_be_visible()
    assert s3.get_object(Bucket="lake", Key="in/sent.bin")["Body"].read() == body

    page.get_by_role("link", name="sent.bin").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "sent.bin"
    download.value.save_as(tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == body

    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert exists(s3, "in/sent.bin")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("/lake/in/sent.bin is deleted.")).to_be_visible()
    expect(page.get_by_role("link", name="part-0001.parquet")).to_be_visible()
    expect(page.get_by_role("link", name="sent.bin")).to_have_count(0)
    assert not exists(s3, "in/sent.bin")


def test_an_upload_that_is_refused_says_why(console, console_server, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    page = console.open("#/objects?path=/lake/in/")
    page.get_by_role("button", name="Upload …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("File").set_input_files(tmp_path / "file")
    dialog.get_by_label("Path").fill("/no-such-bucket/file")
    dialog.get_by_role("button", name="Upload").click()
    expect(dialog.get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize("key", [ODD_KEY])
def test_odd_keys_are_text(console, console_server, key):
    page = console.open("#/objects?path=/lake/odd/")
    page.get_by_role("link", name=key.removeprefix("odd/")).click()
    expect(page.get_by_role("heading", name="Object", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Download")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == b"odd"
    assert page.locator("img[src=x]").count() == 0


def test_dirty_becomes_clean_before_ones_eyes(console, console_server):
    s3 = boto(console_server)
    s3.put_object(Bucket="lake", Key="in/watched", Body=b"1")
    page = console.open("#/objects?object=/lake/in/watched")
    expect(page.get_by_text("clean", exact=True)).to_be_visible()
    eventually("in the under store", (console_server.under / "lake" / "in" / "watched").exists)
