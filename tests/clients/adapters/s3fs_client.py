"""s3fs: S3 for fsspec, and by it for pandas, Dask, xarray and Hugging Face datasets."""

from client import PROGRAMS, Program
from harness.servers import ROOT

# The environment that scripts/setup makes of programs/s3fs/requirements.txt.
INSTALLED = ROOT / ".tools" / "clients" / "s3fs"
PARTS = "uploads parts only within one call"


class S3fs(Program):
    name = "s3fs (fsspec)"
    lacks = {
        "put_with_unicode_metadata": "accepts ASCII only",
        "create_upload": PARTS,
        "upload_part": PARTS,
        "list_parts": PARTS,
        "complete_upload": PARTS,
        "post_form": "no call for it",
    }
    unnameable = {"trailing slash": "`rm` removes the slash"}

    def command(self):
        return [INSTALLED / "bin" / "python", PROGRAMS / "s3fs" / "main.py"]
