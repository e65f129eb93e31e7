"""An under store whose answers leave open what was done: objects arrive whole and in their order, and nobody else's are lost."""

import itertools
import random
import urllib.parse

import pytest

from harness import stand_in
from harness.clients import boto, refused
from harness.servers import Forebay, S3Server, eventually
from harness.stand_in import StandIn, answers, error, page

# In one piece, gathered in memory or streamed; and in two parts.
SMALL, STREAMED, IN_PARTS = 1_000, 2 << 20, 6 << 20
PARTS = 'multipart_threshold = "5 MiB"\npart_size = "5 MiB"\n'
CONFIG = f"""
[cache]
settle_time = "1 s"
persist_backoff_min = "100 ms"
persist_backoff_max = "500 ms"
[under_store_limits]
circuit_pause_max = "1 s"
[under_store_s3]
{PARTS}
"""
# Requests without an answer are waited for longer than there is between tries.
PATIENT = {"FOREBAY_CACHE_SETTLE_TIME": "3 s", "FOREBAY_CACHE_PERSIST_BACKOFF_MAX": "200 ms"}
BACKOFF_MAX_MS = 200
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def front(s3_server):
    made = StandIn(s3_server)
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory, front):
    """For tests that stop nothing."""
    server = Forebay(tmp_path_factory.mktemp("under-store"), "WRITE_BACK", front, CONFIG).start()
    server.bucket = "under-store"
    boto(server).create_bucket(Bucket=server.bucket)
    yield server
    server.kill()


@pytest.fixture
def own_front(s3_server):
    made = StandIn(s3_server)
    yield made
    made.close()


class Place:
    """The keys of one test on both sides: here, and in the under store past the stand-in."""

    def __init__(self, server, front):
        self.server, self.front, self.bucket = server, front, server.bucket
        self.here, self.there = boto(server), boto(front.behind)
        self.prefix = f"test-{next(NUMBERS)}/"

    def key(self, name):
        return self.prefix + name

    def put(self, key, body):
        self.here.put_object(Bucket=self.bucket, Key=key, Body=body)

    def delete(self, key):
        self.here.delete_object(Bucket=self.bucket, Key=key)

    def put_there(self, key, body):
        self.there.put_object(Bucket=self.bucket, Key=key, Body=body)

    def persisted(self, key, body):
        """Writes, and waits until the under store has it: what is there is known from then on."""
        self.put(key, body)
        self.wait_until_clean(key)
        return key

    def detail(self, key):
        return self.server.ask("objects/detail?" + urllib.parse.urlencode({"path": f"/{self.bucket}/{key}"}))

    def wait_until_clean(self, key, seconds=30):
        state = eventually(f"{key} persisted", lambda: (state := self.detail(key)["state"]) != "dirty" and state, seconds)
        assert state == "clean", key

    def stored(self, key):
        """The generations that the under store got, in their order."""
        return [generation for operation, generation in self.front.changes(key) if operation in ("put", "complete")]

    def let_it_follow(self, key, act):
        """Writes the key again, and waits until that write is kept back, or is done although it should not be."""
        act()
        done = lambda: (detail := self.detail(key))["state"] == "clean" or detail.get("nextTryInMs", 0) > BACKOFF_MAX_MS  # noqa: E731
        eventually("what follows waits", done)

    def read(self, s3, key):
        try:
            return s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None

    def check(self, key, body):
        """Both sides have it, and every version got there once, after those before it."""
        assert self.read(self.there, key) == body, f"{key} there"
        assert self.read(self.here, key) == body, f"{key} here"
        generations = self.stored(key)
        assert generations == sorted(set(generations)), f"{key}: {generations}"

    def check_absent(self, key):
        assert self.read(self.there, key) is None and self.read(self.here, key) is None, key

    def uploads(self):
        """Incomplete ones in the under store."""
        listed = self.there.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix)
        return [upload["UploadId"] for upload in listed.get("Uploads", [])]


