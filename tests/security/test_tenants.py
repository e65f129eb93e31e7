"""What one tenant has is nothing to another: no bytes, no names, and not whether it is there."""

import re
from xml.sax.saxutils import escape

import pytest

from fake_store import EMPTY_LIST, FakeStore, error
from guarded import READER, STRANGER, WRITER, Guarded
from harness import signing
from harness.clients import boto, md5_base64, refused, send


@pytest.fixture(scope="module")
def worker(guarded):
    s3 = boto(guarded)
    s3.create_bucket(Bucket="bucket")
    s3.create_bucket(Bucket="elsewhere")
    s3.put_object(Bucket="bucket", Key="object", Body=b"kept", Metadata={"a": "b"})
    s3.put_object(Bucket="bucket", Key="own/object", Body=b"mine")
    s3.put_object(Bucket="elsewhere", Key="object", Body=b"stranger's")
    # Everything is in the cache by now.
    s3.get_object(Bucket="bucket", Key="object")["Body"].read()
    return guarded


def ask(server, keys, method, target, headers=None, body=b"", sent_as=None):
    """What is answered, but for what differs each time. `sent_as` is another spelling of the target than the one that is signed."""
    signed = signing.in_header(server, signing.Request(method, target, headers or {}, body), *keys)
    answer = send(server, method, sent_as or signed.target, signed.headers, body)
    said = {name: value for name, value in answer.headers.items() if name not in ("date", "x-amz-request-id")}
    return answer.status, said, answer.body.partition(b"<RequestId>")[0]


def test_what_is_cached_is_refused_as_what_is_not_there(worker):
    """Word for word: neither a condition nor a range nor a checksum tells one from the other."""
    etag = boto(worker).head_object(Bucket="bucket", Key="object")["ETag"]
    for headers in (
        {},
        {"If-None-Match": etag},
        {"If-None-Match": "*"},
        {"If-Match": etag},
        {"If-Match": '"other"'},
        {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"Range": "bytes=100-"},
        {"x-amz-checksum-mode": "ENABLED"},
    ):
        for method in ("GET", "HEAD", "DELETE", "PUT"):
            there = ask(worker, STRANGER, method, "/bucket/object", headers)
            absent = ask(worker, STRANGER, method, "/bucket/absent", headers)
            assert there[0] == 403 and there == absent, (method, headers, there, absent)
    for query in ("?tagging=", "?attributes=", "?acl=", "?uploads=", "?versionId=null", "?partNumber=1", "?uploadId=x"):
        assert ask(worker, STRANGER, "GET", f"/bucket/object{query}")[0] == 403, query
    # Nor does a bucket that is not there tell itself from one that is.
    assert ask(worker, STRANGER, "GET", "/bucket/object") == ask(worker, STRANGER, "GET", "/no-such-bucket/object")


def test_without_the_right_to_list_what_is_absent_looks_forbidden(worker):
    assert ask(worker, READER, "GET", "/bucket/object")[0] == 200
    assert ask(worker, READER, "GET", "/bucket/absent")[0] == 403
    assert ask(worker, READER, "HEAD", "/bucket/absent")[0] == 403
    assert ask(worker, READER, "GET", "/bucket?list-type=2")[0] == 403
    # Nor does anything else tell that there is nothing there.
    for headers in ({"If-None-Match": "*"}, {"If-None-Match": '"other"'}, {"If-Match": "*"}, {"Range": "bytes=0-0"}, {"x-amz-checksum-mode": "ENABLED"}):
        for method in ("GET", "HEAD"):
            assert ask(worker, READER, method, "/bucket/absent", headers)[0] == 403, (method, headers)
    for query in ("?tagging=", "?attributes=", "?partNumber=1", "?versionId=null", "?response-content-type=text/plain"):
        assert ask(worker, READER, "GET", f"/bucket/absent{query}", {"x-amz-object-attributes": "ETag"})[0] == 403, query
    upload = boto(worker, *WRITER).create_multipart_upload(Bucket="bucket", Key="own/parts")["UploadId"]
    for target in ("/bucket/own/copy", f"/bucket/own/parts?partNumber=1&uploadId={upload}"):
        for condition in ({}, {"x-amz-copy-source-if-match": "*"}, {"x-amz-copy-source-if-none-match": "*"}):
            answer = ask(worker, WRITER, "PUT", target, {"x-amz-copy-source": "/bucket/own/absent"} | condition)
            assert answer[0] == 403, (target, condition, answer)
    boto(worker).abort_multipart_upload(Bucket="bucket", Key="own/parts", UploadId=upload)


