"""What every client is asked to do. Each scenario is written once, checks with boto3 what the client has done, and leaves its bucket to nobody.

A client that lacks one of the calls that a scenario needs does not run it; the table in docs/s3-compatibility.md says so.
"""

import dataclasses
import email.header
import gzip
import hashlib
import os
import pathlib
import subprocess
import threading
import typing

from client import Client, Refused

MIB = 1 << 20
SCENARIOS = {}


@dataclasses.dataclass
class Scene:
    """A client, a boto3 client that checks its work, and a bucket and a directory of their own."""

    client: Client
    s3: typing.Any
    fill: typing.Callable
    bucket: str
    # The name of a bucket with the objects of `many_keys`, which is made when it is asked for.
    many: typing.Callable
    tmp: pathlib.Path

    def stored(self, key):
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def keys(self, prefix=""):
        """All keys but those with which some clients mark directories."""
        return [key for key in self.all_keys(prefix) if not key.endswith("/")]

    def odd_keys(self):
        """The odd keys that client and under store can name, with their kinds."""
        lacking = {*self.client.unnameable, *(S3_SERVER_LACKS if self.client.server.behind else ())}
        return {key: kind for kind, key in ODD_KEYS.items() if kind not in lacking}

    def all_keys(self, prefix=""):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


def scenario(title, *needs):
    """Registers a scenario, named after its function: its title in the table, and the calls of Client that it makes."""

    def register(function):
        SCENARIOS[function.__name__] = (title, needs, function)
        return function

    return register


def refusal(call, *arguments):
    """The kind of the refusal that a call must end in."""
    try:
        result = call(*arguments)
    except Refused as refused:
        return refused.kind
    raise AssertionError(f"{call.__name__}{arguments} was not refused: {result!r}")


# Kinds of keys, and one of each.
ODD_KEYS = {
    "space": "with space/ and at its ends /a b",
    "plus": "a+b+c",
    "percent": "100%/%2F/%25/a%20b",
    "unicode": "grüße/文件/naïve-ñ",
    "emoji": "🦀/crab 🦀.txt",
    "double slash": "a//b///c",
    "trailing slash": "folder/",
    "dots": "a/../b/./c..",
    "quotes": "it's <\"odd\"> & `$(so)`",
    "punctuation": "!-_.*'();:@&=$,?#[]{}|^~",
    "long": "k" * 200 + "/" + "ü" * 100 + "/" + "l" * 622,
}
assert len(ODD_KEYS["long"].encode()) == 1024
# The S3 server of the tests keeps objects as files of their names.
S3_SERVER_LACKS = ["double slash", "dots", "long"]


@scenario("put and get, 0 bytes to 1 MiB", "put", "get")
def small_objects(scene):
    for size in (0, 1, 10_240, MIB):
        body = os.urandom(size)
        scene.client.put(scene.bucket, f"small/{size}", body)
        assert scene.stored(f"small/{size}") == body
        assert scene.client.get(scene.bucket, f"small/{size}") == body


@scenario("objects of zero bytes", "put", "get", "head", "list")
def zero_bytes(scene):
    scene.client.put(scene.bucket, "empty", b"")
    assert scene.s3.head_object(Bucket=scene.bucket, Key="empty")["ContentLength"] == 0
    assert scene.client.head(scene.bucket, "empty").size == 0
    assert scene.client.get(scene.bucket, "empty") == b""
    assert list(scene.client.list(scene.bucket)[0]) == ["empty"]


@scenario("large upload and download with the client's transfer manager", "upload", "download")
def large_object(scene):
    source, target = scene.tmp / "source", scene.tmp / "target"
    source.write_bytes(os.urandom(33 * MIB + 7))
    scene.client.upload(scene.bucket, "large", source)
    digest = hashlib.sha256(source.read_bytes()).digest()
    assert hashlib.sha256(scene.stored("large")).digest() == digest
    scene.client.download(scene.bucket, "large", target)
    assert hashlib.sha256(target.read_bytes()).digest() == digest


