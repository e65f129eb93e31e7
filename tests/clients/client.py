"""What the scenarios ask of a client of S3, and the clients that are programs of their own.

An adapter is a thin translation of these calls into what a user of that client would write. It takes the client's
default settings: endpoint, region, keys, and path style where the client has no virtual hosts for an address.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import threading

from harness.servers import REGION

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# A single call of a scenario moves at most some 64 MiB or lists 10,000 keys.
CALL_SECONDS = 120
FILES_AT_ONCE = 8


class Refused(Exception):
    """The server refused a call, as the client tells it: `missing`, `precondition`, `denied`, or what else it said."""

    def __init__(self, kind, detail=""):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclasses.dataclass
class Head:
    """What a client tells of an object without its bytes. None: the client has no way to ask."""

    size: int
    content_type: str | None = None
    content_encoding: str | None = None
    metadata: dict | None = None


class Client:
    """One client, connected to one server. A call that it cannot make has its reason in `lacks`."""

    # As in the table of docs/s3-compatibility.md.
    name = ""
    # Call of this class, or scenario -> why this client does not have it.
    lacks = {}
    # Kind of key (scenarios.ODD_KEYS) -> why this client cannot name it.
    unnameable = {}

    def __init__(self, server, directory):
        """`directory` is an empty one, for this client alone."""
        self.server = server
        self.directory = directory

    def close(self):
        """Ends whatever this client has started."""

    def version(self):
        """The version of the client itself, as it or its package tells."""
        raise NotImplementedError

    # --- one object -------------------------------------------------------------------------------------------------

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        raise NotImplementedError

    def get(self, bucket, key):
        """The whole object, as bytes."""
        raise NotImplementedError

    def get_range(self, bucket, key, first, last):
        """Bytes `first` to `last`, both included; `last` None: to the end."""
        raise NotImplementedError

    def get_suffix(self, bucket, key, length):
        """The last `length` bytes."""
        raise NotImplementedError

    def head(self, bucket, key):
        """A Head; Refused("missing") where there is no such object."""
        raise NotImplementedError

    def delete(self, bucket, key):
        raise NotImplementedError

    def copy(self, bucket, key, to):
        """Copies within the bucket, on the server."""
        raise NotImplementedError

    def rename(self, bucket, key, to):
        """Moves within the bucket, by the client's own call for it."""
        raise NotImplementedError

    def put_if_absent(self, bucket, key, body):
        """Refused("precondition") where there is one."""
        raise NotImplementedError

    def put_if_match(self, bucket, key, body, etag):
        """Refused("precondition") where the object has another ETag. The ETag comes in double quotes."""
        raise NotImplementedError

    def put_tags(self, bucket, key, tags):
        raise NotImplementedError

    def get_tags(self, bucket, key):
        raise NotImplementedError

    # --- many objects -----------------------------------------------------------------------------------------------

    def list(self, bucket, prefix="", delimiter=None):
        """All keys below a prefix and all common prefixes, of all pages, as two lists in the client's order."""
        raise NotImplementedError

    def delete_many(self, bucket, keys):
        """By requests for many keys at once."""
        raise NotImplementedError

    def delete_prefix(self, bucket, prefix):
        """Lists and deletes page by page, or by the client's own recursive deletion."""
        raise NotImplementedError

    # --- managers of transfers --------------------------------------------------------------------------------------

    def upload(self, bucket, key, path):
        """By the client's manager: in parts, several at once, with its default sizes."""
        raise NotImplementedError

    def download(self, bucket, key, path):
        raise NotImplementedError

    def upload_tree(self, directory, bucket, prefix):
        """All files of a directory, several at once, as prefix + relative path; the prefix ends in '/'.

        By `upload`, as the user of a client does that has no call for directories; the same below.
        """
        files = [path for path in directory.rglob("*") if path.is_file()]
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            list(pool.map(lambda path: self.upload(bucket, prefix + str(path.relative_to(directory)), path), files))

    def download_tree(self, bucket, prefix, directory):
        keys, _ = self.list(bucket, prefix)
        for key in keys:
            (directory / key.removeprefix(prefix)).parent.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            list(pool.map(lambda key: self.download(bucket, key, directory / key.removeprefix(prefix)), keys))

    # --- multipart uploads, part by part ----------------------------------------------------------------------------

    def create_upload(self, bucket, key):
        """The upload's id."""
        raise NotImplementedError

    def upload_part(self, bucket, key, upload, number, body):
        raise NotImplementedError

    def list_parts(self, bucket, key, upload):
        """{number: what complete_upload wants of the part}"""
        raise NotImplementedError

    def complete_upload(self, bucket, key, upload, parts):
        raise NotImplementedError

    # --- what others may do with it ---------------------------------------------------------------------------------

    def presign_get(self, bucket, key):
        raise NotImplementedError

    def presign_put(self, bucket, key):
        raise NotImplementedError

    def post_form(self, bucket, key):
        """URL and fields of a form that uploads to the key."""
        raise NotImplementedError


