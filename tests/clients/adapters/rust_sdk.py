"""The AWS SDK for Rust, the crate aws-sdk-s3. It has no transfer manager: uploads in parts are written by hand."""

import os
import pathlib

from client import Program
from harness.servers import ROOT


def rust_program():
    """The program with all clients that are Rust crates, where scripts/test has built it."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "forebay-test-clients"


class RustSdk(Program):
    name = "AWS SDK for Rust"
    lacks = {
        "post_form": "no call for it",
    }

    def command(self):
        return [rust_program(), "aws-sdk-s3"]
