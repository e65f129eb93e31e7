"""Who may do what: SigV4 in headers, in the query, in chunks and in forms; and what must be refused."""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import urllib.parse
from xml.etree import ElementTree

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.crt.auth
import botocore.signers
import pytest

from harness import chunks, signing
from harness.clients import boto, refused, send, send_signed, sign
from harness.servers import DOMAIN, REGION

UNSIGNED = "UNSIGNED-PAYLOAD"


def target_of(url):
    parts = urllib.parse.urlsplit(url)
    return f"{parts.path}?{parts.query}"


def test_a_wrong_secret_and_an_unknown_key_are_refused(server, s3, bucket):
    wrong = boto(server, secret_key="not-the-secret")
    refused("SignatureDoesNotMatch", wrong.put_object, Bucket=bucket, Key="object", Body=b"x")
    refused("SignatureDoesNotMatch", wrong.list_objects_v2, Bucket=bucket)
    unknown = boto(server, access_key="AKNOBODY")
    refused("InvalidAccessKeyId|XAdminUserNotFound", unknown.put_object, Bucket=bucket, Key="object", Body=b"x")
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "POST"])
def test_nothing_is_done_without_a_signature(server, s3, bucket, method):
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    target = f"/{bucket}/object" + ("?uploads" if method == "POST" else "")
    assert send(server, method, target).status == 403
    assert send(server, "GET", "/").status == 403
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"


@pytest.mark.parametrize("change", ["method", "path", "query", "header", "body"])
def test_a_changed_request_is_refused(server, s3, bucket, change):
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    headers = sign(server, "PUT", f"/{bucket}/object", {"x-amz-meta-a": "1"}, b"body")
    changed = {
        "method": ("DELETE", f"/{bucket}/object", headers, b"body"),
        "path": ("PUT", f"/{bucket}/other", headers, b"body"),
        "query": ("PUT", f"/{bucket}/object?tagging", headers, b"body"),
        "header": ("PUT", f"/{bucket}/object", headers | {"x-amz-meta-a": "2"}, b"body"),
        "body": ("PUT", f"/{bucket}/object", headers, b"ydob"),
    }[change]
    assert send(server, *changed).status in (400, 403)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"
    refused("404", s3.head_object, Bucket=bucket, Key="other")


def test_a_header_that_is_not_signed_is_refused(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=b"secret")
    headers = sign(server, "PUT", f"/{bucket}/object", {}, b"")
    answer = send(server, "PUT", f"/{bucket}/object", headers | {"x-amz-copy-source": f"/{bucket}/source"})
    assert answer.status == 403 and b"not signed</Message>" in answer.body, answer
    assert b"<HeadersNotSigned>x-amz-copy-source</HeadersNotSigned>" in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def test_a_request_of_another_hour_is_refused(server, bucket, monkeypatch):
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: moment, raising=True)
    answer = send_signed(server, "GET", f"/{bucket}")
    assert (answer.status, b"RequestTimeTooSkewed" in answer.body) == (403, True), answer


def wrong_scopes():
    """Scopes of signatures, each wrong in one way; the first is right."""
    now = datetime.datetime.now(datetime.UTC)
    day = lambda days: (now + datetime.timedelta(days=days)).strftime("%Y%m%d")  # noqa: E731
    yield "nothing", (day(0), REGION, "s3", "aws4_request")
    for wrong in (day(-1), day(1), day(-365), "", "00000000", now.strftime("%Y%m%dT%H%M%SZ")):
        yield f"the date {wrong!r}", (wrong, REGION, "s3", "aws4_request")
    for wrong in ("eu-west-1", "US-EAST-1", "us-east-1 ", "us-east", "*", ""):
        yield f"the region {wrong!r}", (day(0), wrong, "s3", "aws4_request")
    for wrong in ("sts", "ec2", "iam", "S3", "s3express", "s3-object-lambda", "*", ""):
        yield f"the service {wrong!r}", (day(0), REGION, wrong, "aws4_request")
    for wrong in ("aws4", "aws5_request", "AWS4_REQUEST", "aws4_request ", "aws2_request", ""):
        yield f"the end {wrong!r}", (day(0), REGION, "s3", wrong)
    yield "a word too many", (day(0), REGION, "s3", "aws4_request", "aws4_request")
    yield "a word too many in front", ("more", day(0), REGION, "s3", "aws4_request")
    yield "a word too few", (day(0), REGION, "aws4_request")
    yield "no scope", ()


