"""Bodies in AWS chunks that are not what they should be, in the words of Amazon S3, and those without the trailer that they might have.

versity/versitygw has what Amazon S3 answers in tests/integration: unsigned_streaming_payload_trailer.go, signed_streaming_payload.go and
signed_streaming_payload_trailer.go.
"""

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from harness import chunks
from harness.clients import refused, send, send_signed
from harness.servers import REGION
from test_error_elements import has

pytestmark = pytest.mark.beyond_reference("its words differ")

CUT = "The request body terminated unexpectedly"
LENGTH = "You did not provide the number of bytes specified by the Content-Length HTTP header"
TRAILER = "The request contained trailing data that was not well-formed or did not conform to our published schema."
UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def put(server, target, body, decoded="10", trailer="x-amz-checksum-crc64nvme", method="PUT", **more):
    """A signed request with chunks as they stand."""
    headers = dict(more)
    headers |= {"x-amz-decoded-content-length": decoded} if decoded is not None else {}
    headers |= {"x-amz-trailer": trailer} if trailer else {}
    return send(server, method, target, sign_unsigned(server, method, target, headers), body)


def sign_unsigned(server, method, target, headers):
    request = AWSRequest(method, f"http://127.0.0.1:{server.port}{target}", headers, b"")
    auth = S3SigV4Auth(Credentials(server.access_key, server.secret_key), "s3", REGION)
    auth.payload = lambda _: UNSIGNED
    auth.add_auth(request)
    return dict(request.headers.items())


@pytest.mark.parametrize(
    "body",
    [
        b"A\ndummy data\r\n0\r\n\r\n",
        b"A\r\ndummy data0\r\n\r\n",
        b"A\r\nXYZ\r\ndummy data\r\n0\r\n\r\n",
        b"B\r\ndummy data\r\n0\r\n\r\n",
        b"A\r\n",
        b"invalid_chunk_size\r\ndummy data\r\n0\r\nx-amz-checksum-crc64nvme:dPVWc2vU1+Q=\r\n\r\n",
        b"A\r\ndummy data\r\nJ\r\nx-amz-checksum-crc64nvme:dPVWc2vU1+Q=\r\n\r\n",
    ],
)
def test_chunks_that_are_none(server, s3, bucket, body):
    answer = put(server, f"/{bucket}/object", body)
    assert answer.status == 400
    has(answer, "IncompleteBody", Message=CUT)
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.parametrize("decoded", ["9", "11"])
def test_chunks_of_another_length(server, s3, bucket, decoded):
    body = b"A\r\ndummy data\r\n0\r\nx-amz-checksum-crc64nvme:dPVWc2vU1+Q=\r\n\r\n"
    has(put(server, f"/{bucket}/object", body, decoded), "IncompleteBody", Message=LENGTH)
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.parametrize("decoded", [None, "", "abc", "12x"])
def test_a_length_that_is_none(server, s3, bucket, decoded):
    body = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n\r\n"
    answer = put(server, f"/{bucket}/object", body, decoded)
    assert answer.status == 411
    has(answer, "MissingContentLength")


def test_trailers_that_are_not_those_announced(server, s3, bucket):
    start = b"5\r\nhello\r\n0\r\n"
    for announced, trailer in (
        ("x-amz-checksum-crc64nvme", b""),
        ("x-amz-checksum-crc64nvme", b"invalid_trailer:M3eFcAZSQlc=\r\n"),
        ("x-amz-checksum-sha1", b"x-amz-checksum-crc32:NhCmhg==\r\n"),
        (None, b"x-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n"),
    ):
        answer = put(server, f"/{bucket}/object", start + trailer + b"\r\n", "5", announced)
        assert answer.status == 400
        has(answer, "MalformedTrailerError", Message=TRAILER)
    answer = put(server, f"/{bucket}/object", start + b"x-amz-checksum-crc64nvme:invalid\r\n\r\n", "5")
    has(answer, "InvalidRequest", Message="Value for x-amz-checksum-crc64nvme trailing header is invalid.")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_payload_that_could_have_a_trailer_needs_none(server, s3, bucket):
    body = b"B\r\nhello world\r\n0\r\n\r\n"
    assert put(server, f"/{bucket}/object", body, "11", None).status == 200
    read = s3.get_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED")
    assert (read["Body"].read(), read["ChecksumCRC64NVME"]) == (b"hello world", "jSnVw/bqjr4=")
    answer = put(server, f"/{bucket}/object", body, "11", None, **{"x-amz-checksum-crc32": "DUoRhQ=="})
    assert answer.status == 200 and answer.headers["x-amz-checksum-crc32"] == "DUoRhQ==", answer
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")["UploadId"]
    answer = put(server, f"/{bucket}/upload?partNumber=1&uploadId={upload}", body, "11", None)
    assert answer.status == 200 and answer.headers["x-amz-checksum-crc32"] == "DUoRhQ==", answer
    headers, signed = chunks.request(server, f"/{bucket}/signed", b"hello", "signed-trailer", announced=None, trailer=lambda _, lines: [])
    answer = send(server, "PUT", f"/{bucket}/signed", headers, signed)
    assert answer.status == 200, answer
    assert s3.get_object(Bucket=bucket, Key="signed")["Body"].read() == b"hello"
    headers, signed = chunks.request(server, f"/{bucket}/other", b"hello", "signed-trailer", announced=None)
    has(send(server, "PUT", f"/{bucket}/other", headers, signed), "MalformedTrailerError")


@pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "NO_CACHE"))
def test_only_objects_and_parts_come_in_chunks(server, s3, bucket):
    """`UnsignedStreamingPayloadTrailer_not_allowed`."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    document = b"<Tagging><TagSet/></Tagging>"
    body = f"{len(document):x}\r\n".encode() + document + b"\r\n0\r\n\r\n"
    for method, target in (
        ("PUT", "/object?tagging="),
        ("PUT", "/object?acl="),
        ("PUT", "?ownershipControls="),
        ("POST", "?delete="),
        ("POST", "/object?uploads="),
        ("GET", "/object"),
    ):
        answer = put(server, f"/{bucket}{target}", body, str(len(document)), None, method)
        assert answer.status == 400, (method, target, answer)
        has(answer, "InvalidRequest", Message="The value of x-amz-content-sha256 header is invalid.")
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"
    assert send_signed(server, "PUT", f"/{bucket}/object?tagging=", body=document).status == 200
