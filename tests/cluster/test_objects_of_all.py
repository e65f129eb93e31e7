"""What operators see of objects is the same through every worker."""

import itertools

from harness.cluster import answered, wait_until_shared
from harness.command_line import CommandLine
from harness.servers import eventually

BUCKET = "seen"
# What is written stays dirty.
SLOWLY = {"FOREBAY_UNDER_STORE_LIMITS_REQUESTS_PER_SECOND": "1"}


def seen(worker, *command):
    return CommandLine(worker).json(*command)


def test_every_worker_tells_what_the_homes_of_objects_know(cluster):
    workers = [cluster.worker(name, variables=SLOWLY) for name in ("w1", "w2", "w3")]
    for worker in workers:
        worker.start()
    wait_until_shared(workers)
    workers[0].s3().create_bucket(Bucket=BUCKET)
    CommandLine(workers[0]).text("policy", "set", f"/{BUCKET}/transient/", "--write-mode", "TRANSIENT")
    for worker in workers:
        eventually("the policy", lambda: f"/{BUCKET}/transient/" in [rule["path"] for rule in seen(worker, "policy", "get")])
    keys = [f"{kind}/{number:02}" for kind in ("dirty", "transient") for number in range(20)]
    for key, worker in zip(keys, itertools.cycle(workers)):
        answered(lambda: worker.s3().put_object(Bucket=BUCKET, Key=key, Body=key.encode(), Metadata={"is": key}))

    for worker in workers:
        listed = {found["key"]: found for kind in ("dirty", "transient") for found in seen(worker, "ls", f"s3://{BUCKET}/{kind}/")["objects"]}
        assert sorted(listed) == keys
        assert {found["state"] for key, found in listed.items() if key.startswith("transient/")} == {"transient"}
        # One a second gets to the under store meanwhile.
        assert sum(found["state"] == "dirty" for found in listed.values()) > 5
        assert all(found["cachedBytes"] == found["size"] for found in listed.values())
    for key in keys[20:26]:
        told = [seen(worker, "stat", f"s3://{BUCKET}/{key}") for worker in workers]
        assert told[0] == told[1] == told[2]
        assert (told[0]["state"], told[0]["size"], told[0]["userMetadata"]) == ("transient", len(key), {"is": key})
    for worker in workers:
        assert "does not exist" in CommandLine(worker).refused("stat", f"s3://{BUCKET}/transient/none")
