"""rclone, as its documents set it up for an S3-compatible server: provider "Other"."""

import json

from client import CommandLine, Head
from harness.servers import REGION, ROOT

# What rclone says -> the kind of Refused.
KINDS = {"directory not found": "missing", "StatusCode: 412": "precondition", "StatusCode: 403": "denied"}
# What rclone tells among the metadata that the user has not set.
SYSTEM_METADATA = {"btime", "content-encoding", "content-type", "mtime", "tier"}


class Rclone(CommandLine):
    name = "rclone"
    lacks = {
        "put_tags": "sets tags only while it uploads",
        "get_tags": "does not show tags",
        "delete_many": "deletes each object with its own request",
        "create_upload": "no commands for single parts",
        "presign_put": "`rclone link` creates URLs for GET only",
        "post_form": "no command for it",
        "missing": "treats a missing object as an empty directory",
    }
    unnameable = {
        "double slash": "collapses slashes before the last name",
        "trailing slash": "refuses it as a directory",
        "dots": "writes `.` and `..` in full-width characters",
    }

    def command(self):
        return [ROOT / ".tools" / "clients" / "rclone"]

    def environment(self):
        remote = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": self.server.endpoint,
            "REGION": REGION,
            "ACCESS_KEY_ID": self.server.access_key,
            "SECRET_ACCESS_KEY": self.server.secret_key,
        }
        return super().environment() | {f"RCLONE_CONFIG_REMOTE_{name}": value for name, value in remote.items()}

    def kind_of(self, said):
        return next((kind for words, kind in KINDS.items() if words in said), "other")

    def version(self):
        return self.run("version").decode().split()[1].removeprefix("v")

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        wanted = {"content-type": content_type, "content-encoding": content_encoding} | (metadata or {})
        given = [f"--metadata-set={name}={value}" for name, value in wanted.items() if value]
        if given:
            given.append("--metadata")
        self.run("rcat", *given, f"remote:{bucket}/{key}", stdin=body)

    def get(self, bucket, key):
        return self.run("cat", f"remote:{bucket}/{key}")

    def get_range(self, bucket, key, first, last):
        count = [] if last is None else ["--count", last - first + 1]
        return self.run("cat", "--offset", first, *count, f"remote:{bucket}/{key}")

    def get_suffix(self, bucket, key, length):
        return self.run("cat", "--tail", length, f"remote:{bucket}/{key}")

    def head(self, bucket, key):
        item = json.loads(self.run("lsjson", "--stat", "--metadata", f"remote:{bucket}/{key}"))
        metadata = {name: value for name, value in item["Metadata"].items() if name not in SYSTEM_METADATA}
        return Head(item["Size"], item["MimeType"], item["Metadata"].get("content-encoding"), metadata)

    def delete(self, bucket, key):
        self.run("deletefile", f"remote:{bucket}/{key}")

    def copy(self, bucket, key, to):
        self.run("copyto", f"remote:{bucket}/{key}", f"remote:{bucket}/{to}")

    def rename(self, bucket, key, to):
        self.run("moveto", f"remote:{bucket}/{key}", f"remote:{bucket}/{to}")

    def put_if_absent(self, bucket, key, body):
        self.run("rcat", "--header-upload", "If-None-Match: *", f"remote:{bucket}/{key}", stdin=body)

    def put_if_match(self, bucket, key, body, etag):
        self.run("rcat", "--header-upload", f"If-Match: {etag}", f"remote:{bucket}/{key}", stdin=body)

    def list(self, bucket, prefix="", delimiter=None):
        depth = [] if delimiter else ["--recursive", "--files-only"]
        paths = [prefix + path for path in self.run("lsf", *depth, f"remote:{bucket}/{prefix}").decode().splitlines()]
        return [path for path in paths if not path.endswith("/")], [path for path in paths if path.endswith("/")]

    def delete_prefix(self, bucket, prefix):
        self.run("purge", f"remote:{bucket}/{prefix}")

    def upload(self, bucket, key, path):
        self.run("copyto", path, f"remote:{bucket}/{key}")

    def download(self, bucket, key, path):
        self.run("copyto", f"remote:{bucket}/{key}", path)

    def upload_tree(self, directory, bucket, prefix):
        self.run("copy", directory, f"remote:{bucket}/{prefix}")

    def download_tree(self, bucket, prefix, directory):
        self.run("copy", f"remote:{bucket}/{prefix}", directory)

    def presign_get(self, bucket, key):
        return self.run("link", f"remote:{bucket}/{key}").decode().strip()
