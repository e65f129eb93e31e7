"""A configuration with mounts alone, as the README shows it: there are the buckets of the mounts and no others."""

import os
import subprocess

from harness.clients import boto, refused
from harness.servers import Forebay


class MountsOnly(Forebay):
    """Without `--under-store`."""

    def command(self):
        words = super().command()
        at = words.index("--under-store")
        return words[:at] + words[at + 2 :]

    def start(self):
        # Where a default under store would be made.
        here = os.getcwd()
        os.chdir(self.directory)
        try:
            return super().start()
        finally:
            os.chdir(here)


def test_no_bucket_comes_about_beside_the_mounts(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    server = MountsOnly(tmp_path / "server", config=f'[mounts]\nlake = "file://{place}"\n').start()
    try:
        s3 = boto(server)
        s3.put_object(Bucket="lake", Key="key", Body=b"x")
        assert (place / "key").read_bytes() == b"x"
        error = refused("AccessDenied", s3.create_bucket, Bucket="laek")
        assert "under_store.url" in error["Error"]["Message"], error
        refused("NoSuchBucket", s3.put_object, Bucket="laek", Key="key", Body=b"x")
        assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == ["lake"]
        assert not (server.directory / "forebay-under-store").exists()
    finally:
        assert server.stop() == 0


def test_what_waits_for_the_under_store_of_an_earlier_start_refuses_one_without(tmp_path):
    quick_stop = '[cache]\ndrain_timeout = "100 ms"\n'
    server = MountsOnly(tmp_path / "server", mode="WRITE_BACK", config=quick_stop).start()
    s3 = boto(server)
    default = server.directory / "forebay-under-store"
    for bucket in ("logs", "photos"):
        s3.create_bucket(Bucket=bucket)
    # So that nothing gets there.
    default.rename(tmp_path / "away")
    for bucket in ("logs", "photos"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"x" * 1024)
    assert server.stop() == 0
    (tmp_path / "away").rename(default)

    place = tmp_path / "place"
    place.mkdir()
    mounts = quick_stop + f'[mounts]\nlake = "file://{place}"\n'
    server.config.write_text(mounts)
    keys = os.environ | server.environment()
    done = subprocess.run(server.command(), cwd=server.directory, env=keys, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    for part in ("under_store.url", "2 objects (2 KiB)", "logs, photos", "forebay-under-store", "forebay status"):
        assert part in line, line

    server.config.write_text(f'{mounts}[under_store]\nurl = "file://{default}"\n')
    server.start()
    try:
        assert boto(server).get_object(Bucket="photos", Key="key")["Body"].read() == b"x" * 1024
        server.wait_until_drained()
    finally:
        server.kill()
    server.config.write_text(mounts)
    server.start()
    assert server.stop() == 0


def test_the_default_under_store_is_named_when_it_cannot_be_made(tmp_path):
    (tmp_path / "forebay-under-store").write_text("a file in its place")
    done = subprocess.run(
        [str(Forebay.binary), "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", "data", "--size", "64 MiB"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    line = done.stderr.splitlines()[-1]
    assert "under_store" in line and str(tmp_path / "forebay-under-store") in line, done.stderr


def test_keys_of_a_mount_come_from_files_and_open_ones_are_told(tmp_path, s3_server):
    boto(s3_server).create_bucket(Bucket="keys-from-files")
    files = {"access_key_file": s3_server.access_key, "secret_key_file": s3_server.secret_key}
    for name, key in files.items():
        (tmp_path / name).write_text(key + "\n")
        (tmp_path / name).chmod(0o600)
    named = "".join(f'{name} = "{tmp_path / name}"\n' for name in files)
    config = f'[mounts.lake]\nurl = "s3://keys-from-files?endpoint={s3_server.endpoint}&region=us-east-1"\n{named}'
    server = MountsOnly(tmp_path / "server", config=config).start()
    try:
        boto(server).put_object(Bucket="lake", Key="key", Body=b"x")
        assert boto(s3_server).get_object(Bucket="keys-from-files", Key="key")["Body"].read() == b"x"
    finally:
        server.kill()
    quick = [str(Forebay.binary), "doctor", "--quick", "--output", "json", "--config", str(server.config), "--data-dir", str(server.data)]
    found = lambda: subprocess.run(quick, capture_output=True, text=True, timeout=60).stdout  # noqa: E731
    assert "secrets-readable" not in found()
    (tmp_path / "secret_key_file").chmod(0o644)
    assert "secret_key_file" in found()
    (tmp_path / "secret_key_file").chmod(0o600)
    server.config.write_text('[server]\nroot_access_key = "root"\nroot_secret_key = "hunter2hunter2"\n')
    server.config.chmod(0o644)
    assert "secrets-readable" in found() and str(server.config) in found()
    server.config.chmod(0o600)
    assert "secrets-readable" not in found()
