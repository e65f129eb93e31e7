"""Which version of each client is pinned, and where: what docs/s3-compatibility.md shows, and what must be the one that runs."""

import re

from harness.servers import ROOT

PROGRAMS = "tests/clients/programs"
PYTHON = "tests/requirements.txt"

# Class of the adapter, or of the engine in test_tables.py -> file and pattern of the version.
PINNED = {
    "Boto": (PYTHON, r"^boto3==(.+)"),
    "BotoCrt": (PYTHON, r"^awscrt==(.+)"),
    "AwsCommandLine": (PYTHON, r"^awscli==(.+)"),
    "JavaV1": (f"{PROGRAMS}/java/v1/pom.xml", r"<artifactId>aws-java-sdk-s3</artifactId>\s*<version>([^<]+)"),
    "JavaV2": (f"{PROGRAMS}/java/v2/pom.xml", r"<sdk.version>([^<]+)"),
    "S3a": (f"{PROGRAMS}/java/s3a/pom.xml", r"<hadoop.version>([^<]+)"),
    "JsSdk": (f"{PROGRAMS}/js/package.json", r'"@aws-sdk/client-s3": "([^"]+)"'),
    "GoSdk": (f"{PROGRAMS}/go/go.mod", r"aws-sdk-go-v2/service/s3 v(\S+)"),
    "MinioGo": (f"{PROGRAMS}/go/go.mod", r"minio-go/v7 v(\S+)"),
    "Rclone": (f"{PROGRAMS}/rclone/go.mod", r"github.com/rclone/rclone v(\S+)"),
    "S3fs": (f"{PROGRAMS}/s3fs/requirements.txt", r"^s3fs==(.+)"),
    "PyArrow": (PYTHON, r"^pyarrow==(.+)"),
    "Obstore": (PYTHON, r"^obstore==(.+)"),
    "MinioPy": (PYTHON, r"^minio==(.+)"),
    "S3cmd": (PYTHON, r"^s3cmd==(.+)"),
    "RustSdk": ("Cargo.lock", r'name = "aws-sdk-s3"\nversion = "([^"]+)"'),
    "Polars": (PYTHON, r"^polars==(.+)"),
    "DuckDb": (PYTHON, r"^duckdb==(.+)"),
    "ObjectStore": ("Cargo.lock", r'name = "object_store"\nversion = "([^"]+)"'),
}


def pinned(name):
    """The version of the client of this adapter."""
    file, pattern = PINNED[name]
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found, f"{name}: no version in {file}"
    return found[1]
