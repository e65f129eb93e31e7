"""What the soak of a cluster takes for linearizable."""

import pytest

from harness.linear import Operation, check


def put(value, begun, ended, **guard):
    return Operation("write", value, begun, ended, **guard)


def read(value, begun, ended):
    return Operation("read", value, begun, ended)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [put(1, 1, 2), read(1, 3, 4), put(None, 5, 6), read(None, 7, 8)],
        [put(1, 1, 6), read(None, 2, 3), read(1, 4, 5)],
        [put(1, 1, 4), put(2, 2, 3), read(1, 5, 6)],
        [put(1, 1, 2), put(2, 3, None), read(2, 4, 5)],
        [put(1, 1, 2), put(2, 3, None), read(1, 4, 5), read(2, 6, 7)],
        [put(1, 1, 2), put(2, 3, 6, guard=1), Operation("refused", None, 4, 5, guard=None), read(2, 7, 8)],
        [put(1, 1, 2), put(2, 3, None, guard=1), put(3, 4, 5, guard=2)],
        [put(number, number, None) for number in range(1000)],
        [put(1, 1, None), Operation("refused", None, 2, 3, guard=None), put(None, 4, 5), read(None, 6, 7)],
    ],
)
def test_good_histories(operations):
    assert check(operations) is True


@pytest.mark.parametrize(
    "operations",
    [
        [put(1, 1, 2), put(2, 3, 4), read(1, 5, 6)],
        [put(1, 1, 2), read(None, 3, 4)],
        [put(1, 1, 2), put(None, 3, 4), read(1, 5, 6)],
        [put(1, 1, 8), read(1, 2, 3), read(None, 4, 5)],
        [put(1, 1, 2), put(2, 3, None), read(2, 4, 5), read(1, 6, 7)],
        [put(1, 1, 2), read(2, 3, 4)],
        [put(1, 1, 2), put(2, 3, 6, guard=1), put(3, 4, 5, guard=1)],
        [put(1, 1, 2, guard=None), put(2, 3, 4, guard=None)],
        [Operation("refused", None, 1, 2, guard=None), put(1, 3, 4)],
        [put(1, 1, 2), Operation("refused", None, 3, 4, guard=1)],
    ],
)
def test_bad_histories(operations):
    assert check(operations) is False
