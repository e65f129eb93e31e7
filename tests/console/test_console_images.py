"""The pictures of docs/console.md: --console-images updates them."""

import pytest
from playwright.sync_api import expect

from harness.clients import boto
from harness.servers import ROOT, eventually

MIB = 1 << 20
IMAGES = ROOT / "docs" / "images"
# Pages of documents are fetched by people who pay for their bytes.
IMAGE_BYTES_MAX = 150_000
# Charts with a minute of lines in them.
SAMPLES_WANTED = 12

PICTURES = [
    ("overview", "light", "#/overview"),
    ("object", "dark", "#/objects?object=/lake/tables/events.parquet"),
    ("policies", "light", "#/policies?resolve=/lake/in/x"),
    ("jobs", "dark", "#/jobs"),
]


def read_in_part(server, key, size, pages):
    """Puts an object into the under store, past the cache, and reads some of it."""
    file = server.under / "lake" / key
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as written:
        written.truncate(size)
    for page in pages:
        answer = boto(server).get_object(Bucket="lake", Key=key, Range=f"bytes={page * MIB}-{(page + 1) * MIB - 1}")
        answer["Body"].read()


@pytest.fixture
def lived(request, console, console_server):
    """Has a minute of load and some jobs to show."""
    if not request.config.getoption("--console-images"):
        pytest.skip("only with --console-images")
    read_in_part(console_server, "tables/events.parquet", 300 * MIB, [0, 1, 2, 3, 40, 41, 90, 200, 201, 202, 299])
    for kind, path in [("load", "/lake/many/"), ("verify", "/lake/"), ("free", "/lake/scratch/"), ("scrub", "/")]:
        assert console.api("POST", "jobs", data={"kind": kind, "path": path}).status == 201
    history = lambda: len(console.api("GET", "overview/history").json())  # noqa: E731
    eventually("a minute of samples", lambda: history() >= SAMPLES_WANTED, seconds=120)


def test_pictures(lived, new_console):
    IMAGES.mkdir(exist_ok=True)
    for name, theme, place in PICTURES:
        page = new_console(theme).log_in().open(place)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
        page.mouse.move(0, 0)
        path = IMAGES / f"console-{name}.png"
        page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size < IMAGE_BYTES_MAX, f"{path}: {path.stat().st_size} bytes"
