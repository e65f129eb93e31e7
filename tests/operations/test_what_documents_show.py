"""What the documents show can be typed: every configuration, every setting and every command in them."""

import functools
import pathlib
import re
import shlex
import subprocess

import pytest
from harness.servers import ROOT, Forebay

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Written by hand; the others are made from the tables that the binary reads.
PAGES = [page for page in DOCUMENTS if not page.name.endswith("-reference.md") and page.name != "bugs-found.md"]


def run(*words):
    return subprocess.run([str(Forebay.binary), *map(str, words)], capture_output=True, text=True, timeout=60)


def blocks(page, language):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)


def parts_of(language, kind):
    found = [(page, text) for page in PAGES for text in blocks(page, language) if kind(text)]
    return [pytest.param(text, id=f"{page.stem}-{number}") for number, (page, text) in enumerate(found)]


def is_users(text):
    return "[[user]]" in text


@pytest.mark.parametrize("text", parts_of("toml", lambda text: not is_users(text)))
def test_every_configuration_is_taken(text, tmp_path):
    file = tmp_path / "shown.toml"
    file.write_text(text)
    done = run("config", "show", "--config", file)
    # What it names may be absent here.
    assert done.returncode == 0 or "No such file" in done.stderr, done.stderr


@pytest.mark.parametrize("text", parts_of("toml", is_users))
def test_every_users_file_is_taken(text, tmp_path):
    file = tmp_path / "users.toml"
    file.write_text(text)
    done = run("users", "check", file)
    assert done.returncode == 0, done.stderr


def settings():
    """`section.key = value` and `policyKey = value` between backticks."""
    value = r'("[^"`…]*"|true|false|[0-9.]+)'
    found = set()
    for page in PAGES:
        found.update(re.findall(rf"`([a-z][a-z_0-9]*\.[a-z_0-9]+|[a-z]+[A-Z][A-Za-z]*) = {value}`", page.read_text()))
    return sorted(found)


def test_every_setting_takes_the_value_that_it_is_shown_with(tmp_path):
    assert ("pinnedFull", '"write-through"') in settings()
    refused = []
    for name, value in settings():
        section, _, key = name.rpartition(".")
        file = tmp_path / "shown.toml"
        file.write_text(f"[{section}]\n{key} = {value}\n" if section else f'[[policy]]\npath = "/b/"\n{key} = {value}\n')
        done = run("config", "show", "--config", file)
        is_alone = "needs server.tls_cert" in done.stderr or "this is a single worker" in done.stderr
        if done.returncode != 0 and not is_alone:
            refused.append((name, value, done.stderr))
    assert refused == []


def commands():
    """The command lines of the documents, each with its page."""
    found = {}
    for page in PAGES:
        shown = [line for text in blocks(page, "sh") for line in text.replace("\\\n", " ").splitlines()]
        shown += re.findall(r"`(forebay [^`]*)`", page.read_text())
        for line in shown:
            quoted = r"'[^']*'|\"[^\"]*\"|[^|>&;)'\"]"
            for command in re.findall(rf"(?:^|\$\(|target/release/|&& )(forebay (?:{quoted})*)", line.strip()):
                found[re.sub(r"\s+#.*$", "", command).strip()] = page.name
    return found


@functools.cache
def help_of(*words):
    done = run(*words, "--help")
    return done.stdout if done.returncode == 0 else None


def test_every_command_and_flag_is_there():
    wrong = []
    assert len(commands()) > 40
    for command, page in commands().items():
        try:
            words = shlex.split(command)[1:]
        except ValueError:
            wrong.append((page, command, "quotes"))
            continue
        known = []
        while words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and help_of(*known, words[0]):
            known.append(words.pop(0))
        text = help_of(*known)
        if not known and words and not words[0].startswith("-"):
            wrong.append((page, command, f"no command {words[0]}"))
        flags = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        wrong += [(page, command, flag) for flag in flags if not re.search(rf"(^|[\s,]){re.escape(flag)}\b", text)]
    assert wrong == []


def test_pages_are_found():
    assert pathlib.Path(ROOT / "docs" / "operations.md") in PAGES
