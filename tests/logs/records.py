"""Reads the logs back: the access log with the regular expression that Amazon documents for its own, the audit log as JSON."""

import json
import re

import pytest

from harness.servers import Forebay, eventually

# The SerDe of "Using Amazon S3 access logs to identify requests" in Amazon's user guide, which Athena reads lines with.
AMAZON = re.compile(
    r"([^ ]*) ([^ ]*) \[(.*?)\] ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) (\"[^\"]*\"|-) (-|[0-9]*) ([^ ]*) ([^ ]*)"
    r" ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) (\"[^\"]*\"|-) ([^ ]*)(?: ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*))?.*$"
)
FIELDS = (
    "bucket_owner bucket time remote_ip requester request_id operation key request_uri status error_code bytes_sent"
    " object_size total_time turn_around_time referer user_agent version_id host_id signature_version cipher_suite"
    " authentication_type host tls_version"
).split()
# Those behind the ones that the expression names: access point, aclRequired, source region.
TAIL = " - - -"


def parse_access(text):
    """The lines as dicts; asserts that each is whole."""
    assert text == "" or text.endswith("\n")
    return [_parse_line(line) for line in text.splitlines()]


def _parse_line(line):
    matched = AMAZON.fullmatch(line)
    assert matched and line.endswith(TAIL) and line.isascii() and line.isprintable(), line
    fields = dict(zip(FIELDS, matched.groups(), strict=True))
    assert None not in fields.values(), line
    return fields


def parse_audit(text):
    assert text == "" or text.endswith("\n")
    # Not splitlines(): JSON leaves line separators of Unicode as they are.
    return [json.loads(line) for line in text.split("\n") if line]


class LoggedForebay(Forebay):
    """A Forebay with both logs."""

    def __init__(self, directory, config="", access="", audit="", **options):
        self.access_log = directory / "access.log"
        self.audit_log = directory / "audit.log"
        sections = f'[access_log]\nfile = "{self.access_log}"\n{access}\n[audit_log]\nfile = "{self.audit_log}"\n{audit}\n'
        super().__init__(directory, config=config + sections, **options)

    def access(self, **wanted):
        """The lines that have these fields, so far."""
        lines = parse_access(self.access_log.read_text())
        return [line for line in lines if all(line[name] == value for name, value in wanted.items())]

    def audit(self, **wanted):
        entries = parse_audit(self.audit_log.read_text())
        return [entry for entry in entries if all(entry.get(name) == value for name, value in wanted.items())]

    def access_line(self, **wanted):
        """The one line that has these fields, once it is there."""
        eventually(f"a line with {wanted}", lambda: self.access(**wanted))
        (line,) = self.access(**wanted)
        return line

    def audit_entry(self, **wanted):
        eventually(f"an entry with {wanted}", lambda: self.audit(**wanted))
        (entry,) = self.audit(**wanted)
        return entry


@pytest.fixture
def start_logged(tmp_path):
    """Starts Forebays with logs, which are stopped cleanly at the end of the test."""
    started = []

    def start(**options):
        started.append(LoggedForebay(tmp_path / f"forebay-{len(started)}", **options).start())
        return started[-1]

    yield start
    for server in started:
        assert server.process.poll() is not None or server.stop() == 0, server.log.read_text()[-4000:]
