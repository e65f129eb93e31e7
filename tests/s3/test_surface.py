"""Every operation and parameter that boto3 knows does what the tables of surface.py say."""

import itertools

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

import surface
from harness.clients import boto
from harness.model import ELSEWHERE, MODEL, members, sample

NUMBERS = itertools.count()

DEPLOYMENTS = [("directory", "WRITE_BACK"), ("s3", "WRITE_BACK"), ("s3", "NO_CACHE")]
pytestmark = [
    pytest.mark.deployments(*DEPLOYMENTS),
    pytest.mark.beyond_reference("it is about Forebay"),
]


# What the S3 server of the tests does not keep, or answers with a document that is none.
UNKNOWN_BEHIND = {"StorageClass", "GetBucketMetadataTableConfiguration"}


def call(s3, operation, parameters):
    """The answer, or the code of the error."""
    try:
        return getattr(s3, xform_name(operation))(**parameters)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        # The answer to a HEAD has no body, and so no code.
        heads = {"400": "InvalidArgument", "403": "AccessDenied", "412": "PreconditionFailed", "501": "NotImplemented", "404": "NoSuchKey"}
        return heads.get(code, code)


def plain(s3, server, bucket, operation):
    """The parameters of a plain call that succeeds, with everything that it needs in place."""
    key = f"object-{next(NUMBERS)}"
    names = surface.OPERATIONS[operation]
    values = {
        "Bucket": bucket,
        "Key": key,
        "Body": surface.BODY,
        "CopySource": f"{bucket}/source",
        "PartNumber": 1,
        "Delete": {"Objects": [{"Key": key}]},
        "ObjectAttributes": ["ETag", "ObjectSize"],
        "ACL": "bucket-owner-full-control",
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]},
        "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": surface.ETAG}]},
    }
    if operation in ("CreateBucket", "DeleteBucket"):
        values["Bucket"] = f"{bucket}-{key}"
        if operation == "DeleteBucket":
            s3.create_bucket(Bucket=values["Bucket"])
    elif "UploadId" in names:
        values["UploadId"] = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        part = {"Bucket": bucket, "Key": key, "UploadId": values["UploadId"], "PartNumber": 1, "Body": surface.BODY}
        s3.upload_part(**part)
    elif "Key" in names and operation != "CreateMultipartUpload":
        s3.put_object(Bucket=bucket, Key=key, Body=surface.BODY, Tagging="x=y")
    return {name: values[name] for name in names}


def outcome(s3, operation, parameters):
    """The answer of a call, with what a HEAD then tells of an object that it has made; or the code of the error."""
    answer = call(s3, operation, parameters)
    if isinstance(answer, str):
        return answer
    if operation == "CreateMultipartUpload":
        upload = {"Bucket": parameters["Bucket"], "Key": parameters["Key"], "UploadId": answer["UploadId"]}
        algorithm = {"ChecksumAlgorithm": answer["ChecksumAlgorithm"]} if "ChecksumAlgorithm" in answer else {}
        part = s3.upload_part(**upload, **algorithm, PartNumber=1, Body=surface.BODY)
        part = {name: value for name, value in part.items() if name == "ETag" or name.startswith("Checksum")}
        part.pop("ChecksumType", None)
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part | {"PartNumber": 1}]})
    if operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        made = {"Bucket": parameters["Bucket"], "Key": parameters["Key"]}
        answer |= s3.head_object(ChecksumMode="ENABLED", **made) | s3.get_object_tagging(**made)
    return answer


@pytest.fixture
def filled(s3, server, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=surface.BODY, Tagging="x=y", Metadata={"x": "y"})
    server.wait_until_drained()
    return bucket


@pytest.mark.parametrize("operation", sorted(surface.OPERATIONS))
def test_parameters(s3, server, filled, operation):
    assert not isinstance(outcome(s3, operation, plain(s3, server, filled, operation)), str)
    wrong = []
    for parameter in members(operation).keys() - set(surface.OPERATIONS[operation]):
        line = surface.line(operation, parameter)
        if server.behind and (line.outcome == surface.PASSED or parameter in UNKNOWN_BEHIND):
            continue
        parameters = plain(s3, server, filled, operation) | line.beside | {parameter: line.value}
        answer = outcome(s3, operation, parameters)
        if line.shows is None:
            right = not isinstance(answer, str)
        elif isinstance(line.shows, str):
            right = answer == line.shows
        else:
            right = not isinstance(answer, str) and line.shows(answer)
        if not right:
            wrong.append(f"{parameter}: {answer}")
    assert not wrong, "\n".join(wrong)


def test_no_line_is_for_nothing():
    used = {(operation, parameter) for operation in surface.OPERATIONS for parameter in members(operation)}
    assert surface.EXCEPTIONS.keys() <= used
    assert surface.PARAMETERS.keys() <= {parameter for _, parameter in used}


def test_every_operation_is_decided_on():
    assert surface.OPERATIONS.keys() | surface.PASSED_OPERATIONS | surface.REFUSED_OPERATIONS == MODEL["operations"].keys()


def told(answer):
    """An answer without what differs each time."""
    if isinstance(answer, str):
        return answer
    return {name: value for name, value in answer.items() if name not in ("ResponseMetadata", "Body", "Payload")}


def other_operations():
    """What is passed through meets an S3 server every day."""
    behind = [number for number, (under_store, _) in enumerate(DEPLOYMENTS) if under_store == "s3"]
    for number, operation in enumerate(sorted((surface.PASSED_OPERATIONS | surface.REFUSED_OPERATIONS) - ELSEWHERE)):
        turn = pytest.mark.turn(behind[number % len(behind)])
        yield pytest.param(operation, marks=turn if operation in surface.PASSED_OPERATIONS else ())


@pytest.mark.parametrize("operation", list(other_operations()))
def test_other_operations(s3, server, filled, operation):
    parameters = sample(MODEL["operations"][operation]["input"]["shape"])
    parameters |= {name: value for name, value in {"Bucket": filled, "Key": "source"}.items() if name in members(operation)}
    answer = call(s3, operation, parameters)
    if operation in surface.REFUSED_OPERATIONS or not server.behind:
        assert answer == "NotImplemented"
        return
    if operation in UNKNOWN_BEHIND:
        return
    assert told(answer) == told(call(boto(server.behind), operation, parameters))
