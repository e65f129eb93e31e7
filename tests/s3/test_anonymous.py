"""Requests of SDKs that have no keys, where a grant lets everybody write.

Sources: minio/minio#21005 and versity/versitygw#1554 (bodies in chunks that nobody signed), awsdocs/amazon-s3-userguide#91 and
scylladb/scylladb#13425 (what Amazon S3 does for nobody).
"""

import subprocess

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from harness.clients import refused
from harness.servers import REGION, Forebay

pytestmark = pytest.mark.beyond_reference("it is about Forebay")

USERS = """
[[anonymous]]
path = "/bucket/open/"
allow = ["read", "write"]
"""


class TlsForebay(Forebay):
    """With TLS on the S3 port: botocore sends checksums in trailers there, and in headers elsewhere."""

    def __init__(self, directory, users):
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate, key = directory / "cert.pem", directory / "key.pem"
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run([*make, *extensions, "-subj", "/CN=forebay", "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        super().__init__(directory, config=f'[server]\nusers_file = "{users}"\ntls_cert = "{self.certificate}"\ntls_key = "{key}"\n')


@pytest.fixture(params=["http", "https"])
def client(request, tmp_path):
    """Makes clients of a server with a bucket: with the root keys, or with none."""
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    if request.param == "https":
        server = TlsForebay(tmp_path / "forebay", users).start()
        endpoint = {"endpoint_url": server.endpoint.replace("http:", "https:"), "verify": str(server.certificate)}
    else:
        (tmp_path / "forebay").mkdir()
        server = Forebay(tmp_path / "forebay", config=f'[server]\nusers_file = "{users}"\n').start()
        endpoint = {"endpoint_url": server.endpoint}

    def make(**options):
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, **options)
        keys = {} if options else {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
        return boto3.client("s3", region_name=REGION, config=config, **endpoint, **keys)

    make().create_bucket(Bucket="bucket")
    yield make
    assert server.stop() == 0


def test_an_sdk_without_keys_writes_where_everybody_may(client):
    root, nobody = client(), client(signature_version=UNSIGNED)
    body = bytes(range(256)) * 1000
    for algorithm in ("CRC32", "SHA256"):
        nobody.put_object(Bucket="bucket", Key=f"open/{algorithm}", Body=body, ChecksumAlgorithm=algorithm, ContentEncoding="zstd")
        read = root.get_object(Bucket="bucket", Key=f"open/{algorithm}", ChecksumMode="ENABLED")
        assert (read["Body"].read(), read["ContentEncoding"]) == (body, "zstd") and read[f"Checksum{algorithm}"]
    upload = {"Bucket": "bucket", "Key": "open/parts", "UploadId": root.create_multipart_upload(Bucket="bucket", Key="open/parts")["UploadId"]}
    etag = nobody.upload_part(PartNumber=1, Body=body, **upload)["ETag"]
    nobody.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)
    assert root.get_object(Bucket="bucket", Key="open/parts")["Body"].read() == body
    refused("AccessDenied", nobody.put_object, Bucket="bucket", Key="closed", Body=body)


def test_what_s3_does_for_nobody(client):
    root, nobody = client(), client(signature_version=UNSIGNED)
    root.put_object(Bucket="bucket", Key="open/source", Body=b"x")
    begin = refused("AccessDenied", nobody.create_multipart_upload, Bucket="bucket", Key="open/parts")
    assert begin["Error"]["Message"] == "Anonymous users cannot initiate multipart uploads.  Please authenticate."
    copy = {"Bucket": "bucket", "CopySource": "bucket/open/source"}
    upload = root.create_multipart_upload(Bucket="bucket", Key="open/parts")["UploadId"]
    for call in (
        lambda: nobody.copy_object(Key="open/copy", **copy),
        lambda: nobody.upload_part_copy(Key="open/parts", UploadId=upload, PartNumber=1, **copy),
    ):
        assert refused("AccessDenied", call)["Error"]["Message"] == "Anonymous users cannot copy objects.  Please authenticate."
    assert [listed["Key"] for listed in root.list_objects_v2(Bucket="bucket")["Contents"]] == ["open/source"]