LISTER = ("LISTERKEY", "lister-secret-12ab")
SENDER = ("SENDERKEY", "sender-secret-34cd")


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """With users who have one right each, and an object in the cache."""
    server = Guarded(tmp_path_factory.mktemp("single"))
    users = server.directory / "users.toml"
    entry = '[[user]]\nname = "{0}"\naccess_key = "{0}"\nsecret_key = "{1}"\ngrants = [{{ path = "/bucket/", allow = ["{2}"] }}]\n'
    users.write_text(users.read_text() + entry.format(*LISTER, "list") + entry.format(*SENDER, "write"))
    server.start()
    s3 = boto(server)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="object", Body=b"kept")
    s3.get_object(Bucket="bucket", Key="object")["Body"].read()
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def test_a_hit_is_refused_to_who_may_only_write_or_only_list(single):
    """It asks for the right to read, whatever else somebody may do there, in every way to sign."""
    etag = boto(single).head_object(Bucket="bucket", Key="object")["ETag"]
    for keys in (LISTER, SENDER):
        for sign in signing.WAYS.values():
            for headers in ({}, {"If-None-Match": etag}, {"If-Match": etag}, {"If-None-Match": '"other"'}, {"Range": "bytes=0-0"}):
                for method in ("GET", "HEAD"):
                    signed = sign(single, signing.Request(method, "/bucket/object", {}, b""), *keys)
                    answer = send(single, method, signed.target, signed.headers | headers)
                    assert answer.status == 403 and "etag" not in answer.headers, (keys[0], method, headers, answer)
    assert ask(single, SENDER, "GET", "/bucket/absent")[0] == 403
    assert ask(single, LISTER, "GET", "/bucket?list-type=2")[0] == 200