SCOPED = {"header": signing.in_header_of_scope, "query": signing.in_query_of_scope}


@pytest.mark.parametrize("way", SCOPED)
@pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "NO_CACHE"))
@pytest.mark.beyond_reference("it tells which keys exist")
def test_a_signature_holds_for_its_scope_only(server, s3, bucket, way):
    """The key that is made from a secret for one day, region and service is good for no other. A client without the secret gets the same answer."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    requests = [signing.Request("GET", f"/{bucket}/object", {}, b""), signing.Request("GET", f"/{bucket}?list-type=2", {}, b"")]
    requests += [signing.Request("PUT", f"/{bucket}/object", {}, b"new"), signing.Request("DELETE", f"/{bucket}/object", {}, b"")]
    (_, right), *wrong = wrong_scopes()
    let_in = []
    for name, scope in wrong:
        for request in requests:
            told = []
            for keys in ((server.access_key, server.secret_key), (server.access_key, "no"), ("AKNOBODY", server.secret_key)):
                signed = SCOPED[way](scope, server, request, *keys)
                answer = send(server, signed.method, signed.target, signed.headers, signed.body)
                told.append((answer.status, answer.body.partition(b"<RequestId>")[0]))
            if told[0][0] not in (400, 403) or len(set(told)) > 1:
                let_in.append(f"{name}, {request.method}: {told}")
    assert not let_in, "\n".join(let_in)
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"kept"
    for request in requests:
        signed = SCOPED[way](right, server, request, server.access_key, server.secret_key)
        assert send(server, signed.method, signed.target, signed.headers, signed.body).status in (200, 204), request


@pytest.mark.parametrize("method", ["get_object", "put_object", "head_object", "delete_object"])
def test_a_presigned_url_does_what_it_says(server, s3, bucket, method):
    s3.put_object(Bucket=bucket, Key="an object", Body=b"body")
    url = s3.generate_presigned_url(method, Params={"Bucket": bucket, "Key": "an object"}, ExpiresIn=60)
    verb = method.split("_")[0].upper()
    answer = send(server, verb, target_of(url), body=b"new" if verb == "PUT" else b"")
    assert answer.status == (204 if verb == "DELETE" else 200), answer
    if verb == "GET":
        assert answer.body == b"body"
    if verb == "PUT":
        assert s3.get_object(Bucket=bucket, Key="an object")["Body"].read() == b"new"


def test_a_presigned_url_holds_for_its_request_only(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    target = target_of(s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "object"}))
    assert send(server, "DELETE", target).status == 403
    assert send(server, "GET", target.replace("/object?", "/other?")).status == 403
    assert send(server, "GET", target[:-1] + ("0" if target[-1] != "0" else "1")).status == 403
    assert send(server, "GET", target).body == b"kept"


def test_an_expired_presigned_url_is_refused(server, s3, bucket, monkeypatch):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    monkeypatch.setattr(botocore.crt.auth, "get_current_datetime", lambda **_: moment, raising=True)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "object"}, ExpiresIn=60)
    answer = send(server, "GET", target_of(url))
    assert (answer.status, b"AccessDenied" in answer.body or b"ExpiredToken" in answer.body) == (403, True), answer


def form_body(fields, data, name="file"):
    boundary = "----forebay-test-boundary"
    lines = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    head = "".join(lines) + f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="f.txt"\r\n'
    return head.encode() + b"Content-Type: text/plain\r\n\r\n" + data + f"\r\n--{boundary}--\r\n".encode()


def post_form(server, bucket, fields, data, name="file"):
    kind = "multipart/form-data; boundary=----forebay-test-boundary"
    return send(server, "POST", f"/{bucket}", {"Content-Type": kind}, form_body(fields, data, name))


def test_a_form_uploads_within_its_policy(server, s3, bucket):
    conditions = [["content-length-range", 1, 100], ["starts-with", "$key", "form/"]]
    form = s3.generate_presigned_post(bucket, "form/f.txt", Conditions=conditions, ExpiresIn=60)
    fields = form["fields"]
    assert post_form(server, bucket, fields, b"from a form").status == 204
    assert s3.get_object(Bucket=bucket, Key="form/f.txt")["Body"].read() == b"from a form"
    assert post_form(server, bucket, fields | {"key": "elsewhere"}, b"x").status == 403
    assert post_form(server, bucket, fields, b"x" * 101).status == 400
    assert post_form(server, bucket, fields | {"x-amz-signature": "0" * 64}, b"x").status == 403
    policy = json.dumps({"expiration": "2999-01-01T00:00:00Z", "conditions": []})
    assert post_form(server, bucket, fields | {"policy": policy}, b"x").status in (400, 403)
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["form/f.txt"]


@pytest.mark.beyond_reference("it takes ${filename} as it stands")
def test_a_form_may_take_the_name_of_the_file(server, s3, bucket):
    form = s3.generate_presigned_post(bucket, "form/${filename}", ExpiresIn=60)
    assert post_form(server, bucket, form["fields"], b"from a form").status == 204
    assert s3.get_object(Bucket=bucket, Key="form/f.txt")["Body"].read() == b"from a form"


@pytest.mark.parametrize("size", [0, 65_536, 1_000_000, 5_000_000])
def test_a_form_with_a_file_of_any_size(server, s3, bucket, size):
    # Carriage returns, since a delimiter begins with one.
    data = (b"\r\n--" + b"\r" * 1000 + bytes(range(256)))[:size] + b"\r" * max(0, size - 1260)
    form = s3.generate_presigned_post(bucket, "form/file", ExpiresIn=60)
    assert post_form(server, bucket, form["fields"], data).status == 204
    assert s3.get_object(Bucket=bucket, Key="form/file")["Body"].read() == data


@pytest.mark.beyond_reference("it has no forms")
def test_a_form_holds_as_long_as_its_policy_says(server, s3, bucket, monkeypatch):
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=5)
    for module in (botocore.auth, botocore.crt.auth, botocore.signers):
        if hasattr(module, "get_current_datetime"):
            monkeypatch.setattr(module, "get_current_datetime", lambda **_: moment)
    old = s3.generate_presigned_post(bucket, "form/old", ExpiresIn=6 * 3600)["fields"]
    over = s3.generate_presigned_post(bucket, "form/over", ExpiresIn=4 * 3600)["fields"]
    monkeypatch.undo()
    assert old["x-amz-date"] < datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H"), "the clock was not moved"
    assert post_form(server, bucket, old, b"data").status == 204
    answer = post_form(server, bucket, over, b"data")
    assert answer.status == 403 and b"<Code>AccessDenied<" in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="form/over")


@pytest.mark.beyond_reference("it has no forms")
def test_nothing_hides_in_a_form(server, s3, bucket):
    """Not behind a type that two read in two ways, not in a value that looks like fields, not in the query."""
    fields = s3.generate_presigned_post(bucket, "object", ExpiresIn=60)["fields"]
    boundary = "----forebay-test-boundary"
    smuggled = f'--{boundary}\r\nContent-Disposition: form-data; name="acl"\r\n\r\npublic-read'
    assert post_form(server, bucket, {"x-ignore-0": smuggled} | fields, b"data").status in (400, 501)
    for query in ("acl", "restore", "delete=", "uploadId=1"):
        assert post_form(server, f"{bucket}?{query}", fields, b"data").status == 501, query
    for kind in (f'multipart/form-data; boundary={boundary}; x="é"', "multipart/form-data", f"multipart/form-data; boundary={boundary}; boundary=b"):
        answer = send(server, "POST", f"/{bucket}", {"Content-Type": kind.encode()}, form_body(fields, b"data"))
        assert answer.status == 400 and b"<Code>MalformedPOSTRequest<" in answer.body, (kind, answer)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_the_answer_to_a_form_says_where_the_object_is(server, s3, bucket):
    etag = '"' + hashlib.md5(b"data").hexdigest() + '"'
    url = f"{server.endpoint}/{bucket}/form/a%20b%C3%A9%26"

    def post(**extra):
        form = s3.generate_presigned_post(bucket, "form/a bé&", Fields=extra, Conditions=[extra] if extra else [], ExpiresIn=60)
        return post_form(server, bucket, form["fields"], b"data")

    for answer, status in ((post(), 204), (post(success_action_status="200"), 200)):
        assert (answer.status, answer.headers["etag"], answer.headers["location"]) == (status, etag, url), answer
    created = post(success_action_status="201")
    document = ElementTree.fromstring(created.body)
    assert created.status == 201 and {child.tag: child.text for child in document} == {
        "Location": url,
        "Bucket": bucket,
        "Key": "form/a bé&",
        "ETag": etag,
    }
    redirected = post(success_action_redirect="http://localhost/done?a=1")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(redirected.headers["location"]).query)
    assert redirected.status == 303 and query == {"a": ["1"], "bucket": [bucket], "key": ["form/a bé&"], "etag": [etag]}


def test_tags_of_a_form_are_not_dropped(server, s3, bucket):
    """ceph/s3-tests: test_post_object_tags_authenticated_request; of Amazon S3: localstack/localstack, TestS3PresignedPost."""
    tag = "<Tag><Key>a</Key><Value>{}</Value></Tag>"

    def post(tagging):
        form = s3.generate_presigned_post(bucket, "object", Fields={"tagging": tagging}, Conditions=[["starts-with", "$tagging", ""]], ExpiresIn=60)
        return post_form(server, bucket, form["fields"], b"data")

    for tagging, code in (
        ("no document", "MalformedXML"),
        (f"<Tagging><TagSet>{tag.format(1)}</TagSet>", "MalformedXML"),
        (f"<Tagging><TagSet>{tag.format(1) * 2}</TagSet></Tagging>", "InvalidTag"),
    ):
        answer = post(tagging)
        assert answer.status == 400 and f"<Code>{code}<".encode() in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")
    assert post(f"<Tagging><TagSet>{tag.format('b&amp;c')}<Tag><Key>d</Key><Value/></Tag></TagSet></Tagging>").status == 400
    assert post(f"<Tagging><TagSet>{tag.format('1 + 1')}<Tag><Key>d</Key><Value/></Tag></TagSet></Tagging>").status == 204
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == [{"Key": "a", "Value": "1 + 1"}, {"Key": "d", "Value": ""}]
    tags = {"x-amz-tagging": "a=1"}
    form = s3.generate_presigned_post(bucket, "object", Fields=tags, Conditions=[tags], ExpiresIn=60)
    assert post_form(server, bucket, form["fields"], b'name="tagging"').status == 204
    assert s3.get_object_tagging(Bucket=bucket, Key="object")["TagSet"] == [{"Key": "a", "Value": "1"}]


@pytest.mark.parametrize("field", ["x-amz-checksum-sha1024", "x-amz-server-side-encryption-customer-key"])
@pytest.mark.beyond_reference("it has no forms")
def test_a_field_of_a_form_is_not_dropped(server, s3, bucket, field):
    form = s3.generate_presigned_post(bucket, "object", Fields={field: "v"}, Conditions=[{field: "v"}], ExpiresIn=60)
    answer = post_form(server, bucket, form["fields"], b"data")
    assert answer.status == 501 and b"<Code>NotImplemented<" in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.beyond_reference("it has no forms")
def test_a_form_names_metadata_as_headers_do(server, s3, bucket):
    for name in ("my field", "a:b", "ü"):
        field = {f"x-amz-meta-{name}": "v"}
        form = s3.generate_presigned_post(bucket, "object", Fields=field, Conditions=[field], ExpiresIn=60)
        assert post_form(server, bucket, form["fields"], b"data").status == 400, name
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.beyond_reference("it has no forms")
def test_fields_that_s3_ignores(server, s3, bucket):
    extra = {"utf8": "yes", "name": "a.txt", "acl": "private"}
    conditions = [{name: value} for name, value in extra.items()]
    form = s3.generate_presigned_post(bucket, "object", Fields=extra, Conditions=conditions, ExpiresIn=60)
    assert post_form(server, bucket, form["fields"], b"data").status == 204


@pytest.mark.beyond_reference("it has no forms")
def test_a_policy_without_a_bucket_is_good_for_none(server, s3, bucket):
    fields = s3.generate_presigned_post(bucket, "object", ExpiresIn=60)["fields"]
    policy = json.loads(base64.b64decode(fields["policy"]))
    policy["conditions"] = [condition for condition in policy["conditions"] if "bucket" not in condition]
    text = base64.b64encode(json.dumps(policy).encode()).decode()
    fields |= {"policy": text, "x-amz-signature": sign_policy(server, text, fields["x-amz-credential"])}
    answer = post_form(server, bucket, fields, b"data")
    assert answer.status == 403 and b"Extra input fields: bucket" in answer.body, answer
    refused("404", s3.head_object, Bucket=bucket, Key="object")


@pytest.mark.deployments(("directory", "WRITE_BACK"), ("s3", "NO_CACHE"))
@pytest.mark.beyond_reference("it has no forms")
def test_a_form_is_signed_for_its_scope_only(server, s3, bucket):
    good = s3.generate_presigned_post(bucket, "object", ExpiresIn=60)["fields"]
    statuses = {}
    for name, scope in wrong_scopes():
        credential = "/".join((server.access_key, *scope))
        policy = base64.b64decode(good["policy"]).decode().replace(good["x-amz-credential"], credential)
        text = base64.b64encode(policy.encode()).decode()
        fields = good | {"x-amz-credential": credential, "policy": text, "x-amz-signature": sign_policy(server, text, credential)}
        statuses[name] = post_form(server, bucket, fields, b"x").status
    assert statuses.pop("nothing") == 204
    assert set(statuses.values()) <= {400, 403}, statuses
    s3.delete_object(Bucket=bucket, Key="object")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.beyond_reference("it has other words")
def test_a_form_is_told_what_is_wrong_as_s3_says_it(server, s3, bucket, monkeypatch):
    """ryuzee/SlideHub#213, itinance/react-native-fs#992, CulturalMe/meteor-slingshot#80, sivchari/kumo#936, benefitcloud/ember-uploader#43."""
    conditions = [["starts-with", "$key", "form/"]]
    good = s3.generate_presigned_post(bucket, "form/f.txt", Conditions=conditions, ExpiresIn=60)["fields"]

    def told(status, code, *texts, fields=good, name="file"):
        answer = post_form(server, bucket, fields, b"data", name)
        found = ElementTree.fromstring(answer.body)
        assert (answer.status, found.findtext("Code")) == (status, code), answer
        for element, text in texts:
            assert found.findtext(element) == text, answer

    no_key = "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields."
    policy = json.loads(base64.b64decode(good["policy"]))
    policy["conditions"] = [condition for condition in policy["conditions"] if "$key" not in condition and "key" not in condition]
    text = base64.b64encode(json.dumps(policy).encode()).decode()
    without_key = {name: value for name, value in good.items() if name != "key"}
    without_key |= {"policy": text, "x-amz-signature": sign_policy(server, text, good["x-amz-credential"])}
    told(400, "InvalidArgument", ("Message", no_key), ("ArgumentName", "key"), fields=without_key)
    told(400, "InvalidArgument", ("Message", "POST requires exactly one file upload per request."), ("ArgumentName", "file"), name="other")
    wrong = 'Invalid according to Policy: Policy Condition failed: ["starts-with", "$key", "form/"]'
    told(403, "AccessDenied", ("Message", wrong), fields=good | {"key": "else"})
    text = base64.b64encode(b"no policy").decode()
    signed = good | {"policy": text, "x-amz-signature": sign_policy(server, text, good["x-amz-credential"])}
    told(400, "InvalidPolicyDocument", ("Message", "Invalid Policy: Invalid JSON."), fields=signed)
    policy = base64.b64decode(good["policy"]).decode()
    policy = json.dumps(json.loads(policy) | {"expiration": "2020-01-01T00:00:00Z"})
    text = base64.b64encode(policy.encode()).decode()
    signed = good | {"policy": text, "x-amz-signature": sign_policy(server, text, good["x-amz-credential"])}
    told(403, "AccessDenied", ("Message", "Invalid according to Policy: Policy expired."), fields=signed)


