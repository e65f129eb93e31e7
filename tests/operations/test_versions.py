"""Versions that an S3 server behind the cache keeps: what removes one passes through, and changes what clients get."""

import pytest

from harness.clients import boto, refused
from harness.servers import Forebay, S3Server


class VersionedServer(S3Server):
    def command(self):
        versions = self.objects.parent / "versions"
        versions.mkdir(exist_ok=True)
        *words, objects = super().command()
        return [*words, "--versioning-dir", str(versions), objects]


@pytest.fixture(params=["WRITE_BACK", "WRITE_THROUGH"])
def pair(request, tmp_path):
    behind = VersionedServer(tmp_path / "s3").start()
    # Long enough that nothing but the request itself makes the cache look again.
    config = '[[policy]]\npath = "/"\nmetadataTtl = "1 h"\n'
    forebay = Forebay(tmp_path / "forebay", mode=request.param, behind=behind, config=config).start()
    yield behind, forebay
    for server in (forebay, behind):
        server.kill()


def test_a_version_that_is_removed_shows_the_one_before(pair):
    behind, forebay = pair
    s3, direct = boto(forebay), boto(behind)
    s3.create_bucket(Bucket="versioned")
    s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})

    def write(body):
        s3.put_object(Bucket="versioned", Key="key", Body=body)
        forebay.wait_until_drained()
        assert s3.get_object(Bucket="versioned", Key="key")["Body"].read() == body

    def versions():
        return direct.list_object_versions(Bucket="versioned", Prefix="key").get("Versions", [])

    def remove_newest():
        (newest,) = [each["VersionId"] for each in versions() if each["IsLatest"]]
        s3.delete_object(Bucket="versioned", Key="key", VersionId=newest)

    write(b"first")
    write(b"second")
    assert len(versions()) == 2
    remove_newest()
    assert s3.get_object(Bucket="versioned", Key="key")["Body"].read() == b"first"
    write(b"third")
    assert direct.get_object(Bucket="versioned", Key="key")["Body"].read() == b"third"
    remove_newest()
    remove_newest()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="versioned", Key="key")
    # And the marker of a delete, without which the object is back.
    write(b"fourth")
    s3.delete_object(Bucket="versioned", Key="key")
    forebay.wait_until_drained()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="versioned", Key="key")
    (marker,) = direct.list_object_versions(Bucket="versioned", Prefix="key")["DeleteMarkers"]
    s3.delete_object(Bucket="versioned", Key="key", VersionId=marker["VersionId"])
    assert s3.get_object(Bucket="versioned", Key="key")["Body"].read() == b"fourth"
    # Where a marker stands, versitygw refuses what is to be written only if nothing is there.
    s3.delete_object(Bucket="versioned", Key="key")
    forebay.wait_until_drained()
    write(b"fifth")
    assert direct.get_object(Bucket="versioned", Key="key")["Body"].read() == b"fifth"
    assert forebay.metrics()["forebay_conflict_objects"] == 0


def test_what_the_cache_notes_at_an_object_is_not_shown(pair):
    """Of a version that passes through, either: it is our own metadata (docs/under-stores.md)."""
    behind, forebay = pair
    s3, direct = boto(forebay), boto(behind)
    s3.create_bucket(Bucket="versioned")
    s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"first", b"second"):
        s3.put_object(Bucket="versioned", Key="key", Body=body, Metadata={"x": "y"})
        forebay.wait_until_drained()
    versions = [each["VersionId"] for each in direct.list_object_versions(Bucket="versioned")["Versions"]]
    assert len(versions) == 2
    for version in versions:
        named = {"Bucket": "versioned", "Key": "key", "VersionId": version}
        assert "forebay-stamp" in direct.head_object(**named)["Metadata"]
        for read in (s3.head_object, s3.get_object):
            assert read(**named)["Metadata"] == {"x": "y"}, version
    error = refused("NoSuchVersion|InvalidArgument", s3.get_object, Bucket="versioned", Key="key", VersionId="0" * 26)["Error"]
    assert error["Message"] in ("The specified version does not exist.", "Invalid version id specified"), error
    error = refused("InvalidArgument", s3.get_object, Bucket="versioned", Key="key", VersionId="no id")["Error"]
    assert (error["Message"], error["ArgumentName"], error["ArgumentValue"]) == ("Invalid version id specified", "versionId", "no id")
    s3.delete_object(Bucket="versioned", Key="key")
    forebay.wait_until_drained()
    (marker,) = direct.list_object_versions(Bucket="versioned")["DeleteMarkers"]
    error = refused("MethodNotAllowed", s3.get_object, Bucket="versioned", Key="key", VersionId=marker["VersionId"])["Error"]
    assert (error["Method"], error["ResourceType"]) == ("GET", "DeleteMarker"), error


def test_a_list_of_versions_is_deleted_as_one_version_is(pair):
    behind, forebay = pair
    s3, direct = boto(forebay), boto(behind)
    s3.create_bucket(Bucket="versioned")
    s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"first", b"second", b"third"):
        s3.put_object(Bucket="versioned", Key="key", Body=body)
        forebay.wait_until_drained()
    s3.delete_object(Bucket="versioned", Key="key")
    forebay.wait_until_drained()
    there = direct.list_object_versions(Bucket="versioned")
    (marker,) = [each["VersionId"] for each in there["DeleteMarkers"]]
    kept = direct.get_object(Bucket="versioned", Key="key", VersionId=there["Versions"][-1]["VersionId"])["Body"].read()
    wanted = [marker, *(each["VersionId"] for each in there["Versions"][:-1])]
    listed = [{"Key": "key", "VersionId": version} for version in wanted]
    answer = s3.delete_objects(Bucket="versioned", Delete={"Objects": listed})
    assert "Errors" not in answer, answer["Errors"]
    assert sorted(each["VersionId"] for each in answer["Deleted"]) == sorted(wanted)
    assert [each["VersionId"] for each in answer["Deleted"] if each.get("DeleteMarker")] in ([marker], [])
    left = direct.list_object_versions(Bucket="versioned")
    assert [each["VersionId"] for each in left["Versions"]] == [there["Versions"][-1]["VersionId"]] and "DeleteMarkers" not in left
    assert s3.get_object(Bucket="versioned", Key="key")["Body"].read() == kept
