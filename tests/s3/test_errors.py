"""Every error that a client can bring about: status, code and document are those of S3, and nothing is changed by the request.

The table in docs/s3-compatibility.md is made from ERRORS.
"""

import datetime
import http.client
import socket
from xml.etree import ElementTree

import boto3
import botocore.auth
import pytest

from botocore.config import Config

from harness import chunks, signing
from harness.clients import Answer, md5_base64, refused, send, send_signed, sign
from harness.servers import REGION

MIB = 1 << 20
NO_ACCOUNTS = ("", "nobody", "11112222333", "1111222233334")
# Code -> (status, when, how to bring it about).
ERRORS = {}


def error(code, status, when):
    """Registers a function that gets a Scene and returns the answers that all must be this error."""

    def register(function):
        name = function.__name__.strip("_")
        assert name not in ERRORS
        ERRORS[name] = (code, status, when, function)
        return function

    return register


class Scene:
    """A server with a bucket that holds the object `kept` and an upload of three parts."""

    def __init__(self, server, s3, bucket, monkeypatch):
        self.server, self.s3, self.bucket, self.monkeypatch = server, s3, bucket, monkeypatch
        s3.put_object(Bucket=bucket, Key="kept", Body=b"kept as it is")
        server.wait_until_drained()  # A listing shows the under store's time once it is there.
        self.upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
        call = {"Bucket": bucket, "Key": "upload", "UploadId": self.upload}
        self.parts = [(number, s3.upload_part(PartNumber=number, Body=b"small", **call)["ETag"]) for number in (1, 2, 3)]

    def state(self):
        """Everything in the bucket."""
        objects = self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        uploads = self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        parts = self.s3.list_parts(Bucket=self.bucket, Key="upload", UploadId=self.upload)["Parts"]
        buckets = self.s3.list_buckets()["Buckets"]
        found = [(item["Key"], item["ETag"], item["LastModified"]) for item in objects]
        return found, [upload["UploadId"] for upload in uploads], [part["ETag"] for part in parts], len(buckets)

    def send(self, method, target, headers=None, body=b"", **options):
        """A signed request; the target is below the bucket."""
        return send_signed(self.server, method, f"/{self.bucket}{target}", headers, body, **options)

    def complete(self, *parts):
        listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in parts)
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        return self.send("POST", f"/upload?uploadId={self.upload}", body=body)

    def delete(self, body, digest=None):
        return self.send("POST", "?delete=", {"Content-MD5": digest or md5_base64(body)}, body)

    def chunked(self, kind, damage):
        target = f"/{self.bucket}/object"
        headers, body = chunks.request(self.server, target, b"x" * 100_000, kind, damage)
        return send(self.server, "PUT", target, headers, body)

    def at(self, moment):
        """From now on requests are signed at another time."""
        self.monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: moment)

    def raw(self, request, then=None):
        """The answer to these bytes. `then`: what is done with the socket before the answer is read."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            connection.sendall(request)
            if then:
                then(connection)
            return read_answer(connection)

    def head_of_document(self, method, query, length):
        """The head of a signed request with a document of which only the length is known."""
        target = f"/{self.bucket}{query}"
        headers = sign(self.server, method, target, {"Content-MD5": md5_base64(b"")}, sign_payload=False) | {"Host": f"127.0.0.1:{self.server.port}"}
        headers |= {"Content-Length": str(length), "Connection": "close"}
        return (f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode()

    def head_of_put(self, length, body=b"0123456789"):
        """The head of a signed PUT that says another length."""
        target = f"/{self.bucket}/object"
        headers = sign(self.server, "PUT", target, body=body) | {"Host": f"127.0.0.1:{self.server.port}"}
        headers |= {"Content-Length": str(length), "Connection": "close"}
        return (f"PUT {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode()


def read_answer(connection):
    response = http.client.HTTPResponse(connection)
    response.begin()
    return Answer(response)


def hours(count):
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=count)


@error("AccessControlListNotSupported", 400, "an access control list that grants anything to anyone but the bucket owner")
def access_lists(scene):
    yield scene.send("PUT", "/object", {"x-amz-acl": "public-read"}, b"x")
    yield scene.send("PUT", "/kept?acl", {"x-amz-grant-read": "id=x"})


@error("AccessDenied", 403, "a missing signature, unsigned headers, a missing grant, an expired URL")
def access_denied(scene):
    target = f"/{scene.bucket}/kept"
    yield send(scene.server, "GET", target)
    headers = sign(scene.server, "GET", target)
    yield send(scene.server, "GET", target, headers | {"x-amz-meta-a": "1"})
    yield send(scene.server, "GET", f"{target}?AWSAccessKeyId={scene.server.access_key}&Signature=c2ln&Expires=1&prefix=a")


@error("BadRequest", 400, "more than 10 tags")
def bad_request(scene):
    tags = "&".join(f"k{number}=v" for number in range(11))
    yield scene.send("PUT", "/object", {"x-amz-tagging": tags}, b"x")
    body = "".join(f"<Tag><Key>k{number}</Key><Value>v</Value></Tag>" for number in range(11))
    body = f"<Tagging><TagSet>{body}</TagSet></Tagging>".encode()
    yield scene.send("PUT", "/kept?tagging", {"Content-MD5": md5_base64(body)}, body)


@error("AuthorizationHeaderMalformed", 400, "a credential scope for another region, a malformed Authorization header")
def authorization_header_malformed(scene):
    target = f"/{scene.bucket}/kept"
    headers = sign(scene.server, "GET", target)
    changes = (("/us-east-1/", "/eu-west-1/"), ("Credential=", "Kredential="), ("SignedHeaders=", "Headers="), ("Signature=", "Signatur="))
    changes += (("/s3/", "/sqs/"), ("aws4_request", "aws5_request"), ("/s3/", "/"), ("SignedHeaders=", "SignedHeaders"))
    for change in changes:
        yield send(scene.server, "GET", target, headers | {"Authorization": headers["Authorization"].replace(*change)})


@error("AuthorizationQueryParametersError", 400, "a presigned URL that lacks a parameter, is for another region, or has a negative lifetime or one above 7 days")
def authorization_query_parameters(scene):
    url = scene.s3.generate_presigned_url("get_object", {"Bucket": scene.bucket, "Key": "kept"}).removeprefix(scene.server.endpoint)
    yield send(scene.server, "GET", url.replace("X-Amz-Expires=3600", "X-Amz-Expires=604801"))
    yield send(scene.server, "GET", url.replace("X-Amz-Expires=3600", "X-Amz-Expires=-3600"))
    yield send(scene.server, "GET", url.replace("X-Amz-Expires=3600", "X-Amz-Expires=soon"))
    yield send(scene.server, "GET", url.replace("us-east-1", "eu-west-1"))
    yield send(scene.server, "GET", url.replace("X-Amz-Date=", "X-Amz-Datum="))


@error("BadDigest", 400, "a body that does not match its Content-MD5, or its checksum in a header or trailer; CompleteMultipartUpload with a checksum that is not the object's, or of another algorithm")
def bad_digest(scene):
    yield scene.send("PUT", "/object", {"Content-MD5": md5_base64(b"other")}, b"body")
    yield scene.send("PUT", "/kept", {"x-amz-checksum-crc32": "AAAAAA=="}, b"body")
    yield scene.send("PUT", f"/upload?partNumber=4&uploadId={scene.upload}", {"x-amz-checksum-crc32": "AAAAAA=="}, b"body")
    yield scene.delete(b"<Delete><Object><Key>kept</Key></Object></Delete>", md5_base64(b"other"))
    for kind in ("signed-trailer", "unsigned-trailer"):
        yield scene.chunked(kind, "trailer")




@error("BucketNotEmpty", 409, "DeleteBucket of a bucket that still has objects")
def bucket_not_empty(scene):
    yield scene.send("DELETE", "")


@error("EntityTooLarge", 400, "a PUT or a part of more than 5 GiB")
def entity_too_large(scene):
    for target in ("/object", f"/upload?partNumber=4&uploadId={scene.upload}"):
        path = f"/{scene.bucket}{target}"
        headers = sign(scene.server, "PUT", path, sign_payload=False) | {"Content-Length": str((5 << 30) + 1)}
        head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{scene.server.port}\r\n"
        yield scene.raw((head + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode())


@error("EntityTooSmall", 400, "CompleteMultipartUpload with a part of less than 5 MiB that is not the last")
def entity_too_small(scene):
    yield scene.complete(*scene.parts)


@error("IllegalLocationConstraintException", 400, "CreateBucket in another region")
def illegal_location_constraint(scene):
    for location in ("eu-west-1", "us-gov-west-1"):
        document = f"<CreateBucketConfiguration><LocationConstraint>{location}</LocationConstraint></CreateBucketConfiguration>".encode()
        yield send_signed(scene.server, "PUT", "/another-bucket", body=document)


@error("IncompleteBody", 400, "a body or a document that ends before its declared length or before its last chunk")
def incomplete_body(scene):
    for method, query in (("POST", "?delete="), ("PUT", "/object?tagging="), ("PUT", "")):
        document = b"<Delete><Object>"
        yield scene.raw(scene.head_of_document(method, query, len(document) + 1) + document, then=lambda connection: connection.shutdown(socket.SHUT_WR))
    yield scene.raw(scene.head_of_put(10) + b"01234", then=lambda connection: connection.shutdown(socket.SHUT_WR))
    for kind in chunks.PAYLOADS:
        yield scene.chunked(kind, "no-end")


@error("InvalidAccessKeyId", 403, "an unknown access key")
def invalid_access_key(scene):
    target, nobody = f"/{scene.bucket}/kept", ("AKNOBODY", scene.server.secret_key)
    for sign_so in signing.WAYS.values():
        signed = sign_so(scene.server, signing.Request("GET", target, {}, b""), *nobody)
        yield send(scene.server, "GET", signed.target, signed.headers)
    for version in ("s3v4", "s3"):
        client = boto3.client("s3", endpoint_url=scene.server.endpoint, region_name=REGION, config=Config(signature_version=version), aws_access_key_id="AKNOBODY", aws_secret_access_key="no")
        fields = client.generate_presigned_post(scene.bucket, "object", ExpiresIn=60)["fields"]
        form = signing.form(f"/{scene.bucket}", fields, b"x")
        yield send(scene.server, "POST", form.target, form.headers, form.body)


@error("InvalidArgument", 400, "a continuation token or an upload ID marker that Forebay did not issue, a part number outside 1 to 10,000, a negative limit, an invalid copy source, a version ID that the bucket does not have or that a write is given, an unknown region of buckets, an unknown object attribute, a signature in two places, an Authorization header of another scheme, an unknown x-amz-content-sha256, an x-amz-tagging that is not encoded as a query or has a key twice, UploadPartCopy of a range outside the source")
def invalid_argument(scene):
    yield scene.send("GET", "?list-type=2&continuation-token=nonsense")
    yield scene.send("DELETE", "/kept?versionId=")
    yield scene.send("PUT", "/kept?versionId=7", body=b"x")
    yield scene.send("GET", "?list-type=2&max-keys=-1")
    yield scene.send("GET", "?list-type=2&max-keys=many")
    for number in ("0", "10001", "-1", "one"):
        yield scene.send("PUT", f"/upload?partNumber={number}&uploadId={scene.upload}", body=b"x")
    yield scene.send("PUT", "/object", {"x-amz-copy-source": "nonsense"})
    for authorization in ("Basic cm9vdDpyb290", "Bearer", "AWS4-HMAC-SHA256"):
        yield send(scene.server, "GET", f"/{scene.bucket}/kept", {"Authorization": authorization})
    target = f"/{scene.bucket}/kept"
    yield send(scene.server, "GET", f"{target}?X-Amz-Signature=0", sign(scene.server, "GET", target))
    for attributes in ("Etag", "ETag,Owner", "ETag,,ObjectSize"):
        yield scene.send("GET", "/kept?attributes", {"x-amz-object-attributes": attributes})
    yield scene.send("GET", "?uploads&key-marker=a&upload-id-marker=nonsense")
    signed = signing.in_header_with_payload("foo", scene.server, signing.Request("GET", target, {}, b""), scene.server.access_key, scene.server.secret_key)
    yield send(scene.server, "GET", signed.target, signed.headers)
    for tags in ("a=1&a=2", "=1", "a=%zz"):
        yield scene.send("PUT", "/object", {"x-amz-tagging": tags}, b"x")
    source = {"x-amz-copy-source": target, "x-amz-copy-source-range": "bytes=0-13"}
    yield scene.send("PUT", f"/upload?partNumber=4&uploadId={scene.upload}", source)


@error("InvalidBucketAclWithObjectOwnership", 400, "CreateBucket with an access control list that grants anything to anyone but the bucket owner")
def access_lists_of_new_buckets(scene):
    yield send_signed(scene.server, "PUT", "/another-bucket", {"x-amz-acl": "public-read"})
    yield send_signed(scene.server, "PUT", "/another-bucket", {"x-amz-grant-read": "id=x"})


@error("InvalidBucketOwnerAWSAccountID", 400, "an expected bucket owner that is not 12 digits")
def invalid_bucket_owner(scene):
    for owner in NO_ACCOUNTS:
        yield scene.send("GET", "/kept", {"x-amz-expected-bucket-owner": owner})
        yield scene.send("PUT", "/kept", {"x-amz-expected-bucket-owner": owner}, b"x")
    yield scene.send("PUT", "/object", {"x-amz-copy-source": f"/{scene.bucket}/kept", "x-amz-source-expected-bucket-owner": "x"})


@error("InvalidBucketName", 400, "CreateBucket with a name that S3 does not allow")
def invalid_bucket_name(scene):
    for name in ("xn--a", "sthree-a", "amzn-s3-demo-a", "a-s3alias", "a--ol-s3", "a.mrap", "a--x-s3", "a--table-s3"):
        yield send_signed(scene.server, "PUT", f"/{name}")
    for name in ("ab", "UPPER", "a..b", "-a-", "192.168.1.1", "a" * 64):
        yield send_signed(scene.server, "PUT", f"/{name}")


@error("InvalidDigest", 400, "a malformed Content-MD5 or checksum")
def invalid_digest(scene):
    yield scene.send("PUT", "/object", {"Content-MD5": "nonsense"}, b"body")


@error("InvalidPart", 400, "CompleteMultipartUpload with a part that was not uploaded, or with a wrong ETag")
def invalid_part(scene):
    yield scene.complete(scene.parts[0], (7, scene.parts[0][1]))
    yield scene.complete((1, '"' + "0" * 32 + '"'))


@error("InvalidPartNumber", 416, "GET or HEAD of a part that the object does not have")
def invalid_part_number(scene):
    yield scene.send("GET", "/kept?partNumber=2")


@error("InvalidPartOrder", 400, "CompleteMultipartUpload with parts out of order, or with a part listed twice")
def invalid_part_order(scene):
    yield scene.complete(scene.parts[1], scene.parts[0])
    yield scene.complete(scene.parts[0], scene.parts[0])


@error("InvalidRange", 416, "a range that begins after the end of the object")
def invalid_range(scene):
    yield scene.send("GET", "/kept", {"Range": "bytes=13-"})
    yield scene.send("GET", "/kept", {"Range": "bytes=100-200"})
    yield scene.send("GET", "/kept", {"Range": "bytes=-0"})


@error("InvalidRequest", 400, "a contradictory request: repeated headers, two checksums, a declared checksum that is missing, a trailer without a streaming payload, a streaming payload of anything but an object or a part; a checksum of an unknown algorithm; a missing x-amz-content-sha256; a sub-resource of buckets that is asked of a key; GetObjectAttributes without attributes; a copy of an object onto itself that changes nothing")
def invalid_request(scene):
    yield scene.send("PUT", "/object", {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-sha1": "AAAA"}, b"")
    yield scene.send("PUT", "/kept", {"x-amz-copy-source": f"/{scene.bucket}/kept"})
    yield scene.send("PUT", "/object", {"x-amz-sdk-checksum-algorithm": "CRC77"}, b"x")
    yield scene.send("PUT", "/object", {"x-amz-sdk-checksum-algorithm": "CRC32"}, b"x")
    yield scene.send("PUT", "/object", {"x-amz-sdk-checksum-algorithm": "SHA1", "x-amz-checksum-crc32": "jNwWgw=="}, b"x")
    yield scene.send("PUT", "/object", {"x-amz-checksum-sha1024": "AAAA"}, b"x")
    yield scene.send("GET", "/kept?versions")
    yield scene.send("GET", "/kept?uploads")
    headers = sign(scene.server, "GET", f"/{scene.bucket}/kept")
    yield send(scene.server, "GET", f"/{scene.bucket}/kept", {name: value for name, value in headers.items() if name != "X-Amz-Content-SHA256"})
    yield scene.send("GET", "/kept?attributes")
    yield scene.send("GET", "/kept?attributes", {"x-amz-object-attributes": ""})


@error("InvalidStorageClass", 400, "an unknown storage class")
def invalid_storage_class(scene):
    yield scene.send("PUT", "/object", {"x-amz-storage-class": "FASTEST"}, b"x")


@error("InvalidToken", 400, "a session token: Forebay has no keys for sessions")
def invalid_token(scene):
    yield scene.send("GET", "/kept", {"x-amz-security-token": "token"})
    yield scene.send("PUT", "/kept", {"x-amz-security-token": "token"}, b"x")
    yield scene.send("GET", "?policy", {"x-amz-security-token": "token"})
    yield scene.send("GET", "/kept", {"x-amz-security-token": "token", "Range": "bytes=x"})
    keys = {"aws_access_key_id": scene.server.access_key, "aws_secret_access_key": scene.server.secret_key, "aws_session_token": "token"}
    for version in ("s3v4", "s3"):
        client = boto3.client("s3", endpoint_url=scene.server.endpoint, region_name=REGION, config=Config(signature_version=version), **keys)
        url = client.generate_presigned_url("get_object", {"Bucket": scene.bucket, "Key": "kept"}).removeprefix(scene.server.endpoint)
        yield send(scene.server, "GET", url)
        form = signing.form(f"/{scene.bucket}", client.generate_presigned_post(scene.bucket, "object", ExpiresIn=60)["fields"], b"x")
        yield send(scene.server, "POST", form.target, form.headers, form.body)


@error("InvalidTag", 400, "tags that S3 does not allow")
def invalid_tag(scene):
    yield scene.send("PUT", "/object", {"x-amz-tagging": "a!=1"}, b"x")
    body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>a</Key><Value>2</Value></Tag></TagSet></Tagging>"
    yield scene.send("PUT", "/kept?tagging", {"Content-MD5": md5_base64(body)}, body)
    tag = "<Tag><Key>{}</Key><Value>1</Value></Tag>"
    for tags in (tag.format("a!"), tag.format("a") * 2, tag.format("aws:a")):
        document = f"<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>".encode()
        yield send_signed(scene.server, "PUT", "/another-bucket", body=document)


@error("InvalidLocationConstraint", 400, "CreateBucket in an unknown region")
def invalid_location_constraint(scene):
    for location in ("nowhere", "US-EAST-1", " "):
        document = f"<CreateBucketConfiguration><LocationConstraint>{location}</LocationConstraint></CreateBucketConfiguration>".encode()
        yield send_signed(scene.server, "PUT", "/another-bucket", body=document)


@error("KeyTooLongError", 400, "a key of more than 1,024 bytes")
def key_too_long(scene):
    for method in ("GET", "PUT", "DELETE"):
        yield scene.send(method, "/" + "k" * 1025)
    yield scene.send("PUT", "/" + "%C3%BC" * 513, body=b"x")
    yield scene.send("POST", "/" + "k" * 1025 + "?uploads")


@error("MalformedACLError", 400, "a malformed access control list")
def malformed_acl(scene):
    for target in ("?acl", "/kept?acl"):
        yield scene.send("PUT", target, body=b"<AccessControlPolicy>")
        yield scene.send("PUT", target, body=b"<Tagging/>")


@error("MalformedTrailerError", 400, "a trailer that is malformed, or is not the one announced")
def malformed_trailer(scene):
    target = f"/{scene.bucket}/object"
    for announced in (None, "x-amz-checksum-sha1"):
        headers, body = chunks.request(scene.server, target, b"x", "unsigned-trailer", announced=announced)
        yield send(scene.server, "PUT", target, headers, body)


@error("MalformedXML", 400, "a malformed document, or one that does not fit the operation; more than 1,000 keys")
def malformed_xml(scene):
    yield scene.delete(b"<Delete>")
    yield scene.delete(b"<Delete><Object><Key>kept</Key></Object></Delete>junk")
    entities = b'<!DOCTYPE d [<!ENTITY a "kept">]><Delete><Object><Key>&a;</Key></Object></Delete>'
    yield scene.delete(entities)
    yield scene.delete(b"<Delete>" + b"<Object><Key>kept</Key></Object>" * 1001 + b"</Delete>")
    yield scene.complete()
    yield scene.complete(*[(number, scene.parts[0][1]) for number in range(1, 10_002)])


@error("MaxMessageLengthExceeded", 400, "a document of more than 4 MiB")
def max_message_length(scene):
    target = f"/{scene.bucket}?delete="
    headers = sign(scene.server, "POST", target, {"Content-MD5": md5_base64(b"")}) | {"Content-Length": str(4 * MIB + 1)}
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1:{scene.server.port}\r\n"
    yield scene.raw((head + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode())


@error("MetadataTooLarge", 400, "user metadata of more than 2 KiB")
def metadata_too_large(scene):
    yield scene.send("PUT", "/object", {"x-amz-meta-a": "v" * 2048}, b"x")
    yield scene.send("POST", "/object?uploads", {"x-amz-meta-a": "v" * 2048})
    for directive in ("COPY", "REPLACE"):
        headers = {"x-amz-copy-source": f"/{scene.bucket}/kept", "x-amz-metadata-directive": directive, "x-amz-meta-a": "v" * 2048}
        yield scene.send("PUT", "/object", headers)


@error("MethodNotAllowed", 405, "an HTTP method that S3 does not use, or that a path does not have")
def method_not_allowed(scene):
    for method in ("PUT", "POST", "DELETE"):
        yield send_signed(scene.server, method, "/")
    yield scene.send("POST", "/kept")
    yield scene.send("PATCH", "/kept")


@error("MissingContentLength", 411, "a PUT without the length of its body, or with a decoded length that is not a number")
def missing_content_length(scene):
    headers = sign(scene.server, "PUT", f"/{scene.bucket}/object")
    head = f"PUT /{scene.bucket}/object HTTP/1.1\r\nHost: 127.0.0.1:{scene.server.port}\r\n"
    yield scene.raw((head + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode())


@error("MissingSecurityHeader", 400, "a change of an access control list without a list")
def missing_security_header(scene):
    for target in ("?acl", "/kept?acl"):
        yield scene.send("PUT", target)


@error("NoSuchBucket", 404, "any operation in a bucket that does not exist")
def no_such_bucket(scene):
    for method in ("GET", "PUT", "DELETE"):
        yield send_signed(scene.server, method, "/no-such-bucket-here/key", body=b"x" if method == "PUT" else b"")
    yield send_signed(scene.server, "GET", "/no-such-bucket-here?list-type=2")
    yield send_signed(scene.server, "DELETE", "/no-such-bucket-here")
    upload = f"/no-such-bucket-here/key?uploadId={scene.upload}"
    for method in ("GET", "DELETE"):
        yield send_signed(scene.server, method, upload)
    part = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>"
    yield send_signed(scene.server, "POST", upload, body=part)
    yield send_signed(scene.server, "PUT", f"{upload}&partNumber=1", body=b"x")
    yield send_signed(scene.server, "PUT", f"{upload}&partNumber=1", {"x-amz-copy-source": f"/{scene.bucket}/kept"})


@error("NoSuchKey", 404, "a GET or a copy of an object that does not exist, or If-Match on one")
def no_such_key(scene):
    yield scene.send("GET", "/absent")
    yield scene.send("PUT", "/object", {"x-amz-copy-source": f"/{scene.bucket}/absent"})
    yield scene.send("PUT", "/absent", {"If-Match": '"0"'}, b"x")
    yield scene.send("GET", "/absent?tagging")


@error("NoSuchUpload", 404, "an upload that does not exist, or that was completed or aborted")
def no_such_upload(scene):
    yield scene.send("PUT", "/upload?partNumber=1&uploadId=nonsense", body=b"x")
    yield scene.send("GET", "/upload?uploadId=nonsense")
    yield scene.send("DELETE", "/upload?uploadId=nonsense")
    yield scene.send("DELETE", f"/another-key?uploadId={scene.upload}")


@error("NotImplemented", 501, "an operation, a parameter or a header that S3 would honour and Forebay does not")
def not_implemented(scene):
    yield scene.send("PUT", "/kept?annotation", body=b"x")
    yield scene.send("PUT", "/object", {"x-amz-server-side-encryption": "AES256"}, b"x")
    for tag in ('"0"', '"*"', "x"):
        yield scene.send("PUT", "/kept", {"If-None-Match": tag}, b"x")
        yield scene.send("PUT", "/object", {"If-None-Match": tag}, b"x")
    yield scene.send("PUT", "/kept", {"If-None-Match": "*", "If-Match": "*"}, b"x")


@error("PreconditionFailed", 412, "a POST of a bucket that is not a form; a failed If-Match, If-None-Match or If-Unmodified-Since, or a failed condition of a copy")
def precondition_failed(scene):
    yield scene.send("POST", "", body=b"x")
    yield scene.send("POST", "?x-id=PostObject", {"Content-Type": "text/html"}, b"x")
    yield scene.send("PUT", "/kept", {"If-None-Match": "*"}, b"x")
    yield scene.send("PUT", "/kept", {"If-Match": '"0"'}, b"x")
    yield scene.send("GET", "/kept", {"If-Match": '"0"'})
    yield scene.send("DELETE", "/kept", {"If-Match": '"0"'})


@error("RequestHeaderSectionTooLarge", 400, "object attributes that exceed the 8 KB of headers in a request to S3")
def request_header_section_too_large(scene):
    yield scene.send("PUT", "/object", {"Cache-Control": "x" * 9000}, b"x")


@error("RequestTimeTooSkewed", 403, "a signature whose time is off by more than 15 minutes")
def request_time_too_skewed(scene):
    for count in (-1, 1):
        scene.at(hours(count))
        yield scene.send("GET", "/kept")
        yield scene.send("PUT", "/kept", body=b"x")


@error("SignatureDoesNotMatch", 403, "a wrong secret key, a request or a chunk that was changed after signing")
def signature_does_not_match(scene):
    target = f"/{scene.bucket}/kept"
    headers = sign(scene.server, "PUT", target, {"x-amz-meta-a": "1"}, b"x")
    yield send(scene.server, "PUT", target, headers | {"x-amz-meta-a": "2"}, b"x")
    yield send(scene.server, "DELETE", target, headers, b"x")
    for kind in ("signed", "signed-trailer"):
        yield scene.chunked(kind, "byte")


@error("UnexpectedContent", 400, "an access control list in the headers and in a document at once")
def unexpected_content(scene):
    owner = scene.s3.get_bucket_acl(Bucket=scene.bucket)["Owner"]["ID"]
    document = f"<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList/></AccessControlPolicy>".encode()
    for target in ("?acl", "/kept?acl"):
        yield scene.send("PUT", target, {"x-amz-acl": "private"}, document)


@error("XAmzContentSHA256Mismatch", 400, "a body that does not match its signed hash")
def payload_hash_mismatch(scene):
    headers = sign(scene.server, "PUT", f"/{scene.bucket}/object", body=b"body")
    yield send(scene.server, "PUT", f"/{scene.bucket}/object", headers, b"ydob")
    # Nor one that has not come, of an object or of a document.
    for method, target in (("PUT", "/object"), ("PUT", "/kept?tagging"), ("PUT", "/kept?acl"), ("PUT", "?ownershipControls"), ("POST", "?delete"), ("PUT", f"/upload?partNumber=4&uploadId={scene.upload}"), ("POST", f"/upload?uploadId={scene.upload}")):
        headers = sign(scene.server, method, f"/{scene.bucket}{target}", {"Content-MD5": md5_base64(b"")}, body=b"body")
        yield send(scene.server, method, f"/{scene.bucket}{target}", headers)
    headers = sign(scene.server, "PUT", "/another-bucket", body=b"body")
    yield send(scene.server, "PUT", "/another-bucket", headers)


# Amazon's words, to the letter. Sources: aws/aws-cli#987 (NoSuchUpload), versity/versitygw#1526 (InvalidDigest), floci-io/floci#3510 (InvalidArgument of
# max-keys), and what versitygw has found in Amazon S3 (its package s3err).
MESSAGES = {
    "AccessControlListNotSupported": ["The bucket does not allow ACLs"],
    "BadRequest": ["Object tags cannot be greater than 10"],
    "BucketNotEmpty": ["The bucket you tried to delete is not empty"],
    "EntityTooLarge": ["Your proposed upload exceeds the maximum allowed size"],
    "EntityTooSmall": ["Your proposed upload is smaller than the minimum allowed size"],
    "InvalidAccessKeyId": ["The AWS Access Key Id you provided does not exist in our records."],
    "InvalidBucketAclWithObjectOwnership": ["Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"],
    "InvalidBucketOwnerAWSAccountID": [
        f"The value of the expected bucket owner parameter must be an AWS Account ID... [{owner}]" for owner in (*NO_ACCOUNTS, "x")
    ],
    "InvalidToken": ["The provided token is malformed or otherwise invalid."],
    "InvalidBucketName": ["The specified bucket is not valid."],
    "InvalidDigest": ["The Content-MD5 you specified was invalid."],
    "InvalidLocationConstraint": ["The specified location-constraint is not valid"],
    "InvalidPart": [
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match "
        "the part's entity tag."
    ],
    "InvalidPartNumber": ["The requested partnumber is not satisfiable"],
    "InvalidPartOrder": ["The list of parts was not in ascending order. Parts must be ordered by part number."],
    "InvalidRange": ["The requested range is not satisfiable"],
    "InvalidStorageClass": ["The storage class you specified is not valid"],
    "KeyTooLongError": ["Your key is too long"],
    "MalformedXML": ["The XML you provided was not well-formed or did not validate against our published schema"],
    "MetadataTooLarge": ["Your metadata headers exceed the maximum allowed metadata size"],
    "MethodNotAllowed": ["The specified method is not allowed against this resource."],
    "MissingContentLength": ["You must provide the Content-Length HTTP header."],
    "NoSuchBucket": ["The specified bucket does not exist"],
    "NoSuchKey": ["The specified key does not exist."],
    "NoSuchUpload": ["The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."],
    "PreconditionFailed": ["At least one of the pre-conditions you specified did not hold"],
    "RequestTimeTooSkewed": ["The difference between the request time and the current time is too large."],
    "XAmzContentSHA256Mismatch": ["The provided 'x-amz-content-sha256' header does not match what was computed."],
}


@pytest.mark.deployments(("directory", "WRITE_THROUGH"), ("directory", "WRITE_BACK"), ("s3", "WRITE_BACK"), ("s3", "NO_CACHE"))
@pytest.mark.beyond_reference("its codes differ")
@pytest.mark.parametrize("name", ERRORS)
def test_error(server, s3, bucket, monkeypatch, name):
    code, status, _, provoke = ERRORS[name]
    scene = Scene(server, s3, bucket, monkeypatch)
    before = scene.state()
    for number, answer in enumerate(provoke(scene)):
        assert answer.status == status, f"{number}: {answer}"
        assert answer.headers["content-type"] == "application/xml" and answer.headers["x-amz-request-id"], f"{number}: {answer}"
        document = ElementTree.fromstring(answer.body)
        found = {child.tag: child.text for child in document}
        assert (document.tag, found["Code"]) == ("Error", code), f"{number}: {answer}"
        assert found["Message"] in MESSAGES.get(code, [found["Message"]]), f"{number}: {answer}"
        assert found["Message"] and found["RequestId"] == answer.headers["x-amz-request-id"], f"{number}: {answer}"
    monkeypatch.undo()
    assert scene.state() == before
    server.wait_until_drained()
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"kept as it is"


@pytest.mark.beyond_reference("it does not say")
def test_a_failed_condition_has_a_name(s3, bucket):
    """s3fs tells by it that a file exists."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    for call, name in (({"IfNoneMatch": "*"}, "If-None-Match"), ({"IfMatch": '"0"'}, "If-Match")):
        assert refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="kept", **call)["Error"]["Condition"] == name


