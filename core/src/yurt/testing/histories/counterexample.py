"""Reduces a violation to the fewest operations that still have no valid order, sorted by time.

Every prefix of a linearizable history is linearizable, with what was not answered yet of unknown outcome. So a failing
history is cut behind the first answer that cannot be explained. Operations before a moment without pending ones are
replaced by the state they lead to, when there is only one, but the last few writes stay in sight. Then reads and
refusals are left out one by one as long as the rest still fails: they have no effect, so what remains of a linearizable
history would be linearizable.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from yurt.testing.histories.checker import Undecided, check, end_states
from yurt.testing.histories.history import History, Model, Operation, Reply

S = TypeVar("S", bound=Hashable)


WRITES_SHOWN: Final = 3
"""The minimum number of writes shown, if the history has that many."""


class Counterexample(NamedTuple, Generic[S]):
    """Operations that no order explains when the object begins in `initial`."""

    key: str
    initial: S
    operations: History
    deepest: S
    """The state after the longest part of an order."""
    explained: frozenset[int]
    """Numbers of the operations in that part."""
    later: dict[int, Operation]
    """By number, how the operations ended that were pending at the end of this part of the history."""

    def __str__(self) -> str:
        begin = self.operations[0].invoked
        rows = [_line(each, self.later[each.number], begin, self.explained) for each in self.operations]
        return "\n".join(
            (
                f"{self.key}: no order of these operations explains their answers",
                f"  before: {self.initial}",
                *rows,
                f"  state after the longest order, of those marked +: {self.deepest}",
            )
        )


def counterexample(model: Model[S], operations: Sequence[Operation]) -> Counterexample[S] | None:
    """The smallest counterexample found; None when the history is linearizable. Raises Undecided."""
    if check(model, operations).is_linearizable:
        return None
    cut = _shortest_prefix(model, operations)
    initial, rest = _after_last_quiet_moment(model, cut)
    rest = _without_idle_operations(model, rest, initial)
    verdict = check(model, rest, initial=initial)
    explained = frozenset(each.number for each in verdict.order)
    later = {each.number: each for each in operations}
    return Counterexample(rest[0].key, initial, rest, next(iter(verdict.end_states)), explained, later)


def operation_lines(operations: Sequence[Operation]) -> list[str]:
    """The operations as text, in the order of invocation."""
    ordered = sorted(operations, key=lambda each: each.invoked)
    return [_line(each, each, ordered[0].invoked, frozenset()) for each in ordered]


def until(operations: Sequence[Operation], moment: int) -> History:
    """The history as known at a time: later answers become unknown outcomes, later operations are left out."""
    return tuple(
        each if each.returned is not None and each.returned <= moment else each._replace(returned=None, answer=None)
        for each in sorted(operations, key=lambda each: each.invoked)
        if each.invoked <= moment
    )


def _shortest_prefix(model: Model[S], operations: Sequence[Operation]) -> History:
    moments = sorted(each.returned for each in operations if each.returned is not None)
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if check(model, until(operations, moments[middle])).is_linearizable:
            low = middle + 1
        else:
            high = middle
    return until(operations, moments[low])


def _after_last_quiet_moment(model: Model[S], operations: History) -> tuple[S, History]:
    """The state at the latest time without pending operations, and the operations after it."""
    for at in range(len(operations) - 1, 0, -1):
        before, after = operations[:at], operations[at:]
        if sum(not each.is_idle for each in after) < WRITES_SHOWN:
            continue
        if any(each.returned is None or each.returned >= after[0].invoked for each in before):
            continue
        states = end_states(model, before)
        if len(states) == 1:
            return next(iter(states)), after
    return model.initial(), operations


def _without_idle_operations(model: Model[S], operations: History, initial: S) -> History:
    kept = list(operations)
    for each in reversed(operations):
        if not each.is_idle:
            continue
        rest = [other for other in kept if other is not each]
        if rest and _fails(model, rest, initial):
            kept = rest
    return tuple(kept)


def _fails(model: Model[S], operations: Sequence[Operation], initial: S) -> bool:
    try:
        return not check(model, operations, initial=initial).is_linearizable
    except Undecided:
        return False


def _line(operation: Operation, later: Operation, begin: int, explained: frozenset[int]) -> str:
    start = (operation.invoked - begin) / 1e6
    end = "        ?" if later.returned is None else f"{(later.returned - begin) / 1e6:9.3f}"
    mark = "+" if operation.number in explained else " "
    answer = "outcome unknown" if later.answer is None else _answer_text(later.answer)
    when = " (later)" if operation.answer is None and later.answer is not None else ""
    return f"  {mark}{start:9.3f} .. {end} ms  client {operation.client}: {operation.request}\n{'':37}->{when} {answer}"


def _answer_text(answer: Reply) -> str:
    return f"{answer.status} index={answer.index} {answer.body}"
