"""The pictures of docs/console.md: written anew with --console-images."""

import pytest
from playwright.sync_api import expect

from harness.servers import ROOT, eventually

IMAGES = ROOT / "docs" / "images"
# Pages of documents are fetched by people who pay for their bytes.
IMAGE_BYTES_MAX = 150_000
# Charts with a minute of lines in them.
SAMPLES_WANTED = 12

PICTURES = [
    ("overview", "light", "#/overview"),
    ("object", "dark", "#/objects?object=/lake/in/part-0001.parquet"),
    ("policies", "light", "#/policies?resolve=/lake/in/x"),
    ("jobs", "dark", "#/jobs"),
]


@pytest.fixture
def lived(request, console):
    """Has a minute of load and some jobs to show."""
    if not request.config.getoption("--console-images"):
        pytest.skip("only with --console-images")
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