@pytest.mark.beyond_reference("it does not say")
def test_a_client_of_another_region_learns_the_right_one(server, s3, bucket):
    """boto3 signs the request again for that region, without a word to its user."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    elsewhere = boto3.client("s3", endpoint_url=server.endpoint, region_name="eu-central-1", **keys)
    error = refused("AuthorizationHeaderMalformed", elsewhere.list_buckets)["Error"]
    assert error["Region"] == REGION and "'eu-central-1' is wrong; expecting 'us-east-1'" in error["Message"]
    assert elsewhere.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"x"


@pytest.mark.beyond_reference("it does not say")
def test_a_head_of_another_region_tells_the_right_one(server, s3, bucket):
    """It has no document; boto3 looks for the header (versity/versitygw#1500)."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    elsewhere = boto3.client("s3", endpoint_url=server.endpoint, region_name="eu-central-1", **keys)
    assert elsewhere.head_object(Bucket=bucket, Key="kept")["ContentLength"] == 1
    elsewhere = boto3.client("s3", endpoint_url=server.endpoint, region_name="eu-central-1", **keys)
    assert elsewhere.head_bucket(Bucket=bucket)["BucketRegion"] == REGION


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_no_request_takes_a_longer_key(server, bucket, method):
    answer = send_signed(server, method, f"/{bucket}/" + "k" * 1025, body=b"x" if method == "PUT" else b"")
    assert answer.status == 400 and (method == "HEAD" or b"<Code>KeyTooLongError<" in answer.body), answer


@pytest.mark.beyond_reference("it takes them")
def test_a_new_bucket_has_no_tags(s3):
    refused("NotImplemented", s3.create_bucket, Bucket="a-bucket-with-tags", CreateBucketConfiguration={"Tags": [{"Key": "a", "Value": "1"}]})
    refused("404", s3.head_bucket, Bucket="a-bucket-with-tags")


MALFORMED = "The authorization header is malformed; "


@pytest.mark.beyond_reference("its words differ")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Credential=", "Kredential="), "missing Credential."),
        (("SignedHeaders=", "Headers="), "missing SignedHeaders."),
        (("Signature=", "Sign="), "missing Signature."),
        (("SignedHeaders=", "SignedHeaders-"), 'the authorization component "SignedHeaders-{headers}" is malformed.'),
        ((", Signature=", "Signature="), "the authorization header requires three components: Credential, SignedHeaders, and Signature."),
        (("/s3/", "/"), 'the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".'),
        (("/s3/", "/sqs/"), 'incorrect service "sqs". This endpoint belongs to "s3".'),
        (("aws4_request", "aws5_request"), 'incorrect terminal "aws5_request". This endpoint uses "aws4_request".'),
        (("{date}/", "tomorrow/"), 'incorrect date format "tomorrow". This date in the credential must be in the format "yyyyMMdd".'),
        (("{date}/", "20010101/"), 'Invalid credential date "20010101". This date is not the same as X-Amz-Date: "{date}".'),
    ],
)
def test_a_malformed_authorization_says_what_is_wrong(server, bucket, change, message):
    """The words of Amazon S3: aws/aws-sdk-php#780, ex-aws/ex_aws#537, and those that versitygw has found (s3err/sigv4.go)."""
    headers = sign(server, "GET", f"/{bucket}/object")
    signed = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    known = {"date": headers["X-Amz-Date"][:8], "headers": signed}
    changed = headers["Authorization"].replace(change[0].format(**known), change[1])
    answer = send(server, "GET", f"/{bucket}/object", headers | {"Authorization": changed})
    document = ElementTree.fromstring(answer.body)
    assert (answer.status, document.findtext("Code")) == (400, "AuthorizationHeaderMalformed"), answer
    assert document.findtext("Message") == MALFORMED + message.format(**known)


