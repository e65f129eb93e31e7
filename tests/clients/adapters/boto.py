"""boto3, with its own transfer manager and with the one of the AWS common runtime."""

import importlib.metadata

import boto3
import boto3.s3.transfer
import s3transfer.crt
from botocore.exceptions import ClientError

from client import Client, Head, Refused
from harness.servers import REGION, eventually

KINDS = {404: "missing", 412: "precondition", 403: "denied"}


class Boto(Client):
    name = "boto3"
    lacks = {"put_with_unicode_metadata": "accepts ASCII only"}

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.session = boto3.Session(
            aws_access_key_id=server.access_key, aws_secret_access_key=server.secret_key, region_name=REGION
        )
        self.client = self.session.client("s3", endpoint_url=server.endpoint)

    def close(self):
        self.client.close()

    def version(self):
        return importlib.metadata.version("boto3")

    def call(self, name, **parameters):
        """One call of the client; what is None is left out."""
        try:
            return getattr(self.client, name)(**{name: value for name, value in parameters.items() if value is not None})
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            raise Refused(KINDS.get(status, str(status)), str(error)) from error

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        more = {"ContentType": content_type, "ContentEncoding": content_encoding, "Metadata": metadata}
        self.call("put_object", Bucket=bucket, Key=key, Body=body, **more)

    def get(self, bucket, key):
        return self.call("get_object", Bucket=bucket, Key=key)["Body"].read()

    def get_range(self, bucket, key, first, last):
        return self.call("get_object", Bucket=bucket, Key=key, Range=f"bytes={first}-{'' if last is None else last}")["Body"].read()

    def get_suffix(self, bucket, key, length):
        return self.call("get_object", Bucket=bucket, Key=key, Range=f"bytes=-{length}")["Body"].read()

    def head(self, bucket, key):
        head = self.call("head_object", Bucket=bucket, Key=key)
        return Head(head["ContentLength"], head.get("ContentType"), head.get("ContentEncoding"), head["Metadata"])

    def delete(self, bucket, key):
        self.call("delete_object", Bucket=bucket, Key=key)

    def copy(self, bucket, key, to):
        self.client.copy({"Bucket": bucket, "Key": key}, bucket, to)

    def rename(self, bucket, key, to):
        self.copy(bucket, key, to)
        self.delete(bucket, key)

    def put_if_absent(self, bucket, key, body):
        self.call("put_object", Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")

    def put_if_match(self, bucket, key, body, etag):
        self.call("put_object", Bucket=bucket, Key=key, Body=body, IfMatch=etag)

    def put_tags(self, bucket, key, tags):
        tagging = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        self.call("put_object_tagging", Bucket=bucket, Key=key, Tagging=tagging)

    def get_tags(self, bucket, key):
        return {tag["Key"]: tag["Value"] for tag in self.call("get_object_tagging", Bucket=bucket, Key=key)["TagSet"]}

    def list(self, bucket, prefix="", delimiter=None):
        more = {"Delimiter": delimiter} if delimiter else {}
        pages = list(self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **more))
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return keys, [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", [])]

    def delete_many(self, bucket, keys):
        answer = self.call("delete_objects", Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
        assert len(answer["Deleted"]) == len(keys), answer.get("Errors")

    def delete_prefix(self, bucket, prefix):
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            self.delete_many(bucket, [item["Key"] for item in page["Contents"]])

    def upload(self, bucket, key, path):
        self.client.upload_file(str(path), bucket, key)

    def download(self, bucket, key, path):
        self.client.download_file(bucket, key, str(path))

    def create_upload(self, bucket, key):
        return self.call("create_multipart_upload", Bucket=bucket, Key=key)["UploadId"]

    def upload_part(self, bucket, key, upload, number, body):
        self.call("upload_part", Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)

    def list_parts(self, bucket, key, upload):
        parts = self.call("list_parts", Bucket=bucket, Key=key, UploadId=upload).get("Parts", [])
        return {part["PartNumber"]: part["ETag"] for part in parts}

    def complete_upload(self, bucket, key, upload, parts):
        listed = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts.items()]}
        self.call("complete_multipart_upload", Bucket=bucket, Key=key, UploadId=upload, MultipartUpload=listed)

    def presign_get(self, bucket, key):
        return self.client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key})

    def presign_put(self, bucket, key):
        return self.client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key})

    def post_form(self, bucket, key):
        form = self.client.generate_presigned_post(bucket, key)
        return form["url"], form["fields"]


class BotoCrt(Boto):
    """boto3 as it is on the machines for which it chooses the common runtime by itself, with awscrt installed."""

    name = "boto3, CRT transfers"

    def version(self):
        return f"{super().version()}, awscrt {importlib.metadata.version('awscrt')}"

    def __init__(self, server, directory):
        super().__init__(server, directory)
        serializer = s3transfer.crt.BotocoreCRTRequestSerializer(
            self.session._session, {"region_name": REGION, "endpoint_url": server.endpoint}
        )
        credentials = s3transfer.crt.BotocoreCRTCredentialsWrapper(self.session.get_credentials())
        runtime = s3transfer.crt.create_s3_crt_client(
            REGION, crt_credentials_provider=credentials.to_crt_credentials_provider(), use_ssl=False
        )
        self.manager = s3transfer.crt.CRTTransferManager(runtime, serializer)

    def close(self):
        self.manager.shutdown()
        super().close()

    def upload(self, bucket, key, path):
        self.manager.upload(str(path), bucket, key).result()

    def download(self, bucket, key, path):
        self.manager.download(bucket, key, str(path)).result()
        # The file gets its name in a callback, which may come behind the result.
        eventually("the file has its name", path.exists)