def sign_policy(server, policy, credential):
    key = f"AWS4{server.secret_key}".encode()
    for word in [*credential.split("/")[1:], policy]:
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return key.hex()


def test_a_form_without_a_policy_is_refused(server, s3, bucket):
    assert post_form(server, bucket, {"key": "object"}, b"x").status == 403
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_the_bucket_may_be_in_the_host_name(server, s3, bucket):
    host = f"{bucket}.{DOMAIN}"
    assert send_signed(server, "PUT", "/an/object", body=b"body", host=host).status == 200
    assert s3.get_object(Bucket=bucket, Key="an/object")["Body"].read() == b"body"
    assert send_signed(server, "GET", "/an/object", host=host).body == b"body"
    assert b"an/object" in send_signed(server, "GET", "/?list-type=2", host=host).body


CHUNKED = ["signed", "signed-trailer", "unsigned-trailer"]
BODY = bytes(range(256)) * 700


@pytest.mark.parametrize("kind", CHUNKED)
def test_a_body_in_chunks_is_put_together(server, s3, bucket, kind):
    headers, body = chunks.request(server, f"/{bucket}/object", BODY, kind)
    answer = send(server, "PUT", f"/{bucket}/object", headers, body)
    assert answer.status == 200, answer
    read = s3.get_object(Bucket=bucket, Key="object")
    assert read["Body"].read() == BODY
    assert read["ETag"] == f'"{hashlib.md5(BODY).hexdigest()}"'


