"""Every client runs every scenario that it has the calls for, in each write mode, with its default settings."""

import pytest

from scenarios import SCENARIOS
from versions import pinned


@pytest.mark.deployments(
    ("directory", "WRITE_THROUGH"),
    ("directory", "WRITE_BACK"),
    ("directory", "TRANSIENT"),
    ("s3", "NO_CACHE"),
)
def test_scenario(scene, scenario):
    _, _, run = SCENARIOS[scenario]
    run(scene)


@pytest.mark.deployments(("directory", "WRITE_BACK"))
def test_version(client):
    """The one that runs is the one that is pinned and published."""
    assert pinned(type(client).__name__) in client.version()
