"""What Forebay has beyond plain S3: states, modes, users, pass-through, limits of a cache."""

import base64
import json
import urllib.error
import urllib.request

import botocore.exceptions
import pytest

from harness import chunks, signing
from harness.clients import boto, refused, send, send_signed
from harness.servers import Forebay, S3Server, eventually

USERS = """
[[user]]
name = "reader"
access_key = "READERKEY"
secret_key = "reader-secret"
grants = [{ path = "/shared/open/", allow = ["read", "list"] }]

[[user]]
name = "writer"
access_key = "WRITERKEY"
secret_key = "writer-secret"
grants = [{ path = "/shared/", allow = ["read", "write", "list"] }]

[[anonymous]]
path = "/shared/public/"
allow = ["read"]
"""


def state(answer):
    return answer["ResponseMetadata"]["HTTPHeaders"]["x-forebay-state"].split(";")[0]


def admin(server, method, path, body=None):
    """Calls the admin API with the root keys; returns the status and the decoded JSON."""
    request = urllib.request.Request(f"{server.admin}{path}", method=method, data=body and json.dumps(body).encode())
    keys = base64.b64encode(f"{server.access_key}:{server.secret_key}".encode()).decode()
    request.add_header("Authorization", f"Basic {keys}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


@pytest.fixture
def start(tmp_path):
    """Starts Forebays that are stopped cleanly at the end of the test."""
    started = []

    def start(**options):
        started.append(Forebay(tmp_path / f"forebay-{len(started)}", **options).start())
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0, server.log.read_text()[-4000:]


def test_an_object_says_where_it_stands(start):
    server = start(config='[[policy]]\npath = "/demo/kept/"\nwriteMode = "TRANSIENT"\n', mode="WRITE_BACK")
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    s3.put_object(Bucket="demo", Key="kept/object", Body=b"x")
    s3.put_object(Bucket="demo", Key="object", Body=b"x")
    assert state(s3.head_object(Bucket="demo", Key="kept/object")) == "transient"
    server.wait_until_drained()
    assert state(s3.get_object(Bucket="demo", Key="object")) == "clean"
    assert state(s3.head_object(Bucket="demo", Key="kept/object")) == "transient"
    assert not (server.under / "demo" / "kept").exists()


def test_a_transient_object_outlives_a_kill(start):
    server = start(mode="TRANSIENT")
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    s3.put_object(Bucket="demo", Key="object", Body=b"only here", Metadata={"k": "v"})
    server.kill()
    server.start()
    read = s3.get_object(Bucket="demo", Key="object")
    assert (read["Body"].read(), read["Metadata"]) == (b"only here", {"k": "v"})


def test_read_only_refuses_every_change_and_reads_on(start):
    server = start(mode="READ_ONLY")
    (server.under / "demo").mkdir()
    (server.under / "demo" / "object").write_bytes(b"put here by somebody else")
    s3 = boto(server)
    assert s3.get_object(Bucket="demo", Key="object")["Body"].read() == b"put here by somebody else"
    refused("AccessDenied", s3.put_object, Bucket="demo", Key="object", Body=b"x")
    refused("AccessDenied", s3.delete_object, Bucket="demo", Key="object")
    refused("AccessDenied", s3.create_multipart_upload, Bucket="demo", Key="object")
    refused("AccessDenied", s3.copy_object, Bucket="demo", Key="copy", CopySource="demo/object")
    refused("AccessDenied", s3.put_object_tagging, Bucket="demo", Key="object", Tagging={"TagSet": []})
    assert s3.get_object(Bucket="demo", Key="object")["Body"].read() == b"put here by somebody else"


def writes(server):
    """Every way to write an object, as functions of key and body that return the status."""
    s3 = boto(server)

    def in_parts(key, body):
        call = {"Bucket": "demo", "Key": key}
        call["UploadId"] = s3.create_multipart_upload(**call)["UploadId"]
        pieces = [body[: 5 << 20], body[5 << 20 :]]
        etags = [s3.upload_part(PartNumber=number, Body=piece, **call)["ETag"] for number, piece in enumerate(pieces, 1)]
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        return s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **call)

    def copied(key, body):
        # The source is in this cache, where its bucket has no limit.
        s3.put_object(Bucket="sources", Key=key, Body=body)
        return s3.copy_object(Bucket="demo", Key=key, CopySource=f"sources/{key}")

    def status(write):
        def tried(key, body):
            try:
                return write(key, body)["ResponseMetadata"]["HTTPStatusCode"]
            except botocore.exceptions.ClientError as error:
                return error.response["ResponseMetadata"]["HTTPStatusCode"]

        return tried

    def in_chunks(key, body):
        target = f"/demo/{key}"
        return send(server, "PUT", target, *chunks.request(server, target, body, "unsigned-trailer")).status

    def by_form(key, body):
        form = signing.form("/demo", s3.generate_presigned_post("demo", key, ExpiresIn=60)["fields"], body)
        return send(server, form.method, form.target, form.headers, form.body).status

    put = status(lambda key, body: s3.put_object(Bucket="demo", Key=key, Body=body))
    return {"put": put, "parts": status(in_parts), "copy": status(copied), "chunks": in_chunks, "form": by_form}


