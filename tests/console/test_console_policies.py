"""Path policies: editing, what it would change, two editors at once, and the way back."""

import json
import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(console):
    """The page; the rules are afterwards what they were."""
    before = console.api("GET", "policies").json()
    yield console.open("#/policies")
    assert console.api("PUT", "policies", data=before).status == 200


def edit(page, change):
    """Opens the editor, and writes what `change` makes of the rules."""
    page.get_by_role("button", name="Edit …").click()
    field = page.get_by_label("Rules as JSON")
    rules = json.loads(field.input_value())
    field.fill(json.dumps(change(rules), indent=2))
    return field


def quota(size):
    return lambda rules: [rule | {"cacheQuota": size} if rule["path"] == "/lake/in/" else rule for rule in rules]


def test_rules_are_shown_with_what_they_set(page):
    expect(page.get_by_role("region", name="Rules").get_by_role("row", name="/lake/in/")).to_contain_text("WRITE_BACK")


def test_a_change_is_checked_shown_and_applied(page, console):
    edit(page, quota("3 GiB"))
    apply = page.get_by_role("button", name="Apply")
    expect(apply).to_be_disabled()
    page.get_by_role("button", name="Check").click()
    row = page.get_by_role("group", name="Changes").get_by_role("row", name=re.compile("cacheQuota"))
    expect(row).to_contain_text("not set")
    expect(row).to_contain_text("3 GiB")
    apply.click()
    expect(page.get_by_text(re.compile(r"Version \d+ of the rules is in force\."))).to_be_visible()
    expect(page.get_by_role("region", name="Rules").get_by_text("3 GiB")).to_be_visible()
    assert "3 GiB" in json.dumps(console.api("GET", "policies").json())


def test_what_cannot_hold_is_told_and_not_applied(page):
    field = edit(page, quota("3 GiB"))
    field.fill('[\n  {"path": "/x/",}\n]')
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("line 2")
    field.fill('[{"path": "/x/", "writeMode": "WRITE_SIDEWAYS"}]')
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("WRITE_SIDEWAYS")
    field.fill('[{"path": "/x/", "writeMode": "WRITE_THROUGH", "writeBackMaxSize": "8 MiB"}]')
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("writeBackMaxSize needs writeMode = WRITE_BACK")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()


def test_a_text_that_is_changed_after_its_check_is_checked_again(page):
    field = edit(page, quota("3 GiB"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("button", name="Apply")).to_be_enabled()
    field.press("End")
    field.press("Space")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()


def test_somebody_else_was_quicker(page, console):
    edit(page, quota("4 GiB"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("button", name="Apply")).to_be_enabled()
    theirs = console.api("GET", "policies").json() + [{"path": "/theirs/", "writeMode": "READ_ONLY"}]
    assert console.api("PUT", "policies", data=theirs).status == 200
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Somebody has changed the rules meanwhile")).to_be_visible()
    page.get_by_role("button", name=re.compile("Continue from version")).click()
    page.get_by_role("button", name="Check").click()
    # Applying this text would take their rule away, and it says so.
    expect(page.get_by_role("group", name="Changes").get_by_role("row", name="/theirs/")).to_contain_text("not set")
    assert "4 GiB" not in json.dumps(console.api("GET", "policies").json())


def test_a_path_is_resolved(page):
    page.get_by_label("Path", exact=True).fill("s3://lake/in/x")
    page.get_by_role("button", name="Resolve").click()
    row = page.get_by_role("group", name="Settings that hold").get_by_role("row", name=re.compile("writeMode"))
    expect(row).to_contain_text("WRITE_BACK")
    expect(row).to_contain_text("/lake/in/")
    page.get_by_label("Path", exact=True).fill("Not_A_Bucket!/x")
    page.get_by_role("button", name="Resolve").click()
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_version_is_shown_and_gone_back_to(page, console):
    before = console.api("GET", "policies")
    version = int(before.headers["etag"].strip('"'))
    edit(page, quota("5 GiB"))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("button", name=f"Show version {version + 1}").click()
    expect(page.get_by_role("dialog")).to_contain_text("5 GiB")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"Roll back to version {version}", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("row", name="cacheQuota")).to_contain_text("5 GiB")
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text(f"The rules are those of version {version} again.")).to_be_visible()
    assert console.api("GET", "policies").json() == before.json()
    row = page.get_by_role("region", name="History").get_by_role("row", name=f"rollback to {version}")
    expect(row).to_contain_text("in force")
