"""Every operation and parameter of S3 that boto3 knows, and what Forebay does with it.

docs/s3-compatibility.md is made from these tables (scripts/compatibility), and test_surface.py tries each line of them. What a newer
boto3 adds has no line and fails there: somebody has to decide.
"""

import base64
import dataclasses
import datetime
import hashlib
import typing
import zlib

BODY = b"the body of an object"
ETAG = '"' + hashlib.md5(BODY).hexdigest() + '"'
OTHER_ETAG = '"' + "0" * 32 + '"'
OTHER_OWNER = "999988887777"
PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
FUTURE = datetime.datetime(2040, 1, 1, tzinfo=datetime.timezone.utc)
CUSTOMER_KEY = "k" * 32
PASSED = "passed through"


def base64_of(data):
    return base64.b64encode(data).decode()


@dataclasses.dataclass
class Line:
    """The outcome of a parameter: a value for it, what else must be given, and what shows that it was honoured.

    `outcome` is "yes", "ignored" or the code of the error. `shows`: None (the call succeeds; what it does has tests of its own), the code of the
    error that this value must end in, or a function of the answer.
    """

    outcome: str
    value: typing.Any
    shows: typing.Any = None
    beside: dict = dataclasses.field(default_factory=dict)


def yes(value, shows=None, **beside):
    return Line("yes", value, shows, beside)


def ignored(value, **beside):
    return Line("ignored", value, None, beside)


def refused(code, value, **beside):
    return Line(code, value, code, beside)


def passed(value, over_directory="NotImplemented"):
    """Goes to an S3 under store; over a directory there is no such thing."""
    return Line(PASSED, value, over_directory)


def encrypted(value, **beside):
    return refused("NotImplemented", value, **beside)


def echoed(name, value):
    """The parameter comes back in the answer."""
    return yes(value, lambda answer: answer[name] == value)


