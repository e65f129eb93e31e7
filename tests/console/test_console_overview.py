"""The overview: what is so now, and the last hour."""

import re

from playwright.sync_api import expect

CHARTS = ["Requests", "Time to first byte", "Throughput", "Hit ratio", "Backlog", "Age of the backlog", "Space", "Under stores", "Failures"]


def test_numbers_and_charts_follow_the_load(console):
    page = console.open()
    expect(page.get_by_role("region", name="Now")).to_contain_text("connection")
    for title in CHARTS:
        expect(page.get_by_role("img", name=re.compile(f"^{title}[.,]"))).to_have_count(1)
    # A sample comes each five seconds; its numbers are there for those who do not see lines.
    requests = page.get_by_role("img", name=re.compile("^Requests"))
    expect(requests).to_have_attribute("aria-label", re.compile(r"writes now [1-9][\d.,]*/s"))
    page.locator("summary", has_text="Numbers of Requests").click()
    expect(page.get_by_role("table", name="Requests").get_by_role("row", name="writes")).to_contain_text("/s")
    expect(page.get_by_role("group", name="Operations", exact=True)).to_contain_text("PutObject")
    expect(page.get_by_role("group", name="Reads", exact=True)).to_contain_text("/lake/in/")
    expect(page.get_by_role("group", name="Cache directories", exact=True)).to_contain_text("writing")


def test_the_time_shown_and_the_operation_are_chosen(console):
    page = console.open()
    hour = page.get_by_role("button", name="1 h")
    hour.click()
    expect(hour).to_have_attribute("aria-pressed", "true")
    choice = page.get_by_label("Operation", exact=True)
    expect(choice.locator("option", has_text="GetObject")).to_have_count(1)
    choice.select_option("GetObject")
    expect(page.get_by_role("img", name=re.compile("^Time to first byte, GetObject"))).to_have_count(1)


def test_space_is_told_by_its_parts(console):
    page = console.open()
    label = page.get_by_role("img", name=re.compile(r"^Of .* pinned .* evictable .* free ")).get_attribute("aria-label")
    shares = {name: float(share) for name, share in re.findall(r"(\w+) [\d.]+ [KMGT]?i?B, (?:< )?([\d.]+) %", label)}
    # Other programs may take room on the disk of the tests at any time.
    assert set(shares) - {"unavailable"} == {"pinned", "evictable", "overhead", "free"}, label
    assert 99 < sum(shares.values()) < 101, label


def test_a_notice_is_shown_with_its_cure(console):
    """The API's answer gets one more: what raises notices is tested where it is."""
    notice = {"id": "x", "severity": "critical", "subject": "/data", "title": "It <b>burns</b>.", "cure": "Put it out.", "sinceMs": 0}

    def with_notice(route):
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"notices": [notice]})

    console.page.route("**/api/v1/overview", with_notice)
    page = console.open()
    shown = page.get_by_role("region", name="Notices")
    for words in ("critical", "It <b>burns</b>.", "/data", "Put it out."):
        expect(shown).to_contain_text(words)
