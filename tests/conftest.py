"""Fixtures: which server the client tests talk to, and a bucket of their own for each test."""

import itertools
import os
import pathlib
import shutil
import sys
import tempfile

import pytest
from xdist.scheduler import LoadScopeScheduling

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness.clients import boto  # noqa: E402
from harness.cluster import Front  # noqa: E402
from harness.everyday import DEPLOYMENTS, deployments_of, group_of, is_everyday, params_of, server_of, waits  # noqa: E402
from harness.servers import ACCOUNT, DOMAIN, Forebay, S3Server  # noqa: E402

# Client tests ask what is answered and not what a disk does. The servers of two processes hold less than this.
MEMORY, MEMORY_BYTES_MIN = pathlib.Path("/dev/shm"), 8 << 30
BUCKET_NUMBERS = itertools.count(1)


def pytest_addoption(parser):
    parser.addoption(
        "--against",
        choices=["forebay", "cluster", "s3-server"],
        default="forebay",
        help="cluster: run the client tests against three workers behind a load balancer; s3-server: against the real S3 server itself, to check the tests",
    )
    parser.addoption(
        "--everything",
        action="store_true",
        help="run the slow tests too, and each client test against all of its deployments instead of one",
    )
    parser.addoption("--console-images", action="store_true", help="update the pictures of docs/console.md")


def is_reference(config):
    return config.getoption("--against") == "s3-server"


def pytest_generate_tests(metafunc):
    if "server" in metafunc.fixturenames:
        deployments = deployments_of(metafunc.definition)
        if is_reference(metafunc.config):
            deployments = [("reference", "NONE")]
        elif metafunc.config.getoption("--against") == "cluster":
            deployments = [("cluster", "WRITE_BACK")] if ("directory", "WRITE_BACK") in deployments else []
        metafunc.parametrize("server", deployments, ids=["-".join(d) for d in deployments], indirect=True, scope="session")


class Groups(LoadScopeScheduling):
    """Deals tests to several processes (-n) in groups: pytest 9.2 ignores what `--dist loadgroup` of xdist 3.8 does.

    Every second process begins with tests that wait, and the others with tests that need a core: side by side, they take less time
    than one kind after the other.
    """

    def _split_scope(self, nodeid):
        return group_of(nodeid)

    def _assign_work_unit(self, node):
        begins_with_waiting = self.nodes.index(node) % 2 == 0
        groups = [group for group in self.workqueue if (waits(group) is not None) == begins_with_waiting]
        if groups:
            self.workqueue.move_to_end(min(groups, key=lambda group: waits(group) or 0), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if is_reference(config):
        items[:] = [item for item in items if not item.get_closest_marker("beyond_reference")]
    elif config.getoption("--against") == "forebay" and not config.getoption("--everything"):
        config.hook.pytest_deselected(items=[item for item in items if not is_everyday(item)])
        items[:] = [item for item in items if is_everyday(item)]
    # One server after the other, and for each one client after the other: both are slow to start.
    order = {deployment: number for number, deployment in enumerate(DEPLOYMENTS)}
    items.sort(key=lambda item: (order.get(server_of(item), -1), getattr(params_of(item).get("client"), "name", "")))


def pytest_terminal_summary(terminalreporter, config):
    if not (is_reference(config) or config.getoption("--everything")):
        terminalreporter.write_line("These are the tests of every day. All run with --everything.")


def is_roomy(directory):
    """Whether it has room for all that client tests store, and the attributes that the S3 server keeps with its files."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            os.setxattr(file.name, "user.forebay", b"x")
        return shutil.disk_usage(directory).free >= MEMORY_BYTES_MIN
    except OSError:
        return False


@pytest.fixture(scope="session")
def new_directory(tmp_path_factory):
    """Makes directories in memory where that is possible: a sync costs nothing there, nor does removing what was synced."""
    if is_roomy(MEMORY):
        return lambda name: pathlib.Path(tempfile.mkdtemp(prefix=f"forebay-test-{name}-", dir=MEMORY))
    return tmp_path_factory.mktemp


@pytest.fixture(scope="session")
def s3_server(new_directory):
    """The real S3 server, for under stores."""
    server = S3Server(new_directory("s3")).start()
    yield server
    server.kill()
    shutil.rmtree(server.directory)


@pytest.fixture(scope="session")
def server(request, new_directory):
    """The server that the client tests talk to: started for each deployment, stopped cleanly after its last test."""
    under_store, mode = request.param
    directory = new_directory(f"{under_store}-{mode}")
    if under_store == "reference":
        started = S3Server(directory).start()
    elif under_store == "cluster":
        started = Front(directory, mode, f'[server]\ndomain = "{DOMAIN}"\naccount_id = "{ACCOUNT}"\n').start()
    else:
        behind = request.getfixturevalue("s3_server") if under_store == "s3" else None
        started = Forebay(directory, mode, behind, config=f'[server]\ndomain = "{DOMAIN}"\naccount_id = "{ACCOUNT}"\n').start()
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