@pytest.fixture
def place(worker, front):
    yield Place(worker, front)
    for rule in front.rules:
        rule.release()


def content(name, size):
    return random.Random(name).randbytes(size)


def last_of_two(action):
    """For a part: no other request of its upload is in flight any more."""

    def when_last(exchange, rule):
        eventually("the other part", lambda: any(operation == "part" for operation, _ in exchange.stand_in.changes(exchange.key)))
        return action(exchange, rule)

    return when_last


CONFLICTS = answers(error(409, "ConditionalRequestConflict"))
FAILS = answers(error(500, "InternalError"))
IS_THROTTLED = answers(error(503, "SlowDown"))
# What may become of one request of an upload in parts, and whether it leaves nothing behind.
TURNS = {
    "the upload begins without an answer": ("begin", stand_in.is_applied_and_dropped, False),
    "the upload does not begin": ("begin", FAILS, True),
    "a part fails": ("part", last_of_two(FAILS), True),
    "a part is throttled": ("part", last_of_two(IS_THROTTLED), True),
    "a part is cut": ("part", last_of_two(stand_in.is_cut), True),
    "a part gets no answer": ("part", last_of_two(stand_in.is_applied_and_dropped), True),
    "a part gets another tag": ("part", last_of_two(stand_in.with_tag('"' + "0" * 32 + '"')), True),
    "a part gets no tag": ("part", last_of_two(stand_in.without("etag")), True),
    "a part comes after an abort": ("part", last_of_two(stand_in.is_aborted_first), True),
    "a part meets a gateway that knows of nothing": ("part", last_of_two(answers(page(404))), True),
    "the completion is done without an answer": ("complete", stand_in.is_applied_and_dropped, True),
    "the completion is done and its answer is cut": ("complete", stand_in.has_its_answer_cut, True),
    "the completion is done and is not known any more": (
        "complete",
        stand_in.is_applied_and_answered(error(404, "NoSuchUpload")),
        True,
    ),
    "the completion is done and an error says it is not": ("complete", stand_in.is_applied_and_answered(error(500, "InternalError")), True),
    "the completion comes after an abort": ("complete", stand_in.is_aborted_first, True),
    "the completion comes after an abort and is said to be done": ("complete", stand_in.is_aborted_first_and_forwarded, True),
    "the completion meets another write": ("complete", CONFLICTS, True),
    "the completion fails": ("complete", FAILS, False),
    "the completion fails in what looks like success": ("complete", answers(error(200, "InternalError")), False),
    "the completion is throttled": ("complete", IS_THROTTLED, True),
    "the completion is cut": ("complete", stand_in.is_cut, False),
}


@pytest.mark.parametrize("operation,action,leaves_nothing", TURNS.values(), ids=TURNS.keys())
def test_an_upload_in_parts_arrives_once_and_whole_whatever_becomes_of_one_request(place, front, operation, action, leaves_nothing):
    known = place.persisted(place.key("known"), b"before")
    bodies = {place.key("new"): content("new", IN_PARTS), known: content("known", IN_PARTS)}
    rules = [front.on(operation, action, key) for key in bodies]
    for key, body in bodies.items():
        place.put(key, body)
    for key, body in bodies.items():
        place.wait_until_clean(key)
        place.check(key, body)
    assert [rule.seen for rule in rules] == [1, 1]
    assert not (leaves_nothing and place.uploads())


PUT_TURNS = {
    "done without an answer": stand_in.is_applied_and_dropped,
    "done, and an error says it is not": stand_in.is_applied_and_answered(error(500, "InternalError")),
    "done without a tag": stand_in.without("etag"),
    "meets another write": CONFLICTS,
    "cut": stand_in.is_cut,
}


