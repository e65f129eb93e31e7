"""Fixtures of the client tests: each client against each server, once connected for all scenarios."""

import functools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from adapters import CLIENTS  # noqa: E402
from harness.fill import fill  # noqa: E402
from scenarios import SCENARIOS, Scene, many_keys, missing_calls  # noqa: E402


def clients_of(scenario):
    """The clients that run a scenario."""
    _, needs, _ = SCENARIOS[scenario]
    return [client for client in CLIENTS if scenario not in client.lacks and not missing_calls(client, needs)]


def pytest_generate_tests(metafunc):
    if "scenario" in metafunc.fixturenames:
        # The clients of a scenario take turns: together they meet every deployment.
        cases = [
            pytest.param(client, name, id=f"{client.__name__}-{name}", marks=pytest.mark.turn(first + number))
            for first, name in enumerate(SCENARIOS)
            for number, client in enumerate(clients_of(name))
        ]
        metafunc.parametrize("client,scenario", cases, indirect=["client"], scope="session")
    elif "client" in metafunc.fixturenames:
        cases = [pytest.param(client, id=client.__name__) for client in CLIENTS]
        metafunc.parametrize("client", cases, indirect=True, scope="session")


@pytest.fixture(scope="session")
def client(request, server, tmp_path_factory):
    """A client of CLIENTS, connected to the server of the test."""
    connected = request.param(server, tmp_path_factory.mktemp(request.param.__name__))
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def many(server, s3):
    """A bucket with 10,000 objects, which nobody changes.

    A mode that writes to the under store at once finds them there: the listings are the same, and take half a minute less.
    """
    s3.create_bucket(Bucket="many-objects")
    mode, behind = getattr(server, "mode", None), getattr(server, "behind", None)
    if mode not in ("WRITE_THROUGH", "NO_CACHE"):
        fill(server, "many-objects", many_keys())
    elif behind is not None:
        fill(behind, "many-objects", many_keys())
    else:
        for key in many_keys():
            file = server.under / "many-objects" / key
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"filled")
    return "many-objects"


@pytest.fixture
def scene(request, server, client, s3, bucket, tmp_path):
    many = functools.partial(request.getfixturevalue, "many")
    return Scene(client, s3, functools.partial(fill, server), bucket, many, tmp_path)
