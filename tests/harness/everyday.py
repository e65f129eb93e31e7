"""Which tests run every day, and which only with --everything; and which run in the same process.

A client test is a case for each of its deployments. Every day each case runs in one of them, always the same, and the cases take
turns. What is marked `slow` waits for --everything.
"""

import zlib

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

# Directories with something else that is slow to start.
ONE_PROCESS = {"console"}

# Directories whose tests start servers of their own, and mostly wait for what these do by themselves. The longest tests are first.
WAITING = ["cluster", "faults", "operations"]


def deployments_of(definition):
    """The deployments that a client test is for."""
    wanted = definition.get_closest_marker("deployments")
    return [each for each in DEPLOYMENTS if (each in wanted.args if wanted else each != NAMED_ONLY)]


def params_of(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def server_of(item):
    """The deployment of a client test, or None."""
    return params_of(item).get("server")


def deployment_in(test_id):
    """The deployment that the id of a client test names, as it is written there, or None."""
    parameters = test_id.partition("[")[2]
    return next((name for name in map("-".join, DEPLOYMENTS) if name in parameters), None)


def case_of(test_id):
    """The id of a test without its deployment."""
    return test_id.replace(deployment_in(test_id) or "", "")


def turn(item):
    """Chooses the deployment of every day: a number that stays the same from run to run."""
    marker = item.get_closest_marker("turn")
    return marker.args[0] if marker else zlib.crc32(f"{item.module.__name__} {case_of(item.name)}".encode())


def is_everyday(item):
    if item.get_closest_marker("slow"):
        return False
    if server_of(item) is None or item.get_closest_marker("each_deployment"):
        return True
    deployments = deployments_of(item)
    return server_of(item) == deployments[turn(item) % len(deployments)]


def group_of(test_id):
    """What has to run in one process: all tests of a directory with one server, those with a browser, or those of a file."""
    file, deployment = test_id.partition("::")[0], deployment_in(test_id)
    directory = file.rpartition("/")[0]
    if deployment:
        return f"{directory} {deployment}"
    return directory if directory in ONE_PROCESS else test_id if directory == WAITING[0] else file


def waits(group):
    """The place of a group among those whose tests wait, or None: its tests need a processor."""
    directory = group.partition("/")[0]
    return WAITING.index(directory) if directory in WAITING else None
