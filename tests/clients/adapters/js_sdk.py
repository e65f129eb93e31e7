"""The AWS SDK for JavaScript v3 on Node.js, with its packages lib-storage, s3-request-presigner and s3-presigned-post."""

from client import Program
from harness.servers import ROOT

# Where scripts/setup installs programs/js, beside the Node.js that it chose.
INSTALLED = ROOT / ".tools" / "clients" / "js"


class JsSdk(Program):
    name = "AWS SDK for JavaScript v3"
    lacks = {"put_with_unicode_metadata": "Node.js refuses header characters outside Latin-1"}

    def command(self):
        return [INSTALLED / "node", INSTALLED / "main.js"]
