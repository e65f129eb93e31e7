"""Fixtures: which server the client tests talk to, and a bucket of their own for each test."""

import itertools
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness.clients import boto  # noqa: E402
from harness.servers import DOMAIN, Forebay, S3Server  # noqa: E402

# Under store and write mode of each Forebay that client tests run against.
DEPLOYMENTS = [
    ("directory", "WRITE_THROUGH"),
    ("directory", "WRITE_BACK"),
    ("directory", "TRANSIENT"),
    ("directory", "NO_CACHE"),
    ("s3", "WRITE_THROUGH"),
    ("s3", "WRITE_BACK"),
    ("s3", "NO_CACHE"),
]
# For tests that name it: NO_CACHE before S3, and the other modes before a directory, leave little that only both together show.
NAMED_ONLY = ("directory", "NO_CACHE")
BUCKET_NUMBERS = itertools.count(1)


def pytest_addoption(parser):
    parser.addoption(
        "--against",
        choices=["forebay", "s3-server"],
        default="forebay",
        help="s3-server: run the client tests against the real S3 server itself, to check the tests",
    )
    parser.addoption("--console-images", action="store_true", help="write the pictures of docs/console.md anew")


def pytest_generate_tests(metafunc):
    if "server" in metafunc.fixturenames:
        reference = metafunc.config.getoption("--against") == "s3-server"
        wanted = metafunc.definition.get_closest_marker("deployments")
        if reference:
            deployments = [("reference", "NONE")]
        else:
            deployments = [each for each in DEPLOYMENTS if (each in wanted.args if wanted else each != NAMED_ONLY)]
        metafunc.parametrize("server", deployments, ids=["-".join(d) for d in deployments], indirect=True, scope="session")


def pytest_itemcollected(item):
    """With several processes (-n): all tests of one server, or of one file without it, run in the same."""
    server = getattr(item, "callspec", None) and item.callspec.params.get("server")
    item.add_marker(pytest.mark.xdist_group("-".join(server) if server else item.module.__name__))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    # One server after the other, and for each one client after the other: both are slow to start.
    params = lambda item: item.callspec.params if hasattr(item, "callspec") else {}  # noqa: E731
    order = {deployment: number for number, deployment in enumerate(DEPLOYMENTS)}
    items.sort(key=lambda item: (order.get(params(item).get("server"), -1), getattr(params(item).get("client"), "name", "")))
    if config.getoption("--against") == "s3-server":
        items[:] = [item for item in items if not item.get_closest_marker("beyond_reference")]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The real S3 server, for under stores."""
    server = S3Server(tmp_path_factory.mktemp("s3")).start()
    yield server
    server.kill()
    shutil.rmtree(server.directory)


@pytest.fixture(scope="session")
def server(request, tmp_path_factory):
    """The server that the client tests talk to: started for each deployment, stopped cleanly after its last test."""
    under_store, mode = request.param
    directory = tmp_path_factory.mktemp(f"{under_store}-{mode}")
    if under_store == "reference":
        started = S3Server(directory).start()
    else:
        behind = request.getfixturevalue("s3_server") if under_store == "s3" else None
        started = Forebay(directory, mode, behind, config=f'[server]\ndomain = "{DOMAIN}"\n').start()
    yield started
    code = started.stop()
    assert code == 0 or under_store == "reference", started.log.read_text()[-4000:]
    # What all its tests have stored.
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def s3(server):
    return boto(server)


@pytest.fixture
def bucket(s3):
    """A new, empty bucket."""
    name = f"test-bucket-{next(BUCKET_NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name
