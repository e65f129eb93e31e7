"""Fixtures of the console's tests: a server that has something to show and a little to do, and browsers in front of it."""

import contextlib
import threading

import pytest
from playwright.sync_api import expect, sync_playwright

from harness.clients import boto
from harness.console import ARGUMENTS, CHROMIUM, CONFIG, DESKTOP, ODD_KEY, SECONDS, Console
from harness.servers import Forebay

expect.set_options(timeout=SECONDS * 1000)


def fill(s3):
    s3.create_bucket(Bucket="lake")
    s3.create_bucket(Bucket="empty")
    s3.put_object(Bucket="lake", Key="readme.md", Body=b"# Lake\n", ContentType="text/markdown", Metadata={"team": "data"})
    s3.put_object(Bucket="lake", Key=ODD_KEY, Body=b"odd")
    s3.put_object(Bucket="lake", Key="in/part-0001.parquet", Body=b"p" * 300_000)
    s3.put_object(Bucket="lake", Key="scratch/shuffle-1", Body=b"s" * 10_000)
    # More than one page of the console.
    for number in range(210):
        s3.put_object(Bucket="lake", Key=f"many/object-{number:03}", Body=b"x")


class Load:
    """A client that reads and writes while the tests look."""

    def __init__(self, server):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(boto(server),), daemon=True)
        self.thread.start()

    def run(self, s3):
        number = 0
        while not self.stopped.wait(0.05):
            number += 1
            # The server may be stopping: its tests say how it answers then.
            with contextlib.suppress(Exception):
                s3.put_object(Bucket="lake", Key=f"in/load-{number % 20}", Body=b"l" * 20_000)
                s3.get_object(Bucket="lake", Key="in/part-0001.parquet")["Body"].read()

    def stop(self):
        self.stopped.set()
        self.thread.join(timeout=SECONDS)


@pytest.fixture(scope="session")
def console_server(tmp_path_factory):
    server = Forebay(tmp_path_factory.mktemp("console"), config=CONFIG).start()
    fill(boto(server))
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def load(console_server):
    """Runs during the tests of one file, and not during other tests."""
    started = Load(console_server)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.has_failed = report.failed
    return report


@pytest.fixture
def new_console(chromium, console_server, load, request, tmp_path):
    """Opens windows. Nothing may have been blocked or thrown in them; of a test that fails, a picture of each stays."""
    opened = []

    def new(theme="light", size=DESKTOP, server=None):
        opened.append(Console(chromium, server or console_server, theme, size))
        return opened[-1]

    yield new
    for number, console in enumerate(opened):
        if getattr(request.node, "has_failed", False):
            picture = tmp_path / f"window-{number}.png"
            console.page.screenshot(path=picture, full_page=True)
            print(f"the window looked like {picture}")
        console.context.close()
    assert [console.problems for console in opened] == [[] for _ in opened]


@pytest.fixture
def console(new_console):
    """A window with a session."""
    return new_console().log_in()
