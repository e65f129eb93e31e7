"""A NameNode and a DataNode, as the tests of crates/ufs/tests/hdfs start them."""

import contextlib
import os
import pathlib
import shutil
import subprocess

from harness.servers import ROOT, eventually, free_port

INSTALLED = ROOT / ".tools" / "hdfs"
USER = "forebay"
SERVERS = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}


def is_installed():
    return (INSTALLED / "lib").is_dir() and shutil.which("java") is not None


class Hdfs:
    """HDFS on this machine, in one directory. `properties` are those of hdfs-site.xml that differ from what is here."""

    def __init__(self, directory, properties=None):
        self.directory = pathlib.Path(directory)
        self.port = free_port()
        self.servers = []
        self.conf = self.directory / "conf"
        self.conf.mkdir(parents=True)
        address, anywhere = f"127.0.0.1:{self.port}", "127.0.0.1:0"
        self._write("core-site.xml", {"fs.defaultFS": f"hdfs://{address}", "hadoop.tmp.dir": self.directory / "tmp"})
        self._write(
            "hdfs-site.xml",
            {
                "dfs.replication": 1,
                "dfs.namenode.name.dir": self.directory / "name",
                "dfs.datanode.data.dir": self.directory / "blocks",
                "dfs.namenode.http-address": anywhere,
                "dfs.datanode.address": anywhere,
                "dfs.datanode.http.address": anywhere,
                "dfs.datanode.ipc.address": anywhere,
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
                "dfs.permissions.superusergroup": USER,
            }
            | (properties or {}),
        )

    def _write(self, name, properties):
        lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()]
        (self.conf / name).write_text("\n".join(["<configuration>", *lines, "</configuration>"]))

    def _command(self, class_name, *arguments):
        class_path = f"{self.conf}:{INSTALLED}/classes:{INSTALLED}/lib/*"
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]
        return ["java", *options, "-cp", class_path, class_name, *map(str, arguments)]

    def _environment(self):
        return os.environ | {"HADOOP_USER_NAME": USER}

    def _run(self, class_name, *arguments, seconds=120):
        command = self._command(class_name, *arguments)
        return subprocess.run(command, env=self._environment(), capture_output=True, timeout=seconds)

    def start(self):
        formatted = self._run(SERVERS["namenode"], "-format", "-force", "-nonInteractive")
        assert formatted.returncode == 0, formatted.stderr.decode()[-4000:]
        for name, class_name in SERVERS.items():
            with open(self.directory / name, "ab") as log:
                command = self._command(class_name)
                self.servers.append(subprocess.Popen(command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self

    def stop(self):
        for server in self.servers:
            server.kill()
            server.wait()

    @property
    def datanode(self):
        return self.servers[list(SERVERS).index("datanode")]

    def url(self, path, user=USER):
        return f"hdfs://127.0.0.1:{self.port}{path}?user={user}"

    def shell(self, *arguments, seconds=120):
        """What `hdfs dfs` prints."""
        done = self._run("org.apache.hadoop.fs.FsShell", *arguments, seconds=seconds)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        return done.stdout

    def make(self, path):
        """Makes a directory, as soon as HDFS can."""

        def made():
            with contextlib.suppress(AssertionError):
                self.shell("-mkdir", "-p", path)
                return True

        eventually("HDFS started", made, 60)


@contextlib.contextmanager
def running(directory):
    """HDFS with a directory /lake."""
    started = Hdfs(directory)
    try:
        started.start().make("/lake")
        yield started
    finally:
        started.stop()
