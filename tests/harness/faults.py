"""Real faults: disks that fail, fill or lose power, clocks that jump, system calls that fail or take long."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import struct
import subprocess

import pytest

from harness.servers import eventually

# FS_IOC_SHUTDOWN of linux/fs.h, and its flag that even the journal is not flushed: what a power cut leaves.
SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
# Of the distributions that we know.
FAKETIME = sorted(pathlib.Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"


class Mount:
    """A file system of its own, which only root can mount."""

    def __init__(self, source, at, options):
        self.source, self.at, self.options = str(source), at, options
        at.mkdir(parents=True, exist_ok=True)
        self.is_mounted = False

    def mount(self):
        done = subprocess.run(["mount", *self.options, self.source, str(self.at)], capture_output=True, text=True)
        if done.returncode != 0 and not self.is_mounted and os.geteuid() != 0:
            pytest.skip(f"mounting a file system needs root: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        self.is_mounted = True
        return self

    def unmount(self):
        # A process that was killed a moment ago may not have let go yet.
        eventually("an unmount", lambda: subprocess.run(["umount", str(self.at)], capture_output=True).returncode == 0)
        self.is_mounted = False

    def detach(self):
        """For the end of a test, whatever its state."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.at)], capture_output=True)

    def fill(self):
        """Takes all room that is left with one file, and returns it."""
        hog = self.at / "hog"
        with open(hog, "wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        return hog

    def sync(self):
        """Everything that is on it, and on no other file system."""
        run("sync", "--file-system", self.at)


class Ext4(Mount):
    """In a file, on a loop device."""

    def __init__(self, image, at, mib):
        with open(image, "wb") as file:
            file.truncate(mib << 20)
        run("mkfs.ext4", "-q", "-F", image)
        super().__init__(image, at, ["-o", "loop"])

    def cut_power(self):
        """What was not synced is gone; nothing can be written or synced until the next mount."""
        directory = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(directory)


class Tmpfs(Mount):
    def __init__(self, at, mib):
        super().__init__("none", at, ["-t", "tmpfs", "-o", f"size={mib}m"])

    def resize(self, mib):
        run("mount", "-o", f"remount,size={mib}m", self.at)


def stand_still(process):
    """Stops a process: when this returns it runs no more, but for what the kernel does for it in calls that it has made."""
    process.send_signal(signal.SIGSTOP)
    eventually("it stands still", lambda: _states(process) <= {"T", "t", "D"})


def _states(process):
    """The letters of proc(5), which stand behind the names of the tasks."""
    letters = set()
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        # It may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            letters.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return letters


@contextlib.contextmanager
def system_calls(process, call, injected):
    """All calls of one name by a running process fail or take long, as `strace --inject` says it."""
    assert shutil.which("strace"), "strace is not installed: run `make setup`"
    words = ["strace", "--follow-forks", "--quiet=all", "--output=/dev/null", f"--trace={call}"]
    strace = subprocess.Popen(
        [*words, f"--inject={call}:{injected}", f"--attach={process.pid}"], stderr=subprocess.PIPE, text=True
    )
    try:
        eventually("strace is attached", lambda: _is_traced_or_impossible(process, strace))
        yield
    finally:
        # On SIGINT, strace detaches from the process; a SIGKILL would leave the process stopped.
        strace.send_signal(signal.SIGINT)
        strace.wait(timeout=60)
        strace.stderr.close()


def _is_traced_or_impossible(process, strace):
    if strace.poll() is not None:
        problem = f"this user may not trace processes: {strace.stderr.read()}"
        assert os.geteuid() != 0, problem
        # The server lets no other process of its user look into its memory.
        pytest.skip(problem)
    tasks = pathlib.Path(f"/proc/{process.pid}/task").glob("*/status")
    return all("\nTracerPid:\t0\n" not in status.read_text() for status in tasks)


class Clock:
    """The wall clock of one process, which can be moved while it runs. The monotonic clock is not affected, as in reality."""

    def __init__(self, directory):
        assert FAKETIME, "libfaketime is not installed: run `make setup`"
        self.file = directory / "clock"
        self.move(0)

    def move(self, seconds):
        """Sets the clock to this many seconds from the real time."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.replace(self.file)

    def variables(self):
        return {
            "LD_PRELOAD": str(FAKETIME[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def flip(path, offset, mask=0x40):
    """One bit of a file, in place."""
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ mask]))


def memory_peak(process):
    """The most bytes that a process has had resident."""
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) << 10


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def contents(directory):
    """The files of a directory, by name, as digests."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def ended_start(server):
    """A start that must fail: the exit code, and what it said."""
    done = subprocess.run(
        server.command(), env=os.environ | server.environment(), capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr
