"""policy edit, with editors that are scripts."""

import json
import pathlib
import shlex
import signal
import stat
import sys

import pytest


@pytest.fixture
def editor(tmp_path):
    """Makes an editor of Python statements, which have the file as `path`, its content as `text` and the count of calls as `call`."""

    def make(statements):
        calls = tmp_path / "calls"
        script = tmp_path / "editor.py"
        script.write_text(
            "import json, os, pathlib, subprocess, sys\n"
            "path = pathlib.Path(sys.argv[-1]); text = path.read_text()\n"
            f"calls = pathlib.Path({str(calls)!r}); call = len(list(calls.parent.glob('calls*')))\n"
            "(calls.parent / f'calls{call}').write_text(text)\n"
            f"{statements}\n"
        )
        return {"VISUAL": shlex.join([sys.executable, str(script)])}

    return make


@pytest.fixture(autouse=True)
def rules(cli):
    """The rules before a test, which come back after it."""
    before = cli.json("policy", "get")
    version = cli.json("policy", "history")[0]["version"]
    yield before
    cli.text("policy", "rollback", version)


def kept(line):
    """The file that an error names."""
    return pathlib.Path(line.strip().rsplit(" ", 1)[-1])


APPEND = """path.write_text(text.rstrip().removesuffix("]").rstrip() + ', {"path": "/b/", /* new */ "writeMode": "TRANSIENT",},]')"""


def test_what_is_saved_is_shown_and_applied(cli, editor, tmp_path):
    done = cli.run("policy", "edit", **editor(APPEND))
    assert done.returncode == 0, done.stderr
    assert '+    "writeMode": "TRANSIENT"' in done.stdout and "\x1b" not in done.stdout
    assert "applied as version" in done.stderr
    assert {"path": "/b/", "writeMode": "TRANSIENT"} in cli.json("policy", "get")
    seen = (tmp_path / "calls0").read_text()
    assert seen.startswith("// Path policies of http://") and "writeMode" in seen
    assert cli.json("policy", "history")[0]["reason"] == "edit"


def test_json_of_an_edit_is_the_new_rules(cli, editor):
    assert cli.json("policy", "edit", "--yes", **editor(APPEND)) == cli.json("policy", "get")


def test_the_file_is_for_the_owner_only_and_goes_away(cli, editor, tmp_path):
    note = tmp_path / "note"
    cli.text("policy", "edit", **editor(f"pathlib.Path({str(note)!r}).write_text(json.dumps([str(path), path.stat().st_mode]))"))
    path, mode = json.loads(note.read_text())
    assert stat.S_IMODE(mode) == 0o600 and not pathlib.Path(path).exists()


def test_a_mistake_is_told_with_its_place_and_can_be_mended(cli, editor, tmp_path):
    first = 'path.write_text(\'[\\n  {"path": "/b/", "writeMod": "TRANSIENT"}\\n]\\n\') if call == 0 else '
    mend = 'path.write_text(text.replace("writeMod", "writeMode"))'
    done = cli.run("policy", "edit", **editor(first + mend))
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "calls1").read_text()
    assert shown.startswith("// NOT APPLIED: line 3, column 28: unknown field `writeMod`"), shown
    assert cli.json("policy", "get") == [{"path": "/b/", "writeMode": "TRANSIENT"}]


def test_a_mistake_that_is_saved_again_gives_up_and_keeps_the_work(cli, editor, rules):
    line = cli.refused("policy", "edit", **editor('path.write_text("[{") if call == 0 else None'))
    assert "line 2, column " in line
    assert kept(line).read_text().endswith("\n[{") and stat.S_IMODE(kept(line).stat().st_mode) == 0o600
    assert cli.json("policy", "get") == rules


def test_what_the_server_refuses_is_a_mistake_too(cli, editor, rules):
    line = cli.refused("policy", "edit", **editor('path.write_text(\'[{"path": "/", "writeReplicas": 9}]\') if call == 0 else None'))
    assert "writeReplicas" in line and kept(line).exists()
    assert cli.json("policy", "get") == rules


