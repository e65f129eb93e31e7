"""minio-go, which uploads and downloads in parts by itself."""

from client import Program
from harness.servers import ROOT


class MinioGo(Program):
    name = "minio-go"
    lacks = {"unicode_tags": "accepts ASCII tags only"}

    def command(self):
        return [ROOT / ".tools" / "clients" / "go-client", "minio"]
