"""Completions, manual pages and the reference, as shells and `man` take them."""

import subprocess

import pytest

# Every family of commands has one of these.
COMMANDS = ["status", "health", "mounts", "stat", "ls", "check-cached", "policy", "load", "free", "persist", "undeliverable", "verify", "scrub", "jobs", "cluster", "top", "salvage"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_completions_know_every_command(cli, shell):
    script = cli.text("completions", shell)
    for command in COMMANDS:
        assert command in script
    assert "rate-limit" in script and "write-mode" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_scripts_of_their_shell(cli, shell):
    checked = subprocess.run([shell, "-n"], input=cli.text("completions", shell), capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_commands_and_flags(cli):
    complete = """
        source /dev/stdin
        answers() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _forebay forebay "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}"; }
        answers forebay pol
        answers forebay policy set /b --write-m
        answers forebay policy set /b --write-mode WRITE_B
    """
    script = cli.text("completions", "bash")
    done = subprocess.run(["bash", "-c", complete], input=script, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["policy", "--write-mode", "WRITE_BACK"], done.stderr


def test_manual_pages_render(cli, tmp_path):
    assert cli.text("man", str(tmp_path / "man")) == ""
    pages = {page.name: page for page in (tmp_path / "man").iterdir()}
    wanted = {"forebay.1", "forebay-policy-set.1", "forebay-jobs-show.1", "forebay-cluster-drain.1", "forebay-serve.1"} | {f"forebay-{name}.1" for name in COMMANDS}
    assert wanted <= pages.keys()
    assert cli.text("man") == pages["forebay.1"].read_text()
    for page in pages.values():
        rendered = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-Kutf8", "-P-cbou", str(page)], capture_output=True, text=True, timeout=60)
        assert rendered.returncode == 0 and "SYNOPSIS" in rendered.stdout, page
        assert rendered.stderr == "", (page, rendered.stderr)


def test_the_reference_names_every_command(cli):
    reference = cli.text("cli", "reference")
    for command in COMMANDS:
        assert f"`forebay {command}" in reference


def test_the_check_of_a_configuration_is_json_too(cli, tmp_path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("")
    bad.write_text("[store]\nsegment_sise = 1\n")
    assert cli.json("config", "check", "--config", good) == {"valid": True, "problem": None, "warnings": []}
    done = cli.run("config", "check", "--config", bad, "--output", "json")
    assert done.returncode == 2 and '"valid":false' in done.stdout and "segment_sise" in done.stdout
