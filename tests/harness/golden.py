"""A data directory in the format of the first release, which every later one must read: `tests/faults/golden/data-v1.tar.gz`.

Run as a program, with FOREBAY_BIN naming the release, it writes the archive. Archives of releases are never written again: a new
format gets one of its own beside them.
"""

import os
import pathlib
import sys
import tarfile
import tempfile

CONFIG = """
[store]
size = "32 MiB"
[cache]
part_size_min = "1 B"
[[policy]]
path = "/golden/"
writeMode = "WRITE_BACK"
[[policy]]
path = "/golden/clean/"
writeMode = "WRITE_THROUGH"
[[policy]]
path = "/golden/kept/"
writeMode = "TRANSIENT"
"""


def golden_bytes(key, size):
    # They follow from the key, and are short in an archive.
    word = f"{key} ".encode()
    return (word * (size // len(word) + 1))[:size]


def write(archive):
    from harness.clients import boto
    from harness.servers import Forebay

    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        server = Forebay(directory, config=CONFIG).start()
        s3 = boto(server)
        s3.create_bucket(Bucket="golden")
        put = lambda key, size, **more: s3.put_object(Bucket="golden", Key=key, Body=golden_bytes(key, size), **more)  # noqa: E731
        put("clean/small", 3_000)
        put("clean/large", 300_000)
        put("deleted", 100)
        server.wait_until_drained()
        # From here on the under store is out of reach.
        server.under.rename(directory / "away")
        server.under.write_bytes(b"no directory")
        put("dirty/small", 3_000, Metadata={"color": "blue"}, ContentType="text/plain")
        put("dirty/large", 300_000)
        put("kept/transient", 3_000)
        s3.delete_object(Bucket="golden", Key="deleted")
        upload = s3.create_multipart_upload(Bucket="golden", Key="dirty/parts")["UploadId"]
        whole = golden_bytes("dirty/parts", 9_000)
        parts = []
        for number in (1, 2, 3):
            body = whole[(number - 1) * 3_000 : number * 3_000]
            answer = s3.upload_part(Bucket="golden", Key="dirty/parts", UploadId=upload, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": answer["ChecksumCRC32"]})
        s3.complete_multipart_upload(Bucket="golden", Key="dirty/parts", UploadId=upload, MultipartUpload={"Parts": parts})
        open_one = s3.create_multipart_upload(Bucket="golden", Key="open")["UploadId"]
        s3.upload_part(Bucket="golden", Key="open", UploadId=open_one, PartNumber=1, Body=golden_bytes("open", 3_000))
        # As a crash leaves it: there is a log to replay.
        server.kill()
        server.under.unlink()
        (directory / "away").rename(server.under)
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(server.data, "data")
            packed.add(server.under, "under")
    print(f"{archive}: {os.path.getsize(archive)} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    write(pathlib.Path(sys.argv[1]))