@pytest.mark.beyond_reference("its words differ")
def test_a_presigned_url_that_is_over_is_refused_whatever_it_asks_for(server, s3, bucket, monkeypatch):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept as it is")
    for method, query in (("GET", ""), ("HEAD", ""), ("PUT", ""), ("DELETE", ""), ("POST", "?uploads="), ("GET", "?acl="), ("PUT", "?tagging=")):
        for seconds in ("0", "-1", "-604801"):
            # What ends before it begins is no lifetime to Amazon S3: fog/fog#3528, fog/fog-aws#188.
            status, code, message = (
                (403, "AccessDenied", "Request has expired")
                if seconds == "0"
                else (400, "AuthorizationQueryParametersError", "X-Amz-Expires must be non-negative")
            )
            monkeypatch.setattr(signing, "SECONDS", seconds)
            signed = signing.in_query(server, signing.Request(method, f"/{bucket}/kept{query}", {}, b""), server.access_key, server.secret_key)
            answer = send(server, method, signed.target, body=b"x" if method == "PUT" else b"")
            assert answer.status == status, (method, seconds, answer)
            assert method == "HEAD" or f"<Code>{code}</Code><Message>{message}</Message>".encode() in answer.body, (method, seconds, answer)
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"kept as it is"


@pytest.mark.beyond_reference("its words differ")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("?list-type=2&max-keys=-1", "Argument maxKeys must be an integer between 0 and 2147483647"),
        ("?max-keys=-1", "Argument maxKeys must be an integer between 0 and 2147483647"),
        ("?list-type=2&continuation-token=x", "The continuation token provided is incorrect"),
        ("?encoding-type=xml", "Invalid Encoding Method specified in Request"),
        ("/kept?partNumber=0", "Part number must be an integer between 1 and 10000, inclusive"),
        ("/kept?partNumber=one", "Part number must be an integer between 1 and 10000, inclusive"),
        ("?list-type=2&max-keys=abc", "Provided max-keys not an integer or within integer range"),
        ("?max-keys=2147483648", "Provided max-keys not an integer or within integer range"),
        ("?versions&version-id-marker=null", "A version-id marker cannot be specified without a key marker."),
    ],
)
def test_what_is_wrong_with_an_argument(server, bucket, target, message):
    answer = send_signed(server, "GET", f"/{bucket}{target}")
    document = ElementTree.fromstring(answer.body)
    assert (answer.status, document.findtext("Code"), document.findtext("Message")) == (400, "InvalidArgument", message)


