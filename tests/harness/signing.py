"""Requests of boto3 before they are signed, and every way to sign them: right, wrong, twice or not at all."""

import dataclasses
import urllib.parse

import boto3
import botocore
from botocore import UNSIGNED, xform_name
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

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


WAYS = {"header": in_header, "query": in_query, "query of version 2": in_query_version_2}


def tampered(request):
    """With every character of the signature another one."""

    def turn(text, mark):
        start, found, rest = text.partition(mark)
        signature, end, others = rest.partition("&")
        return start + found + signature.translate(TURNED) + end + others if found else text

    headers = {name: turn(value, "Signature=") for name, value in request.headers.items()}
    return dataclasses.replace(request, target=turn(turn(request.target, "X-Amz-Signature="), "&Signature="), headers=headers)