def test_a_condition_on_a_tag_is_for_who_may_read_it(single):
    """A tag is a digest of the content: who may only write could try what is in an object, and whether it is there."""
    s3 = boto(single)
    etag = s3.head_object(Bucket="bucket", Key="object")["ETag"]
    told = []
    for key in ("object", "absent"):
        for tag in ('"0123456789abcdef0123456789abcdef"', etag):
            upload = s3.create_multipart_upload(Bucket="bucket", Key=key)["UploadId"]
            part = s3.upload_part(Bucket="bucket", Key=key, UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
            parts = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>".encode()
            listed = f"<Delete><Object><Key>{key}</Key><ETag>{escape(tag)}</ETag></Object></Delete>".encode()
            for method, target, headers, body in (
                ("DELETE", f"/bucket/{key}", {"If-Match": tag}, b""),
                ("POST", "/bucket?delete=", {"Content-MD5": md5_base64(listed)}, listed),
                ("PUT", f"/bucket/{key}", {"If-Match": tag}, b"new"),
                ("POST", f"/bucket/{key}?uploadId={upload}", {"If-Match": tag}, parts),
            ):
                status, _, said = ask(single, SENDER, method, target, headers, body)
                if status != 403 and b"<Code>AccessDenied<" not in said:
                    told.append(f"{method} {target} if {tag}: {status} {said}")
                s3.put_object(Bucket="bucket", Key="object", Body=b"kept")
    assert not told, "\n".join(told)


PREFIXES = ("", "p", "pr", "p/", "p/x", "p/x/", "px", "private", "private/", "p%2F", "/", "p//")
NAMES = ("p", "p/x/1", "p/y", "p//z", "px", "private/secret-name", "q")
GRANTED = ("/tenant/p", "/tenant/p/", "/tenant/p/x", "/tenant", "/tenant/", "/tenant/private/secret-name", "/")


@pytest.fixture(scope="module")
def landlord(tmp_path_factory):
    """With a user for each path, who may list there alone, and the same objects and uploads."""
    server = Guarded(tmp_path_factory.mktemp("landlord"))
    users = server.directory / "users.toml"
    entry = '[[user]]\nname = "{0}"\naccess_key = "{0}"\nsecret_key = "secret-of-{0}"\ngrants = [{{ path = "{1}", allow = ["list"] }}]\n'
    users.write_text(users.read_text() + "".join(entry.format(f"TENANT{number}", path) for number, path in enumerate(GRANTED)))
    server.start()
    s3 = boto(server)
    s3.create_bucket(Bucket="tenant")
    for name in NAMES:
        s3.put_object(Bucket="tenant", Key=name, Body=b"x")
        s3.create_multipart_upload(Bucket="tenant", Key=name)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def covers(granted, path):
    rest = path.removeprefix(granted)
    return path.startswith(granted) and (not rest or granted.endswith("/") or rest.startswith("/"))


def test_no_listing_shows_a_name_outside_of_a_grant(landlord):
    """A prefix is a prefix of characters, and a grant is one of names: who may list `p` may not list all that begins with `p`."""
    seen = set()
    for number, granted in enumerate(GRANTED):
        keys = (f"TENANT{number}", f"secret-of-TENANT{number}")
        for prefix in PREFIXES:
            for kind in ("", "list-type=2&", "versions=&", "uploads=&"):
                for more in ("", "&delimiter=%2F", "&delimiter=r", "&max-keys=1", "&start-after=p&marker=p&key-marker=p"):
                    status, _, said = ask(landlord, keys, "GET", f"/tenant?{kind}prefix={prefix.replace('/', '%2F')}{more}")
                    assert status in (200, 403), (granted, prefix, kind, more, status, said)
                    if status != 200:
                        continue
                    shown = re.findall(rb"<(?:Key|Prefix)>([^<]+)</", said)
                    shown = [name.decode() for name in shown if name.decode() != prefix]
                    names = [name for one in shown for name in NAMES if name.startswith(one)]
                    assert all(covers(granted, f"/tenant/{name}") for name in names), (granted, prefix, kind, more, shown)
                    seen.update((granted, name) for name in names)
    # What each may list, it can list.
    assert {granted for granted, _ in seen} == set(GRANTED) - {"/tenant/private/secret-name"}
    assert ("/tenant/p", "p/x/1") in seen and ("/tenant", "private/secret-name") in seen


VERSIONS = ["7", "3HL4kqtJlcpXroDTDmjVBH40Nrjfkd", "01JZ0000000000000000000000", "..", "%00", ""]
BESIDE = ["", "&tagging=", "&attributes=", "&acl=", "&retention=", "&legal-hold=", "&uploadId=x", "&partNumber=1", "&x-id=GetObject"]


def versions_of(path):
    """Requests for a version that is none of ours, as they are signed and as they are sent."""
    for version in VERSIONS:
        for beside in BESIDE:
            yield f"{path}?versionId={version}{beside}", None
        yield f"{path}?versionId={version}", f"{path}?%76ersionId={version}"
        yield f"{path}?versionId={version}", f"{path}?version%49d={version}"
    yield f"{path}?versionId=null", f"{path}?versionId=nul%6C"


@pytest.fixture(scope="module")
def versioned():
    """An under store that has a body for whatever it is asked for."""
    with FakeStore() as behind:
        yield behind


@pytest.fixture(scope="module")
def in_front_of_versions(tmp_path_factory, versioned):
    server = Guarded(tmp_path_factory.mktemp("versions"), mode="NO_CACHE", behind=versioned).start()
    assert ask(server, (server.access_key, server.secret_key), "GET", "/bucket?list-type=2")[0] == 200
    yield server
    server.kill()


OLD = (200, {"ETag": f'"{"0" * 32}"', "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT", "x-amz-version-id": "7"}, b"old")


def test_an_old_version_is_for_who_may_read_its_key(in_front_of_versions, versioned):
    """Naming one is no way past a grant, and a grant to write is none to take it away."""
    server = in_front_of_versions
    versioned.answer = OLD
    versioned.asked.clear()
    assert ask(server, READER, "GET", "/bucket/object?versionId=7")[::2] == (200, b"old")
    assert ask(server, READER, "HEAD", "/bucket/object?versionId=7")[0] == 200
    assert all("versionId=7" in path for path in versioned.names()) and len(versioned.asked) == 2
    versioned.asked.clear()
    let_in = []
    for keys, path in ((STRANGER, "/bucket/object"), (WRITER, "/bucket/object"), (WRITER, "/bucket/ownership"), (STRANGER, "/bucket/own/object")):
        for target, sent_as in (*versions_of(path), (path, None)):
            for method in ("GET", "HEAD"):
                answer = ask(server, keys, method, target, {"x-amz-object-attributes": "ETag"}, sent_as=sent_as)
                if answer[0] != 403:
                    let_in.append(f"{keys[0]} {method} {sent_as or target}: {answer}")
    tags = b"<Tagging><TagSet></TagSet></Tagging>"
    for keys, path in ((READER, "/bucket/object"), (WRITER, "/bucket/own/object")):
        for method, query, headers, body in (
            ("DELETE", "versionId=7", {}, b""),
            ("DELETE", "versionId=", {}, b""),
            ("DELETE", "tagging=&versionId=7", {}, b""),
            ("PUT", "tagging=&versionId=7", {}, tags),
            ("PUT", "acl=&versionId=7", {"x-amz-acl": "public-read"}, b""),
            ("PUT", "retention=&versionId=7", {}, b"<Retention/>"),
            ("POST", "restore=&versionId=7", {}, b"<RestoreRequest/>"),
            ("POST", "select=&select-type=2&versionId=7", {}, b"<SelectObjectContentRequest/>"),
            ("GET", "acl=&versionId=7", {}, b""),
        ):
            answer = ask(server, keys, method, f"{path}?{query}", headers, body)
            if answer[0] != 403:
                let_in.append(f"{keys[0]} {method} {path}?{query}: {answer}")
        # The same name in other bytes.
        for name in ("acl", "retention", "legal-hold", "torrent"):
            for encoded in (f"%{ord(name[0]):02x}{name[1:]}", f"{name[:-1]}%{ord(name[-1]):02X}"):
                answer = ask(server, keys, "GET", f"{path}?{name}=&versionId=7", sent_as=f"{path}?{encoded}=&versionId=7")
                if answer[0] != 403:
                    let_in.append(f"{keys[0]} GET {encoded}: {answer}")
    assert not let_in, "\n".join(let_in)
    assert versioned.asked == []


def test_a_version_is_not_taken_for_the_newest(in_front_of_versions, versioned):
    """Where versions are not known: neither as the source of a copy, nor as what is deleted in a list."""
    server = in_front_of_versions
    versioned.answer = OLD
    versioned.asked.clear()
    for version in ("7", "", "..", "7&x=1", "null7", "NULL"):
        for target in ("/bucket/own/copy", "/bucket/own/copy?partNumber=1&uploadId=x"):
            answer = ask(server, WRITER, "PUT", target, {"x-amz-copy-source": f"/bucket/own/object?versionId={version}"})
            assert answer[0] in (400, 404, 501) and b"NoSuchUpload" not in answer[2], (target, version, answer)
            # Who may not read the source is not told that much.
            refused_copy = ask(server, WRITER, "PUT", target, {"x-amz-copy-source": f"/bucket/object?versionId={version}"})
            assert refused_copy[0] in (403, 400), (target, version, refused_copy)
    listed = b"<Delete><Object><Key>own/object</Key><VersionId>7</VersionId></Object><Object><Key>object</Key><VersionId>7</VersionId></Object></Delete>"
    answer = ask(server, WRITER, "POST", "/bucket?delete=", {"Content-MD5": md5_base64(listed)}, listed)
    assert answer[0] == 200 and b"<Deleted>" not in answer[2] and b"AccessDenied" in answer[2], answer
    assert not [asked for asked in versioned.asked if asked[0] in ("PUT", "POST", "DELETE")], versioned.asked


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion"])
def test_without_the_right_to_list_an_absent_version_looks_forbidden(in_front_of_versions, versioned, code):
    server = in_front_of_versions
    versioned.answer = (404, {}, error(code, "It is not there."))
    root = (server.access_key, server.secret_key)
    told = []
    for query in ("?versionId=7", "?versionId=7&tagging="):
        for method in ("GET", "HEAD") if "tagging" not in query else ("GET",):
            assert ask(server, root, method, f"/bucket/absent{query}")[0] == 404, (method, query)
            answer = ask(server, READER, method, f"/bucket/absent{query}")
            if answer[0] != 403:
                told.append(f"{method} {query}: {answer}")
    # An empty version id names no version, for any user.
    assert {ask(server, keys, "GET", "/bucket/absent?versionId=")[0] for keys in (root, READER)} == {400}
    versioned.answer = (200, {}, EMPTY_LIST)
    assert not told, "\n".join(told)


def test_over_a_directory_there_are_no_versions(worker):
    """A user who may read an object gets nothing for a version that it does not have, and others get what they always get."""
    for target, sent_as in versions_of("/bucket/object"):
        for method in ("GET", "HEAD"):
            headers = {"x-amz-object-attributes": "ETag"}
            status, _, body = ask(worker, READER, method, target, headers, sent_as=sent_as)
            spelled = sent_as or target
            newest = "=null" in target or spelled.endswith(("versionId=", "version%49d=", "%76ersionId="))
            assert status in (400, 403, 404, 501) or (newest and status == 200), (method, spelled, status)
            assert b"kept" not in body or newest, (method, spelled, body)
            assert ask(worker, STRANGER, method, target, headers, sent_as=sent_as)[0] == 403, (method, spelled)


def test_a_copy_needs_both_rights(worker):
    """To read the source and to write the target, for the whole object and for a part."""
    writer = boto(worker, *WRITER)
    stranger = boto(worker, *STRANGER)
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="own/stolen", CopySource="bucket/object")
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="own/stolen", CopySource="elsewhere/object")
    refused("AccessDenied", writer.copy_object, Bucket="bucket", Key="object", CopySource="bucket/own/object")
    refused("AccessDenied", stranger.copy_object, Bucket="elsewhere", Key="stolen", CopySource="bucket/object")
    for source in ("bucket/own/../object", "bucket/own%2F..%2Fobject", "/bucket//object", "bucket%2Fobject", "bucket/own/object/../../object"):
        assert ask(worker, WRITER, "PUT", "/bucket/own/stolen", {"x-amz-copy-source": source})[0] in (403, 404), source
    upload = writer.create_multipart_upload(Bucket="bucket", Key="own/parts")["UploadId"]
    part = {"Bucket": "bucket", "Key": "own/parts", "UploadId": upload, "PartNumber": 1}
    refused("AccessDenied", writer.upload_part_copy, **part, CopySource="bucket/object")
    writer.upload_part_copy(**part, CopySource="bucket/own/object")
    writer.abort_multipart_upload(Bucket="bucket", Key="own/parts", UploadId=upload)
    assert "Contents" not in boto(worker).list_objects_v2(Bucket="bucket", Prefix="own/stolen")


