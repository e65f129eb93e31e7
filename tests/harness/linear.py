"""Linearizability of one register, after Wing and Gong (1993), with the memo of Lowe, "Testing for linearizability" (2017).

The simulation checks its histories in the same way: crates/sim/src/linear.rs.
"""

import dataclasses
import typing

# More states than this are not searched: the history then counts as undecided.
STATES_MAX = 500_000


class Anything:
    def __repr__(self):
        return "anything"


# The guard of a write without conditions.
ANYTHING = Anything()


@dataclasses.dataclass
class Operation:
    """What one client asked for, and the answer. A value is hashable, and None is none."""

    kind: typing.Literal["read", "write", "refused"]
    value: object
    begun: float
    # None: no answer. It was done or not, or may yet be done.
    ended: float | None
    # What had to be there for a write, and was not when it was refused: a value, or None for nothing.
    guard: object = ANYTHING
    by: str = ""

    def holds(self, value):
        return self.guard is ANYTHING or self.guard == value

    def is_possible(self, value):
        """Whether it can have had its answer while the register held this value."""
        if self.kind == "read":
            return self.value == value
        return self.holds(value) == (self.kind == "write")


def check(operations):
    """True when the operations on a register that held nothing can be put in an order; None when that is undecided."""
    needed = {operation.value for operation in operations if operation.kind == "read"}
    needed |= {operation.guard for operation in operations if operation.guard is not ANYTHING}
    # A value that nobody saw need not have been written, unless a refusal says that something was there.
    any_counts = any(operation.kind == "refused" for operation in operations)
    kept = [operation for operation in operations if operation.ended is not None or any_counts or operation.value in needed]
    kept.sort(key=lambda operation: operation.begun)
    everything = sum(1 << index for index, operation in enumerate(kept) if operation.ended is not None)
    seen, stack = set(), [(0, None)]
    while stack:
        taken, value = stack.pop()
        if taken & everything == everything:
            return True
        possible = _possible(kept, taken, value)
        # What changes nothing is taken at once: whatever order there is, there is one with it here.
        reads = [index for index in possible if kept[index].kind != "write"]
        for index in reads[:1] or possible:
            state = (taken | 1 << index, kept[index].value if kept[index].kind == "write" else value)
            if state not in seen:
                seen.add(state)
                stack.append(state)
        if len(seen) > STATES_MAX:
            return None
    return False


def _possible(kept, taken, value):
    """The operations that can be next."""
    left, first_end = [], float("inf")
    for index, operation in enumerate(kept):
        if operation.begun > first_end:
            break
        if not taken >> index & 1:
            left.append(index)
            if operation.ended is not None:
                first_end = min(first_end, operation.ended)
    return [index for index in left if kept[index].begun <= first_end and kept[index].is_possible(value)]
