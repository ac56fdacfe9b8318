"""The linearizability checker against histories whose verdict is known.

A sequential run of a register gives answers that are right by construction. Stretching each operation's interval
around the moment of its effect keeps the history linearizable, whatever overlaps. Small histories are also decided by
trying all orders.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.testing.histories.checker import check, end_states
from yurt.testing.histories.counterexample import counterexample, until
from yurt.testing.histories.history import History, Operation, Read, Reply, Request
from yurt.testing.nightly import cases


class Write(Request, frozen=True):
    value: int


class Look(Read, frozen=True):
    """Tells the value."""


class Swap(Request, frozen=True):
    """Writes when the register holds `expected`."""

    expected: int
    value: int


class Register:
    """A register that holds a number; a swap that finds another value is refused."""

    def __init__(self, *, tells_indexes: bool = True) -> None:
        self._tells_indexes = tells_indexes

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def written_at(self, request: Any, answer: Reply) -> int | None:
        is_told = self._tells_indexes and not request.is_read and not answer.is_refusal
        return answer.index if is_told else None

    def step(self, state: tuple[int, int], request: Any, answer: Reply | None) -> tuple[int, int] | None:
        value, last = state
        if isinstance(request, Look):
            return state if answer is None or answer.body == value else None
        is_done = not isinstance(request, Swap) or request.expected == value
        if answer is None:
            return (request.value, last) if is_done else state
        if answer.is_refusal or not is_done:
            return state if answer.is_refusal and not is_done else None
        if not self._tells_indexes:
            return request.value, last
        return (request.value, answer.index) if answer.index > last else None


MODEL = Register()
requests = st.one_of(
    st.builds(Write, st.integers(0, 3)), st.just(Look()), st.builds(Swap, st.integers(0, 3), st.integers(0, 3))
)


def answers(asked: Sequence[Any]) -> list[Reply]:
    """What a register answers to requests one after another."""
    value, found = 0, []
    for at, request in enumerate(asked, 1):
        if isinstance(request, Look):
            found.append(Reply(200, 0, value))
        elif isinstance(request, Swap) and request.expected != value:
            found.append(Reply(409, 0, "conflict"))
        else:
            value = request.value
            found.append(Reply(200, at))
    return found


def stretched(asked: Sequence[Any], told: Sequence[Reply], seed: int, lost: frozenset[int] = frozenset()) -> History:
    """Operations whose intervals contain the moments of their effects; the `lost` ones were never answered."""
    rng = random.Random(seed)
    made = []
    for at, (request, answer) in enumerate(zip(asked, told, strict=True)):
        moment = (at + 1) * 100
        begin, end = moment - rng.randrange(1, 500), moment + rng.randrange(1, 500)
        known = at not in lost
        made.append(Operation(at, at, "x", request, begin, end if known else None, answer if known else None))
    return tuple(made)


def is_linearizable_by_trial(history: History) -> bool:
    """The definition itself: try every order of all known and any of the unknown operations."""
    known = [each for each in history if each.is_known]
    unknown = [each for each in history if not each.is_known]
    chosen = (part for size in range(len(unknown) + 1) for part in itertools.combinations(unknown, size))
    return any(_explains(order) for part in chosen for order in itertools.permutations([*known, *part]))


def _explains(order: Sequence[Operation]) -> bool:
    state: tuple[int, int] | None = (0, 0)
    latest = 0
    for each in order:
        if each.returned is not None and each.returned < latest:
            return False
        latest = max(latest, each.invoked)
        state = None if state is None else MODEL.step(state, each.request, each.answer)
    return state is not None


@settings(max_examples=cases(200))
@given(st.lists(requests, max_size=40), st.integers(), st.sets(st.integers(0, 39), max_size=5))
def test_a_sequential_run_is_linearizable_however_its_operations_overlap(
    asked: list[Any], seed: int, lost: set[int]
) -> None:
    history = stretched(asked, answers(asked), seed, frozenset(lost))

    assert check(MODEL, history).is_linearizable
    assert check(Register(tells_indexes=False), history).is_linearizable


@settings(max_examples=cases(200))
@given(st.lists(requests, min_size=1, max_size=30), st.integers(), st.data())
def test_an_answer_that_no_state_gives_is_found(asked: list[Any], seed: int, data: st.DataObject) -> None:
    told = answers(asked)
    at = data.draw(st.integers(0, len(asked) - 1))
    request = asked[at]
    told[at] = Reply(200, 0, 99) if isinstance(request, Look) else Reply(200, 0)

    history = stretched(asked, told, seed)

    assert not check(MODEL, history).is_linearizable


@settings(max_examples=cases(150), deadline=None)
@given(
    st.lists(st.tuples(requests, st.integers(0, 3), st.booleans()), max_size=5), st.integers(),
    st.sets(st.integers(0, 4), max_size=2),
)  # fmt: skip
def test_the_verdict_is_that_of_trying_all_orders(
    asked: list[tuple[Any, int, bool]], seed: int, lost: set[int]
) -> None:
    told = [
        Reply(200, 0, value) if isinstance(request, Look) else Reply(409 if refused else 200, at)
        for at, (request, value, refused) in enumerate(asked, 1)
    ]
    history = stretched([request for request, _, _ in asked], told, seed, frozenset(lost))

    assert check(MODEL, history).is_linearizable == is_linearizable_by_trial(history)


@settings(max_examples=cases(100))
@given(st.lists(requests, max_size=25), st.integers())
def test_every_prefix_of_a_linearizable_history_is_linearizable(asked: list[Any], seed: int) -> None:
    history = stretched(asked, answers(asked), seed)

    for each in history:
        assert each.returned is not None
        assert check(MODEL, until(history, each.returned)).is_linearizable


def test_a_lost_write_may_take_effect_late_or_never() -> None:
    lost = Operation(0, 0, "x", Write(7), invoked=0)
    before = Operation(1, 1, "x", Look(), 10, 20, Reply(200, 0, 0))
    after = Operation(2, 1, "x", Look(), 30, 40, Reply(200, 0, 7))

    assert check(MODEL, [lost, before]).is_linearizable
    assert check(MODEL, [lost, before, after]).is_linearizable
    assert end_states(MODEL, [lost, before]) == {(0, 0), (7, 0)}


def test_a_lost_write_does_not_take_effect_twice() -> None:
    lost = Operation(0, 0, "x", Write(7), invoked=0)
    seen = Operation(1, 1, "x", Look(), 10, 20, Reply(200, 0, 7))
    write = Operation(2, 1, "x", Write(1), 30, 40, Reply(200, 5))
    again = Operation(3, 1, "x", Look(), 50, 60, Reply(200, 0, 7))

    assert not check(MODEL, [lost, seen, write, again]).is_linearizable


def test_writes_take_effect_in_the_order_of_their_indexes() -> None:
    first = Operation(0, 0, "x", Write(1), 0, 100, Reply(200, 6))
    second = Operation(1, 1, "x", Write(2), 0, 100, Reply(200, 5))
    read = Operation(2, 2, "x", Look(), 200, 300, Reply(200, 0, 2))

    assert not check(MODEL, [first, second, read]).is_linearizable
    assert check(Register(tells_indexes=False), [first, second, read]).is_linearizable


def test_a_counterexample_holds_only_what_contradicts_itself() -> None:
    asked = [Write(1), Write(2), Look(), Write(3), Write(4), Write(5), Look(), Look(), Write(6)]
    told = answers(asked)
    history = [Operation(at, at, "x", request, at * 10, at * 10 + 5, told[at]) for at, request in enumerate(asked)]
    history[7] = history[7]._replace(answer=Reply(200, 0, 2))

    found = counterexample(MODEL, history)

    assert found is not None
    assert found.initial == (2, 2)
    assert [each.number for each in found.operations] == [3, 4, 5, 7]
    assert "200 index=0 2" in str(found)
    assert counterexample(MODEL, history[:7]) is None
