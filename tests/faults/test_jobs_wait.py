"""Jobs while the under store is away: they say what they wait for, and continue by themselves when it is back."""

import concurrent.futures
import subprocess

from harness.clients import boto
from harness.servers import Forebay, eventually


def forebay(server, *words):
    keys = {"FOREBAY_ACCESS_KEY": server.access_key, "FOREBAY_SECRET_KEY": server.secret_key, "FOREBAY_ADMIN_ENDPOINT": server.admin}
    command = [str(Forebay.binary), *words]
    return subprocess.run(command, env=keys, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def test_a_job_says_what_it_waits_for_and_goes_on_by_itself(start, relay):
    server = start(behind=relay)
    s3 = boto(server)
    for number in range(20):
        s3.put_object(Bucket=server.bucket, Key=f"key-{number}", Body=b"x" * 1000)
    assert forebay(server, "free", f"/{server.bucket}/").returncode == 0
    relay.set(gone=True)
    # Both at once; longer than the five seconds between two lines of progress.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(forebay, server, *job, "--timeout", "7s") for job in (("load", f"/{server.bucket}/"), ("verify", "/"))]
    for done in (job.result() for job in waiting):
        assert done.returncode == 1 and done.stdout == "", done.stderr
        assert "has not ended within --timeout (waits: " in done.stderr.splitlines()[-1], done.stderr
        assert any("waits: " in line for line in done.stderr.splitlines()[:-1]), "the progress says it too"
    relay.set()
    ended = lambda: [job["state"] for job in server.ask("jobs")[:2]] == ["done", "done"]  # noqa: E731
    eventually("the end of both", ended, 90)
    jobs = {job["request"]["kind"]: job for job in server.ask("jobs")[:2]}
    assert jobs["load"]["progress"]["objectsDone"] == 20 and jobs["load"]["progress"]["objectsFailed"] == 0, jobs["load"]
    assert jobs["verify"]["findings"] == 0 and "error" not in jobs["verify"], jobs["verify"]
