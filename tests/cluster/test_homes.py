"""Clients that know the homes of keys: `GET /api/v1/cluster/homes`, and `forebay-bench --cluster`."""

from harness.bench import Bench

BUCKET = "homes"


def test_requests_of_clients_that_know_the_homes_are_not_passed_on(cluster, three, tmp_path):
    workers = cluster.workers
    told = [worker.ask("cluster/homes") for worker in workers]
    assert told[0] == told[1] == told[2]
    assert {found["id"]: found["s3Address"] for found in told[0]["workers"]} == {worker.name: f"127.0.0.1:{worker.port}" for worker in workers}
    assert len(told[0]["homes"]) == 1024 and set(told[0]["homes"]) == {0, 1, 2}

    bench = Bench(workers[0], tmp_path)

    def passed_on(*hosts):
        """How many requests for 100 keys, each written and read."""
        before = sum(forwarded(worker) for worker in workers)
        words = ["--bucket", BUCKET, "--objects", 100, "--obj.size", "1KiB", "--duration", "1s", "--concurrent", 3, "--noclear", *hosts]
        done = bench.run("get", *words)
        assert done.returncode == 0, done.stderr
        return sum(forwarded(worker) for worker in workers) - before

    assert passed_on("--host", ",".join(worker.endpoint for worker in workers)) > 50
    assert passed_on("--cluster", workers[1].admin) == 0


def forwarded(worker):
    return sum(value for name, value in worker.metrics().items() if name.startswith("forebay_requests_total") and 'operation="Forwarded"' in name)


def test_a_worker_that_has_no_cluster_is_named(cluster, three, tmp_path):
    bench = Bench(cluster.workers[0], tmp_path)
    assert "--cluster" in bench.refused("get", "--cluster", "127.0.0.1:1", code=1)
    assert "status 4" in bench.refused("get", "--cluster", cluster.workers[0].endpoint, code=1)
    assert "cannot be used with" in bench.refused("get", "--cluster", "127.0.0.1:1", "--host", "127.0.0.1:2")
