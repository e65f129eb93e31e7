"""Under stores and configuration: what is behind the cache, and how it is configured."""

import re

from playwright.sync_api import expect


def test_an_under_store_tells_how_it_answers(console, console_server):
    page = console.open("#/under-stores")
    expect(page.get_by_role("heading", name=str(console_server.under))).to_be_visible()
    expect(page.get_by_text("requests go through")).to_be_visible()
    # The load is still running: the second sample gives a rate.
    expect(page.locator("dt", has_text="Calls now").locator("xpath=following-sibling::dd")).to_have_text(re.compile(r"^[\d.,]+/s$"))


def test_settings_are_filtered_and_tell_their_source(console, console_server):
    page = console.open("#/configuration")
    table = page.get_by_role("group", name="Settings")
    expect(table.get_by_role("row", name=re.compile(f"127.0.0.1:{console_server.port}"))).to_contain_text("--listen")
    everything = table.get_by_role("row").count()
    page.get_by_label("Only what is set").check()
    expect(table.get_by_role("row", name=re.compile("--listen"))).to_be_visible()
    assert 1 < table.get_by_role("row").count() < everything
    page.get_by_label("Only what is set").uncheck()
    page.get_by_label("Filter").fill("ADMIN listen")
    expect(table.get_by_role("row", name=re.compile(str(console_server.admin_port)))).to_be_visible()
    page.get_by_label("Filter").fill("there is no such setting")
    expect(page.get_by_text("No setting is like that.")).to_be_visible()


def test_no_secret_is_shown(console, console_server):
    page = console.open("#/configuration")
    expect(page.get_by_role("group", name="Settings")).to_be_visible()
    assert console_server.secret_key not in page.content()
