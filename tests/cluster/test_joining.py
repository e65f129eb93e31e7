"""What joins a cluster, and what is refused with one clear line."""

import os
import secrets
import subprocess
import threading
from pathlib import Path

from harness.cluster import CONFIG, LEASE_SECONDS, Cluster, Worker, wait_until_shared
from harness.faults import Clock
from harness.relay import Relay
from harness.servers import eventually, free_port

SECONDS = 60


def ended(worker):
    """The exit code of a start that is refused, and its last line."""
    environment = os.environ | worker.environment()
    done = subprocess.run(worker.command(), env=environment, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stderr.strip().splitlines()[-1]


def refused(worker, *words, code=2):
    found, line = ended(worker)
    assert found == code and all(word in line for word in words), (found, line)


def key_file(cluster, text=None):
    file = cluster.directory / f"key-{secrets.token_hex(4)}"
    file.write_text(text or secrets.token_hex(32))
    return ["--cluster-key-file", str(file)]


def test_settings_that_make_no_cluster_are_refused(cluster):
    for more, words in [
        (["--cluster-engine", "http://127.0.0.1:2379"], ["--cluster-engine", "must be etcd://HOST:PORT"]),
        (["--cluster-engine", "etcd://127.0.0.1"], ["--cluster-engine", "must be etcd://HOST:PORT"]),
        (["--cluster-engine", "etcd://"], ["--cluster-engine", "must be etcd://HOST:PORT"]),
        (["--cluster-name", "a b"], ["--cluster-name", "letters"]),
        (["--worker-id", "a/b"], ["--worker-id", "letters"]),
        (["--cluster-advertise", "here"], ["--cluster-advertise", "HOST:PORT"]),
        (["--cluster-listen", "0.0.0.0:0"], ["--cluster-listen", "set cluster.advertise"]),
        (key_file(cluster, "short"), ["cluster.key_file", "32 to 4096 characters", "openssl rand -hex 32"]),
        (["--cluster-key-file", "/none"], ["cluster.key_file", "No such file"]),
    ]:
        worker = cluster.worker("w1")
        # A flag is given once.
        command = worker.command()
        for flag, value in zip(more[::2], more[1::2]):
            if flag in command:
                command[command.index(flag) + 1] = value
            else:
                command += [flag, value]
        worker.command = lambda command=command: command
        refused(worker, *words)


def test_workers_of_a_cluster_need_the_same_root_keys(cluster):
    worker = cluster.worker("w1")
    worker.environment = lambda: {}
    refused(worker, "FOREBAY_ROOT_ACCESS_KEY")


def test_an_engine_that_does_not_answer_is_named(cluster):
    worker = cluster.worker("w1")
    cluster.etcd.port = free_port()
    refused(worker, "cluster.engine", str(cluster.etcd.port))


def test_a_worker_that_has_joined_before_waits_for_the_engine(cluster):
    worker = cluster.worker("w1")
    worker.start()
    assert worker.stop() == 0
    cluster.etcd.kill()
    waiting = threading.Thread(target=worker.start)
    waiting.start()
    eventually("a worker that waits", lambda: "waiting for the engine" in worker.log.read_text())
    cluster.etcd.start()
    waiting.join()
    wait_until_shared([worker])


def test_two_processes_do_not_have_one_name(cluster):
    cluster.worker("w1").start()
    twin = cluster.worker("w1")
    twin.directory = cluster.directory / "twin"
    twin.data = twin.directory / "data"
    refused(twin, "another process is worker w1", code=1)


def test_a_key_is_that_of_the_cluster(cluster):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    first.start()
    second.more = key_file(cluster)
    refused(second, "cluster.key_file", "not the key of cluster lake")
    second.more = []
    second.start()
    wait_until_shared([first, second])


def test_a_cluster_with_a_key_file_takes_nobody_without_it(cluster):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    first.more = key_file(cluster)
    first.start()
    refused(second, "cluster.key_file", "give its key")
    second.more = first.more
    second.start()
    wait_until_shared([first, second])


def rekey(cluster, key, *more):
    """The exit code, and what it says."""
    command = [Worker.binary, "cluster", "rekey", "--cluster-engine", cluster.etcd.engine, "--cluster-name", cluster.name, *key, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    said = done.stdout + done.stderr
    assert not any(Path(file).read_text() in said for file in key[1::2])
    return done.returncode, said


def test_the_key_is_replaced_while_no_worker_runs(cluster):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    key, other = key_file(cluster), key_file(cluster)
    first.start()
    wait_until_shared([first])
    first.s3().create_bucket(Bucket="kept")
    first.s3().put_object(Bucket="kept", Key="key", Body=b"value")
    code, said = rekey(cluster, key)
    assert code == 1 and "worker w1 runs: stop all workers" in said, said
    assert first.stop() == 0
    # Until now, etcd has kept one.
    assert rekey(cluster, key)[0] == 0
    refused(first, "cluster.key_file", "give its key")
    first.more = second.more = key
    first.start()
    second.start()
    wait_until_shared([first, second])

    second.kill()
    assert first.stop() == 0
    code, said = rekey(cluster, other)
    assert code == 2 and "--old-key-file: give" in said, said
    code, said = rekey(cluster, other, "--old-key-file", other[1])
    assert code == 2 and "--old-key-file: this is not the key of cluster lake" in said, said
    # The lease of the worker that was killed is waited for.
    assert rekey(cluster, other, "--old-key-file", key[1])[0] == 0
    refused(first, "cluster.key_file", "not the key of cluster lake")
    first.more = second.more = other
    first.start()
    second.start()
    wait_until_shared([first, second])
    assert second.s3().get_object(Bucket="kept", Key="key")["Body"].read() == b"value"


def test_data_directories_stay_with_their_catalog(cluster, tmp_path):
    """A worker that read another catalog would take everything for leftovers."""
    member, alone = cluster.worker("w1"), cluster.worker("w2")
    member.start()
    assert member.stop() == 0
    with_cluster, without = member.command(), super(type(member), member).command()
    member.command = lambda: without
    refused(member, "store.data_dirs", "a worker of a cluster")
    other = Cluster(tmp_path / "other")
    try:
        member.command = lambda: [word.replace(cluster.etcd.engine, other.etcd.engine) for word in with_cluster]
        refused(member, "store.data_dirs", "another cluster")
    finally:
        other.close()
    joining = alone.command
    alone.command = super(type(alone), alone).command
    alone.start()
    alone.kill()
    alone.command = joining
    refused(alone, "store.data_dirs", "without a cluster")
    # The id of a directory that was retired long ago may stay in the configuration.
    alone.more = ["--forget-directory", "0123456789abcdef"]
    refused(alone, "store.data_dirs", "without a cluster")
    member.command = lambda: with_cluster
    member.start()


def test_a_clock_that_is_far_off_is_refused(cluster, tmp_path):
    first, second = cluster.worker("w1"), cluster.worker("w2")
    first.start()
    clock, variables = Clock(tmp_path), second.environment
    second.environment = lambda: variables() | clock.variables()
    clock.move(-100)
    refused(second, "this machine's clock is", "s behind worker w1's", "NTP")
    assert [worker["id"] for worker in first.ask("cluster")["workers"]] == ["w1"], "nothing is half joined"
    clock.move(100)
    refused(second, "this machine's clock is", "s ahead of worker w1's")
    clock.move(10)
    second.start()
    wait_until_shared([first, second])
    # It has bytes now that others may want.
    assert second.stop() == 0
    clock.move(100)
    second.start()
    wait_until_shared([first, second])


def test_a_worker_with_another_under_store_does_not_join(cluster, tmp_path):
    """What it acknowledges would be found by nobody once it is gone."""
    first, second = cluster.worker("w1"), cluster.worker("w2")
    first.start()
    second.under = tmp_path / "other"
    second.under.mkdir()
    refused(second, "worker w1 of this cluster runs with another value of under_store.url")
    second.under = cluster.under
    assert [worker["id"] for worker in first.ask("cluster")["workers"]] == ["w1"], "nothing is half joined"
    # One that was killed can't tell that it has stopped.
    first.kill()
    (tmp_path / "logs").mkdir()
    second.config.write_text(f'{second.config.read_text()}[mounts]\nlogs = "file://{tmp_path}/logs"\n')
    second.start()
    refused(first, "worker w2 of this cluster runs with another value of mounts", "stop all workers first")
    first.config.write_text(second.config.read_text())
    first.start()
    wait_until_shared([first, second])


def test_workers_may_reach_one_under_store_by_different_addresses_if_they_say_so(cluster, under_store):
    relay = Relay(under_store)
    first, second = cluster.worker("w1", behind=under_store), cluster.worker("w2", behind=relay)
    try:
        first.start()
        refused(second, "another value of the endpoint of under_store.url", "cluster.compare_endpoints = false")
        second.config.write_text(CONFIG.format(lease=LEASE_SECONDS) + "compare_endpoints = false\n")
        second.start()
        wait_until_shared([first, second])
    finally:
        relay.close()
