"""obstore: the Python binding of object_store, the Rust crate that Polars, DataFusion and delta-rs read S3 with."""

import datetime
import importlib.metadata

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from client import Client, Head, Refused
from harness.servers import REGION

KINDS = {
    FileNotFoundError: "missing",
    AlreadyExistsError: "precondition",
    PreconditionError: "precondition",
    PermissionDeniedError: "denied",
}
# What is no metadata of the user among an object's attributes.
SYSTEM_ATTRIBUTES = {
    "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Cache-Control", "Storage-Class",
}
PARTS = "uploads parts only within one call"
HOUR = datetime.timedelta(hours=1)


class Obstore(Client):
    name = "obstore (object_store)"
    lacks = {
        "put_tags": "sets tags only in `put`",
        "get_tags": "no call for it",
        "create_upload": PARTS,
        "upload_part": PARTS,
        "list_parts": PARTS,
        "complete_upload": PARTS,
        "post_form": "no call for it",
    }
    unnameable = {
        "double slash": "refuses empty segments",
        "trailing slash": "removes the slash",
        "dots": "refuses the segments `.` and `..`",
    }

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.options = {
            "endpoint": server.endpoint,
            "region": REGION,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
        }
        self.stores = {}

    def version(self):
        return importlib.metadata.version("obstore")

    def store(self, bucket):
        if bucket not in self.stores:
            self.stores[bucket] = S3Store(bucket, client_options={"allow_http": True}, **self.options)
        return self.stores[bucket]

    def call(self, name, bucket, *arguments, **parameters):
        try:
            return getattr(obstore, name)(self.store(bucket), *arguments, **parameters)
        except (BaseError, FileNotFoundError) as error:
            raise Refused(KINDS.get(type(error), type(error).__name__), str(error)) from error

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        given = {"Content-Type": content_type, "Content-Encoding": content_encoding} | (metadata or {})
        self.call("put", bucket, key, body, attributes={name: value for name, value in given.items() if value is not None})

    def get(self, bucket, key):
        return bytes(self.call("get", bucket, key).bytes())

    def get_range(self, bucket, key, first, last):
        if last is None:
            return bytes(self.call("get", bucket, key, options={"range": {"offset": first}}).bytes())
        return bytes(self.call("get_range", bucket, key, start=first, end=last + 1))

    def get_suffix(self, bucket, key, length):
        return bytes(self.call("get", bucket, key, options={"range": {"suffix": length}}).bytes())

    def head(self, bucket, key):
        answer = self.call("get", bucket, key, options={"head": True})
        attributes = dict(answer.attributes)
        metadata = {name: value for name, value in attributes.items() if name not in SYSTEM_ATTRIBUTES}
        return Head(answer.meta["size"], attributes.get("Content-Type"), attributes.get("Content-Encoding"), metadata)

    def delete(self, bucket, key):
        self.call("delete", bucket, key)

    def copy(self, bucket, key, to):
        self.call("copy", bucket, key, to)

    def rename(self, bucket, key, to):
        self.call("rename", bucket, key, to)

    def put_if_absent(self, bucket, key, body):
        self.call("put", bucket, key, body, mode="create")

    def put_if_match(self, bucket, key, body, etag):
        self.call("put", bucket, key, body, mode={"e_tag": etag})

    def list(self, bucket, prefix="", delimiter=None):
        if delimiter is None:
            return [item["path"] for item in self.call("list", bucket, prefix).collect()], []
        listed = self.call("list_with_delimiter", bucket, prefix)
        return [item["path"] for item in listed["objects"]], [f"{path}/" for path in listed["common_prefixes"]]

    def delete_many(self, bucket, keys):
        self.call("delete", bucket, keys)

    def delete_prefix(self, bucket, prefix):
        for page in self.call("list", bucket, prefix, chunk_size=1000):
            self.delete_many(bucket, [item["path"] for item in page])

    def upload(self, bucket, key, path):
        self.call("put", bucket, key, path)

    def download(self, bucket, key, path):
        with open(path, "wb") as file:
            for chunk in self.call("get", bucket, key):
                file.write(chunk)

    def presign_get(self, bucket, key):
        return self.call("sign", bucket, "GET", key, HOUR)

    def presign_put(self, bucket, key):
        return self.call("sign", bucket, "PUT", key, HOUR)
