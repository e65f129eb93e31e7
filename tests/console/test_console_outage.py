"""The server goes away, and comes back."""

import pytest
from playwright.sync_api import expect

from harness.clients import boto
from harness.servers import Forebay


@pytest.fixture
def own_server(tmp_path):
    """A server that the test may stop."""
    server = Forebay(tmp_path / "own").start()
    boto(server).create_bucket(Bucket="lake")
    yield server
    if server.process.poll() is None:
        assert server.stop() == 0, server.log.read_text()[-4000:]


def test_a_break_in_the_network_is_told_and_gone_over(console):
    page = console.open("#/jobs")
    seen = page.get_by_role("heading", name="All jobs")
    expect(seen).to_be_visible()
    console.context.set_offline(True)
    expect(page.get_by_text("The server has not answered since")).to_be_visible()
    # What was seen stays.
    expect(seen).to_be_visible()
    console.context.set_offline(False)
    expect(page.get_by_text("The server has not answered since")).to_have_count(0)
    expect(seen).to_be_visible()


def test_after_a_restart_one_logs_in_and_goes_on(new_console, own_server):
    console = new_console(server=own_server).log_in()
    page = console.open("#/jobs")
    expect(page.get_by_role("heading", name="All jobs")).to_be_visible()
    assert own_server.stop() == 0
    expect(page.get_by_text("The server has not answered since")).to_be_visible()
    own_server.start()
    # Sessions are in memory: that one is gone with the process.
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(page.get_by_text("The server has not answered since")).to_have_count(0)
    page.get_by_label("Access key").fill(own_server.access_key)
    page.get_by_label("Secret key").fill(own_server.secret_key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="All jobs")).to_be_visible()


def test_a_page_that_is_opened_too_early_waits(new_console, own_server):
    """The files may come from the browser's own store while the server is still starting."""
    console = new_console(server=own_server)
    console.page.route("**/api/v1/session", lambda route: route.abort())
    page = console.open()
    expect(page.get_by_text("The server has not answered since")).to_be_visible()
    console.page.unroute("**/api/v1/session")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
