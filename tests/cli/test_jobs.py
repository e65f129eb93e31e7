"""load, free, persist, verify, scrub, and what shows them."""

import os
import signal
import subprocess

from harness.servers import eventually

KINDS = ["load", "free", "persist", "verify", "scrub"]


def test_every_kind_waits_for_its_end(cli, objects):
    for kind in KINDS:
        assert " seen; " in cli.text(kind, "s3://shelf")
        job = cli.json(kind, "/shelf/a/", "--concurrency", "2")
        assert (job["request"]["kind"], job["request"]["path"], job["state"]) == (kind, "/shelf/a/", "done")


def test_a_dry_run_changes_nothing(cli, objects):
    cli.text("load", "s3://shelf")
    before = cli.json("check-cached", "s3://shelf")
    assert "would be freed" in cli.text("free", "s3://shelf", "--dry-run")
    assert "free (dry run)" in cli.text("jobs", "list")
    assert cli.json("check-cached", "s3://shelf") == before


def test_a_detached_job_is_shown_and_listed(cli, objects):
    done = cli.run("scrub", "s3://shelf", "--detach")
    assert done.returncode == 0
    (name,) = done.stdout.split()
    assert f"jobs show {name}" in done.stderr and f"jobs cancel {name}" in done.stderr
    eventually("the end of the job", lambda: cli.json("jobs", "show", name)["state"] == "done")
    lines = dict(line.split("  ", 1) for line in cli.text("jobs", "show", name).splitlines())
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    assert (fields["id"], fields["kind"], fields["path"], fields["state"]) == (name, "scrub", "/shelf", "done")
    assert name in [job["id"] for job in cli.json("jobs", "list")]
    assert any(line.startswith(name) for line in cli.text("jobs", "list").splitlines())
    assert cli.json("jobs", "findings", name) == [] and cli.text("jobs", "findings", name) == ""
    # It has ended: it stays as it is.
    assert cli.json("jobs", "cancel", name)["state"] == "done"


def test_what_is_no_job_is_wrong_input(cli, objects):
    for command in ("show", "cancel", "findings"):
        assert "no-such-job" in cli.refused("jobs", command, "no-such-job")
        assert "../policies" in cli.refused("jobs", command, "../policies")
    cli.refused("load", "s3://no-such-bucket/")
    cli.refused("load", "shelf")
    cli.refused("load", "s3://shelf", "--concurrency", "0")
    cli.refused("load", "s3://shelf", "--rate-limit", "fast")