def test_each_key_of_a_list_is_looked_at(worker):
    answer = boto(worker, *WRITER).delete_objects(
        Bucket="bucket", Delete={"Objects": [{"Key": key} for key in ("object", "own/none", "own/../object", "/object", "own")]}
    )
    assert [found["Key"] for found in answer["Deleted"]] == ["own/none", "own/../object"]
    assert {error["Key"]: error["Code"] for error in answer["Errors"]} == dict.fromkeys(("object", "/object", "own"), "AccessDenied")
    assert boto(worker).get_object(Bucket="bucket", Key="object")["Body"].read() == b"kept"


def test_an_upload_belongs_to_its_key(worker):
    """A client that knows its id cannot write to another key with it, nor a tenant to a key of another tenant."""
    s3, writer, stranger = boto(worker), boto(worker, *WRITER), boto(worker, *STRANGER)
    upload = s3.create_multipart_upload(Bucket="bucket", Key="theirs")["UploadId"]
    for client, place, code in (
        (writer, {"Bucket": "bucket", "Key": "theirs"}, "AccessDenied"),
        (writer, {"Bucket": "bucket", "Key": "own/theirs"}, "NoSuchUpload"),
        (stranger, {"Bucket": "elsewhere", "Key": "theirs"}, "NoSuchUpload"),
        (s3, {"Bucket": "elsewhere", "Key": "theirs"}, "NoSuchUpload"),
    ):
        refused(code, client.upload_part, **place, UploadId=upload, PartNumber=1, Body=b"x")
        refused(code, client.list_parts, **place, UploadId=upload)
        refused(code, client.abort_multipart_upload, **place, UploadId=upload)
        parts = {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}
        refused(code, client.complete_multipart_upload, **place, UploadId=upload, MultipartUpload=parts)
    assert s3.list_parts(Bucket="bucket", Key="theirs", UploadId=upload)["UploadId"] == upload
    s3.abort_multipart_upload(Bucket="bucket", Key="theirs", UploadId=upload)