def test_small_objects_are_written_back_and_large_ones_through(start, tmp_path):
    limit = (5 << 20) + 1000
    small, large = b"s" * limit, b"l" * (limit + 1)
    behind = S3Server(tmp_path / "behind").start()
    server = start(behind=behind, mode="WRITE_BACK", config=f'[[policy]]\npath = "/demo/"\nwriteBackMaxSize = {limit}\n')
    s3 = boto(server)
    for bucket in ("demo", "sources"):
        s3.create_bucket(Bucket=bucket)
    for name, write in writes(server).items():
        assert write(f"there/{name}", large) in (200, 204), name
        assert boto(behind).head_object(Bucket="demo", Key=f"there/{name}")["ContentLength"] == limit + 1
        assert state(s3.head_object(Bucket="demo", Key=f"there/{name}")) == "clean"
    server.wait_until_drained()
    behind.kill()
    for name, write in writes(server).items():
        assert write(f"small/{name}", small) in (200, 204), name
        assert state(s3.head_object(Bucket="demo", Key=f"small/{name}")) == "dirty", name
    # Two of them are enough: each takes as long as the under store is waited for.
    for name in ("put", "parts"):
        assert writes(server)[name](f"large/{name}", large) >= 500, name
    behind.start()
    server.wait_until_drained()
    keys = [found["Key"] for found in boto(behind).list_objects_v2(Bucket="demo")["Contents"]]
    assert keys == sorted(f"{place}/{name}" for place in ("small", "there") for name in writes(server))
    assert boto(behind).get_object(Bucket="demo", Key="small/parts")["Body"].read() == small
    behind.kill()


def test_large_objects_are_read_past_the_cache_and_small_ones_kept(start):
    server = start(config='[[policy]]\npath = "/demo/"\nreadCacheMaxSize = "1 MiB"\n')
    (server.under / "demo").mkdir()
    s3 = boto(server)
    for name, size, cached in (("small", 1 << 20, 1 << 20), ("large", (1 << 20) + 1, 0)):
        (server.under / "demo" / name).write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        body = (server.under / "demo" / name).read_bytes()
        for _ in range(2):
            assert s3.get_object(Bucket="demo", Key=name)["Body"].read() == body
            assert s3.get_object(Bucket="demo", Key=name, Range="bytes=100-199")["Body"].read() == body[100:200]
        head = s3.head_object(Bucket="demo", Key=name)
        assert head["ResponseMetadata"]["HTTPHeaders"]["x-forebay-state"] == f"clean; cached={cached}/{size}"


def test_policies_change_at_run_time_and_survive_a_restart(start):
    server = start()
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    rules = [{"path": "/demo/frozen/", "writeMode": "READ_ONLY"}]
    assert admin(server, "PUT", "/api/v1/policies", rules) == (200, rules)
    refused("AccessDenied", s3.put_object, Bucket="demo", Key="frozen/object", Body=b"x")
    assert server.stop() == 0
    server.start()
    refused("AccessDenied", s3.put_object, Bucket="demo", Key="frozen/object", Body=b"x")
    s3.put_object(Bucket="demo", Key="object", Body=b"x")
    status, resolved = admin(server, "GET", "/api/v1/policies/resolve?path=/demo/frozen/object")
    mode = next(setting for setting in resolved["settings"] if setting["setting"] == "writeMode")
    assert (status, mode["value"], mode["from"]) == (200, "READ_ONLY", "/demo/frozen/")
    status, problem = admin(server, "PUT", "/api/v1/policies", [{"path": "demo"}])
    assert status == 400 and "demo" in problem["detail"]
    assert admin(server, "GET", "/api/v1/policies") == (200, rules)


def test_persist_brings_everything_to_the_under_store(start):
    server = start(mode="WRITE_BACK")
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    for number in range(20):
        s3.put_object(Bucket="demo", Key=f"object-{number}", Body=b"x")
    status, _ = admin(server, "POST", "/api/v1/persist?prefix=/demo/")
    assert status // 100 == 2
    assert len(list((server.under / "demo").glob("object-*"))) == 20
    _, counts = admin(server, "GET", "/api/v1/status")
    assert (counts["dirtyObjects"], counts["tombstones"]) == (0, 0)


def test_the_admin_api_wants_an_administrator(start):
    server = start()
    for path in ("/api/v1/policies", "/api/v1/status"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.admin}{path}", timeout=10)
        assert caught.value.code == 401
    server.secret_key, right = "wrong", server.secret_key
    assert admin(server, "PUT", "/api/v1/policies", [])[0] == 401
    server.secret_key = right