@scenario("many files at once with the client's transfer manager", "upload_tree", "download_tree")
def concurrent_transfers(scene):
    source, target = scene.tmp / "source", scene.tmp / "target"
    sizes = {f"dir-{number % 3}/file {number}": number * 1009 for number in range(30)} | {"big/a": 9 * MIB, "big/b": 9 * MIB + 1}
    for name, size in sizes.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(os.urandom(size))
    scene.client.upload_tree(source, scene.bucket, "tree/")
    assert scene.keys("tree/") == sorted(f"tree/{name}" for name in sizes)
    target.mkdir()
    scene.client.download_tree(scene.bucket, "tree/", target)
    for name in sizes:
        assert (target / name).read_bytes() == (source / name).read_bytes() == scene.stored(f"tree/{name}"), name


@scenario("resumed multipart upload", "create_upload", "upload_part", "list_parts", "complete_upload")
def multipart_resume(scene):
    client, bucket, key = scene.client, scene.bucket, "in parts"
    bodies = {1: os.urandom(5 * MIB), 2: os.urandom(5 * MIB), 3: os.urandom(1000)}
    upload = client.create_upload(bucket, key)
    client.upload_part(bucket, key, upload, 1, bodies[1])
    client.upload_part(bucket, key, upload, 3, bodies[3])
    assert refusal(client.head, bucket, key) == "missing" if "head" not in client.lacks else True
    # Another run of the client finds out what is there, and sends the rest.
    for number in bodies.keys() - client.list_parts(bucket, key, upload).keys():
        client.upload_part(bucket, key, upload, number, bodies[number])
    parts = client.list_parts(bucket, key, upload)
    assert sorted(parts) == [1, 2, 3]
    client.complete_upload(bucket, key, upload, parts)
    assert scene.stored(key) == bodies[1] + bodies[2] + bodies[3]


@scenario("ranges", "get_range")
def ranges(scene):
    body = os.urandom(300_000)
    scene.s3.put_object(Bucket=scene.bucket, Key="ranges", Body=body)
    for first, last in ((0, 0), (0, 99), (65_535, 131_073), (299_999, 299_999)):
        assert scene.client.get_range(scene.bucket, "ranges", first, last) == body[first : last + 1], (first, last)


@scenario("suffix ranges and open ranges", "get_range", "get_suffix")
def suffix_ranges(scene):
    body = os.urandom(300_000)
    scene.s3.put_object(Bucket=scene.bucket, Key="ranges", Body=body)
    assert scene.client.get_range(scene.bucket, "ranges", 299_000, None) == body[299_000:]
    for length in (1, 8, 65_537, 300_000):
        assert scene.client.get_suffix(scene.bucket, "ranges", length) == body[-length:], length


@scenario("create if absent", "put_if_absent")
def create_if_absent(scene):
    scene.client.put_if_absent(scene.bucket, "once", b"first")
    assert refusal(scene.client.put_if_absent, scene.bucket, "once", b"second") == "precondition"
    assert scene.stored("once") == b"first"


@scenario("compare and swap", "put_if_match")
def compare_and_swap(scene):
    one = scene.s3.put_object(Bucket=scene.bucket, Key="swap", Body=b"one")["ETag"]
    scene.client.put_if_match(scene.bucket, "swap", b"two", one)
    assert scene.stored("swap") == b"two"
    assert refusal(scene.client.put_if_match, scene.bucket, "swap", b"three", one) == "precondition"
    assert scene.stored("swap") == b"two"


@scenario("server-side copy", "copy")
def copy(scene):
    body = os.urandom(100_000)
    scene.s3.put_object(Bucket=scene.bucket, Key="from here+there", Body=body, ContentType="image/png", Metadata={"a": "b"})
    scene.client.copy(scene.bucket, "from here+there", "to/grün")
    copied = scene.s3.get_object(Bucket=scene.bucket, Key="to/grün")
    assert copied["Body"].read() == body == scene.stored("from here+there")
    assert (copied["ContentType"], copied["Metadata"].get("a")) == ("image/png", "b")


@scenario("server-side rename", "rename")
def rename(scene):
    """What table formats and committers do: everything goes to a temporary name first."""
    for number in range(3):
        scene.s3.put_object(Bucket=scene.bucket, Key=f"_temporary/0/part-{number}", Body=f"part {number}".encode())
        scene.client.rename(scene.bucket, f"_temporary/0/part-{number}", f"table/part-{number}")
    assert scene.keys("table/part") == [f"table/part-{number}" for number in range(3)]
    assert [scene.stored(f"table/part-{number}") for number in range(3)] == [b"part 0", b"part 1", b"part 2"]
    assert scene.keys("_temporary/") == []


