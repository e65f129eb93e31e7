"""Requests with a body in AWS chunks, signed by hand as the SigV4 streaming documents say, whole or damaged."""

import base64
import datetime
import hashlib
import hmac
import urllib.parse
import zlib

from harness.servers import REGION

PAYLOADS = {
    "signed": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "signed-trailer": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    "unsigned-trailer": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
}
CHUNK_BYTES = 64 << 10
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
CHECKSUM = "x-amz-checksum-crc32"
SIGNATURE = "x-amz-trailer-signature"


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class _Signer:
    """Signs the request, then each chunk with the signature before it."""

    def __init__(self, secret_key, moment):
        self.time = moment.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.time[:8]}/{REGION}/s3/aws4_request"
        key = f"AWS4{secret_key}".encode()
        for word in self.scope.split("/"):
            key = _hmac(key, word)
        self.key = key
        # All that it has made, the one of the request first.
        self.signatures = []

    def sign(self, algorithm, *lines):
        text = "\n".join([algorithm, self.time, self.scope, *lines])
        self.signatures.append(hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest())
        return self.signatures[-1]

    def chunk(self, data):
        return self.sign("AWS4-HMAC-SHA256-PAYLOAD", self.signatures[-1], EMPTY_SHA256, hashlib.sha256(data).hexdigest())

    def trailer(self, lines, before=-1):
        """Of lines in the order of their names, behind the signature number `before`."""
        text = "".join(f"{name}:{value}\n" for name, value in lines)
        return self.sign("AWS4-HMAC-SHA256-TRAILER", self.signatures[before], hashlib.sha256(text.encode()).hexdigest())


def checksum(data):
    return base64.b64encode(zlib.crc32(data).to_bytes(4)).decode()


def request(server, target, data, kind, damage=None, extra=None, announced=CHECKSUM, trailer=None, method="PUT", keys=None):
    """The headers and the body of a PUT of `data` to `target`, or of another method, by the root user or by other keys.

    `announced` is what `x-amz-trailer` says; `trailer` gets the signer and the lines that stand behind the last chunk, as pairs, and
    returns those that shall stand there.
    """
    access_key, secret_key = keys or (server.access_key, server.secret_key)
    signer = _Signer(secret_key, datetime.datetime.now(datetime.UTC))
    length = len(data) + (1 if damage == "length" else 0)
    headers = {
        "content-encoding": "aws-chunked",
        "host": f"127.0.0.1:{server.port}",
        "x-amz-content-sha256": PAYLOADS[kind],
        "x-amz-date": signer.time,
        "x-amz-decoded-content-length": str(length),
    }
    headers |= extra or {}
    if kind != "signed" and announced is not None:
        headers["x-amz-trailer"] = announced
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    path, _, query = target.partition("?")
    query = "&".join(f"{name}={urllib.parse.quote(value, safe='-_.~')}" for name, value in sorted(urllib.parse.parse_qsl(query, True)))
    canonical = "\n".join([method, path, query, *(f"{k}:{v}" for k, v in headers.items()), "", names, PAYLOADS[kind]])
    signature = signer.sign("AWS4-HMAC-SHA256", hashlib.sha256(canonical.encode()).hexdigest())
    credential = f"Credential={access_key}/{signer.scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    body = _damaged(_body(signer, data, kind, damage, trailer), damage)
    headers["Host"] = headers.pop("host")
    return headers | {"Content-Length": str(len(body))}, body


def _body(signer, data, kind, damage, trailer):
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    if damage != "no-end":
        pieces.append(b"")
    body = b""
    for piece in pieces:
        extension = f";chunk-signature={signer.chunk(piece)}" if kind != "unsigned-trailer" else ""
        body += f"{len(piece):x}{extension}\r\n".encode() + piece
        body += b"\r\n" if piece or kind == "signed" else b""
    if damage == "no-end" or (kind == "signed" and not trailer):
        return body
    lines = [(CHECKSUM, checksum(data if damage != "trailer" else b"other"))] if kind != "signed" else []
    if kind == "signed-trailer":
        lines.append((SIGNATURE, signer.trailer(lines)))
    if trailer:
        lines = trailer(signer, lines)
    return body + "".join(f"{name}:{value}\r\n" for name, value in lines).encode() + b"\r\n"


def _damaged(body, damage):
    if damage == "byte":
        # In the middle of the first chunk's data.
        return body[:1000] + bytes([body[1000] ^ 1]) + body[1001:]
    if damage == "cut":
        return body[: len(body) // 2]
    return body