@pytest.mark.beyond_reference("it keeps the encoding of the transfer as the object's")
def test_the_encoding_in_chunks_is_not_the_objects(server, s3, bucket):
    headers, body = chunks.request(server, f"/{bucket}/object", BODY, "signed")
    assert send(server, "PUT", f"/{bucket}/object", headers, body).status == 200
    assert "ContentEncoding" not in s3.head_object(Bucket=bucket, Key="object")


@pytest.mark.parametrize("kind", CHUNKED)
@pytest.mark.parametrize("damage", ["byte", "cut", "no-end", "length", "trailer"])
def test_a_damaged_body_in_chunks_stores_nothing(server, s3, bucket, kind, damage):
    if damage == "trailer" and kind == "signed":
        damage = "byte"
    headers, body = chunks.request(server, f"/{bucket}/object", BODY, kind, damage)
    try:
        assert send(server, "PUT", f"/{bucket}/object", headers, body).status >= 400
    except (ConnectionError, http.client.RemoteDisconnected):
        pass
    refused("404", s3.head_object, Bucket=bucket, Key="object")


def with_signature(signature):
    """The lines with another signature; None for none."""
    return lambda signer, lines: lines[:1] + ([(chunks.SIGNATURE, signature(signer, lines))] if signature else [])


def signed_lines(*lines):
    """Other lines, signed rightly."""
    return lambda signer, _: [*lines, (chunks.SIGNATURE, signer.trailer(lines, before=-2))]


