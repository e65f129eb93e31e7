"""The crate object_store, which DataFusion, Delta Lake and others in Rust use."""

import tomllib

from adapters.rust_sdk import rust_program
from client import Program
from harness.servers import ROOT


class ObjectStore(Program):
    name = "object_store"
    lacks = {
        "put_tags": "sets tags only in a put",
        "get_tags": "no call for it",
        "list_parts": "no call for it",
        "post_form": "no call for it",
    }
    unnameable = {
        "double slash": "its paths cannot have empty segments",
        "trailing slash": "its paths never end in a slash",
        "dots": "its paths cannot have the segments `.` and `..`",
    }

    def command(self):
        return [rust_program(), "object_store"]

    def version(self):
        """As locked: the crate itself doesn't tell."""
        packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
        return next(package["version"] for package in packages if package["name"] == "object_store")
