"""The AWS SDK for Go v2, with its own transfer manager."""

from client import Program
from harness.servers import ROOT


class GoSdk(Program):
    name = "AWS SDK for Go v2"

    def command(self):
        return [ROOT / ".tools" / "clients" / "go-client", "aws"]
