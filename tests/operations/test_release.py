"""What scripts/dist makes, but for the build itself: the package with what it installs, and the list of what the binary is made of."""

import gzip
import json
import os
import re
import subprocess
import tomllib

import pytest

from harness.servers import ROOT, Forebay

TARGET = "x86_64-unknown-linux-musl"
EPOCH = "1000000000"


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, cwd=ROOT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(*options):
    return run("scripts/sbom", TARGET, "1.2.3", *options, env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH})


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package of the binary under test, unpacked: (its control files, its files)."""
    place = tmp_path_factory.mktemp("package")
    (place / "notices").write_text("licences\n")
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH, "FOREBAY_DEB_COMPRESSION": "none"}
    run("scripts/package-deb", Forebay.binary.resolve(), "1.2.3~4", place / "notices", place / "forebay.deb", env=environment)
    run("dpkg-deb", "--raw-extract", place / "forebay.deb", place / "files")
    return place / "files" / "DEBIAN", place / "files"


def test_the_package_installs_the_server_its_unit_and_its_documents(package):
    control, files = package
    assert re.search(r"^Version: 1\.2\.3~4$", (control / "control").read_text(), re.MULTILINE)
    assert (files / "usr/bin/forebay").stat().st_mode & 0o777 == 0o755
    assert (control / "conffiles").read_text() == "/etc/forebay/forebay.toml\n"
    assert "configuration is valid" in run(Forebay.binary.resolve(), "config", "check", "--config", files / "etc/forebay/forebay.toml")
    assert gzip.decompress((files / "usr/share/man/man1/forebay-serve.1.gz").read_bytes()).startswith(b".ie")
    assert "_forebay" in (files / "usr/share/bash-completion/completions/forebay").read_text()
    # Nothing in it is younger than the commit: the same sources make the same package.
    assert {path.stat().st_mtime for path in files.rglob("*") if path.is_file() and path.parent != control} == {int(EPOCH)}


def test_the_package_s_unit_is_that_of_the_repository_with_a_user_of_its_own(package, tmp_path):
    unit = (package[1] / "usr/lib/systemd/system/forebay.service").read_text()
    ours = (ROOT / "deploy/systemd/forebay.service").read_text()
    settings = [line for line in unit.splitlines() if not line.startswith("#")]
    changed = [line for line in ours.splitlines() if not line.startswith("#") and line not in settings]
    assert [line.split(" ")[0] for line in changed] == ["ExecStart=/usr/local/bin/forebay", "DynamicUser=yes"]
    assert [line for line in settings if line not in ours.splitlines()] == [changed[0].replace("/usr/local/bin", "/usr/bin"), "User=forebay"]
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", package[0] / script)
    assert "adduser" in (package[0] / "postinst").read_text()
    assert "rm -rf" not in (package[0] / "postrm").read_text(), "what the under store does not have yet is in /var/lib/forebay alone"


def test_every_crate_of_the_binary_is_listed_with_its_licence():
    found = json.loads(listed())
    assert (found["bomFormat"], found["metadata"]["timestamp"]) == ("CycloneDX", "2001-09-09T01:46:40Z")
    assert found["metadata"]["component"]["version"] == "1.2.3"
    by_name = {each["name"]: each for each in found["components"]}
    scopes = {name: by_name[name]["scope"] for name in ("tokio", "forebay-store", "aws-lc-sys", "musl", "rust-std", "serde_derive", "cc")}
    assert scopes == {name: "excluded" if name in ("serde_derive", "cc") else "required" for name in scopes}
    # Only tests use it.
    assert "proptest" not in by_name
    locked = {(each["name"], each["version"]): each.get("checksum") for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    for each in found["components"]:
        (licence,) = each["licenses"]
        assert re.fullmatch(r"[\w.() -]+", licence["expression"]), each
        checksum = locked.get((each["name"], each["version"]))
        assert [hashed["content"] for hashed in each.get("hashes", [])] == ([checksum] if checksum else []), each
    references = {each["bom-ref"] for each in [found["metadata"]["component"], *found["components"]]}
    assert {used for each in found["dependencies"] for used in each["dependsOn"]} | {found["metadata"]["component"]["bom-ref"]} == references
    assert str(ROOT) not in json.dumps(found)


def test_the_licence_texts_of_what_is_linked_go_along():
    notices = listed("--notices")
    for words in ("tokio 1.", "Copyright (c) Tokio Contributors", "libmimalloc-sys", "Daan Leijen", "musl (MIT)", "Unicode"):
        assert words in notices, words
    assert "forebay-store" not in notices and "serde_derive" not in notices
