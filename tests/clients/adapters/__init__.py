"""All clients, in the order of the table in docs/s3-compatibility.md."""

from adapters.awscli import AwsCommandLine
from adapters.boto import Boto, BotoCrt
from adapters.go_sdk import GoSdk
from adapters.java_v1 import JavaV1
from adapters.java_v2 import JavaV2
from adapters.js_sdk import JsSdk
from adapters.minio_go import MinioGo
from adapters.minio_py import MinioPy
from adapters.object_store import ObjectStore
from adapters.obstore_client import Obstore
from adapters.pyarrow_fs import PyArrow
from adapters.rclone import Rclone
from adapters.rust_sdk import RustSdk
from adapters.s3a import S3a
from adapters.s3cmd import S3cmd
from adapters.s3fs_client import S3fs

CLIENTS = [
    Boto,
    BotoCrt,
    AwsCommandLine,
    JavaV1,
    JavaV2,
    S3a,
    JsSdk,
    GoSdk,
    MinioGo,
    Rclone,
    S3fs,
    PyArrow,
    Obstore,
    MinioPy,
    S3cmd,
    RustSdk,
    ObjectStore,
]
