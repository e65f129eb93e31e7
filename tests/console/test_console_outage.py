"""The server goes away, and comes back."""

from playwright.sync_api import expect

from harness.clients import boto
from harness.servers import Forebay


def test_a_break_in_the_network_is_told_and_gone_over(console):
    page = console.open("#/under-stores")
    store = page.get_by_text("requests go through")
    expect(store).to_be_visible()
    console.context.set_offline(True)
    expect(page.get_by_text("The server does not answer since")).to_be_visible()
    # What was seen stays.
    expect(store).to_be_visible()
    console.context.set_offline(False)
    expect(page.get_by_text("The server does not answer since")).to_have_count(0)
    expect(store).to_be_visible()


def test_after_a_restart_one_logs_in_and_goes_on(new_console, tmp_path):
    server = Forebay(tmp_path / "restarted").start()
    boto(server).create_bucket(Bucket="lake")
    console = new_console(server=server).log_in()
    page = console.open("#/under-stores")
    expect(page.get_by_text("requests go through")).to_be_visible()
    assert server.stop() == 0
    expect(page.get_by_text("The server does not answer since")).to_be_visible()
    server.start()
    # Sessions are in memory: that one is gone with the process.
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(page.get_by_text("The server does not answer since")).to_have_count(0)
    page.get_by_label("Access key").fill(server.access_key)
    page.get_by_label("Secret key").fill(server.secret_key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Under stores")).to_be_visible()
    assert server.stop() == 0


def test_a_page_that_is_opened_too_early_waits(new_console, tmp_path):
    """The files may come from the browser's own store while the server is still starting."""
    server = Forebay(tmp_path / "late").start()
    console = new_console(server=server)
    console.page.route("**/api/v1/session", lambda route: route.abort())
    page = console.open()
    expect(page.get_by_text("The server does not answer since")).to_be_visible()
    console.page.unroute("**/api/v1/session")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert server.stop() == 0