@pytest.mark.parametrize("action", PUT_TURNS.values(), ids=PUT_TURNS.keys())
def test_an_upload_in_one_piece_arrives_once_whatever_becomes_of_its_request(place, front, action):
    bodies = {}
    for size in (SMALL, STREAMED):
        known = place.persisted(place.key(f"known-{size}"), b"before")
        bodies |= {known: content("known", size), place.key(f"new-{size}"): content("new", size)}
    rules = [front.on("put", action, key) for key in bodies]
    for key, body in bodies.items():
        place.put(key, body)
    for key, body in bodies.items():
        place.wait_until_clean(key)
        place.check(key, body)
    assert [rule.seen for rule in rules] == [1] * len(bodies)


DELETE_TURNS = {
    "done without an answer": stand_in.is_applied_and_dropped,
    "done, and an error says it is not": stand_in.is_applied_and_answered(error(500, "InternalError")),
    "meets another write": CONFLICTS,
    "meets a gateway that knows of nothing": answers(page(404)),
    "meets a gateway that knows of nothing and says no more": answers(stand_in.Answer(404, (), b"")),
}


@pytest.mark.parametrize("action", DELETE_TURNS.values(), ids=DELETE_TURNS.keys())
def test_a_delete_is_done_before_it_is_forgotten(place, front, action):
    known = place.persisted(place.key("known"), b"before")
    never_read = place.key("never-read")
    place.put_there(never_read, b"theirs")
    rules = [front.on("delete", action, key) for key in (known, never_read)]
    for key in (known, never_read):
        place.delete(key)
    place.server.wait_until_drained()
    for key in (known, never_read):
        place.check_absent(key)
    assert [rule.seen for rule in rules] == [1, 1]


def test_an_object_that_others_wrote_with_the_metadata_of_ours_is_theirs(place):
    """A program that reads, changes and writes an object back sends the metadata that it has read, with Forebay's stamp."""
    ours, theirs = b"status=new ", b"status=done"
    key = place.persisted(place.key("key"), ours)
    before = place.here.head_object(Bucket=place.bucket, Key=key)["ETag"]
    metadata = place.there.head_object(Bucket=place.bucket, Key=key)["Metadata"]
    assert "forebay-stamp" in metadata
    place.there.put_object(Bucket=place.bucket, Key=key, Body=theirs, Metadata=metadata)
    asking = boto(place.server)
    asking.meta.events.register("before-sign.s3", lambda request, **_: request.headers.add_header("Cache-Control", "no-cache"))
    found = asking.get_object(Bucket=place.bucket, Key=key)
    there = place.there.head_object(Bucket=place.bucket, Key=key)
    assert (found["Body"].read(), found["ETag"], found["Metadata"]) == (theirs, there["ETag"], {})
    with pytest.raises(place.here.exceptions.ClientError, match="PreconditionFailed"):
        place.here.put_object(Bucket=place.bucket, Key=key, Body=b"mine", IfMatch=before)
    assert place.read(place.there, key) == theirs


@pytest.mark.parametrize("size,operation", [(SMALL, "put"), (STREAMED, "put"), (IN_PARTS, "complete")])
def test_what_others_write_before_an_upload_ends_stays_where_the_object_was_known_and_is_replaced_elsewhere(place, front, size, operation):
    known, unknown = place.persisted(place.key("known"), b"before"), place.key("unknown")
    ours = content("ours", size)
    conflicts = place.server.metrics()["forebay_conflict_objects"]
    for key in (known, unknown):
        front.on(operation, stand_in.comes_after(lambda exchange: place.put_there(exchange.key, b"theirs")), key)
        place.put(key, ours)
    place.wait_until_clean(unknown)
    place.check(unknown, ours)
    eventually("a conflict", lambda: place.detail(known)["state"] == "conflict")
    assert place.server.metrics()["forebay_conflict_objects"] == conflicts + 1
    assert (place.read(place.there, known), place.read(place.here, known)) == (b"theirs", ours)
    assert place.uploads() == []
    place.check(place.persisted(known, b"decided"), b"decided")
    assert place.server.metrics()["forebay_conflict_objects"] == conflicts


