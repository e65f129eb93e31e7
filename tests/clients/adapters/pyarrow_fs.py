"""The S3 file system of Apache Arrow, which pyarrow, and whatever reads data sets with it, uses."""

import io

import pyarrow
from pyarrow import fs

from client import Client, Head, Refused
from harness.servers import REGION

CONDITIONS = "its writes have no conditions"
PARTS = "uploads parts only within one stream"
NO_CALL = "no call for it"


class PyArrow(Client):
    name = "pyarrow (S3FileSystem)"
    lacks = {
        "put_with_metadata": "sends no user metadata",
        "put_with_unicode_metadata": "sends no user metadata",
        "overwrite_while_reading": "requests the size first, then that many bytes of the current object",
        "put_with_encoding": "sends no Content-Encoding",
        "put_if_absent": CONDITIONS,
        "put_if_match": CONDITIONS,
        "put_tags": NO_CALL,
        "get_tags": NO_CALL,
        "delete_many": "deletes named files one by one",
        "create_upload": PARTS,
        "upload_part": PARTS,
        "list_parts": PARTS,
        "complete_upload": PARTS,
        "presign_get": NO_CALL,
        "presign_put": NO_CALL,
        "post_form": NO_CALL,
    }
    unnameable = {
        "double slash": "refuses empty segments",
        "trailing slash": "treats it as a directory",
        "dots": "its HTTP client resolves `.` and `..` after signing",
    }

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.fs = fs.S3FileSystem(
            access_key=server.access_key,
            secret_key=server.secret_key,
            region=REGION,
            scheme="http",
            endpoint_override=server.endpoint.removeprefix("http://"),
        )

    def version(self):
        return pyarrow.__version__

    def call(self, name, *arguments, **parameters):
        try:
            return getattr(self.fs, name)(*arguments, **parameters)
        except FileNotFoundError as error:
            raise Refused("missing", str(error)) from error
        except OSError as error:
            raise Refused("denied" if "ACCESS_DENIED" in str(error) else "other", str(error)) from error

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        with self.call("open_output_stream", f"{bucket}/{key}", metadata=content_type and {"Content-Type": content_type}) as stream:
            stream.write(body)

    def get(self, bucket, key):
        with self.call("open_input_stream", f"{bucket}/{key}") as stream:
            return stream.read()

    def get_range(self, bucket, key, first, last):
        with self.call("open_input_file", f"{bucket}/{key}") as file:
            file.seek(first)
            return file.read(None if last is None else last - first + 1)

    def get_suffix(self, bucket, key, length):
        with self.call("open_input_file", f"{bucket}/{key}") as file:
            file.seek(-length, io.SEEK_END)
            return file.read()

    def head(self, bucket, key):
        info = self.call("get_file_info", f"{bucket}/{key}")
        if info.type == fs.FileType.NotFound:
            raise Refused("missing")
        return Head(info.size)

    def delete(self, bucket, key):
        self.call("delete_file", f"{bucket}/{key}")

    def copy(self, bucket, key, to):
        self.call("copy_file", f"{bucket}/{key}", f"{bucket}/{to}")

    def rename(self, bucket, key, to):
        self.call("move", f"{bucket}/{key}", f"{bucket}/{to}")

    def list(self, bucket, prefix="", delimiter=None):
        infos = self.call("get_file_info", fs.FileSelector(f"{bucket}/{prefix}", recursive=delimiter is None))
        keys = [info.path.removeprefix(f"{bucket}/") for info in infos if info.is_file]
        # A recursive listing names the directories between as well.
        return keys, [f"{info.path.removeprefix(f'{bucket}/')}/" for info in infos if delimiter and not info.is_file]

    def delete_prefix(self, bucket, prefix):
        self.call("delete_dir", f"{bucket}/{prefix}")

    def upload(self, bucket, key, path):
        fs.copy_files(str(path), f"{bucket}/{key}", destination_filesystem=self.fs)

    def download(self, bucket, key, path):
        fs.copy_files(f"{bucket}/{key}", str(path), source_filesystem=self.fs)

    def upload_tree(self, directory, bucket, prefix):
        fs.copy_files(str(directory), f"{bucket}/{prefix}", destination_filesystem=self.fs)

    def download_tree(self, bucket, prefix, directory):
        fs.copy_files(f"{bucket}/{prefix}", str(directory), source_filesystem=self.fs)
