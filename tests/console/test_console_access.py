"""For everybody: keys alone, readers of screens, both themes, small screens."""

import re

import pytest
from playwright.sync_api import expect

from harness.console import DESKTOP, PHONE, complaints, settled

PLACES = {
    "overview": "#/overview",
    "buckets": "#/objects",
    "listing": "#/objects?path=/lake/in/",
    "object": "#/objects?object=/lake/in/part-0001.parquet",
    "policies": "#/policies?resolve=/lake/in/x",
    "jobs": "#/jobs",
    "under stores": "#/under-stores",
    "configuration": "#/configuration",
    "nowhere": "#/nowhere",
}
# More than any page has stops.
STOPS_MAX = 150


OTHER_VIEW = pytest.mark.slow("each theme and each size is looked at in another view")


@pytest.mark.parametrize(
    "theme,size",
    [
        pytest.param("light", DESKTOP, id="light-desktop"),
        pytest.param("light", PHONE, id="light-phone", marks=OTHER_VIEW),
        pytest.param("dark", DESKTOP, id="dark-desktop", marks=OTHER_VIEW),
        pytest.param("dark", PHONE, id="dark-phone"),
    ],
)
def test_axe_has_nothing_to_complain_about(new_console, theme, size):
    console = new_console(theme, size)
    page = console.open()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    found = {"login": complaints(page)}
    console.log_in()
    for name, place in PLACES.items():
        found[name] = complaints(settled(console.open(place)))
    page = console.open("#/policies")
    page.get_by_role("button", name="Edit …").click()
    page.get_by_label("Rules as JSON").fill("[{}]")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_be_visible()
    found["editor"] = complaints(page)
    page = console.open("#/objects?object=/lake/in/part-0001.parquet")
    page.get_by_role("button", name="Delete …").click()
    found["dialog"] = complaints(page)
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_phone_needs_no_sideways_scrolling(new_console):
    console = new_console(size=PHONE).log_in()
    for name, place in PLACES.items():
        page = settled(console.open(place))
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1], name


def test_the_theme_is_chosen_and_remembered(console):
    page = console.open()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_label("Theme").select_option("system")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def tab_to(page, name):
    """Presses Tab until the focus is on what has this name; it has to be seen there."""
    what = """() => { const e = document.activeElement; const style = getComputedStyle(e);
        const label = e.labels && e.labels[0] ? e.labels[0].textContent : '';
        return [e.getAttribute('aria-label') || label || e.textContent || '', style.outlineStyle !== 'none']; }"""
    for _ in range(STOPS_MAX):
        page.keyboard.press("Tab")
        text, outlined = page.evaluate(what)
        assert outlined, f"the focus on {text!r} is not seen"
        if re.search(name, text.strip()):
            return
    raise AssertionError(f"{name} is not reached")


def test_all_goes_by_keys_alone(new_console, console_server):
    page = new_console().open()
    expect(page.get_by_label("Access key")).to_be_focused()
    page.keyboard.type(console_server.access_key)
    page.keyboard.press("Tab")
    page.keyboard.type(console_server.secret_key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    page.reload()
    settled(page)
    tab_to(page, "^Skip to content$")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()

    page.reload()
    settled(page)
    tab_to(page, "^Path policies$")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Path policies")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()
    settled(page)
    tab_to(page, "^Edit")
    page.keyboard.press("Enter")
    tab_to(page, "^Rules as JSON")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Nothing changes.")).to_be_visible()
    tab_to(page, "^Cancel$")
    page.keyboard.press("Enter")

    page.goto(f"{console_server.admin}/console/#/jobs")
    settled(page)
    tab_to(page, "^Path$")
    page.keyboard.type("/lake/in/")
    tab_to(page, "Dry run")
    page.keyboard.press("Space")
    tab_to(page, "^Start dry run")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^Job "))).to_be_visible()


def test_a_dialog_keeps_the_focus_and_gives_it_back(console):
    page = settled(console.open("#/objects?object=/lake/in/part-0001.parquet"))
    opener = page.get_by_role("button", name="Delete …")
    opener.focus()
    page.keyboard.press("Enter")
    cancel = page.get_by_role("dialog").get_by_role("button", name="Cancel")
    expect(cancel).to_be_focused()
    inside = "document.querySelector('dialog').contains(document.activeElement)"
    for key in ["Tab"] * 5 + ["Shift+Tab"] * 5:
        page.keyboard.press(key)
        assert page.evaluate(inside), key
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(opener).to_be_focused()


def test_times_are_local_and_tell_utc(console):
    page = settled(console.open("#/objects?object=/lake/readme.md"))
    time = page.locator("time").first
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))
    expect(time).to_have_attribute("title", re.compile("UTC$"))
