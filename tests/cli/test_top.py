"""`forebay top` on a terminal of its own."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

import pytest
from harness.servers import eventually


class Screen:
    """A process on a pseudo-terminal, and all that it has written."""

    def __init__(self, command, environment, columns=100, lines=30):
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            command, env=environment | {"TERM": "xterm-256color"}, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        self.written = b""

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            chunk = os.read(self.master, 1 << 16)
            self.written += chunk
        return self.written.decode(errors="replace")

    def shows(self, text):
        eventually(f"{text!r} on the screen", lambda: text in self.read())
        return self.written

    def type(self, keys):
        self.written = b""
        os.write(self.master, keys)

    def end(self):
        eventually("the end", lambda: (self.read(), self.process.poll())[1] is not None)
        self.read()
        return self.process.returncode


@pytest.fixture
def screen(cli, objects):
    opened = []

    def open_screen(*words, **more):
        opened.append(Screen([str(cli.server.binary), *words], cli.environment(**more)))
        return opened[-1]

    yield open_screen
    for one in opened:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        os.close(one.master)
        os.close(one.slave)


def test_once_prints_a_frame_without_a_terminal(cli, objects):
    shown = cli.text("top", "--once")
    for part in ("forebay top http://", "Requests", "Hit ratio", "Backlog", "Disks", "Under stores", "Jobs", "Notices"):
        assert part in shown, shown
    assert "\x1b" not in shown
    assert cli.json("top", "--once")["status"]["capacityBytes"] > 0


def test_without_a_terminal_it_is_refused(cli):
    assert "--once" in cli.refused("top")
    assert "--once" in cli.refused("top", "--output", "json")
    assert "--interval" in cli.refused("top", "--interval", "1ms")


def test_q_ends_and_the_terminal_is_as_before(screen):
    top = screen("top", "--interval", "250ms")
    top.shows("Backlog")
    assert termios.tcgetattr(top.slave) != top.before
    top.type(b"?")
    top.shows("next panel")
    top.type(b"q")
    assert top.end() == 0
    assert termios.tcgetattr(top.slave) == top.before
    # Back from the alternate screen, with the cursor shown.
    assert b"\x1b[?1049l" in top.written and b"\x1b[?25h" in top.written


def test_a_signal_leaves_the_terminal_as_before(screen):
    top = screen("top")
    top.shows("Backlog")
    top.process.terminate()
    assert top.end() == 0
    assert termios.tcgetattr(top.slave) == top.before


def test_it_follows_the_size_of_the_terminal(screen):
    top = screen("top")
    top.shows("Hit ratio")
    top.written = b""
    top.resize(40, 10)
    os.kill(top.process.pid, 28)  # SIGWINCH, which the terminal sends to who is in its foreground
    top.shows("Requests")
    top.type(b"\t")
    top.shows("Hit ratio")
    top.type(b"q")
    assert top.end() == 0


def test_colours_are_a_matter_of_taste(screen):
    coloured = screen("top")
    assert b"\x1b[38;5;" in coloured.shows("Notices")
    plain = screen("top", NO_COLOR="1")
    assert b"\x1b[38;5;" not in plain.shows("Notices")


def test_it_survives_a_restart_of_the_server(screen, cli):
    top = screen("top", "--interval", "250ms")
    top.shows("Backlog")
    cli.server.stop()
    top.shows("RECONNECTING")
    cli.server.start()
    top.written = b""
    eventually("a picture without trouble", lambda: "up 0 s" in top.read() or "up 1 s" in top.read() or "up" in top.read())
    top.type(b"q")
    assert top.end() == 0


def test_the_progress_of_a_job_is_a_bar_on_a_terminal(screen):
    bar = screen("scrub", "s3://shelf")
    assert bar.end() == 0
    assert "objects seen" in bar.written.decode()