@scenario("recursive listing of 10,000 keys", "list")
def list_many(scene):
    keys, prefixes = scene.client.list(scene.many())
    assert len(keys) == 10_000 and not prefixes
    assert sorted(keys) == many_keys()
    keys, _ = scene.client.list(scene.many(), "dir-07/")
    assert sorted(keys) == [key for key in many_keys() if key.startswith("dir-07/")]


@scenario("listing with a delimiter", "list")
def list_with_delimiter(scene):
    keys, prefixes = scene.client.list(scene.many(), "", "/")
    assert (sorted(keys), sorted(prefixes)) == ([], [f"dir-{number:02}/" for number in range(100)])
    keys, prefixes = scene.client.list(scene.many(), "dir-42/", "/")
    assert (sorted(keys), list(prefixes)) == ([f"dir-42/file-{number:03}" for number in range(100)], [])


@scenario("unusual keys", "put", "get", "head", "list", "delete")
def odd_keys(scene):
    client, bucket = scene.client, scene.bucket
    keys = scene.odd_keys()
    for key, kind in keys.items():
        # What ends in a slash is a directory to some clients, and those have no bytes.
        client.put(bucket, key, b"" if key.endswith("/") else kind.encode())
    assert scene.all_keys() == sorted(keys, key=str.encode)
    assert sorted(client.list(bucket)[0]) == sorted(keys)
    for key, kind in keys.items():
        body = b"" if key.endswith("/") else kind.encode()
        assert scene.stored(key) == body, kind
        assert client.get(bucket, key) == body, kind
        assert client.head(bucket, key).size == len(body), kind
    for key in keys:
        client.delete(bucket, key)
    assert scene.keys() == []


@scenario("unusual keys in a batch deletion", "delete_many")
def odd_keys_in_a_batch(scene):
    keys = list(scene.odd_keys())
    for key in keys:
        scene.s3.put_object(Bucket=scene.bucket, Key=key, Body=b"")
    scene.client.delete_many(scene.bucket, keys)
    assert scene.keys() == []


@scenario("batch deletion of 1,000", "delete_many")
def batch_delete(scene):
    keys = [f"batch/{number:04}" for number in range(1000)]
    scene.fill(scene.bucket, [*keys, "kept"])
    scene.client.delete_many(scene.bucket, keys)
    assert scene.keys() == ["kept"]


@scenario("deletion while listing", "delete_prefix")
def delete_while_listing(scene):
    scene.fill(scene.bucket, [f"gone/{number:04}" for number in range(1100)] + ["gone-not", "kept"])
    scene.client.delete_prefix(scene.bucket, "gone/")
    assert scene.keys() == ["gone-not", "kept"]


@scenario("tags", "put_tags", "get_tags")
def tags(scene):
    check_tags(scene, {"team": "data platform", "size": "x/y=z+1"})


@scenario("non-ASCII tags", "put_tags", "get_tags", "unicode_tags")
def unicode_tags(scene):
    check_tags(scene, {"größe": "Zürich 文"})


def check_tags(scene, wanted):
    scene.s3.put_object(Bucket=scene.bucket, Key="tagged", Body=b"tagged")
    scene.client.put_tags(scene.bucket, "tagged", wanted)
    stored = scene.s3.get_object_tagging(Bucket=scene.bucket, Key="tagged")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in stored} == wanted == scene.client.get_tags(scene.bucket, "tagged")


@scenario("metadata and content type", "put_with_metadata", "head")
def metadata(scene):
    wanted = {"owner": "data platform", "job-id": "42+1=43; \"quoted\""}
    scene.client.put(scene.bucket, "meta", b"m", content_type="application/x-parquet", metadata=wanted)
    head = scene.client.head(scene.bucket, "meta")
    assert head.content_type == "application/x-parquet" and wanted.items() <= head.metadata.items()
    stored = scene.s3.head_object(Bucket=scene.bucket, Key="meta")
    # Some clients add what they know of the file.
    assert stored["ContentType"] == "application/x-parquet" and wanted.items() <= stored["Metadata"].items()


