"""Clients that sign again when they follow a redirect go to the home of an object by themselves."""

import functools
import http.client
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "clients"))

from adapters.java_v1 import JavaV1  # noqa: E402
from harness.clients import send_signed  # noqa: E402
from harness.cluster import CONFIG, LEASE_SECONDS, answered, wait_until_shared  # noqa: E402
from harness.fill import fill  # noqa: E402
from scenarios import SCENARIOS, Scene  # noqa: E402

BUCKET = "redirects"
JAVA = "aws-sdk-java/1.12.797 Linux/6.1"
# Not those of 10,000 keys.
RUN = ["small_objects", "zero_bytes", "large_object", "multipart_resume", "ranges", "copy", "odd_keys", "metadata", "content_encodings", "tags", "missing", "presigned_get"]


def start(cluster, redirect):
    config = CONFIG.format(lease=LEASE_SECONDS) + f'redirect = "{redirect}"\n'
    workers = [cluster.worker(name, config=config).start() for name in ("w1", "w2", "w3")]
    wait_until_shared(workers)
    workers[0].s3().create_bucket(Bucket=BUCKET)
    for worker in workers:
        answered(lambda: worker.s3().head_bucket(Bucket=BUCKET))
    return workers


def passed_on(worker, code):
    return worker.metrics().get(f'forebay_requests_total{{operation="Forwarded",code="{code}"}}', 0)


@pytest.mark.slow("a virtual machine is started for one request of each kind")
def test_the_sdk_for_java_1_follows_redirects(cluster, tmp_path):
    workers = start(cluster, "known-clients")
    client = JavaV1(workers[0], tmp_path)
    try:
        for name in RUN:
            (tmp_path / name).mkdir()
            SCENARIOS[name][2](Scene(client, workers[0].s3(), functools.partial(fill, workers[0]), BUCKET, lambda: BUCKET, tmp_path / name))
            for key in list_keys(workers[0]):
                workers[0].s3().delete_object(Bucket=BUCKET, Key=key)
    finally:
        client.close()
    assert passed_on(workers[0], 307) > 10


def list_keys(worker):
    return [found["Key"] for found in worker.s3().list_objects_v2(Bucket=BUCKET).get("Contents", [])]


@pytest.mark.parametrize("redirect,known,others", [("never", False, False), ("known-clients", True, False), ("always", True, True)])
def test_who_is_redirected(cluster, redirect, known, others):
    workers = start(cluster, redirect)
    near, ports = workers[0], {worker.port for worker in workers[1:]}

    def is_redirected(agent, number):
        """Whether one of three workers' keys is."""
        answer = send_signed(near, "PUT", f"/{BUCKET}/{number}", {"User-Agent": agent}, b"body")
        if answer.status == 200:
            return False
        location = answer.headers["location"]
        assert (answer.status, location.split("/", 3)[3]) == (307, f"{BUCKET}/{number}") and b"<Code>TemporaryRedirect</Code>" in answer.body
        port = int(location.split("/")[2].rsplit(":", 1)[1])
        assert port in ports
        worker = next(worker for worker in workers if worker.port == port)
        assert send_signed(worker, "PUT", f"/{BUCKET}/{number}", {"User-Agent": agent}, b"body").status == 200, "it is the home"
        return True

    keys = range(12)
    assert any([is_redirected(JAVA, number) for number in keys]) == known
    assert any([is_redirected("Boto3/1.40", number) for number in keys]) == others
    # Who can't sign again.
    url = near.s3().generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "0"})
    for number in keys:
        connection = http.client.HTTPConnection("127.0.0.1", near.port)
        connection.request("GET", url.split(str(near.port), 1)[1].replace("/0?", f"/{number}?"), headers={"User-Agent": JAVA})
        assert connection.getresponse().status != 307