def test_a_token_of_one_list_is_none_of_another(worker):
    s3 = boto(worker)
    s3.put_object(Bucket="bucket", Key="second", Body=b"x")
    token = s3.list_objects_v2(Bucket="bucket", MaxKeys=1)["NextContinuationToken"]
    refused("InvalidArgument", s3.list_objects_v2, Bucket="elsewhere", ContinuationToken=token)
    for changed in (token[:-2], token[1:], token.swapcase(), "A" * len(token)):
        refused("InvalidArgument", s3.list_objects_v2, Bucket="bucket", ContinuationToken=changed)
    refused("AccessDenied", boto(worker, *STRANGER).list_objects_v2, Bucket="bucket", ContinuationToken=token)


def test_buckets_of_others_are_not_named(worker):
    assert [found["Name"] for found in boto(worker, *STRANGER).list_buckets()["Buckets"]] == ["elsewhere"]
    assert [found["Name"] for found in boto(worker, *WRITER).list_buckets()["Buckets"]] == ["bucket"]


def test_a_wrong_secret_gets_one_answer_whoever_is_meant(worker):
    """At each place where keys are compared, word for word. An unknown access key is reported, as by Amazon S3: it is a name, not a secret."""
    for way, sign in signing.WAYS.items():
        wrong = ((worker.access_key, "wrong"), (READER[0], worker.secret_key)), (("AKNOBODY", "wrong"), (READER[0].lower(), READER[1]))
        for group, code in zip(wrong, (b"SignatureDoesNotMatch", b"InvalidAccessKeyId"), strict=True):
            said = []
            for keys in group:
                signed = sign(worker, signing.Request("GET", "/bucket/object", {}, b""), *keys)
                answer = send(worker, "GET", signed.target, signed.headers)
                # What the client has sent is repeated to it.
                told = re.sub(rb"<(AWSAccessKeyId|SignatureProvided|StringToSign|CanonicalRequest)(Bytes)?>[^<]*<", b"<\\1\\2><", answer.body)
                said.append((answer.status, told.partition(b"<RequestId>")[0], sorted(answer.headers)))
            assert len({str(one) for one in said}) == 1 and said[0][0] == 403 and b"<Code>" + code in said[0][1], (way, said)


