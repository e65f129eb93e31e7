"""The AWS command line, version 1 (version 2 is in no package registry)."""

import json
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile

from client import CALL_SECONDS, CommandLine, Head, Refused

# Each command runs in a process of its own, forked from one that has loaded the AWS CLI: loading takes most of the time of a command.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["awscli.clidriver", "awscli.customizations.s3.s3", "botocore.auth", "s3transfer.manager", __name__])


def command_line(arguments, environment, files):
    """What the command `aws` does, with these files as standard input, output and error."""
    import awscli.clidriver

    for number, (name, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
        os.dup2(os.open(name, flags), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    # Loading has noted in the environment where the models of the services are.
    environment |= {"AWS_DATA_PATH": os.environ["AWS_DATA_PATH"]}
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["aws", *arguments]
    sys.exit(awscli.clidriver.main())


class AwsCommandLine(CommandLine):
    name = "AWS CLI v1"
    lacks = {
        "presign_put": "`aws s3 presign` creates URLs for GET only",
        "post_form": "no command for it",
        "put_with_unicode_metadata": "accepts ASCII only",
    }

    unnameable = {"trailing slash": "`aws s3 cp` treats it as a directory and appends a name"}

    def run(self, *arguments, stdin=None):
        words = ["--endpoint-url", self.server.endpoint, *map(str, arguments)]
        with tempfile.TemporaryDirectory() as directory:
            files = [pathlib.Path(directory) / name for name in ("stdin", "stdout", "stderr")]
            for file in files:
                file.write_bytes(b"")
            files[0].write_bytes(stdin or b"")
            process = PROCESSES.Process(target=command_line, args=(words, self.environment(), files))
            process.start()
            process.join(CALL_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()
                raise TimeoutError(f"{arguments} takes longer than {CALL_SECONDS} s")
            printed, said = files[1].read_bytes(), files[2].read_text(errors="replace")
        if process.exitcode != 0:
            raise Refused(self.kind_of(said + printed.decode(errors="replace")), f"{arguments}: {said}")
        return printed

    def environment(self):
        return super().environment() | {"AWS_PAGER": "", "LC_ALL": "C.UTF-8"}

    def kind_of(self, said):
        kinds = {"(404)": "missing", "NoSuchKey": "missing", "NoSuchBucket": "missing", "PreconditionFailed": "precondition"}
        return next((kind for word, kind in kinds.items() if word in said), "denied" if "AccessDenied" in said else "other")

    def api(self, operation, *arguments, **parameters):
        """One operation of `aws s3api`, with parameters in the names of the API; returns its answer."""
        for name, value in parameters.items():
            option = re.sub("(?<!^)([A-Z])", r"-\1", name).lower()
            arguments += (f"--{option}", value if isinstance(value, (str, int, pathlib.Path)) else json.dumps(value))
        printed = self.run("s3api", operation, *arguments)
        return json.loads(printed) if printed.strip() else {}

    def version(self):
        return self.run("--version").decode().split("/")[1].split()[0]

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        options = [word for word in ("--content-type", content_type, "--content-encoding", content_encoding)]
        given = [word for pair in zip(options[::2], options[1::2]) if pair[1] for word in pair]
        if metadata:
            given += ["--metadata", json.dumps(metadata)]
        self.run("s3", "cp", *given, "-", f"s3://{bucket}/{key}", stdin=body)

    def get(self, bucket, key):
        return self.run("s3", "cp", f"s3://{bucket}/{key}", "-")

    def _range(self, bucket, key, wanted):
        path = self.directory / "range"
        self.api("get-object", path, Bucket=bucket, Key=key, Range=wanted)
        return path.read_bytes()

    def get_range(self, bucket, key, first, last):
        return self._range(bucket, key, f"bytes={first}-{'' if last is None else last}")

    def get_suffix(self, bucket, key, length):
        return self._range(bucket, key, f"bytes=-{length}")

    def head(self, bucket, key):
        head = self.api("head-object", Bucket=bucket, Key=key)
        return Head(head["ContentLength"], head.get("ContentType"), head.get("ContentEncoding"), head["Metadata"])

    def delete(self, bucket, key):
        self.run("s3", "rm", f"s3://{bucket}/{key}")

    def copy(self, bucket, key, to):
        self.run("s3", "cp", f"s3://{bucket}/{key}", f"s3://{bucket}/{to}")

    def rename(self, bucket, key, to):
        self.run("s3", "mv", f"s3://{bucket}/{key}", f"s3://{bucket}/{to}")

    def _put(self, body, **parameters):
        path = self.directory / "put"
        path.write_bytes(body)
        self.api("put-object", Body=path, **parameters)

    def put_if_absent(self, bucket, key, body):
        self._put(body, Bucket=bucket, Key=key, IfNoneMatch="*")

    def put_if_match(self, bucket, key, body, etag):
        self._put(body, Bucket=bucket, Key=key, IfMatch=etag)

    def put_tags(self, bucket, key, tags):
        tagging = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        self.api("put-object-tagging", Bucket=bucket, Key=key, Tagging=tagging)

    def get_tags(self, bucket, key):
        return {tag["Key"]: tag["Value"] for tag in self.api("get-object-tagging", Bucket=bucket, Key=key)["TagSet"]}

    def list(self, bucket, prefix="", delimiter=None):
        more = {"Delimiter": delimiter} if delimiter else {}
        answer = self.api("list-objects-v2", Bucket=bucket, Prefix=prefix, **more)
        keys = [item["Key"] for item in answer.get("Contents") or []]
        return keys, [item["Prefix"] for item in answer.get("CommonPrefixes") or []]

    def delete_many(self, bucket, keys):
        path = self.directory / "delete"
        path.write_text(json.dumps({"Objects": [{"Key": key} for key in keys]}))
        answer = self.api("delete-objects", Bucket=bucket, Delete=f"file://{path}")
        assert len(answer["Deleted"]) == len(keys), answer.get("Errors")

    def delete_prefix(self, bucket, prefix):
        self.run("s3", "rm", "--recursive", f"s3://{bucket}/{prefix}")

    def upload(self, bucket, key, path):
        self.run("s3", "cp", path, f"s3://{bucket}/{key}")

    def download(self, bucket, key, path):
        self.run("s3", "cp", f"s3://{bucket}/{key}", path)

    def upload_tree(self, directory, bucket, prefix):
        self.run("s3", "sync", directory, f"s3://{bucket}/{prefix}")

    def download_tree(self, bucket, prefix, directory):
        self.run("s3", "sync", f"s3://{bucket}/{prefix}", directory)

    def create_upload(self, bucket, key):
        return self.api("create-multipart-upload", Bucket=bucket, Key=key)["UploadId"]

    def upload_part(self, bucket, key, upload, number, body):
        path = self.directory / "part"
        path.write_bytes(body)
        self.api("upload-part", Body=path, Bucket=bucket, Key=key, UploadId=upload, PartNumber=number)

    def list_parts(self, bucket, key, upload):
        parts = self.api("list-parts", Bucket=bucket, Key=key, UploadId=upload).get("Parts", [])
        return {part["PartNumber"]: part["ETag"] for part in parts}

    def complete_upload(self, bucket, key, upload, parts):
        listed = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts.items()]}
        self.api("complete-multipart-upload", Bucket=bucket, Key=key, UploadId=upload, MultipartUpload=listed)

    def presign_get(self, bucket, key):
        return self.run("s3", "presign", f"s3://{bucket}/{key}").decode().strip()
