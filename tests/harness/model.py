"""What boto3 knows of S3: every operation with its parameters, and the smallest values that it takes for them."""

import datetime

from botocore.loaders import Loader

MODEL = Loader(extra_search_paths=[]).load_service_model("s3", "service-2")
# They go to other hosts than the one of the bucket, which boto3 cannot be made to call here.
ELSEWHERE = {"ListDirectoryBuckets", "WriteGetObjectResponse"}
PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)


def members(operation):
    """The parameters of an operation."""
    shape = MODEL["operations"][operation].get("input", {}).get("shape")
    return MODEL["shapes"][shape]["members"] if shape else {}


def sample(shape):
    """The smallest value that boto3 takes for a shape."""
    kind = MODEL["shapes"][shape]
    match kind["type"]:
        case "structure" if kind.get("union"):
            name = next(iter(kind["members"]))
            return {name: sample(kind["members"][name]["shape"])}
        case "structure":
            return {name: sample(kind["members"][name]["shape"]) for name in kind.get("required", [])}
        case "list":
            return [sample(kind["member"]["shape"])]
        case "string":
            return kind["enum"][0] if "enum" in kind else "x" * kind.get("min", 1)
        case "blob":
            return b"x"
        case "timestamp":
            return PAST
        case "boolean":
            return True
        case _:
            return 1
