"""Requests of boto3 before they are signed, and every way to sign them: right, wrong, twice or not at all."""

import dataclasses
import hashlib
import hmac
import urllib.parse

import boto3
import botocore
from botocore import UNSIGNED, xform_name
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from harness import chunks
from harness.model import MODEL, members, sample
from harness.servers import REGION

SECONDS = 60
# The signature in hex of SigV4, in base64 of Version 2.
TURNED = str.maketrans("0123456789abcdefABCDEF", "123456789abcdef0BCDEFA")


class _Caught(Exception):
    def __init__(self, request):
        self.request = request


@dataclasses.dataclass
class Request:
    """As it is sent; `target` is the path with its query."""

    method: str
    target: str
    headers: dict
    body: bytes

    def with_header(self, name, value):
        return dataclasses.replace(self, headers=self.headers | {name: value})


def of_operation(server, operation, **values):
    """The request of an operation with the smallest parameters that it takes, unsigned. `values` replace those that it has."""
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        config=Config(
            signature_version=UNSIGNED,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            retries={"total_max_attempts": 1},
        ),
    )

    def catch(request, **_):
        raise _Caught(request)

    client.meta.events.register("before-send.s3", catch)
    shape = MODEL["operations"][operation].get("input", {}).get("shape")
    parameters = sample(shape) if shape else {}
    parameters |= {name: value for name, value in values.items() if name in members(operation)}
    try:
        getattr(client, xform_name(operation))(**parameters)
    except _Caught as caught:
        sent = caught.request
    url = urllib.parse.urlsplit(sent.url)
    headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in sent.headers.items()}
    unwanted = ("user-agent", "content-length", "accept-encoding", "expect", "transfer-encoding")
    headers = {name: value for name, value in headers.items() if name.lower() not in unwanted}
    body = sent.body.read() if hasattr(sent.body, "read") else sent.body or b""
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    return Request(sent.method, target, headers, body if isinstance(body, bytes) else body.encode())


def _signed(server, request, auth, body=b""):
    # A signature in the query covers no body, and botocore would take one for parameters.
    unsigned = AWSRequest(request.method, f"http://127.0.0.1:{server.port}{request.target}", dict(request.headers), body)
    unsigned.context["client_config"] = Config(s3={"payload_signing_enabled": True})
    auth.add_auth(unsigned)
    url = urllib.parse.urlsplit(unsigned.prepare().url)
    target = f"{url.path}?{url.query}" if url.query else url.path
    return dataclasses.replace(request, target=target, headers=dict(unsigned.headers.items()))


def in_header(server, request, access_key, secret_key):
    return _signed(server, request, S3SigV4Auth(Credentials(access_key, secret_key), "s3", REGION), request.body)


def in_query(server, request, access_key, secret_key):
    return _signed(server, request, S3SigV4QueryAuth(Credentials(access_key, secret_key), "s3", REGION, SECONDS))


def in_query_version_2(server, request, access_key, secret_key):
    return _signed(server, request, HmacV1QueryAuth(Credentials(access_key, secret_key), SECONDS))


def in_header_with_payload(payload, server, request, access_key, secret_key):
    """With this word as the hash of the body, whatever it is."""
    auth = S3SigV4Auth(Credentials(access_key, secret_key), "s3", REGION)
    auth.payload = lambda _: payload
    return _signed(server, request, auth, request.body)


def in_chunks(kind, server, request, access_key, secret_key):
    """With the body in AWS chunks, signed with the same keys."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    keys = (access_key, secret_key)
    headers, body = chunks.request(server, request.target, request.body, kind, extra=headers, method=request.method, keys=keys)
    return dataclasses.replace(request, headers=headers, body=body)


class _Scoped:
    """Signs with the key of any scope, and says so."""

    words = ()

    def credential_scope(self, _):
        return "/".join(self.words)

    def scope(self, _):
        return "/".join((self.credentials.access_key, *self.words))

    def signature(self, string_to_sign, _):
        key = f"AWS4{self.credentials.secret_key}".encode()
        for word in (*self.words, string_to_sign):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        return key.hex()


class _ScopedHeader(_Scoped, S3SigV4Auth):
    pass


class _ScopedQuery(_Scoped, S3SigV4QueryAuth):
    pass


def in_header_of_scope(words, server, request, access_key, secret_key):
    """Right in all but the scope, which SigV4 has as date, region, service and `aws4_request`."""
    auth = _ScopedHeader(Credentials(access_key, secret_key), "s3", REGION)
    auth.words = words
    return _signed(server, request, auth, request.body)


def in_query_of_scope(words, server, request, access_key, secret_key):
    auth = _ScopedQuery(Credentials(access_key, secret_key), "s3", REGION, SECONDS)
    auth.words = words
    return _signed(server, request, auth)


WAYS = {"header": in_header, "query": in_query, "query of version 2": in_query_version_2}


def tampered(request):
    """With every character of the signature another one."""

    def turn(text, mark):
        start, found, rest = text.partition(mark)
        signature, end, others = rest.partition("&")
        return start + found + signature.translate(TURNED) + end + others if found else text

    headers = {name: turn(value, "Signature=") for name, value in request.headers.items()}
    return dataclasses.replace(request, target=turn(turn(request.target, "X-Amz-Signature="), "&Signature="), headers=headers)


def without(request):
    """As it was signed, without the signature."""
    return dataclasses.replace(request, headers={name: value for name, value in request.headers.items() if name.lower() != "authorization"})


BOUNDARY = "----forebay-test-boundary"


def form(target, fields, data):
    """A POST of a form, as a browser sends it."""
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
    parts.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n')
    body = "".join(parts).encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
    return Request("POST", target, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}, body)