def test_users_may_do_what_their_grants_say(start, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    server = start(config=f'[server]\nusers_file = "{users}"\n')
    root = boto(server)
    root.create_bucket(Bucket="shared")
    for key in ("open/object", "closed/object", "public/object"):
        root.put_object(Bucket="shared", Key=key, Body=key.encode())
    reader = boto(server, "READERKEY", "reader-secret")
    writer = boto(server, "WRITERKEY", "writer-secret")
    assert reader.get_object(Bucket="shared", Key="open/object")["Body"].read() == b"open/object"
    assert reader.list_objects_v2(Bucket="shared", Prefix="open/")["KeyCount"] == 1
    for call, options in (
        (reader.get_object, {"Key": "closed/object"}),
        (reader.head_object, {"Key": "closed/object"}),
        (reader.put_object, {"Key": "open/new", "Body": b"x"}),
        (reader.delete_object, {"Key": "open/object"}),
        (reader.list_objects_v2, {}),
        (reader.copy_object, {"Key": "open/copy", "CopySource": "shared/open/object"}),
        (writer.delete_bucket, {}),
    ):
        refused("AccessDenied|403", call, Bucket="shared", **options)
    errors = reader.delete_objects(Bucket="shared", Delete={"Objects": [{"Key": "closed/object"}]})["Errors"]
    assert [(error["Key"], error["Code"]) for error in errors] == [("closed/object", "AccessDenied")]
    writer.copy_object(Bucket="shared", Key="open/copy", CopySource="shared/closed/object")
    assert writer.get_object(Bucket="shared", Key="open/copy")["Body"].read() == b"closed/object"
    assert send(server, "GET", "/shared/public/object").body == b"public/object"
    assert send(server, "GET", "/shared/open/object").status == 403
    assert send(server, "PUT", "/shared/public/object", body=b"x").status == 403
    owners = [item["Owner"]["ID"] for item in root.list_objects_v2(Bucket="shared", FetchOwner=True)["Contents"]]
    assert all(owners)


def test_a_changed_users_file_holds_without_a_restart(start, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    server = start(config=f'[server]\nusers_file = "{users}"\n')
    boto(server).create_bucket(Bucket="shared")
    writer = boto(server, "WRITERKEY", "writer-secret")
    writer.put_object(Bucket="shared", Key="object", Body=b"x")
    users.write_text("")

    def is_refused():
        try:
            writer.put_object(Bucket="shared", Key="object", Body=b"x")
        except botocore.exceptions.ClientError as error:
            return error.response["Error"]["Code"] == "InvalidAccessKeyId"
        return False

    eventually("the user is gone", is_refused)


POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::pass-through/*"}
        ],
    }
)


def test_what_a_cache_has_no_opinion_on_passes_through_to_s3(start, s3_server):
    server = start(behind=s3_server)
    s3, behind = boto(server), boto(s3_server)
    s3.create_bucket(Bucket="pass-through")
    s3.put_bucket_policy(Bucket="pass-through", Policy=POLICY)
    assert json.loads(behind.get_bucket_policy(Bucket="pass-through")["Policy"]) == json.loads(POLICY)
    assert json.loads(s3.get_bucket_policy(Bucket="pass-through")["Policy"]) == json.loads(POLICY)
    s3.delete_bucket_policy(Bucket="pass-through")
    refused("NoSuchBucketPolicy", behind.get_bucket_policy, Bucket="pass-through")
    refused("NoSuchBucketPolicy", s3.get_bucket_policy, Bucket="pass-through")


def test_what_a_directory_cannot_answer_is_not_implemented(start):
    server = start()
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    refused("NotImplemented", s3.get_bucket_policy, Bucket="demo")
    refused("NotImplemented", s3.get_bucket_cors, Bucket="demo")
    refused("NotImplemented", s3.put_bucket_versioning, Bucket="demo", VersioningConfiguration={"Status": "Enabled"})
    refused("NotImplemented", s3.put_bucket_lifecycle_configuration, Bucket="demo", LifecycleConfiguration={"Rules": []})


def test_health_and_metrics_tell_what_happens(start):
    server = start(mode="WRITE_BACK")
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    s3.put_object(Bucket="demo", Key="object", Body=b"12345")
    s3.get_object(Bucket="demo", Key="object")["Body"].read()
    server.wait_until_drained()
    metrics = server.metrics()
    assert metrics["forebay_persisted_objects_total"] == 1
    assert metrics["forebay_persisted_bytes_total"] == 5
    requests = {name: value for name, value in metrics.items() if name.startswith("forebay_requests_total")}
    assert sum(value for name, value in requests.items() if "PutObject" in name) == 1, requests
    with urllib.request.urlopen(f"{server.admin}/healthz", timeout=10) as response:
        assert response.status == 200


def test_no_secret_is_logged(start):
    server = start(arguments=["--log-level", "trace"])
    s3 = boto(server)
    s3.create_bucket(Bucket="demo")
    s3.put_object(Bucket="demo", Key="object", Body=b"x")
    assert send_signed(server, "GET", "/demo/object").status == 200
    refused("SignatureDoesNotMatch", boto(server, secret_key="a-wrong-secret").get_object, Bucket="demo", Key="object")
    assert server.stop() == 0
    assert server.secret_key not in server.log.read_text()