def test_what_somebody_writes_over_a_lost_answer_is_kept_where_it_was_known(place, front):
    """The object that is there is neither ours nor what was there before ours."""
    known = place.persisted(place.key("known"), b"before")

    def then_theirs(exchange, rule):
        exchange.forward()
        place.put_there(exchange.key, b"theirs")

    front.on("complete", then_theirs, known)
    ours = content("ours", IN_PARTS)
    place.put(known, ours)
    eventually("a conflict", lambda: place.detail(known)["state"] == "conflict")
    assert (place.read(place.there, known), place.read(place.here, known)) == (b"theirs", ours)
    place.persisted(known, b"decided")


LATE = {
    "nobody answers": None,
    "a gateway answers that it gave up": page(504),
    "a gateway answers that nobody is there": page(503),
}


@pytest.mark.parametrize("answer", LATE.values(), ids=LATE.keys())
def test_what_lands_late_is_followed_by_what_came_after_it(start, own_front, answer):
    """Contents return to what they were, so that no tag tells one from the other."""
    server = start(mode="WRITE_BACK", behind=own_front, more=PARTS, variables=PATIENT)
    place = Place(server, own_front)
    there = {}

    def lands_late(key, operation, act, then):
        rule = own_front.on(operation, stand_in.is_held(answer), key)
        act()
        eventually("a request that is held", lambda: rule.seen == 1)
        place.let_it_follow(key, then)
        rule.release()

    for size, operation in ((SMALL, "put"), (IN_PARTS, "complete")):
        first, second = content("first", size), content("second", size)
        key = place.persisted(place.key(f"returned-{size}"), first)
        lands_late(key, operation, lambda: place.put(key, second), lambda: place.put(key, first))
        there[key] = first
        key = place.persisted(place.key(f"created-again-{size}"), first)
        lands_late(key, "delete", lambda: place.delete(key), lambda: place.put(key, first))
        there[key] = first
        key = place.key(f"never-read-{size}")
        place.put_there(key, b"theirs")
        lands_late(key, "delete", lambda: place.delete(key), lambda: place.put(key, first))
        there[key] = first
    server.wait_until_drained()
    for key, body in there.items():
        place.check(key, body)
    assert server.metrics()["forebay_conflict_objects"] == 0


# What is not done yet when the process ends, and what is.
MOMENTS = {
    "between its parts": ("part", 2, stand_in.waits),
    "before its completion": ("complete", None, stand_in.waits),
    "between its completion and the answer": ("complete", None, stand_in.is_applied_and_waits),
}


@pytest.mark.parametrize("operation,part,action", MOMENTS.values(), ids=MOMENTS.keys())
def test_a_kill_during_an_upload_in_parts_loses_and_overtakes_nothing(start, own_front, operation, part, action):
    """What the dead process has sent is carried out after the next one has begun."""
    server = start(mode="WRITE_BACK", behind=own_front, more=PARTS, variables=PATIENT)
    place = Place(server, own_front)
    first, second = content("first", IN_PARTS), content("second", IN_PARTS)
    known, returned, deleted = (place.persisted(place.key(name), first) for name in ("known", "returned", "deleted"))
    new = place.key("new")
    keys = (known, returned, deleted, new)
    rules = [own_front.on(operation, action, key, part) for key in keys]
    done = lambda key: len([1 for change, _ in own_front.changes(key) if change == operation])  # noqa: E731
    before = {key: done(key) for key in keys}
    for key in keys:
        place.put(key, second)
    eventually("requests", lambda: all(rule.seen for rule in rules))
    if operation == "part" or action is stand_in.is_applied_and_waits:
        eventually("what comes before the end", lambda: all(done(key) > before[key] for key in keys))
    server.kill()
    server.start()
    place.delete(deleted)
    place.let_it_follow(returned, lambda: place.put(returned, first))
    for rule in rules:
        rule.release()
    for key, body in ((known, second), (new, second), (returned, first)):
        assert place.read(place.here, key) == body, "nothing of it waits for the under store"
        place.wait_until_clean(key)
        place.check(key, body)
    server.wait_until_drained()
    place.check_absent(deleted)
    assert server.metrics()["forebay_conflict_objects"] == 0