@scenario("non-ASCII metadata", "put_with_unicode_metadata", "head")
def unicode_metadata(scene):
    """S3 answers as RFC 2047 has it. Some clients decode that, or encode so themselves; others leave it to their user."""
    scene.client.put(scene.bucket, "meta", b"m", metadata={"city": "Zürich 🦀"})
    told = scene.client.head(scene.bucket, "meta").metadata["city"]
    stored = scene.s3.head_object(Bucket=scene.bucket, Key="meta")["Metadata"]["city"]
    for text in (told, stored):
        assert str(email.header.make_header(email.header.decode_header(text))) == "Zürich 🦀"


@scenario("content encodings", "put_with_encoding", "get", "head")
def content_encodings(scene):
    packed = gzip.compress(b"some text\n" * 1000)
    scene.client.put(scene.bucket, "text.gz", packed, content_type="text/plain", content_encoding="gzip")
    stored = scene.s3.get_object(Bucket=scene.bucket, Key="text.gz")
    assert (stored["ContentEncoding"], stored["Body"].read()) == ("gzip", packed)
    head = scene.client.head(scene.bucket, "text.gz")
    assert head.size == len(packed) and head.content_encoding in ("gzip", None)
    # Some clients unpack what they get.
    assert scene.client.get(scene.bucket, "text.gz") in (packed, b"some text\n" * 1000)


@scenario("presigned GET, used by another process", "presign_get")
def presigned_get(scene):
    scene.s3.put_object(Bucket=scene.bucket, Key="signed/a b+c", Body=b"for others")
    assert fetch(scene.client.presign_get(scene.bucket, "signed/a b+c")) == b"for others"


@scenario("presigned PUT, used by another process", "presign_put")
def presigned_put(scene):
    (scene.tmp / "upload").write_bytes(b"from others")
    fetch(scene.client.presign_put(scene.bucket, "signed/a b+c"), "--upload-file", scene.tmp / "upload")
    assert scene.stored("signed/a b+c") == b"from others"


@scenario("form upload, used by another process", "post_form")
def post_form(scene):
    url, fields = scene.client.post_form(scene.bucket, "forms/a b")
    (scene.tmp / "upload").write_bytes(b"from a form")
    form = [word for name, value in fields.items() for word in ("--form-string", f"{name}={value}")]
    fetch(url, *form, "--form", f"file=@{scene.tmp / 'upload'}")
    assert scene.stored("forms/a b") == b"from a form"


@scenario("missing objects and buckets", "head", "get")
def missing(scene):
    assert refusal(scene.client.head, scene.bucket, "no/such key") == "missing"
    assert refusal(scene.client.get, scene.bucket, "no/such key") == "missing"
    assert refusal(scene.client.get, "no-such-bucket-at-all", "key") == "missing"


@scenario("an object overwritten while it is read", "get")
def overwrite_while_reading(scene):
    """Every read gets one version, whole."""
    versions = [bytes([65 + number]) * (2 * MIB + number) for number in range(4)]
    scene.s3.put_object(Bucket=scene.bucket, Key="busy", Body=versions[0])
    ended, failed = threading.Event(), []

    def overwrite():
        try:
            while not ended.is_set():
                for version in versions:
                    scene.s3.put_object(Bucket=scene.bucket, Key="busy", Body=version)
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        for _ in range(5):
            assert scene.client.get(scene.bucket, "busy") in versions
    finally:
        ended.set()
        writer.join()
    assert not failed, failed


def many_keys():
    """The keys of Scene.many, in order."""
    return [f"dir-{directory:02}/file-{number:03}" for directory in range(100) for number in range(100)]


def fetch(url, *arguments):
    """Sends a request with curl, which knows nothing of S3 and has no keys; returns the body of a 2xx."""
    done = subprocess.run(["curl", "--silent", "--show-error", "--fail-with-body", *arguments, url], capture_output=True, timeout=60)
    assert done.returncode == 0, f"{url}: {done.stdout.decode()} {done.stderr.decode()}"
    return done.stdout


def missing_calls(client_class, needs):
    """Why a client cannot run a scenario that needs these calls: the reasons, or nothing."""
    return [client_class.lacks[need] for need in needs if need in client_class.lacks]
