"""s3cmd, a command line in Python, with the settings that its documentation gives for servers of one's own."""

import pathlib
import re
import sys

from client import CommandLine, Head
from harness.servers import REGION

PARTS = "uploads parts only within one command"
CONDITIONS = "`put` has no conditions"
METADATA = "x-amz-meta-"
# What it says, and the kind of refusal that it means.
KINDS = {"S3 error: 404": "missing", "does not exist": "missing", "S3 error: 412": "precondition", "S3 error: 403": "denied"}


class S3cmd(CommandLine):
    name = "s3cmd"
    lacks = {
        "get_range": "no option for it",
        "get_suffix": "no option for it",
        "put_if_absent": CONDITIONS,
        "put_if_match": CONDITIONS,
        "delete_many": "deletes named objects one by one",
        "create_upload": PARTS,
        "upload_part": PARTS,
        "list_parts": PARTS,
        "complete_upload": PARTS,
        "presign_put": "`signurl` creates URLs for GET only",
        "post_form": "no command for it",
        "content_encodings": "`info` does not show the encoding",
    }
    unnameable = {"trailing slash": "treats it as a directory"}

    def __init__(self, server, directory):
        super().__init__(server, directory)
        host = server.endpoint.removeprefix("http://")
        self.config = directory / "s3cfg"
        self.config.write_text(
            "[default]\n"
            f"access_key = {server.access_key}\n"
            f"secret_key = {server.secret_key}\n"
            f"host_base = {host}\n"
            f"host_bucket = {host}\n"
            f"bucket_location = {REGION}\n"
            "use_https = False\n"
        )

    def command(self):
        return [sys.executable, pathlib.Path(sys.executable).parent / "s3cmd", "--config", self.config]

    def environment(self):
        return super().environment() | {"LC_ALL": "C.UTF-8"}

    def kind_of(self, said):
        return next((kind for words, kind in KINDS.items() if words in said), "other")

    def version(self):
        return self.run("--version").decode().split()[-1]

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        path = self.directory / "put"
        path.write_bytes(body)
        headers = {f"{METADATA}{name}": value for name, value in (metadata or {}).items()}
        headers |= {"Content-Encoding": content_encoding} if content_encoding else {}
        options = [f"--add-header={name}:{value}" for name, value in headers.items()]
        options += [f"--mime-type={content_type}"] if content_type else []
        self.run("put", *options, path, f"s3://{bucket}/{key}")

    def get(self, bucket, key):
        return self.run("get", f"s3://{bucket}/{key}", "-")

    def head(self, bucket, key):
        said = self.run("info", f"s3://{bucket}/{key}").decode()
        facts = {name.strip(): value for name, value in re.findall(r"^   ([^:]+): *(.*)$", said, re.MULTILINE)}
        metadata = {name.removeprefix(METADATA): value for name, value in facts.items() if name.startswith(METADATA)}
        # The attributes of the file, which it adds itself.
        metadata.pop("s3cmd-attrs", None)
        return Head(int(facts["File size"]), facts["MIME type"], metadata=metadata)

    def delete(self, bucket, key):
        self.run("del", f"s3://{bucket}/{key}")

    def copy(self, bucket, key, to):
        self.run("cp", f"s3://{bucket}/{key}", f"s3://{bucket}/{to}")

    def rename(self, bucket, key, to):
        self.run("mv", f"s3://{bucket}/{key}", f"s3://{bucket}/{to}")

    def put_tags(self, bucket, key, tags):
        self.run("settagging", f"s3://{bucket}/{key}", "&".join(f"{name}={value}" for name, value in tags.items()))

    def get_tags(self, bucket, key):
        said = self.run("gettagging", f"s3://{bucket}/{key}").decode()
        return dict(re.findall(r"^\t(.+):\t(.*)$", said, re.MULTILINE))

    def list(self, bucket, prefix="", delimiter=None):
        said = self.run("ls", *([] if delimiter else ["--recursive"]), f"s3://{bucket}/{prefix}").decode()
        lines = re.findall(rf"^(?: +(DIR)|.{{16}} +\d+) +s3://{re.escape(bucket)}/(.*)$", said, re.MULTILINE)
        return [key for directory, key in lines if not directory], [key for directory, key in lines if directory]

    def delete_prefix(self, bucket, prefix):
        self.run("del", "--recursive", f"s3://{bucket}/{prefix}")

    def upload(self, bucket, key, path):
        self.run("put", path, f"s3://{bucket}/{key}")

    def download(self, bucket, key, path):
        self.run("get", f"s3://{bucket}/{key}", path)

    def upload_tree(self, directory, bucket, prefix):
        self.run("sync", f"{directory}/", f"s3://{bucket}/{prefix}")

    def download_tree(self, bucket, prefix, directory):
        self.run("sync", f"s3://{bucket}/{prefix}", f"{directory}/")

    def presign_get(self, bucket, key):
        return self.run("signurl", f"s3://{bucket}/{key}", "+3600").decode().strip()
