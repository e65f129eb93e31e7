"""Logging in and out, and the session ending in between."""

import re

from playwright.sync_api import expect


def log_in(page, server, secret=None):
    page.get_by_label("Access key").fill(server.access_key)
    page.get_by_label("Secret key").fill(secret or server.secret_key)
    page.get_by_role("button", name="Log in").click()


def test_wrong_keys_are_refused_in_words(new_console, console_server):
    page = new_console().open()
    log_in(page, console_server, secret="wrong")
    expect(page.get_by_role("alert")).to_contain_text("key")
    # The right ones help at once.
    log_in(page, console_server)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_session_outlives_a_reload_and_ends_with_log_out(new_console, console_server):
    console = new_console()
    page = console.open()
    log_in(page, console_server)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    (cookie,) = console.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)") == "{}{}"
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("You are logged out.")).to_be_visible()
    assert console.context.request.get(f"{console_server.admin}/api/v1/session").status == 401


def test_after_the_end_of_a_session_one_goes_on_where_one_was(console, console_server):
    page = console.open("#/jobs?path=/lake/in/")
    expect(page.get_by_label("Path")).to_have_value("/lake/in/")
    console.end_session()
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    log_in(page, console_server)
    expect(page.get_by_label("Path")).to_have_value("/lake/in/")


def test_the_token_of_another_window_is_found_out(new_console, console_server):
    """Two windows of one browser: the second logs in, and the cookie of the first is another one from then on."""
    console = new_console().log_in()
    page = console.open("#/jobs")
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    console.log_in()
    page.get_by_label("Path").fill("/lake/in/")
    page.get_by_label("Dry run").check()
    page.get_by_role("button", name="Start dry run").click()
    expect(page.get_by_role("heading", name=re.compile("^Job "))).to_be_visible()


def test_changes_without_the_token_are_refused(console):
    page = console.open()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    ask = "(headers) => fetch('/api/v1/persist?prefix=/lake/in/', {method: 'POST', headers}).then(answer => answer.status)"
    token = page.evaluate("fetch('/api/v1/session').then(answer => answer.json()).then(session => session.csrf)")
    assert page.evaluate(ask, {}) == 403
    assert page.evaluate(ask, {"x-forebay-csrf": "guessed"}) == 403
    assert page.evaluate(ask, {"x-forebay-csrf": token}) == 204


def test_scripts_and_styles_of_others_do_not_run(console):
    page = console.open()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p id=probe style=\"color: rgb(1, 2, 3)\">x</p>')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))")
    assert page.evaluate("[window.ran, getComputedStyle(document.getElementById('probe')).color !== 'rgb(1, 2, 3)']") == [None, True]
    # This test has provoked them; no other may see any.
    assert len(console.problems) >= 2 and all("blocked" in problem or "Content Security" in problem for problem in console.problems)
    console.problems.clear()