@pytest.fixture
def own_store(tmp_path):
    """A server whose uploads are nobody else's business."""
    server = S3Server(tmp_path / "s3").start()
    yield server
    server.kill()


def begin_there(place, name):
    return place.there.create_multipart_upload(Bucket=place.bucket, Key=place.key(name))["UploadId"]


LEFTOVERS = {"FOREBAY_CACHE_LEFTOVER_TIMEOUT": "1 s", "FOREBAY_CACHE_LEFTOVER_INTERVAL": "100 ms"}


@pytest.mark.parametrize("sweeps", [False, True], ids=["where others write", "where nobody else writes"])
def test_an_upload_that_a_kill_leaves_is_removed_where_that_is_wanted(start, own_store, sweeps):
    front = StandIn(own_store)
    more = f"{PARTS}sweep_uploads = {str(sweeps).lower()}"
    server = start(mode="WRITE_BACK", behind=front, more=more, variables=LEFTOVERS)
    place = Place(server, front)
    body, key, theirs = content("body", IN_PARTS), place.key("key"), begin_there(place, "theirs")
    rule = front.on("part", stand_in.waits, key, part=2)
    place.put(key, body)
    eventually("an upload in progress", lambda: rule.seen and len(place.uploads()) >= 1)
    [ours] = set(place.uploads()) - {theirs}
    server.kill()
    rule.release()
    server.start()
    place.wait_until_clean(key)
    place.check(key, body)
    if sweeps:
        eventually("no upload left", lambda: place.uploads() == [])
    else:
        # Two that a client leaves here: between the first and the second all leftovers have been looked for.
        for number in (1, 2):
            place.here.create_multipart_upload(Bucket=place.bucket, Key=place.key("here"))
            eventually("leftovers removed", lambda: server.metrics()["forebay_leftovers_removed_total"] >= number)
        assert set(place.uploads()) == {ours, theirs}
    front.close()


def test_an_upload_that_cannot_be_removed_keeps_no_other(start, own_store):
    front = StandIn(own_store)
    server = start(mode="WRITE_BACK", behind=front, more=f"{PARTS}sweep_uploads = true", variables=LEFTOVERS)
    place = Place(server, front)
    front.on("abort", answers(error(403, "AccessDenied")), place.key("first"), times=None)
    uploads = [begin_there(place, name) for name in ("first", "second")]
    eventually("the other one removed", lambda: place.uploads() == uploads[:1])
    front.close()


# Single bytes take longer.
TRICKLES = {"patience": "1 s", "more": f'{PARTS}upload_rate_min = "16 MiB"'}
SLOW = {
    "a body in one piece": ("put", SMALL, stand_in.is_read_slowly),
    "a larger body": ("put", STREAMED, stand_in.is_read_slowly),
    "a part": ("part", IN_PARTS, stand_in.is_read_slowly),
    "an answer": ("put", SMALL, stand_in.is_answered_slowly),
    "the answer to a completion": ("complete", IN_PARTS, stand_in.is_answered_slowly),
}