class Program(Client):
    """A client in another language: a process that answers one JSON object a line for each call, on its standard input.

    A request is {"call": "put", "bucket": …, …}: the names of the calls and of their parameters are those of Client.
    Bytes go through files: a `body` is sent as "body": path, and "into": path tells where to write what a call reads. The answer is
    {"result": …}, or {"refused": kind, "detail": …} with the kinds of Refused. A Head is an object with its fields.
    `version` is a call like the others. The process ends when its input does.
    """

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.errors = open(directory / "stderr", "wb")
        self.process = subprocess.Popen(
            [*map(str, self.command())],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )

    def command(self):
        raise NotImplementedError

    def environment(self):
        """The variables that name the server to the process: FOREBAY_ENDPOINT, and keys and region in the names of the AWS SDKs."""
        return aws_environment(self.server, self.directory) | {"FOREBAY_ENDPOINT": self.server.endpoint}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.errors.close()

    def call(self, name, **parameters):
        """One request and its answer. A process that hangs is ended, which fails the call."""
        with self.lock:
            watchdog = threading.Timer(CALL_SECONDS, self.process.kill)
            watchdog.start()
            try:
                self.process.stdin.write(json.dumps({"call": name} | parameters).encode() + b"\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            finally:
                watchdog.cancel()
        assert line, f"{self.name} ended in {name}: {self.said()}"
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], answer.get("detail", ""))
        return answer.get("result")

    def said(self):
        return (self.directory / "stderr").read_text(errors="replace")[-4000:]

    def file(self, body=None):
        """A new file for a body that goes out, or for one that comes in."""
        path = self.directory / f"body-{next(self.numbers)}"
        if body is not None:
            path.write_bytes(body)
        return path

    def sent(self, name, body, **parameters):
        path = self.file(body)
        try:
            return self.call(name, body=str(path), **parameters)
        finally:
            path.unlink()

    def received(self, name, **parameters):
        path = self.file()
        try:
            self.call(name, into=str(path), **parameters)
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)

    def version(self):
        return self.call("version")

    def put(self, bucket, key, body, content_type=None, content_encoding=None, metadata=None):
        more = {"content_type": content_type, "content_encoding": content_encoding, "metadata": metadata or {}}
        self.sent("put", body, bucket=bucket, key=key, **more)

    def get(self, bucket, key):
        return self.received("get", bucket=bucket, key=key)

    def get_range(self, bucket, key, first, last):
        return self.received("get_range", bucket=bucket, key=key, first=first, last=last)

    def get_suffix(self, bucket, key, length):
        return self.received("get_suffix", bucket=bucket, key=key, length=length)

    def head(self, bucket, key):
        return Head(**self.call("head", bucket=bucket, key=key))

    def delete(self, bucket, key):
        self.call("delete", bucket=bucket, key=key)

    def copy(self, bucket, key, to):
        self.call("copy", bucket=bucket, key=key, to=to)

    def rename(self, bucket, key, to):
        self.call("rename", bucket=bucket, key=key, to=to)

    def put_if_absent(self, bucket, key, body):
        self.sent("put_if_absent", body, bucket=bucket, key=key)

    def put_if_match(self, bucket, key, body, etag):
        self.sent("put_if_match", body, bucket=bucket, key=key, etag=etag)

    def put_tags(self, bucket, key, tags):
        self.call("put_tags", bucket=bucket, key=key, tags=tags)

    def get_tags(self, bucket, key):
        return self.call("get_tags", bucket=bucket, key=key)

    def list(self, bucket, prefix="", delimiter=None):
        return tuple(self.call("list", bucket=bucket, prefix=prefix, delimiter=delimiter))

    def delete_many(self, bucket, keys):
        self.call("delete_many", bucket=bucket, keys=keys)

    def delete_prefix(self, bucket, prefix):
        self.call("delete_prefix", bucket=bucket, prefix=prefix)

    def upload(self, bucket, key, path):
        self.call("upload", bucket=bucket, key=key, path=str(path))

    def download(self, bucket, key, path):
        self.call("download", bucket=bucket, key=key, path=str(path))

    def upload_tree(self, directory, bucket, prefix):
        self.call("upload_tree", directory=str(directory), bucket=bucket, prefix=prefix)

    def download_tree(self, bucket, prefix, directory):
        self.call("download_tree", bucket=bucket, prefix=prefix, directory=str(directory))

    def create_upload(self, bucket, key):
        return self.call("create_upload", bucket=bucket, key=key)

    def upload_part(self, bucket, key, upload, number, body):
        self.sent("upload_part", body, bucket=bucket, key=key, upload=upload, number=number)

    def list_parts(self, bucket, key, upload):
        return {int(number): part for number, part in self.call("list_parts", bucket=bucket, key=key, upload=upload).items()}

    def complete_upload(self, bucket, key, upload, parts):
        self.call("complete_upload", bucket=bucket, key=key, upload=upload, parts=parts)

    def presign_get(self, bucket, key):
        return self.call("presign_get", bucket=bucket, key=key)

    def presign_put(self, bucket, key):
        return self.call("presign_put", bucket=bucket, key=key)

    def post_form(self, bucket, key):
        return tuple(self.call("post_form", bucket=bucket, key=key))


class CommandLine(Client):
    """A client that is a command, run once for each call."""

    def run(self, *arguments, stdin=None, environment=None):
        """Runs the command; returns what it printed, as bytes. A failure is Refused, by what it said."""
        command = [*map(str, self.command()), *map(str, arguments)]
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run(
                command,
                env=environment or self.environment(),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=CALL_SECONDS,
            )
            errors.seek(0)
            said = errors.read().decode(errors="replace")
        if done.returncode != 0:
            raise Refused(self.kind_of(said + done.stdout.decode(errors="replace")), f"{arguments}: {said}")
        return done.stdout

    def command(self):
        raise NotImplementedError

    def environment(self):
        return aws_environment(self.server, self.directory)

    def kind_of(self, said):
        """The kind of Refused for what the command said when it failed."""
        raise NotImplementedError


def aws_environment(server, home):
    """A clean environment in which an AWS SDK finds its keys and its region, and nothing of this machine's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "TMPDIR") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
