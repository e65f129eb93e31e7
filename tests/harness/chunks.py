"""Requests with a body in AWS chunks, signed by hand as the SigV4 streaming documents say, whole or damaged."""

import base64
import datetime
import hashlib
import hmac
import zlib

from harness.servers import REGION

PAYLOADS = {
    "signed": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "signed-trailer": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    "unsigned-trailer": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
}
CHUNK_BYTES = 64 << 10
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class _Signer:
    """Signs the request, then each chunk with the signature before it."""

    def __init__(self, server, moment):
        self.time = moment.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.time[:8]}/{REGION}/s3/aws4_request"
        key = f"AWS4{server.secret_key}".encode()
        for word in self.scope.split("/"):
            key = _hmac(key, word)
        self.key = key
        self.signature = None

    def sign(self, algorithm, *lines):
        text = "\n".join([algorithm, self.time, self.scope, *lines])
        self.signature = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        return self.signature

    def chunk(self, data):
        return self.sign("AWS4-HMAC-SHA256-PAYLOAD", self.signature, EMPTY_SHA256, hashlib.sha256(data).hexdigest())

    def trailer(self, line):
        return self.sign("AWS4-HMAC-SHA256-TRAILER", self.signature, hashlib.sha256(f"{line}\n".encode()).hexdigest())


def request(server, path, data, kind, damage=None, extra=None):
    """The headers and the body of a PUT of `data` to `path`."""
    signer = _Signer(server, datetime.datetime.now(datetime.UTC))
    length = len(data) + (1 if damage == "length" else 0)
    headers = {
        "content-encoding": "aws-chunked",
        "host": f"127.0.0.1:{server.port}",
        "x-amz-content-sha256": PAYLOADS[kind],
        "x-amz-date": signer.time,
        "x-amz-decoded-content-length": str(length),
    }
    headers |= extra or {}
    if kind != "signed":
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    canonical = "\n".join(["PUT", path, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, PAYLOADS[kind]])
    signature = signer.sign("AWS4-HMAC-SHA256", hashlib.sha256(canonical.encode()).hexdigest())
    credential = f"Credential={server.access_key}/{signer.scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    body = _damaged(_body(signer, data, kind, damage), damage)
    headers["Host"] = headers.pop("host")
    return headers | {"Content-Length": str(len(body))}, body


def _body(signer, data, kind, damage):
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    if damage != "no-end":
        pieces.append(b"")
    body = b""
    for piece in pieces:
        extension = f";chunk-signature={signer.chunk(piece)}" if kind != "unsigned-trailer" else ""
        body += f"{len(piece):x}{extension}\r\n".encode() + piece
        body += b"\r\n" if piece or kind == "signed" else b""
    if kind == "signed" or damage == "no-end":
        return body
    value = base64.b64encode(zlib.crc32(data if damage != "trailer" else b"other").to_bytes(4)).decode()
    line = f"x-amz-checksum-crc32:{value}"
    body += f"{line}\r\n".encode()
    if kind == "signed-trailer":
        body += f"x-amz-trailer-signature:{signer.trailer(line)}\r\n".encode()
    return body + b"\r\n"


def _damaged(body, damage):
    if damage == "byte":
        # In the middle of the first chunk's data.
        return body[:1000] + bytes([body[1000] ^ 1]) + body[1001:]
    if damage == "cut":
        return body[: len(body) // 2]
    return body
