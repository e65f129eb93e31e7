"""minio-py, the Python client of MinIO."""

import datetime
import importlib.metadata
import io

import minio
from minio.commonconfig import CopySource, Tags
from minio.datatypes import PostPolicy
from minio.deleteobjects import DeleteObject
from minio.error import S3Error

from client import Client, Head, Refused
from harness.servers import REGION

KINDS = {404: "missing", 412: "precondition", 403: "denied"}
PARTS = "its calls for single parts are private"
CONDITIONS = "`put_object` has no conditions"
METADATA = "x-amz-meta-"


class MinioPy(Client):
    name = "minio-py"
    lacks = {
        "put_if_absent": CONDITIONS,
        "put_if_match": CONDITIONS,
        "create_upload": PARTS,
        "upload_part": PARTS,
        "list_parts": PARTS,
        "complete_upload": PARTS,
        "put_with_unicode_metadata": "accepts ASCII only",
    }
    unnameable = {"dots": "refuses the segments `.` and `..`"}

    def __init__(self, server, directory):
        super().__init__(server, directory)
        host = server.endpoint.removeprefix("http://")
        self.client = minio.Minio(host, server.access_key, server.secret_key, secure=False, region=REGION)

    def version(self):
        return importlib.metadata.version("minio")

    def call(self, name, *arguments, **parameters):
        try:
            return getattr(self.client, name)(*arguments, **parameters)
        except S3Error as error:
            raise Refused(KINDS.get(error.response.status, error.code), str(error)) from error

    def _read(self, bucket, key, **parameters):
        with self.call("get_object", bucket, key, **parameters) as response:
            return response.read()

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        more = {"content_type": content_type} if content_type else {}
        headers = (metadata or {}) | ({"Content-Encoding": content_encoding} if content_encoding else {})
        self.call("put_object", bucket, key, io.BytesIO(body), len(body), metadata=headers, **more)

    def get(self, bucket, key):
        return self._read(bucket, key)

    def get_range(self, bucket, key, first, last):
        return self._read(bucket, key, offset=first, length=0 if last is None else last - first + 1)

    def get_suffix(self, bucket, key, length):
        return self._read(bucket, key, request_headers={"Range": f"bytes=-{length}"})

    def head(self, bucket, key):
        stat = self.call("stat_object", bucket, key)
        headers = {name.lower(): value for name, value in stat.metadata.items()}
        metadata = {name.removeprefix(METADATA): value for name, value in headers.items() if name.startswith(METADATA)}
        return Head(stat.size, stat.content_type, headers.get("content-encoding"), metadata)

    def delete(self, bucket, key):
        self.call("remove_object", bucket, key)

    def copy(self, bucket, key, to):
        self.call("copy_object", bucket, to, CopySource(bucket, key))

    def rename(self, bucket, key, to):
        self.copy(bucket, key, to)
        self.delete(bucket, key)

    def put_tags(self, bucket, key, tags):
        tagging = Tags.new_object_tags()
        tagging.update(tags)
        self.call("set_object_tags", bucket, key, tagging)

    def get_tags(self, bucket, key):
        return dict(self.call("get_object_tags", bucket, key))

    def list(self, bucket, prefix="", delimiter=None):
        listed = list(self.client.list_objects(bucket, prefix, recursive=delimiter is None))
        prefixes = [item.object_name for item in listed if delimiter and item.is_dir]
        return [item.object_name for item in listed if not (delimiter and item.is_dir)], prefixes

    def delete_many(self, bucket, keys):
        errors = list(self.client.remove_objects(bucket, [DeleteObject(key) for key in keys]))
        assert not errors, errors

    def delete_prefix(self, bucket, prefix):
        listed = self.client.list_objects(bucket, prefix, recursive=True)
        errors = list(self.client.remove_objects(bucket, (DeleteObject(item.object_name) for item in listed)))
        assert not errors, errors

    def upload(self, bucket, key, path):
        self.call("fput_object", bucket, key, str(path))

    def download(self, bucket, key, path):
        self.call("fget_object", bucket, key, str(path))

    def presign_get(self, bucket, key):
        return self.client.presigned_get_object(bucket, key)

    def presign_put(self, bucket, key):
        return self.client.presigned_put_object(bucket, key)

    def post_form(self, bucket, key):
        policy = PostPolicy(bucket, datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1))
        policy.add_equals_condition("key", key)
        return f"{self.server.endpoint}/{bucket}", self.client.presigned_post_policy(policy) | {"key": key}