class BelowPrefix(Guarded):
    """All buckets are prefixes of one bucket of the store behind."""

    def under_store_url(self):
        return super().under_store_url().replace("s3://", "s3://shared/pre")


ONE_BELOW = b"<Contents><Key>pre/bucket/key</Key><Size>1</Size><ETag>1</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
CONFIGURATIONS = ["lifecycle", "policy", "cors", "encryption", "versioning", "replication", "publicAccessBlock", "notification", "website", "logging"]


def test_a_bucket_that_is_a_prefix_changes_nothing_of_the_bucket_behind(tmp_path):
    """It would be set for the objects of all."""
    with FakeStore() as behind:
        server = BelowPrefix(tmp_path, mode="NO_CACHE", behind=behind).start()
        keys = (server.access_key, server.secret_key)
        # A bucket is there when something is below its prefix.
        behind.answer = (200, {}, EMPTY_LIST.replace(b">0<", b">1<").replace(b"</ListB", ONE_BELOW + b"</ListB"))
        assert ask(server, keys, "GET", "/bucket?list-type=2")[0] == 200
        behind.asked.clear()
        behind.answer = (200, {}, b"<LifecycleConfiguration/>")
        for name in CONFIGURATIONS:
            for method, body in (("GET", b""), ("PUT", b"<Configuration/>"), ("DELETE", b"")):
                status, _, said = ask(server, keys, method, f"/bucket?{name}=", {"Content-MD5": md5_base64(body)}, body)
                # Not every one of them can be deleted.
                assert status == 501 or (method == "DELETE" and status == 405), (method, name, status, said)
        assert behind.asked == []
        server.kill()
