"""A pseudo-terminal with a process on it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

from harness.servers import eventually


class Screen:
    """A process on a pseudo-terminal, and all that it has written."""

    def __init__(self, command, environment, columns=100, lines=30):
        self.master, slave = pty.openpty()
        self.process = None
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            command, env=environment | {"TERM": "xterm-256color"}, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )

    def resize(self, columns, lines):
        if self.process:
            self.read()
        self.size = (columns, lines)
        self.written = b""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if self.process:
            # The terminal sends it to who is in its foreground, which needs a shell.
            self.process.send_signal(signal.SIGWINCH)

    def frame(self):
        """All words of a frame: a resize redraws everything, the last line last."""
        columns, lines = self.size
        self.resize(columns ^ 1, lines)
        self.shows("pause")
        return self.read()

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            chunk = os.read(self.master, 1 << 16)
            self.written += chunk
        return self.written.decode(errors="replace")

    def shows(self, word):
        """Waits for a word, not for more: blanks are not written where the screen has them already."""
        eventually(f"{word!r} on the screen", lambda: word in self.read())
        return self.written

    def type(self, keys):
        self.written = b""
        os.write(self.master, keys)

    def end(self):
        eventually("the end", lambda: (self.read(), self.process.poll())[1] is not None)
        self.read()
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