CUSTOMER = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": CUSTOMER_KEY}
SOURCE_CUSTOMER = {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": CUSTOMER_KEY}

# The operations of the cache, with what a plain call of each needs. All others pass through to an S3 under store, or are refused.
OPERATIONS = {
    "AbortMultipartUpload": ("Bucket", "Key", "UploadId"),
    "CompleteMultipartUpload": ("Bucket", "Key", "UploadId", "MultipartUpload"),
    "CopyObject": ("Bucket", "Key", "CopySource"),
    "CreateBucket": ("Bucket",),
    "CreateMultipartUpload": ("Bucket", "Key"),
    "DeleteBucket": ("Bucket",),
    "DeleteObject": ("Bucket", "Key"),
    "DeleteObjectTagging": ("Bucket", "Key"),
    "DeleteObjects": ("Bucket", "Delete"),
    "GetBucketAcl": ("Bucket",),
    "GetBucketLocation": ("Bucket",),
    "GetBucketOwnershipControls": ("Bucket",),
    "GetObject": ("Bucket", "Key"),
    "GetObjectAcl": ("Bucket", "Key"),
    "GetObjectAttributes": ("Bucket", "Key", "ObjectAttributes"),
    "GetObjectTagging": ("Bucket", "Key"),
    "HeadBucket": ("Bucket",),
    "HeadObject": ("Bucket", "Key"),
    "ListBuckets": (),
    "ListMultipartUploads": ("Bucket",),
    "ListObjectVersions": ("Bucket",),
    "ListObjects": ("Bucket",),
    "ListObjectsV2": ("Bucket",),
    "ListParts": ("Bucket", "Key", "UploadId"),
    "PutBucketAcl": ("Bucket", "ACL"),
    "PutBucketOwnershipControls": ("Bucket", "OwnershipControls"),
    "PutObject": ("Bucket", "Key", "Body"),
    "PutObjectAcl": ("Bucket", "Key", "ACL"),
    "PutObjectTagging": ("Bucket", "Key", "Tagging"),
    "UploadPart": ("Bucket", "Key", "UploadId", "PartNumber", "Body"),
    "UploadPartCopy": ("Bucket", "Key", "UploadId", "PartNumber", "CopySource"),
}

# The outcome of a parameter in every operation that has it.
PARAMETERS = {
    "ACL": refused("AccessControlListNotSupported", "public-read"),
    "AccessControlPolicy": refused("AccessControlListNotSupported", {"Grants": [], "Owner": {"ID": "x"}}),
    "AnnotationDirective": ignored("COPY"),
    "BucketKeyEnabled": encrypted(True),
    "BucketNamespace": refused("NotImplemented", "account-regional"),
    "BucketRegion": yes("eu-west-1", lambda answer: answer["Buckets"] == []),
    "BypassGovernanceRetention": ignored(True),
    "CacheControl": yes("no-store", lambda answer: answer["CacheControl"] == "no-store"),
    "ChecksumAlgorithm": yes("SHA256", lambda answer: answer["ChecksumSHA256"] == base64_of(hashlib.sha256(BODY).digest())),
    "ChecksumCRC32": yes("AAAAAA==", "BadDigest"),
    "ChecksumCRC32C": yes("AAAAAA==", "BadDigest"),
    "ChecksumCRC64NVME": yes("AAAAAAAAAAA=", "BadDigest"),
    "ChecksumMD5": yes(base64_of(bytes(16)), "BadDigest"),
    "ChecksumMode": yes("ENABLED", lambda answer: answer["ChecksumCRC32"] == base64_of(zlib.crc32(BODY).to_bytes(4, "big"))),
    "ChecksumSHA1": yes(base64_of(bytes(20)), "BadDigest"),
    "ChecksumSHA256": yes(base64_of(bytes(32)), "BadDigest"),
    "ChecksumSHA512": yes(base64_of(bytes(64)), "BadDigest"),
    "ChecksumType": yes("COMPOSITE", "InvalidRequest"),
    "ChecksumXXHASH128": yes(base64_of(bytes(16)), "BadDigest"),
    "ChecksumXXHASH3": yes(base64_of(bytes(8)), "BadDigest"),
    "ChecksumXXHASH64": yes(base64_of(bytes(8)), "BadDigest"),
    "ContentDisposition": yes("attachment", lambda answer: answer["ContentDisposition"] == "attachment"),
    "ContentEncoding": yes("zstd", lambda answer: answer["ContentEncoding"] == "zstd"),
    "ContentLanguage": yes("de", lambda answer: answer["ContentLanguage"] == "de"),
    "ContentLength": yes(len(BODY)),
    "ContentMD5": yes(base64_of(bytes(16)), "BadDigest"),
    "ContentType": yes("text/x-y", lambda answer: answer["ContentType"] == "text/x-y"),
    "ContinuationToken": yes("nonsense", "InvalidArgument"),
    "CopySourceIfMatch": yes(OTHER_ETAG, "PreconditionFailed"),
    "CopySourceIfModifiedSince": yes(FUTURE, "PreconditionFailed"),
    "CopySourceIfNoneMatch": yes(ETAG, "PreconditionFailed"),
    "CopySourceIfUnmodifiedSince": yes(PAST, "PreconditionFailed"),
    "CopySourceRange": yes("bytes=0-4", lambda answer: answer["CopyPartResult"]["ETag"] != ETAG),
    "CopySourceSSECustomerAlgorithm": encrypted("AES256", **SOURCE_CUSTOMER),
    "CopySourceSSECustomerKey": encrypted(CUSTOMER_KEY, **SOURCE_CUSTOMER),
    "CopySourceSSECustomerKeyMD5": encrypted("x", **SOURCE_CUSTOMER),
    "CreateBucketConfiguration": yes({"LocationConstraint": "eu-west-1"}, "IllegalLocationConstraintException"),
    "Delimiter": echoed("Delimiter", "b"),
    "EncodingType": echoed("EncodingType", "url"),
    "ExpectedBucketOwner": yes(OTHER_OWNER, "AccessDenied"),
    "ExpectedSourceBucketOwner": yes(OTHER_OWNER, "AccessDenied"),
    "Expires": yes(FUTURE, lambda answer: answer["Expires"] == FUTURE),
    "FetchOwner": yes(True, lambda answer: answer["Contents"][0]["Owner"]["ID"]),
    "GrantFullControl": refused("AccessControlListNotSupported", 'id="x"'),
    "GrantRead": refused("AccessControlListNotSupported", 'id="x"'),
    "GrantReadACP": refused("AccessControlListNotSupported", 'id="x"'),
    "GrantWrite": refused("AccessControlListNotSupported", 'id="x"'),
    "GrantWriteACP": refused("AccessControlListNotSupported", 'id="x"'),
    "IfMatch": yes(OTHER_ETAG, "PreconditionFailed"),
    "IfMatchInitiatedTime": yes(PAST, "PreconditionFailed"),
    "IfMatchLastModifiedTime": refused("NotImplemented", PAST),
    "IfMatchSize": refused("NotImplemented", 3),
    "IfModifiedSince": yes(FUTURE, "304"),
    "IfNoneMatch": yes("*", "PreconditionFailed"),
    "IfUnmodifiedSince": yes(PAST, "PreconditionFailed"),
    "KeyMarker": echoed("KeyMarker", "z"),
    "Marker": echoed("Marker", "z"),
    "MaxBuckets": yes(1, lambda answer: len(answer["Buckets"]) == 1),
    "MaxKeys": echoed("MaxKeys", 1),
    "MaxParts": yes(1, lambda answer: answer["MaxParts"] == 1),
    "MaxUploads": echoed("MaxUploads", 1),
    "Metadata": yes({"a": "b"}, lambda answer: answer["Metadata"] == {"a": "b"}),
    "MetadataDirective": yes("REPLACE", lambda answer: answer["Metadata"] == {}),
    "MFA": ignored("1 2"),
    "MpuObjectSize": yes(3, "InvalidRequest"),
    "ObjectLockEnabledForBucket": refused("NotImplemented", True),
    "ObjectLockEventHold": refused("NotImplemented", "ON"),
    "ObjectLockEventHoldDurationDays": refused("NotImplemented", 1),
    "ObjectLockEventHoldDurationYears": refused("NotImplemented", 1),
    "ObjectLockLegalHoldStatus": refused("NotImplemented", "ON"),
    "ObjectLockMode": refused("NotImplemented", "GOVERNANCE"),
    "ObjectLockRetainUntilDate": refused("NotImplemented", FUTURE),
    "ObjectOwnership": refused("NotImplemented", "ObjectWriter"),
    "OptionalObjectAttributes": ignored(["RestoreStatus"]),
    "PartNumber": yes(1, lambda answer: answer["ContentRange"] == f"bytes 0-{len(BODY) - 1}/{len(BODY)}"),
    "PartNumberMarker": echoed("PartNumberMarker", 1),
    "Prefix": echoed("Prefix", "o"),
    "Range": yes("bytes=1-2", lambda answer: answer["ContentRange"] == f"bytes 1-2/{len(BODY)}"),
    "RequestPayer": ignored("requester"),
    "ResponseCacheControl": yes("no-store", lambda answer: answer["CacheControl"] == "no-store"),
    "ResponseContentDisposition": yes("attachment", lambda answer: answer["ContentDisposition"] == "attachment"),
    "ResponseContentEncoding": yes("zstd", lambda answer: answer["ContentEncoding"] == "zstd"),
    "ResponseContentLanguage": yes("de", lambda answer: answer["ContentLanguage"] == "de"),
    "ResponseContentType": yes("text/x-y", lambda answer: answer["ContentType"] == "text/x-y"),
    "ResponseExpires": yes(FUTURE, lambda answer: answer["Expires"] == FUTURE),
    "SSECustomerAlgorithm": encrypted("AES256", **CUSTOMER),
    "SSECustomerKey": encrypted(CUSTOMER_KEY, **CUSTOMER),
    "SSECustomerKeyMD5": encrypted("x", **CUSTOMER),
    "SSEKMSEncryptionContext": encrypted("e30="),
    "SSEKMSKeyId": encrypted("x", ServerSideEncryption="aws:kms"),
    "ServerSideEncryption": encrypted("AES256"),
    "StartAfter": echoed("StartAfter", "z"),
    "StorageClass": yes("STANDARD_IA", lambda answer: answer["StorageClass"] == "STANDARD_IA"),
    "Tagging": yes("a=1&b=2", lambda answer: len(answer["TagSet"]) == 2),
    "TaggingDirective": yes("REPLACE", lambda answer: answer["TagSet"] == []),
    "UploadIdMarker": yes("x", "InvalidArgument", KeyMarker="a"),
    "VersionId": passed("7", over_directory="InvalidArgument"),
    "VersionIdMarker": yes("null", KeyMarker="a"),
    "WebsiteRedirectLocation": yes("/x", lambda answer: answer["WebsiteRedirectLocation"] == "/x"),
    "WriteOffsetBytes": refused("NotImplemented", 3),
}

# Where an operation differs.
EXCEPTIONS = {
    ("CompleteMultipartUpload", "ChecksumCRC32"): yes("AAAAAA==", "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumCRC32C"): yes("AAAAAA==", "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumSHA1"): yes(base64_of(bytes(20)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumSHA256"): yes(base64_of(bytes(32)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumSHA512"): yes(base64_of(bytes(64)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumMD5"): yes(base64_of(bytes(16)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumXXHASH64"): yes(base64_of(bytes(8)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumXXHASH3"): yes(base64_of(bytes(8)), "InvalidRequest"),
    ("CompleteMultipartUpload", "ChecksumXXHASH128"): yes(base64_of(bytes(16)), "InvalidRequest"),
    ("CompleteMultipartUpload", "IfMatch"): yes(OTHER_ETAG, "NoSuchKey"),
    ("CompleteMultipartUpload", "IfNoneMatch"): yes("*"),
    ("CopyObject", "Metadata"): yes({"a": "b"}, lambda answer: answer["Metadata"] == {"a": "b"}, MetadataDirective="REPLACE"),
    ("CopyObject", "Tagging"): yes("a=1&b=2", lambda answer: len(answer["TagSet"]) == 2, TaggingDirective="REPLACE"),
    ("CreateMultipartUpload", "ChecksumAlgorithm"): echoed("ChecksumAlgorithm", "SHA256"),
    ("CreateMultipartUpload", "ChecksumType"): yes("COMPOSITE", lambda answer: answer["ChecksumType"] == "COMPOSITE", ChecksumAlgorithm="SHA256"),
    ("DeleteObjects", "ChecksumAlgorithm"): yes("SHA256"),
    ("PutBucketAcl", "ChecksumAlgorithm"): yes("SHA256"),
    ("PutBucketOwnershipControls", "ChecksumAlgorithm"): yes("SHA256"),
    ("PutObjectAcl", "ChecksumAlgorithm"): yes("SHA256"),
    ("GetObject", "IfNoneMatch"): yes(ETAG, "304"),
    ("GetObjectAttributes", "MaxParts"): yes(1),
    ("GetObjectAttributes", "PartNumberMarker"): yes(1),
    ("HeadObject", "IfNoneMatch"): yes(ETAG, "304"),
    ("ListBuckets", "Prefix"): yes("no-such", lambda answer: answer["Buckets"] == []),
    ("PutObjectTagging", "ChecksumAlgorithm"): yes("SHA256"),
}
for _operation in ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires"):
    _line = PARAMETERS[_operation]
    EXCEPTIONS["CopyObject", _operation] = yes(_line.value, _line.shows, MetadataDirective="REPLACE")


for _grant in ("ACL", "GrantFullControl", "GrantRead", "GrantReadACP", "GrantWrite", "GrantWriteACP"):
    EXCEPTIONS["CreateBucket", _grant] = refused("InvalidBucketAclWithObjectOwnership", PARAMETERS[_grant].value)


# Beside the canned list that the smallest request has.
for _operation in ("PutBucketAcl", "PutObjectAcl"):
    EXCEPTIONS[_operation, "AccessControlPolicy"] = refused("UnexpectedContent", PARAMETERS["AccessControlPolicy"].value)
    for _grant in ("GrantFullControl", "GrantRead", "GrantReadACP", "GrantWrite", "GrantWriteACP"):
        EXCEPTIONS[_operation, _grant] = refused("InvalidRequest", PARAMETERS[_grant].value)


def line(operation, parameter):
    """The outcome of a parameter of an operation; a KeyError for one that nobody has decided on."""
    return EXCEPTIONS.get((operation, parameter)) or PARAMETERS[parameter]

# What the cache has no opinion on: it goes to an S3 under store as it is, signed with the key for that. Over a directory: NotImplemented.
PASSED_OPERATIONS = {
    "CreateBucketMetadataTableConfiguration",
    "DeleteBucketAnalyticsConfiguration",
    "DeleteBucketCors",
    "DeleteBucketEncryption",
    "DeleteBucketIntelligentTieringConfiguration",
    "DeleteBucketInventoryConfiguration",
    "DeleteBucketLifecycle",
    "DeleteBucketMetadataTableConfiguration",
    "DeleteBucketMetricsConfiguration",
    "DeleteBucketPolicy",
    "DeleteBucketReplication",
    "DeleteBucketWebsite",
    "DeletePublicAccessBlock",
    "GetBucketAccelerateConfiguration",
    "GetBucketAnalyticsConfiguration",
    "GetBucketCors",
    "GetBucketEncryption",
    "GetBucketIntelligentTieringConfiguration",
    "GetBucketInventoryConfiguration",
    "GetBucketLifecycle",
    "GetBucketLifecycleConfiguration",
    "GetBucketLogging",
    "GetBucketMetadataTableConfiguration",
    "GetBucketMetricsConfiguration",
    "GetBucketNotification",
    "GetBucketNotificationConfiguration",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketReplication",
    "GetBucketRequestPayment",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetObjectLegalHold",
    "GetObjectLockConfiguration",
    "GetObjectRetention",
    "GetObjectTorrent",
    "GetPublicAccessBlock",
    "ListBucketAnalyticsConfigurations",
    "ListBucketIntelligentTieringConfigurations",
    "ListBucketInventoryConfigurations",
    "ListBucketMetricsConfigurations",
    "PutBucketAccelerateConfiguration",
    "PutBucketAnalyticsConfiguration",
    "PutBucketCors",
    "PutBucketEncryption",
    "PutBucketIntelligentTieringConfiguration",
    "PutBucketInventoryConfiguration",
    "PutBucketLifecycle",
    "PutBucketLifecycleConfiguration",
    "PutBucketLogging",
    "PutBucketMetricsConfiguration",
    "PutBucketNotification",
    "PutBucketNotificationConfiguration",
    "PutBucketPolicy",
    "PutBucketReplication",
    "PutBucketRequestPayment",
    "PutBucketVersioning",
    "PutBucketWebsite",
    "PutObjectLegalHold",
    "PutObjectLockConfiguration",
    "PutObjectRetention",
    "PutPublicAccessBlock",
    "RestoreObject",
    "SelectObjectContent",
}

# NotImplemented, whatever the under store is.
REFUSED_OPERATIONS = {
    "CreateBucketMetadataConfiguration",
    "CreateSession",
    "DeleteBucketMetadataConfiguration",
    "DeleteBucketOwnershipControls",
    "DeleteBucketTagging",
    "DeleteObjectAnnotation",
    "GetBucketAbac",
    "GetBucketMetadataConfiguration",
    "GetBucketTagging",
    "GetObjectAnnotation",
    "ListDirectoryBuckets",
    "ListObjectAnnotations",
    "PutBucketAbac",
    "PutBucketTagging",
    "PutObjectAnnotation",
    "RenameObject",
    "UpdateBucketMetadataAnnotationTableConfiguration",
    "UpdateBucketMetadataInventoryTableConfiguration",
    "UpdateBucketMetadataJournalTableConfiguration",
    "UpdateObjectEncryption",
    "WriteGetObjectResponse",
}
