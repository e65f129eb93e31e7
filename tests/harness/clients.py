"""Clients of S3: boto3, the AWS command line, and plain HTTP."""

import base64
import hashlib
import http.client
import os
import subprocess
import sys
import pathlib

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from harness.servers import REGION


def boto(server, access_key=None, secret_key=None, **config):
    """A boto3 client that does not retry, so that every answer is seen."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=access_key or server.access_key,
        aws_secret_access_key=secret_key or server.secret_key,
        region_name=REGION,
        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4", **config),
    )


def refused(code, call, *arguments, **parameters):
    """Asserts that a boto3 call fails with one of the S3 error codes (separated by '|'), and returns the error."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **parameters)
    error = caught.value.response
    assert error["Error"]["Code"] in code.split("|"), error
    return error


def aws(server, *arguments, stdin=b"", fails=False):
    """Runs the AWS command line; returns what it printed. With `fails`: asserts that it failed, and returns stderr."""
    environment = {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_PAGER": "",
    }
    command = [sys.executable, str(pathlib.Path(sys.executable).parent / "aws"), *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, input=stdin, capture_output=True, timeout=300)
    assert (done.returncode != 0) == fails, f"{arguments}: {done.stdout.decode()} {done.stderr.decode()}"
    return done.stderr.decode() if fails else done.stdout.decode()


class Answer:
    """An HTTP answer, read to its end."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:500]!r}"


def send(server, method, target, headers=None, body=b""):
    """Sends one plain request; the target is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.putrequest(method, target, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
        headers = dict(headers or {})
        if "Content-Length" not in headers and (body or method in ("PUT", "POST")):
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        if body:
            connection.send(body)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def sign(server, method, target, headers=None, body=b"", host=None, sign_payload=True):
    """The headers of a request signed with SigV4 by botocore."""
    # The scheme is not signed. botocore leaves a payload unsigned for https only.
    scheme = "http" if sign_payload else "https"
    url = f"{scheme}://{host or f'127.0.0.1:{server.port}'}{target}"
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {})
    request.context["client_config"] = Config(s3={"payload_signing_enabled": sign_payload})
    S3SigV4Auth(Credentials(server.access_key, server.secret_key), "s3", REGION).add_auth(request)
    signed = dict(request.headers.items())
    if host:
        signed["Host"] = host
    return signed


def send_signed(server, method, target, headers=None, body=b"", **options):
    return send(server, method, target, sign(server, method, target, headers, body, **options), body)


def md5_base64(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()
