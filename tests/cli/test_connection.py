"""How a command finds its server and its keys, and what it says when that fails."""

import os
import subprocess

from harness.servers import free_port


def test_a_server_that_is_not_there_is_a_failure_that_names_the_endpoint(cli):
    endpoint = f"http://127.0.0.1:{free_port()}"
    for words in (["status"], ["ls", "s3://shelf"], ["policy", "get"], ["load", "/shelf"], ["top", "--once"]):
        line = cli.refused(*words, "--endpoint", endpoint, code=1)
        assert endpoint in line and "refused" in line


def test_wrong_keys_are_wrong_input(cli):
    line = cli.refused("status", FOREBAY_SECRET_KEY="not it")
    assert "keys are refused" in line
    assert cli.refused("status", FOREBAY_ACCESS_KEY="nobody") == line
    assert "FOREBAY_ACCESS_KEY" in cli.refused("status", FOREBAY_ACCESS_KEY="", FOREBAY_SECRET_KEY="")


def test_keys_come_from_the_variables_of_the_server_or_of_aws_too(cli):
    server, none = cli.server, {"FOREBAY_ACCESS_KEY": "", "FOREBAY_SECRET_KEY": ""}
    pairs = [("FOREBAY_ROOT_ACCESS_KEY", "FOREBAY_ROOT_SECRET_KEY"), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    for access_name, secret_name in pairs:
        cli.text("status", **none, **{access_name: server.access_key, secret_name: server.secret_key})
    cli.text("status", "--access-key", server.access_key, "--secret-key", server.secret_key, **none)


def test_flags_stand_before_or_behind_subcommands(cli):
    for words in (["policy", "--output", "json", "get"], ["policy", "get", "--output", "json"]):
        assert cli.text(*words).startswith("[")


def test_a_server_of_another_kind_is_told(cli):
    # The S3 port answers too, and has no admin API.
    line = cli.refused("status", "--endpoint", cli.server.endpoint)
    assert "40" in line and "server.admin_listen" in line, line


def test_nobody_reads_the_output_and_nothing_is_said(cli):
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(cli.server.binary), "config", "reference"]
    done = subprocess.run(command, env=cli.environment(), stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
