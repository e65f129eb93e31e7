"""Puts many small objects with little work on this side: few connections, and signatures made by hand."""

import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import urllib.parse

from harness.servers import REGION


# More would not make a server on two cores any faster.
CONNECTIONS = 4


def fill(server, bucket, keys, body=b"filled"):
    """Puts the same body under each of the keys."""
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda first: _fill(server, bucket, keys[first::CONNECTIONS], body), range(CONNECTIONS)))


def _fill(server, bucket, keys, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    moment = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{REGION}/s3/aws4_request"
    signing_key = f"AWS4{server.secret_key}".encode()
    for word in scope.split("/"):
        signing_key = hmac.new(signing_key, word.encode(), hashlib.sha256).digest()
    digest = hashlib.sha256(body).hexdigest()
    headers = {"Host": f"127.0.0.1:{server.port}", "x-amz-content-sha256": digest, "x-amz-date": moment}
    names = ";".join(name.lower() for name in headers)
    canonical_headers = "".join(f"{name.lower()}:{value}\n" for name, value in headers.items())
    for key in keys:
        target = urllib.parse.quote(f"/{bucket}/{key}", safe="/-_.~")
        request = hashlib.sha256(f"PUT\n{target}\n\n{canonical_headers}\n{names}\n{digest}".encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{request}"
        signature = hmac.new(signing_key, text.encode(), hashlib.sha256).hexdigest()
        credential = f"{server.access_key}/{scope}"
        authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        connection.request("PUT", target, body, headers | {"Authorization": authorization})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, f"{key}: {answer.status} {said!r}"
    connection.close()
