"""The admin API answers as its own description says: schemathesis asks for whatever that allows, and for what it doesn't."""

import os
import pathlib
import subprocess
import sys

import boto3
import requests

HERE = pathlib.Path(__file__).parent
# One seed, so that a run that fails can be had again.
SEED = 20
# Requests of each operation beside those that go through its parameters one by one: the whole stays below a minute.
EXAMPLES = 15


def description(forebay):
    return requests.get(f"{forebay.admin}/api/v1/openapi.json", timeout=10).json()


def operations(forebay):
    for path, item in description(forebay)["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def test_answers_are_as_described(forebay, tmp_path):
    client = boto3.client(
        "s3",
        endpoint_url=forebay.endpoint,
        region_name="us-east-1",
        aws_access_key_id=forebay.access_key,
        aws_secret_access_key=forebay.secret_key,
    )
    client.create_bucket(Bucket="there")
    client.put_object(Bucket="there", Key="object", Body=b"content")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{forebay.admin}/api/v1/openapi.json"),
        *("--auth", f"{forebay.access_key}:{forebay.secret_key}"),
        *("--checks", "all", "--mode", "all", "--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(EXAMPLES), "--seed", str(SEED), "--generation-database", "none", "--workers", "1"),
        "--no-color",
        # Wrong keys soon get 429 instead of 401; the tests below and those of the sessions ask for both.
        # What is right field by field may be wrong as a whole: a rate limit for a job that has no rate, a body of the wrong rule.
        *("--exclude-checks", "ignored_auth,positive_data_acceptance"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "asked", "PYTHONPATH": str(HERE)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    assert "Test cases" in done.stdout or "generated" in done.stdout, done.stdout


def test_without_keys_nothing_is_told(forebay):
    public = {("GET", "/api/v1/openapi.json"), ("POST", "/api/v1/session")}
    seen = set()
    for method, path, operation in operations(forebay):
        query = {p["name"]: "/there/object" for p in operation.get("parameters", []) if p["in"] == "query" and p["required"]}
        url = forebay.admin + path.format(id="1", version="1")
        answer = requests.request(method, url, params=query, json={}, timeout=10)
        seen.add((method, path))
        if (method, path) in public:
            assert answer.status_code != 401 and operation["security"] == [{}], path
        else:
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
            assert answer.headers["content-type"] == "application/problem+json"
            assert set(answer.json()) == {"title", "status", "detail"}
    assert public < seen and len(seen) > 25