def other_key(signer, lines):
    """The signature of somebody who knows the key by name only."""
    text = "".join(f"{name}:{value}\n" for name, value in lines[:1])
    return hmac.new(b"not the key", text.encode(), hashlib.sha256).hexdigest()


GOOD = (chunks.CHECKSUM, chunks.checksum(BODY))
WRONG = (chunks.CHECKSUM, chunks.checksum(b"other"))
CRC32C = ("x-amz-checksum-crc32c", "AAAAAA==")
SIGNED_TRAILERS = {
    "a signature of zeros": {"trailer": with_signature(lambda *_: "0" * 64)},
    "a signature by another key": {"trailer": with_signature(other_key)},
    "a signature with one digit changed": {"trailer": with_signature(lambda signer, _: one_digit_changed(signer.signatures[-1]))},
    "a signature that is cut": {"trailer": with_signature(lambda signer, _: signer.signatures[-1][:-1])},
    "a signature with more behind it": {"trailer": with_signature(lambda signer, _: signer.signatures[-1] + "0")},
    "an empty signature": {"trailer": with_signature(lambda *_: "")},
    "no signature": {"trailer": with_signature(None)},
    "the signature of the request": {"trailer": with_signature(lambda signer, _: signer.signatures[0])},
    "the signature of the first chunk": {"trailer": with_signature(lambda signer, _: signer.signatures[1])},
    "the signature of the last chunk": {"trailer": with_signature(lambda signer, _: signer.signatures[-2])},
    "a signature behind another chunk": {"trailer": with_signature(lambda signer, lines: signer.trailer(lines[:1], before=1))},
    "the signature of another value": {"trailer": lambda _, lines: [WRONG, lines[1]]},
    "the signature of another name": {"trailer": lambda _, lines: [CRC32C, lines[1]]},
    "one more line than is signed": {"trailer": lambda _, lines: [GOOD, ("x-amz-meta-a", "b"), lines[1]]},
    "nothing at all": {"trailer": lambda *_: []},
    "the signature alone": {"trailer": lambda _, lines: lines[1:]},
    "a wrong value, signed": {"trailer": signed_lines(WRONG)},
    "another name, signed": {"trailer": signed_lines(CRC32C)},
    "a name that is no checksum, signed": {"trailer": signed_lines(("x-amz-meta-a", "b"))},
    "twice, signed": {"trailer": signed_lines(GOOD, GOOD)},
    "one more, signed": {"trailer": signed_lines(GOOD, ("x-amz-meta-a", "b"))},
    "no line, signed": {"trailer": signed_lines()},
    "another name announced": {"announced": "x-amz-checksum-crc32c"},
    "one more announced": {"announced": "x-amz-checksum-crc32,x-amz-checksum-crc32c"},
    "what is no checksum announced": {"announced": "x-amz-meta-a", "trailer": signed_lines(("x-amz-meta-a", "b"))},
    "nothing announced": {"announced": None},
    "no name announced": {"announced": ""},
    "no name announced and none sent": {"announced": "", "trailer": lambda *_: []},
}
UNSIGNED_TRAILERS = {
    "a wrong value": {"trailer": lambda *_: [WRONG]},
    "a value that is none": {"trailer": lambda *_: [(chunks.CHECKSUM, "")]},
    "another name": {"trailer": lambda *_: [CRC32C]},
    "twice": {"trailer": lambda *_: [GOOD, GOOD]},
    "one more": {"trailer": lambda *_: [GOOD, ("x-amz-meta-a", "b")]},
    "nothing at all": {"trailer": lambda *_: []},
    "a signature that nobody can make": {"trailer": lambda *_: [GOOD, (chunks.SIGNATURE, "0" * 64)]},
    "another name announced": {"announced": "x-amz-checksum-crc32c"},
    "one more announced": {"announced": "x-amz-checksum-crc32,x-amz-checksum-crc32c"},
    "what is no checksum announced": {"announced": "x-amz-meta-a", "trailer": lambda *_: [("x-amz-meta-a", "b")]},
    "nothing announced": {"announced": None},
    "no name announced": {"announced": ""},
    "no name announced and none sent": {"announced": "", "trailer": lambda *_: []},
}
TRAILERS = {
    "signed": {
        "a line that nobody signed": {"trailer": lambda *_: [GOOD]},
        "a line with a forged signature": {"trailer": lambda *_: [GOOD, (chunks.SIGNATURE, "0" * 64)]},
    },
    "signed-trailer": SIGNED_TRAILERS,
    "unsigned-trailer": UNSIGNED_TRAILERS,
}


