"""Data directories that are missing, replaced, taken out and given again."""

import re
import shutil
import subprocess

import pytest

from harness.clients import boto, refused
from harness.faults import contents, ended_start
from harness.ledger import OK, Ledger, bytes_of
from harness.servers import eventually

ID = re.compile(r"[0-9a-f]{16}")


@pytest.fixture
def two(start, tmp_path):
    """Starts a server with two data directories; the second is `server.second`."""

    def started(**options):
        second = tmp_path / "second"
        server = start(arguments=["--data-dir", str(second)], **options)
        server.second = second
        return server

    return started


def missing_id(server):
    """The start is refused, and names one directory by its id."""
    code, said = ended_start(server)
    assert code == 1 and "data directories are missing" in said and "--forget-directory" in said, said
    (found,) = set(ID.findall(said))
    return found


def readable(ledger):
    """How many objects are there. Each of them is what was written last, or an error, and what was deleted is gone."""
    there = 0
    for key in list(ledger.may_hold):
        try:
            ledger.check(key)
            there += ledger.may_hold[key] != [None]
        except ledger.s3.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "ServiceUnavailable", error
    return there


def fill(ledger, count=60, deleted=4):
    for number in range(count):
        assert ledger.put(f"ledger/{number}", 300_000 if number % 5 == 0 else 20_000) == OK
    for number in range(0, count, deleted):
        assert ledger.delete(f"ledger/{number}") == OK


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_directory_that_is_not_mounted_stops_the_start_and_changes_nothing(two, relay, ending):
    server = two(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    fill(ledger)
    getattr(server, ending)()
    for unmounted in (server.data, server.second):
        away = unmounted.with_name("away")
        other = server.second if unmounted == server.data else server.data
        unmounted.rename(away)
        # As a mount point looks that nothing is mounted on.
        unmounted.mkdir()
        before = contents(other)
        missing_id(server)
        assert contents(other) == before
        assert not [path.name for path in unmounted.iterdir() if path.name != "lock"]
        shutil.rmtree(unmounted)
        away.rename(unmounted)
    server.start()
    ledger.check_keys()
    assert server.status()["missingObjects"] == 0
    relay.set()
    server.wait_until_drained()
    ledger.check_all()


@pytest.mark.parametrize("lost", ["data", "second"])
def test_a_disk_is_replaced_as_the_manual_says_and_nothing_is_lost(two, relay, lost):
    server = two(mode="WRITE_BACK", behind=relay)
    ledger = Ledger(server)
    fill(ledger)
    server.wait_until_drained()
    assert server.stop() == 0
    shutil.rmtree(getattr(server, lost))
    gone = missing_id(server)
    server.arguments += ["--forget-directory", gone]
    for _ in range(2):
        server.start()
        ledger.check_all()
        assert server.status()["missingObjects"] == 0
        for number in range(100):
            assert ledger.put(f"ledger/{number}", 20_000) == OK
        # What is acknowledged now is as safe as ever.
        server.kill()
    server.start()
    ledger.check_all()
    server.wait_until_drained()
    for key, content in ledger.present().items():
        behind = boto(relay).get_object(Bucket=server.bucket, Key=key)["Body"].read()
        assert behind == bytes_of(key, content), key


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_changes_that_nobody_can_list_are_told_until_the_operator_has_looked(two, ending):
    server = two(mode="TRANSIENT")
    assert server.stop() == 0
    server.start()
    fill(Ledger(server), count=10)
    getattr(server, ending)()
    shutil.rmtree(server.second)
    server.arguments += ["--forget-directory", missing_id(server)]
    notice = lambda: [notice for notice in server.ask("notices") if notice["id"] == "changes-lost"]  # noqa: E731
    marks = lambda: [*server.data.glob("changes-lost"), *server.second.glob("changes-lost")]  # noqa: E731
    for _ in range(2):
        server.start()
        # What is raised at a start comes at once.
        if ending == "kill":
            eventually("the notice", notice)
            (told,) = notice()
            assert told["severity"] == "critical" and "changes since 20" in told["title"] and marks(), told
        else:
            assert not notice() and not marks()
        assert server.stop() == 0
    if ending == "kill":
        server.start()
        eventually("the notice", notice)
        for mark in marks():
            mark.unlink()
        assert server.stop() == 0
        server.start()
        eventually("the first checks", lambda: not server.ask("overview")["checking"])
        assert not notice()


@pytest.mark.parametrize("mode", ["WRITE_BACK", "TRANSIENT"])
@pytest.mark.parametrize("lost", ["data", "second"])
def test_what_only_a_lost_disk_held_is_named_and_the_rest_is_there(two, relay, mode, lost):
    server = two(mode=mode, behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    fill(ledger)
    assert server.stop() == 0
    away = server.data.with_name("away")
    getattr(server, lost).rename(away)
    server.arguments += ["--forget-directory", missing_id(server)]
    server.start()
    there = readable(ledger)
    status = server.status()
    assert 0 < there < 45 and status["missingObjects"] == 45 - there, (there, status)
    named = server.log.read_text().count("the bytes of an acknowledged object are missing path=")
    assert named >= 45 - there, "the log names each"
    notices = lambda: [notice["id"] for notice in server.ask("overview")["notices"]]  # noqa: E731
    eventually("a notice", lambda: "objects-missing" in notices())
    # Its users write or delete what is gone, and all is well.
    for key in list(ledger.may_hold):
        assert ledger.put(key, 10_000) == OK
    ledger.check_keys()
    assert server.status()["missingObjects"] == 0
    relay.set()
    if mode == "WRITE_BACK":
        server.wait_until_drained()
        ledger.check_all()
    server.kill()
    # The old disk turns up again, in whatever place.
    before = contents(away)
    server.arguments += ["--data-dir", str(away)]
    code, said = ended_start(server)
    assert code == 1 and str(away) in said and "has continued without this directory" in said, said
    assert contents(away) == before
    server.arguments = server.arguments[:-2]
    server.start()
    ledger.check_keys()


def test_a_replaced_disk_never_gives_bytes_of_another_object(two, relay):
    server = two(mode="WRITE_THROUGH", behind=relay)
    ledger = Ledger(server)
    for number in range(60):
        assert ledger.put(f"ledger/{number}", 400_000 if number % 2 else 20_000) == OK
    ledger.check_all()
    assert server.stop() == 0
    shutil.rmtree(server.second)
    server.arguments += ["--forget-directory", missing_id(server)]
    server.start()
    # Into files of the same names as those that are gone.
    for number in range(60, 120):
        assert ledger.put(f"ledger/{number}", 400_000 if number % 2 else 20_000) == OK
    ledger.check_all()
    server.kill()
    server.start()
    ledger.check_all()


@pytest.mark.parametrize("older", ["data", "second"])
def test_an_older_copy_of_a_directory_is_refused_after_a_kill(two, older):
    server = two(mode="TRANSIENT")
    ledger = Ledger(server)
    fill(ledger)
    assert server.stop() == 0
    directory = getattr(server, older)
    copy, newest = directory.with_name("copy"), directory.with_name("newest")
    shutil.copytree(directory, copy)
    server.start()
    fill(ledger, deleted=3)
    server.kill()
    directory.rename(newest)
    copy.rename(directory)
    before = contents(directory)
    code, said = ended_start(server)
    assert code == 1 and f"{directory}: an older copy of this directory" in said, said
    assert contents(directory) == before
    shutil.rmtree(directory)
    newest.rename(directory)
    server.start()
    ledger.check_keys()


def test_an_id_is_not_guessed(two):
    server = two()
    assert server.stop() == 0
    shutil.rmtree(server.second)
    gone = missing_id(server)
    for wrong in ("0123456789abcdef", str(server.second)):
        arguments, server.arguments = server.arguments, [*server.arguments, "--forget-directory", wrong]
        code, said = ended_start(server)
        assert code in (1, 2) and (gone in said or "is no id of a directory" in said), said
        server.arguments = arguments
    # One that is here is not forgotten.
    server.arguments += ["--forget-directory", gone]
    server.start()
    refused("NoSuchKey", boto(server).get_object, Bucket=server.bucket, Key="none")
    assert server.stop() == 0
    present = int.from_bytes((server.data / "identity").read_bytes()[8:16], "little")
    server.arguments += ["--forget-directory", f"{present:016x}"]
    code, said = ended_start(server)
    assert code == 1 and "is to be forgotten, and is given" in said, said
    checked = subprocess.run(
        [server.binary, "config", "check"],
        env={"FOREBAY_STORE_FORGET_DIRECTORIES": "nvme1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode != 0 and "is no id of a directory" in checked.stderr, checked


def test_lost_parts_of_open_uploads_are_told_and_uploaded_again(two, relay):
    server = two(mode="WRITE_BACK", behind=relay)
    s3 = boto(server)
    at = {"Bucket": server.bucket, "Key": "parts"}
    body_of = lambda number: b"%d" % number * (5 << 20)  # noqa: E731
    upload = at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}
    put = lambda number: s3.upload_part(**upload, PartNumber=number, Body=body_of(number))["ETag"]  # noqa: E731
    parts = [{"PartNumber": number, "ETag": put(number)} for number in range(1, 9)]
    assert server.stop() == 0
    shutil.rmtree(server.second)
    server.arguments += ["--forget-directory", missing_id(server)]
    server.start()
    here = {part["PartNumber"] for part in s3.list_parts(**upload).get("Parts", [])}
    lost = set(range(1, 9)) - here
    assert here and lost, (here, lost)
    assert server.status()["missingParts"] == len(lost)
    assert f"parts of open multipart uploads are lost parts={len(lost)} uploads=1" in server.log.read_text()
    eventually("a notice", lambda: "parts-missing" in [notice["id"] for notice in server.ask("notices")])
    complete = {"MultipartUpload": {"Parts": parts}}
    error = refused("InvalidPart", s3.complete_multipart_upload, **upload, **complete)
    assert "Upload it again" in error["Error"]["Message"], error
    for number in lost:
        put(number)
    assert server.status()["missingParts"] == 0
    s3.complete_multipart_upload(**upload, **complete)
    expected = b"".join(body_of(number) for number in range(1, 9))
    assert s3.get_object(**at)["Body"].read() == expected
    eventually("the end of the notice", lambda: "parts-missing" not in [notice["id"] for notice in server.ask("notices")])


def test_a_directory_that_is_removed_or_unmounted_while_the_server_runs_takes_no_more_writes(two, relay):
    server = two(mode="WRITE_BACK", behind=relay)
    relay.set(gone=True)
    ledger = Ledger(server)
    fill(ledger, count=10)
    away = server.second.with_name("away")
    server.second.rename(away)
    # As a mount point looks that nothing is mounted on.
    server.second.mkdir()

    def told():
        failed = [notice for notice in server.ask("notices") if notice["id"] == "directory-failed"]
        return any(str(server.second) in str(notice) and "unmounted" in str(notice) for notice in failed)

    eventually("a notice", told, 60)
    (failed,) = [notice for notice in server.ask("notices") if notice["id"] == "directory-failed"]
    assert "mount it again" in failed["cure"], failed
    assert not server.is_healthy()
    fill(ledger, count=20)
    ledger.check_keys()
    assert not list(server.second.iterdir())
    assert server.stop() == 0
    assert not list(server.second.iterdir())
    server.second.rmdir()
    away.rename(server.second)
    relay.set(gone=False)
    server.start()
    server.wait_until_drained()
    ledger.check_all()


def test_a_refused_start_makes_no_directory_and_a_segment_that_it_left_empty_is_no_damage(two):
    server = two()
    assert server.stop() == 0
    away = server.second.with_name("away")
    server.second.rename(away)
    missing_id(server)
    assert not server.second.exists()
    away.rename(server.second)
    last = max(int(path.stem) for path in server.data.iterdir() if path.stem.isdecimal())
    (server.data / f"{last + 1:08}.bulk").touch(mode=0o600)
    server.start()
    assert "the header of a segment is damaged" not in server.log.read_text()


def test_one_directory_by_two_paths_is_told(two):
    server = two()
    assert server.stop() == 0
    link = server.data.with_name("link")
    link.symlink_to(server.data)
    server.arguments += ["--data-dir", str(link)]
    code, said = ended_start(server)
    assert code == 2 and "twice" in said and str(link) in said and "another process" not in said, said