def test_what_is_taken_or_answered_by_single_bytes_is_given_up_and_tried_again(start, own_front):
    server = start(mode="WRITE_BACK", behind=own_front, **TRICKLES)
    place = Place(server, own_front)
    deleted = place.persisted(place.key("deleted"), b"before")
    deletion, bodies, rules = own_front.on("delete", stand_in.is_answered_slowly, deleted, times=None), {}, []
    for name, (operation, size, action) in SLOW.items():
        bodies[place.key(name)] = content(name, size)
        rules.append(own_front.on(operation, action, place.key(name), times=None))
    for key, body in bodies.items():
        place.put(key, body)
    place.delete(deleted)
    # Other keys are not delayed. A key has one request in flight at a time: the next one comes when the first has been given up.
    others = (place.persisted(place.key(f"well-{number}"), b"well") for number in itertools.count())
    # What the under store has carried out is found there, and not sent again.
    is_carried_out = [action is stand_in.is_answered_slowly for _, _, action in SLOW.values()]

    def has_ended(key, rule, is_carried_out):
        return place.detail(key)["state"] == "clean" if is_carried_out else rule.seen > 1

    eventually("all given up and tried again", lambda: next(others) and all(map(has_ended, bodies, rules, is_carried_out)))
    place.check(next(others), b"well")
    assert [rule.seen for rule, is_done in zip(rules, is_carried_out) if is_done] == [1, 1]
    assert server.metrics()["forebay_dirty_objects"] == is_carried_out.count(False)
    recovers(place, [deletion, *rules], bodies)
    place.check_absent(deleted)


@pytest.mark.parametrize("action", [stand_in.is_read_slowly, CONFLICTS], ids=["read by single bytes", "meeting other writes"])
def test_many_that_fail_keep_no_other_from_the_under_store(start, own_front, action):
    """As where one disk or one partition of the under store is in trouble, or others write to one directory."""
    server = start(mode="WRITE_BACK", behind=own_front, **TRICKLES)
    place = Place(server, own_front)
    bodies = {place.key(f"failing-{number}"): content(number, STREAMED) for number in range(20)}
    rules = [own_front.on("put", action, key, times=None) for key in bodies]
    for key, body in bodies.items():
        place.put(key, body)
    eventually("many given up", lambda: failures(server) >= len(bodies) // 2)
    for size in (SMALL, STREAMED, IN_PARTS):
        key, body = place.key(f"well-{size}"), content("well", size)
        place.check(place.persisted(key, body), body)
    recovers(place, rules, bodies)


def test_an_under_store_that_answers_everything_by_single_bytes_slows_nobody_down(start, own_front):
    server = start(mode="WRITE_BACK", behind=own_front, **TRICKLES)
    place = Place(server, own_front)
    rule = own_front.on("any", stand_in.is_answered_slowly, times=None)
    bodies = {place.key(f"{size}-{number}"): content(number, size) for size in (SMALL, IN_PARTS) for number in range(4)}
    for key, body in bodies.items():
        place.put(key, body)
        assert place.read(place.here, key) == body
    eventually("all given up", lambda: failures(server) >= len(bodies))
    assert server.metrics()["forebay_dirty_objects"] == len(bodies)
    recovers(place, [rule], bodies)


def failures(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("forebay_persist_failures_total"))


def recovers(place, rules, bodies):
    eventually("an age", lambda: place.server.metrics()["forebay_oldest_dirty_age_seconds"] > 0)
    for rule in rules:
        rule.release()
    place.server.wait_until_drained()
    for key, body in bodies.items():
        place.check(key, body)
    metrics = eventually("no age", lambda: (m := place.server.metrics())["forebay_oldest_dirty_age_seconds"] == 0 and m)
    assert metrics["forebay_conflict_objects"] == 0


@pytest.mark.parametrize("status", [404, 503])
def test_what_a_gateway_says_of_itself_is_not_said_of_an_object(place, front, status):
    key = place.key("theirs")
    place.put_there(key, b"theirs")
    rules = [front.on(operation, answers(page(status)), key, times=None) for operation in ("get", "head")]
    answer = refused("ServiceUnavailable|SlowDown", place.here.get_object, Bucket=place.bucket, Key=key)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503
    # An answer to HEAD has no body: boto3 makes the code of its status.
    refused("503", place.here.head_object, Bucket=place.bucket, Key=key)
    assert [rule.seen > 0 for rule in rules] == [True, True]
    for rule in rules:
        rule.release()
    assert place.read(place.here, key) == b"theirs"
