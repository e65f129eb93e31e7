"""What the clients in Java share: each is a directory of jars that scripts/setup has built."""

from client import Program
from harness.servers import ROOT

# A quick start counts more than quick loops: one compiler alone, shared classes, and little memory.
OPTIONS = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


def built(module):
    """The directory of a module of programs/java, with its class path in `lib`."""
    directory = ROOT / ".tools" / "clients" / module
    assert directory.is_dir(), f"{module} is not built: run `scripts/setup java_clients`"
    return directory


class JavaProgram(Program):
    # Module and class.
    main = ()

    def command(self):
        module, main_class = self.main
        return ["java", *OPTIONS, "-cp", built(module) / "lib" / "*", main_class]
