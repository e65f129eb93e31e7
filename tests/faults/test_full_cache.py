"""A cache that is full and busy: nothing is refused while data can leave it. `make bench BENCH=full` measures how long requests take."""

import concurrent.futures

import pytest
from harness.bench import Bench
from harness.servers import Bare, Forebay

SIZE = 512 << 20
CONFIG = """
[store]
size = "512 MiB"

[[policy]]
path = "/kept"
writeMode = "TRANSIENT"
"""
LOADS = {
    "put": ("--bucket", "bench", "--obj.size", "10KiB", "--rate", 100),
    "get": ("--bucket", "bench", "--obj.size", "256KiB", "--rate", 100, "--keys", "zipf", "--objects", 5_000, "--prepared"),
    "list": ("--bucket", "kept", "--rate", 5, "--prepared"),
    "multipart": ("--bucket", "bench", "--obj.size", "16MiB", "--part.size", "5MiB", "--rate", 1, "--prefix", "parts/"),
}


@pytest.mark.slow("a cache must be filled, and used for a while")
def test_a_mixed_load_on_a_full_cache_meets_no_refusal(tmp_path):
    behind = Bare(tmp_path / "behind", "--delay", "5ms", "--obj.size", "256KiB").start()
    server = Forebay(tmp_path / "server", mode="WRITE_BACK", behind=behind, config=CONFIG).start()
    try:
        bench = Bench(server, tmp_path)
        run(bench, "put", "--bucket", "kept", "--obj.size", "1B", "--duration", "1s")
        run(bench, "put", "--bucket", "bench", "--obj.size", "1MiB", "--rate", 60, "--duration", "12s", "--prefix", "before/")
        before = server.metrics()["forebay_store_reclaimed_segments_total"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = [pool.submit(run, bench, name, *words, "--duration", "15s") for name, words in LOADS.items()]
            for load in running:
                load.result()
        assert server.metrics()["forebay_store_reclaimed_segments_total"] > before + 2, "it was not full"
        server.wait_until_drained()
    finally:
        server.stop()
        behind.stop()
    assert sum(file.stat().st_size for file in server.data.iterdir()) <= SIZE


def run(bench, name, *words):
    """Fails when an operation does."""
    done = bench.run(name, "--host", bench.server.endpoint, "--noclear", *words)
    assert done.returncode == 0, (name, done.stdout, done.stderr)
