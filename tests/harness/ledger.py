"""What clients did and which answers they got, and from it what every key may hold."""

import collections
import contextlib
import itertools
import random
import threading

from botocore.exceptions import BotoCoreError, ClientError

from harness.clients import boto

# What an operation came to. A refusal says that nothing was done; an error or silence says nothing at all.
OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
# A request that hangs is given up after this: its outcome is unknown then. Far above what a busy machine takes.
ANSWER_SECONDS = 60

Content = collections.namedtuple("Content", "number size")
Done = collections.namedtuple("Done", "key content outcome")


def bytes_of(key, content):
    """Begins with key and number, so that a mix-up shows where it comes from; the rest follows from the number."""
    head = f"{key} {content.number} {content.size}\n".encode()
    return (head + random.Random(content.number).randbytes(max(0, content.size - len(head))))[: content.size]


def outcome_of(call):
    """Calls, and returns the outcome."""
    try:
        call()
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        refused = status < 500 or status == 507 or error.response["Error"]["Code"] == "SlowDown"
        return REFUSED if refused else UNKNOWN
    except BotoCoreError:
        return UNKNOWN
    return OK


class Ledger:
    """The keys of one writer: nobody else writes them, so their operations have an order."""

    def __init__(self, server, name="ledger", seed=0):
        # The outcome is what the first answer says: a client that tries again would hide it.
        self.s3 = boto(server, read_timeout=ANSWER_SECONDS, connect_timeout=ANSWER_SECONDS)
        self.bucket = server.bucket
        self.name = name
        self.numbers = itertools.count(seed << 32)
        # Key -> what it may hold: the last acknowledged content first, then those of operations behind it whose outcome is unknown.
        self.may_hold = collections.defaultdict(lambda: [None])
        # Shown when something is wrong: the last ones are enough.
        self.history = collections.deque(maxlen=1000)
        self.acknowledged = 0

    def put(self, key, size):
        """Writes new content; returns the outcome."""
        content = Content(next(self.numbers), size)
        call = lambda: self.s3.put_object(Bucket=self.bucket, Key=key, Body=bytes_of(key, content))  # noqa: E731
        return self._note(key, content, outcome_of(call))

    def delete(self, key):
        return self._note(key, None, outcome_of(lambda: self.s3.delete_object(Bucket=self.bucket, Key=key)))

    def _note(self, key, content, outcome):
        self.history.append(Done(key, content, outcome))
        if outcome == OK:
            self.acknowledged += 1
            self.may_hold[key] = [content]
        elif outcome == UNKNOWN:
            self.may_hold[key].append(content)
        return outcome

    def read(self, key):
        """The bytes, or None when there is no such key. Other errors are raised."""
        try:
            return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return None

    def check(self, key):
        """A key holds what it may, whole; from then on it holds just that."""
        found = self.read(key)
        for content in self.may_hold[key]:
            if found == (content and bytes_of(key, content)):
                self.may_hold[key] = [content]
                return
        history = [done for done in self.history if done.key == key][-5:]
        raise AssertionError(f"{key} holds {found and (len(found), found[:60])}, not one of {self.may_hold[key]}; {history}")

    def check_keys(self):
        for key in list(self.may_hold):
            self.check(key)

    def check_all(self):
        """The sweep at the end: every key, and the listing, for which the under store must be there."""
        self.check_keys()
        present = self.present()
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.name}/")
        listed = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
        assert listed == {key: content.size for key, content in present.items() if key.startswith(f"{self.name}/")}

    def present(self):
        """What must be there, once every key has been checked."""
        assert all(len(contents) == 1 for contents in self.may_hold.values()), "some keys have not been checked"
        return {key: contents[0] for key, contents in self.may_hold.items() if contents[0]}

    def check_directory(self, directory):
        """A directory that is the under store holds exactly what is present."""
        for key, content in self.present().items():
            assert (directory / key).read_bytes() == bytes_of(key, content), key
        gone = [key for key, contents in self.may_hold.items() if contents == [None] and (directory / key).exists()]
        assert not gone, f"deleted, and in the under store: {gone}"


class Load:
    """Concurrent writers, each with a ledger of its own; they write while `running`."""

    SIZES = (0, 700, 3_000, 3_000, 20_000, 20_000, 300_000)

    def __init__(self, server, writers=4, keys=30, sizes=SIZES, seed=None):
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        # Shown by pytest with a failure.
        print(f"seed of the load: {self.seed}")
        self.keys, self.sizes = keys, sizes
        self.rounds = itertools.count()
        self.ledgers = [Ledger(server, f"writer-{number}", seed=number + 1) for number in range(writers)]

    @contextlib.contextmanager
    def running(self):
        stop, choice = threading.Event(), random.Random(f"{self.seed} {next(self.rounds)}")
        work = lambda ledger, seed: self._write(ledger, random.Random(seed), stop)  # noqa: E731
        threads = [threading.Thread(target=work, args=(ledger, choice.random())) for ledger in self.ledgers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _write(self, ledger, choice, stop):
        refused = 0
        # Without end, a server that is gone would fill the history.
        while not stop.is_set() and refused < 20:
            key = f"{ledger.name}/{choice.randrange(self.keys):03}"
            if choice.random() < 0.2:
                outcome = ledger.delete(key)
            else:
                outcome = ledger.put(key, choice.choice(self.sizes))
            refused = 0 if outcome == OK else refused + 1
            if outcome != OK:
                stop.wait(0.05)

    def acknowledged(self):
        return sum(ledger.acknowledged for ledger in self.ledgers)

    def check_keys(self):
        for ledger in self.ledgers:
            ledger.check_keys()

    def check_all(self):
        for ledger in self.ledgers:
            ledger.check_all()

    def check_what_was_left(self, server, relay):
        """After a start: what the under store lacked is here, and goes there when it is back."""
        assert server.metrics()["forebay_dirty_objects"] > 0
        relay.set()
        self.check_all()
        server.wait_until_drained(120)
        self.check_all()

    def check_directory(self, directory):
        for ledger in self.ledgers:
            ledger.check_directory(directory)