def one_digit_changed(signature):
    return signature[:40] + ("0" if signature[40] != "0" else "1") + signature[41:]


@pytest.mark.parametrize("kind", CHUNKED)
@pytest.mark.beyond_reference("it does without lines that nobody announced, and skips those that it does not expect")
def test_a_trailer_that_is_not_the_one_announced_and_signed_stores_nothing(server, s3, bucket, kind):
    """Neither an object nor a part: what was there before is still read."""
    s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    upload = {"Bucket": bucket, "Key": "parts", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]}
    targets = (f"/{bucket}/object", f"/{bucket}/parts?partNumber=1&uploadId={upload['UploadId']}")
    let_in = []
    for name, changes in TRAILERS[kind].items():
        for target in targets:
            headers, body = chunks.request(server, target, BODY, kind, **changes)
            answer = send(server, "PUT", target, headers, body)
            if answer.status not in (400, 403):
                let_in.append(f"{name}: {answer}")
        if s3.get_object(Bucket=bucket, Key="object")["Body"].read() != b"kept":
            let_in.append(f"{name}: stored")
            s3.put_object(Bucket=bucket, Key="object", Body=b"kept")
    assert not let_in, "\n".join(let_in)
    assert "Parts" not in s3.list_parts(**upload)
    # Sent as they should be, the same are taken.
    for target in targets:
        headers, body = chunks.request(server, target, BODY, kind)
        answer = send(server, "PUT", target, headers, body)
        assert answer.status == 200, answer
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == BODY
    assert [part["Size"] for part in s3.list_parts(**upload)["Parts"]] == [len(BODY)]


