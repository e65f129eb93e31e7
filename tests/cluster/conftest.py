"""Clusters of real workers."""

import pytest

from harness.cluster import Cluster, UnderStore, wait_until_shared


@pytest.fixture
def cluster(tmp_path):
    """A cluster without workers."""
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()


@pytest.fixture
def three(cluster):
    """The S3 clients of three workers, which share the slots."""
    workers = [cluster.worker(name) for name in ("w1", "w2", "w3")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    return [worker.s3() for worker in workers]


@pytest.fixture
def under_store(tmp_path):
    server = UnderStore(tmp_path / "under-store").start()
    yield server
    server.resume()
    server.kill()
