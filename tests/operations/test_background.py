"""What no client waits for gives way to what one waits for."""

import os
import pathlib

from harness.clients import boto
from harness.servers import Forebay, eventually


def threads(forebay):
    """The name, the niceness and the nanoseconds on a processor of each thread."""
    for task in pathlib.Path(f"/proc/{forebay.process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(") ", 1)[1].split()
        yield (task / "comm").read_text().strip(), int(fields[16]), int((task / "schedstat").read_text().split()[0])


def test_uploads_run_on_threads_that_give_way_to_requests(tmp_path):
    forebay = Forebay(tmp_path, mode="WRITE_BACK").start()
    try:
        s3 = boto(forebay)
        s3.create_bucket(Bucket="later")
        worked = lambda: sum(nanoseconds for name, _, nanoseconds in threads(forebay) if name == "background")  # noqa: E731
        before = worked()
        s3.put_object(Bucket="later", Key="key", Body=b"x" * 3_000_000)
        eventually("the upload", lambda: forebay.metrics()["forebay_dirty_objects"] == 0)
        # What the checksum of three million bytes takes, at the least.
        assert worked() - before > 100_000
        niceness = {(name == "background", nice) for name, nice, _ in threads(forebay)}
        assert niceness == {(True, os.nice(0) + 10), (False, os.nice(0))}
    finally:
        forebay.kill()