def test_an_unsigned_payload_needs_a_signed_request(server, s3, bucket):
    headers = sign(server, "PUT", f"/{bucket}/object", body=b"body", sign_payload=False)
    assert headers["X-Amz-Content-SHA256"] == UNSIGNED
    assert send(server, "PUT", f"/{bucket}/object", headers, b"body").status == 200
    assert s3.get_object(Bucket=bucket, Key="object")["Body"].read() == b"body"
    assert send(server, "PUT", f"/{bucket}/other", {"X-Amz-Content-SHA256": UNSIGNED}, b"body").status == 403
    refused("404", s3.head_object, Bucket=bucket, Key="other")


class _Dated(botocore.auth.S3SigV4Auth):
    """Signs with the time in `Date`, as https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html allows."""

    form = None

    def _modify_request_before_signing(self, request):
        super()._modify_request_before_signing(request)
        del request.headers["X-Amz-Date"]
        moment = datetime.datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ")
        if self.form:
            request.headers["Date"] = moment.strftime(self.form)


def sign_dated(server, target, form):
    auth = _Dated(botocore.credentials.Credentials(server.access_key, server.secret_key), "s3", REGION)
    auth.form = form
    request = botocore.awsrequest.AWSRequest("GET", f"http://127.0.0.1:{server.port}{target}", {})
    auth.add_auth(request)
    return dict(request.headers.items())


