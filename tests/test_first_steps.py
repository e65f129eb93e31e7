"""What the README shows first: files up and down, WRITE_BACK under one path, the object in the under store."""

import os

from harness.clients import aws, boto
from harness.servers import Forebay, eventually

POLICIES = """
[[policy]]
path = "/demo/fast/"
writeMode = "WRITE_BACK"
"""


def test_a_path_is_written_back_and_reaches_the_directory(tmp_path):
    server = Forebay(tmp_path, config=POLICIES).start()
    (tmp_path / "file").write_bytes(b"as in the README")
    aws(server, "s3", "mb", "s3://demo")
    for key in ("plain", "fast/one"):
        aws(server, "s3", "cp", tmp_path / "file", f"s3://demo/{key}")
        assert aws(server, "s3", "cp", f"s3://demo/{key}", "-") == "as in the README"
    assert (server.under / "demo" / "plain").read_bytes() == b"as in the README"
    server.wait_until_drained()
    assert (server.under / "demo" / "fast" / "one").read_bytes() == b"as in the README"
    assert server.stop() == 0


def test_the_same_binary_in_front_of_a_real_s3(tmp_path, s3_server):
    server = Forebay(tmp_path, behind=s3_server, mode="WRITE_BACK").start()
    body = os.urandom(6 << 20)
    s3, behind = boto(server), boto(s3_server)
    s3.create_bucket(Bucket="readme-bucket")
    details = {"Metadata": {"k": "v"}, "ContentType": "text/x-forebay", "Tagging": "a=1"}
    s3.put_object(Bucket="readme-bucket", Key="object", Body=body, **details)
    server.wait_until_drained()
    stored = behind.get_object(Bucket="readme-bucket", Key="object")
    assert (stored["Body"].read() == body, stored["ContentType"], stored["Metadata"]["k"]) == (True, "text/x-forebay", "v")
    assert behind.get_object_tagging(Bucket="readme-bucket", Key="object")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert s3.head_object(Bucket="readme-bucket", Key="object")["Metadata"] == {"k": "v"}
    assert server.stop() == 0


def test_objects_that_others_put_into_the_under_store_are_served(tmp_path, s3_server):
    behind = boto(s3_server)
    behind.create_bucket(Bucket="already-there")
    behind.put_object(Bucket="already-there", Key="prefix/object", Body=b"from before", Metadata={"k": "v"})
    mount = f"mounted=s3://already-there/prefix?endpoint={s3_server.endpoint}&region=us-east-1"
    server = Forebay(tmp_path, behind=s3_server, arguments=["--mount", mount]).start()
    for bucket, key in (("already-there", "prefix/object"), ("mounted", "object")):
        read = boto(server).get_object(Bucket=bucket, Key=key)
        assert (read["Body"].read(), read["Metadata"]) == (b"from before", {"k": "v"})
    boto(server).put_object(Bucket="mounted", Key="new", Body=b"through the mount")
    assert behind.get_object(Bucket="already-there", Key="prefix/new")["Body"].read() == b"through the mount"
    assert server.stop() == 0


def test_dirty_objects_survive_kill_and_restart(tmp_path):
    server = Forebay(tmp_path, mode="WRITE_BACK", config='[cache]\nsettle_time = "1 s"\n').start()
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    for number in range(50):
        s3.put_object(Bucket="demo", Key=f"object-{number}", Body=f"body {number}".encode())
    server.kill()
    server.start()
    for number in range(50):
        assert s3.get_object(Bucket="demo", Key=f"object-{number}")["Body"].read() == f"body {number}".encode()
    server.wait_until_drained()
    eventually("all files", lambda: len(list((server.under / "demo").glob("object-*"))) == 50)
    assert server.stop() == 0