def slow_job(cli):
    """`load` of what takes minutes at its rate."""
    cli.text("free", "s3://shelf/b/")
    words = [str(cli.server.binary), "load", "s3://shelf/b/", "--rate-limit", "16KiB"]
    return subprocess.Popen(
        words, env=cli.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def newest(cli):
    jobs = cli.json("jobs", "list")
    return jobs[0] if jobs else {}


def test_ctrl_c_leaves_the_job_running(cli, objects):
    before = newest(cli)
    waiting = slow_job(cli)
    job = eventually("a job", lambda: (newest(cli) if newest(cli) != before and newest(cli)["state"] == "running" else None))
    # Signals are heard once the command waits: before that, this would end it as any process.
    eventually("the wait", lambda: signals_caught(waiting.pid))
    os.kill(waiting.pid, signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, ""), err
    assert f"jobs show {job['id']}" in err.splitlines()[-1]
    assert cli.json("jobs", "show", job["id"])["state"] == "running"
    assert cli.json("jobs", "cancel", job["id"])["state"] == "cancelled"


def signals_caught(pid):
    """Whether the process handles SIGINT itself."""
    with open(f"/proc/{pid}/status") as status:
        masks = dict(line.split(":", 1) for line in status)
    return int(masks["SigCgt"], 16) >> (signal.SIGINT - 1) & 1


def test_a_job_that_is_cancelled_is_a_failure_to_who_waits(cli, objects):
    before = newest(cli)
    waiting = slow_job(cli)
    job = eventually("a job", lambda: (newest(cli) if newest(cli) != before and newest(cli)["state"] == "running" else None))
    cli.text("jobs", "cancel", job["id"])
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 1 and "cancelled" in err.splitlines()[-1]


def test_damage_is_found_told_and_an_exit_code(cli, objects):
    objects.put_object(Bucket="shelf", Key="damaged/one", Body=b"y" * 100_000)
    cli.server.wait_until_drained()
    # Somebody writes past the cache.
    (cli.server.under / "shelf" / "damaged" / "one").write_bytes(b"z" * 5)
    done = cli.run("verify", "s3://shelf/damaged/")
    assert done.returncode == 1, done.stdout
    assert "/shelf/damaged/one" in done.stdout and "1 finding" in done.stderr.splitlines()[-1]
    done = cli.run("verify", "s3://shelf/damaged/", "--output", "json")
    assert done.returncode == 1 and '"findings":1' in done.stdout.replace(" ", "")


def test_a_bad_end_counts_when_nobody_reads_the_findings(cli, objects):
    """As with `forebay verify … | head`, and with `2>&1` before the pipe."""
    objects.put_object(Bucket="shelf", Key="unread/one", Body=b"y" * 1000)
    cli.server.wait_until_drained()
    (cli.server.under / "shelf" / "unread" / "one").write_bytes(b"z" * 5)
    words = [str(cli.server.binary), "verify", "s3://shelf/unread/"]
    for errors in (subprocess.PIPE, subprocess.STDOUT):
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(words, env=cli.environment(), stdin=subprocess.DEVNULL, stdout=write, stderr=errors, timeout=60)
        finally:
            os.close(write)
        assert done.returncode == 1, done.stderr
        assert done.stderr is None or b"1 finding" in done.stderr, done.stderr


def test_a_load_says_what_a_limit_by_size_keeps_out(cli, objects):
    (cli.server.under / "shelf" / "limited").mkdir()
    for name, size in {"small": 1000, "large": 1001}.items():
        (cli.server.under / "shelf" / "limited" / name).write_bytes(b"x" * size)
    cli.text("policy", "set", "s3://shelf/limited/", "--read-cache-max-size", "1000B")
    try:
        done = cli.run("load", "s3://shelf/limited/")
        assert done.returncode == 0 and "not-cached" in done.stdout and "readCacheMaxSize" in done.stdout, (done.stdout, done.stderr)
        assert cli.json("check-cached", "s3://shelf/limited/", "--summary")["cachedBytes"] == 1000
    finally:
        cli.text("policy", "delete", "s3://shelf/limited/")
        for name in ("small", "large"):
            objects.delete_object(Bucket="shelf", Key=f"limited/{name}")


def test_a_persist_of_everything_says_what_remains_here(cli, objects):
    cli.text("policy", "set", "s3://shelf/scratch/", "--write-mode", "TRANSIENT")
    objects.put_object(Bucket="shelf", Key="scratch/1", Body=b"x" * 1_000_000)
    try:
        done = cli.run("persist", "/")
        assert done.returncode == 0 and "remain only in this cache: transient objects" in done.stderr, done.stderr
    finally:
        objects.delete_object(Bucket="shelf", Key="scratch/1")
        cli.text("policy", "delete", "s3://shelf/scratch/")


def test_a_load_that_a_quota_does_not_hold_says_so(cli, objects):
    """Before, when it is tried, and after."""
    for number in range(6):
        objects.put_object(Bucket="shelf", Key=f"quota/{number}", Body=b"x" * 1_000_000)
    cli.server.wait_until_drained()
    cli.text("policy", "set", "s3://shelf/quota/", "--cache-quota", "2MiB")
    try:
        eventually("room under the quota", lambda: cli.json("check-cached", "s3://shelf/quota/", "--summary")["cachedBytes"] <= 2 << 20)
        assert "exceeds-quota" in cli.text("load", "s3://shelf/quota/", "--dry-run")
        done = cli.run("load", "s3://shelf/quota/")
        assert done.returncode == 1 and "exceeds-quota" in done.stdout, (done.stdout, done.stderr)
        assert "not all of it fits" in done.stderr.splitlines()[-1]
        # Neither is there room for one object alone.
        cli.text("policy", "set", "s3://shelf/quota/", "--cache-quota", "500KiB")
        done = cli.run("load", "s3://shelf/quota/")
        assert done.returncode == 1 and "too-large" in done.stdout, (done.stdout, done.stderr)
    finally:
        cli.text("policy", "delete", "s3://shelf/quota/")
        for number in range(6):
            objects.delete_object(Bucket="shelf", Key=f"quota/{number}")