def test_a_stale_edit_is_refused_and_kept(cli, editor):
    server = cli.server
    other = ["policy", "set", "/other/", "--write-mode", "NO_CACHE"]
    meanwhile = f"subprocess.run({[str(server.binary), *other]!r}, check=True, stdout=subprocess.DEVNULL)\n"
    done = cli.run("policy", "edit", **editor(meanwhile + APPEND))
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert "somebody else has changed" in line and '"TRANSIENT"' in kept(line).read_text()
    paths = [rule["path"] for rule in cli.json("policy", "get")]
    assert "/other/" in paths and "/b/" not in paths


@pytest.mark.parametrize(
    "statements, code, part",
    [
        ("pass", 0, "nothing has changed"),
        ("path.write_text(text + '// a comment')", 0, "nothing has changed"),
        ("path.write_text('')", 1, "cancelled"),
        ("path.write_text('// nothing\\n')", 1, "cancelled"),
        ("sys.exit(3)", 1, "exit status: 3"),
    ],
)
def test_nothing_is_applied_unless_it_is_meant(cli, editor, rules, statements, code, part):
    history = cli.json("policy", "history")
    done = cli.run("policy", "edit", **editor(statements))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert part in done.stderr and len(done.stderr.splitlines()) == 1
    assert (cli.json("policy", "get"), cli.json("policy", "history")) == (rules, history)


def test_an_editor_that_is_not_there_is_told(cli):
    done = cli.run("policy", "edit", EDITOR="/no/such/editor")
    assert done.returncode == 1 and "/no/such/editor" in done.stderr.splitlines()[-1]


def test_on_a_terminal_it_shows_colours_and_asks_first(cli, editor, screen, rules):
    refused = screen("policy", "edit", **editor(APPEND))
    refused.shows("apply?")
    assert b"\x1b[32m+" in refused.written
    refused.type(b"n\n")
    assert refused.end() == 1
    line = refused.written.decode().strip().splitlines()[-1]
    assert "nothing was applied" in line and '"TRANSIENT"' in kept(line).read_text()
    interrupted = screen("policy", "edit", NO_COLOR="1", **editor(APPEND))
    interrupted.shows("apply?")
    assert b"\x1b[" not in interrupted.written
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.end() == 130
    assert cli.json("policy", "get") == rules
    applied = screen("policy", "edit", **editor(APPEND))
    applied.shows("apply?")
    applied.type(b"y\n")
    assert applied.end() == 0
    assert {"path": "/b/", "writeMode": "TRANSIENT"} in cli.json("policy", "get")


def test_a_rollback_asks_on_a_terminal_unless_it_is_told_not_to(cli, screen, rules):
    version = cli.json("policy", "history")[0]["version"]
    cli.text("policy", "set", "/b/", "--write-mode", "TRANSIENT")
    changed = cli.json("policy", "get")
    refused = screen("policy", "rollback", str(version))
    refused.shows("[y/N]")
    refused.type(b"n\n")
    assert refused.end() == 1
    assert cli.json("policy", "get") == changed
    assert screen("policy", "rollback", "--yes", str(version)).end() == 0
    assert cli.json("policy", "get") == rules


def test_a_rollback_undoes_nothing_that_others_change_while_it_asks(cli, screen, rules):
    version = cli.json("policy", "history")[0]["version"]
    cli.text("policy", "set", "/b/", "--write-mode", "TRANSIENT")
    asking = screen("policy", "rollback", str(version))
    asking.shows("[y/N]")
    cli.text("policy", "set", "/colleague/", "--write-mode", "NO_CACHE")
    changed = cli.json("policy", "get")
    asking.type(b"y\n")
    assert asking.end() == 2
    assert "somebody else has changed" in asking.written.decode()
    assert cli.json("policy", "get") == changed


def test_an_editor_that_makes_its_mistake_anew_is_not_opened_for_ever(cli, editor, rules, tmp_path):
    """As `sed -i` does it, with and without --yes."""
    worse = "path.write_text(text + '[')"
    line = cli.refused("policy", "edit", "--yes", **editor(worse))
    assert "line" in line and kept(line).exists()
    assert len(list(tmp_path.glob("calls*"))) == 1, "nobody would look at the mistake"
    assert kept(cli.refused("policy", "edit", **editor(worse))).exists()
    assert cli.json("policy", "get") == rules
