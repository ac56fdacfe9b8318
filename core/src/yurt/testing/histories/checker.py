"""Decides whether a history of one object is linearizable: Wing and Gong's search with memoized configurations.

A configuration is the set of operations that have taken effect and the object's state after them. From each one, the
next operation may be any that was invoked before the first pending one returned. Four rules keep the search small
without changing its verdict:

- a read or a refusal that is possible now and tells nothing new is taken now, without alternatives;
- of operations that tell the log index of their effect only the lowest may be next, because the log orders them;
- an operation of unknown outcome is tried last, and not at all where it would change nothing;
- a configuration is explored once, and not when the same one was explored with fewer operations of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from yurt.testing.histories.history import Model, Operation

S = TypeVar("S", bound=Hashable)

CONFIGURATIONS_MAX = 100_000
"""Configurations of one history before the search is given up."""


class Undecided(Exception):
    """The search was stopped: too many operations of unknown outcome, or too many concurrent ones."""


class Verdict(NamedTuple, Generic[S]):
    """The result of a search: an order in which the operations can have taken effect, and the possible end states.

    When there is none, `order` is the longest part of one, and `end_states` the state after that part.
    """

    is_linearizable: bool
    order: tuple[Operation, ...]
    end_states: frozenset[S]
    configurations: int


class _Choice(NamedTuple, Generic[S]):
    position: int
    state: S


def check(model: Model[S], operations: Sequence[Operation], *, initial: S | None = None) -> Verdict[S]:
    """Whether some order of the operations explains every answer; raises Undecided."""
    return _Search(model, operations, model.initial() if initial is None else initial).run(all_ends=False)


def end_states(model: Model[S], operations: Sequence[Operation], *, initial: S | None = None) -> frozenset[S]:
    """Every state in which an order of the operations can end; empty when there is none. Raises Undecided."""
    verdict = _Search(model, operations, model.initial() if initial is None else initial).run(all_ends=True)
    return verdict.end_states if verdict.is_linearizable else frozenset()


class _Search(Generic[S]):
    """One search; a set of operations is a bit mask of their positions in the order of invocation."""

    def __init__(self, model: Model[S], operations: Sequence[Operation], initial: S) -> None:
        self._model = model
        self._initial = initial
        self._operations = sorted(operations, key=lambda each: each.invoked)
        self._indexes = [
            model.written_at(each.request, each.answer) if each.answer is not None else None
            for each in self._operations
        ]
        self._unknown = [
            at for at, each in enumerate(self._operations) if not each.is_known and not each.request.is_read
        ]
        self._known_mask = sum(1 << at for at, each in enumerate(self._operations) if each.is_known)
        self._seen: dict[tuple[int, S], list[int]] = {}
        """By the known operations that have taken effect and the state: the unknown ones that have."""
        self._count = 0

    def run(self, *, all_ends: bool) -> Verdict[S]:
        """Depth-first search for one end state or for all of them."""
        taken: list[int] = []
        longest: tuple[int, ...] = ()
        deepest, ends = self._initial, set[S]()
        stack: list[tuple[int, S, Iterator[_Choice[S]]]] = [(0, self._initial, self._choices(0, self._initial))]
        while stack:
            mask, state, choices = stack[-1]
            if mask & self._known_mask == self._known_mask:
                ends.add(state)
                if not all_ends:
                    return self._verdict(tuple(taken), ends)
            choice = next(choices, None)
            if choice is None:
                stack.pop()
                if taken:
                    taken.pop()
                continue
            following = mask | 1 << choice.position
            if not self._is_new(following, choice.state):
                continue
            taken.append(choice.position)
            if len(taken) > len(longest):
                longest, deepest = tuple(taken), choice.state
            stack.append((following, choice.state, self._choices(following, choice.state)))
        if ends:
            return self._verdict(longest, ends)
        return Verdict(False, self._named(longest), frozenset((deepest,)), self._count)

    def _verdict(self, taken: tuple[int, ...], ends: set[S]) -> Verdict[S]:
        return Verdict(True, self._named(taken), frozenset(ends), self._count)

    def _named(self, positions: tuple[int, ...]) -> tuple[Operation, ...]:
        return tuple(self._operations[at] for at in positions)

    def _is_new(self, mask: int, state: S) -> bool:
        """Whether this configuration is unexplored; one that had fewer unknown outcomes to come covers it."""
        unknown = mask & ~self._known_mask
        explored = self._seen.setdefault((mask & self._known_mask, state), [])
        if any(other & unknown == other for other in explored):
            return False
        explored.append(unknown)
        self._count += 1
        if self._count > CONFIGURATIONS_MAX:
            raise Undecided(f"more than {CONFIGURATIONS_MAX} configurations of {len(self._operations)} operations")
        return True

    def _choices(self, mask: int, state: S) -> Iterator[_Choice[S]]:
        """The operations that may take effect next, the likeliest first."""
        known, until = self._pending(mask)
        possible: list[_Choice[S]] = []
        lowest = min((index for at in known if (index := self._indexes[at]) is not None), default=None)
        for at in known:
            if self._indexes[at] not in (None, lowest):
                continue
            operation = self._operations[at]
            after = self._model.step(state, operation.request, operation.answer)
            if after == state and operation.is_idle:
                yield _Choice(at, state)
                return
            if after is not None:
                possible.append(_Choice(at, after))
        yield from possible
        for at in self._unknown:
            operation = self._operations[at]
            if mask >> at & 1 or operation.invoked > until:
                continue
            after = self._model.step(state, operation.request, None)
            if after is not None and after != state:
                yield _Choice(at, after)

    def _pending(self, mask: int) -> tuple[list[int], int]:
        """Operations of known outcome that may be next, and the time before which others must be invoked."""
        rest = self._known_mask & ~mask
        at = (rest & -rest).bit_length() - 1
        until, found = 1 << 80, list[int]()
        while 0 <= at < len(self._operations) and self._operations[at].invoked <= until:
            operation = self._operations[at]
            if rest >> at & 1 and operation.returned is not None:
                found.append(at)
                until = min(until, operation.returned)
            at += 1
        return found, until