@pytest.mark.beyond_reference("it wants the other header")
def test_the_time_of_a_signature_may_be_in_date(server, s3, bucket, monkeypatch):
    s3.put_object(Bucket=bucket, Key="object", Body=b"body")
    target, forms = f"/{bucket}/object", ("%Y%m%dT%H%M%SZ", "%a, %d %b %Y %H:%M:%S GMT")
    for form in forms:
        headers = sign_dated(server, target, form)
        assert send(server, "GET", target, headers).body == b"body", form
        other = {"Date": (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)).strftime(form)}
        assert send(server, "GET", target, headers | other).status == 403, form
    unsigned = sign_dated(server, target, None)
    for date in ({}, {"Date": datetime.datetime.now(datetime.UTC).strftime(forms[0])}):
        answer = send(server, "GET", target, unsigned | date)
        assert answer.status == 403 and b"<Code>AccessDenied<" in answer.body, answer
        assert b"<Message>AWS authentication requires a valid Date or x-amz-date header</Message>" in answer.body, answer
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: moment)
    for form in forms:
        answer = send(server, "GET", target, sign_dated(server, target, form))
        assert answer.status == 403 and b"<Code>RequestTimeTooSkewed<" in answer.body, answer


@pytest.mark.beyond_reference("its words differ")
def test_what_a_request_says_of_its_body_is_one_of_few_words(server, bucket):
    """Words of Amazon S3: irods/irods_resource_plugin_s3#1833, versity/versitygw#1427."""
    request = signing.Request("GET", f"/{bucket}", {}, b"")
    signed = signing.in_header_with_payload("foo", server, request, server.access_key, server.secret_key)
    answer = send(server, "GET", signed.target, signed.headers)
    assert (
        b"<Message>x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
        b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, "
        b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value.</Message>"
    ) in answer.body, answer
    assert b"<ArgumentName>x-amz-content-sha256</ArgumentName><ArgumentValue>foo</ArgumentValue>" in answer.body, answer
    headers = sign(server, "GET", f"/{bucket}")
    del headers["X-Amz-Content-SHA256"]
    answer = send(server, "GET", f"/{bucket}", headers)
    assert b"<Message>Missing required header for this request: x-amz-content-sha256</Message>" in answer.body, answer
