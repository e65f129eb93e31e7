"""The fixtures of the tests of logs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from records import start_logged  # noqa: E402, F401