def elements(answer):
    return {child.tag: child.text for child in ElementTree.fromstring(answer.body)}


@pytest.mark.beyond_reference("its documents have other elements")
def test_an_error_names_what_it_is_about(server, s3, bucket):
    """Sources: floci-io/floci#3510 (ArgumentName), versity/versitygw#610 (the range of a copy), "Error responses" of the Amazon S3 API Reference."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="upload")["UploadId"]
    wrong = elements(send_signed(server, "GET", f"/{bucket}?max-keys=a%26b"))
    assert (wrong["ArgumentName"], wrong["ArgumentValue"]) == ("max-keys", "a&b")
    wrong = elements(send_signed(server, "GET", f"/{bucket}?max-keys=-1"))
    assert (wrong["ArgumentName"], wrong["ArgumentValue"]) == ("maxKeys", "-1")
    wrong = elements(send_signed(server, "PUT", f"/{bucket}/object", {"x-amz-copy-source": "nonsense"}))
    # localstack/localstack, `test_s3_copy_object_wrong_format`: the value is the name once more.
    found = (wrong["ArgumentName"], wrong["ArgumentValue"], wrong["Message"])
    assert found == ("x-amz-copy-source", "x-amz-copy-source", "Invalid copy source object key")
    copy = {"x-amz-copy-source": f"/{bucket}/kept", "x-amz-copy-source-range": "bytes=2-4"}
    wrong = elements(send_signed(server, "PUT", f"/{bucket}/upload?partNumber=1&uploadId={upload}", copy))
    assert wrong["Message"] == "Range specified is not valid for source object of size: 4"
    assert (wrong["ArgumentName"], wrong["ArgumentValue"]) == ("x-amz-copy-source-range", "bytes=2-4")
    tags = elements(send_signed(server, "PUT", f"/{bucket}/object", {"x-amz-tagging": "a=1&a=2"}, b"x"))
    assert tags["Message"] == (
        "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates."
    )
    absent = elements(send_signed(server, "GET", f"/{bucket}/a%26b"))
    assert (absent["Code"], absent["Key"]) == ("NoSuchKey", "a&b")
    missing = elements(send_signed(server, "GET", "/no-such-bucket-here?list-type=2"))
    assert (missing["Code"], missing["BucketName"]) == ("NoSuchBucket", "no-such-bucket-here")
    post = elements(send_signed(server, "POST", f"/{bucket}", body=b"x"))
    assert post["Condition"] == "Bucket POST must be of the enclosure-type multipart/form-data"
    illegal = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"
    assert elements(send_signed(server, "PUT", "/another-bucket", body=illegal))["Message"] == (
        "The eu-west-1 location constraint is incompatible for the region specific endpoint this request was sent to."
    )
    override = send_signed(server, "GET", f"/{bucket}/kept?response-content-type=a%0Ab")
    assert override.status == 400 and b"Some(" not in override.body, override


@pytest.mark.beyond_reference("its words differ")
def test_what_a_key_does_not_have(server, s3, bucket):
    """Words of Amazon S3: versity/versitygw, s3err."""
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept")
    for query, message in (
        ("versions", "There is no such thing as the ?versions sub-resource for a key"),
        ("uploads", "Key is not expected for the GET method ?uploads subresource"),
    ):
        answer = send_signed(server, "GET", f"/{bucket}/kept?{query}")
        assert (answer.status, elements(answer)["Code"], elements(answer)["Message"]) == (400, "InvalidRequest", message)
    assert send_signed(server, "HEAD", "/").status == 405
    for method, target in (("POST", "/"), ("POST", f"/{bucket}"), ("POST", f"/{bucket}/kept"), ("GET", f"/{bucket}/kept?versions")):
        assert send(server, method, target).status == 403, (method, target)
