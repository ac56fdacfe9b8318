"""Rules for log indexes across objects: they follow real time, belong to one write each, and never go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from yurt.testing.histories.history import History, Model, Operation, Request
from yurt.testing.histories.kinds import Kind


class IndexFault(NamedTuple):
    """Two operations whose indexes contradict each other."""

    text: str
    first: Operation
    second: Operation

    def __str__(self) -> str:
        lines = [
            f"  client {each.client} on {each.key}: {each.request} -> {each.answer}"
            for each in (self.first, self.second)
        ]
        return "\n".join((self.text, *lines))


def index_faults(recorded: Iterable[tuple[Kind, History]]) -> list[IndexFault]:
    """All contradictions between writes of any objects and between reads of one object."""
    writes: list[tuple[int, Operation]] = []
    faults: list[IndexFault] = []
    for kind, history in recorded:
        writes += _writes(kind.model, history)
        reads: dict[Request, list[Operation]] = {}
        for each in history:
            if each.request.is_read:
                reads.setdefault(each.request, []).append(each)
        for same in reads.values():
            faults += _backward_reads(same)
    return [*_shared(writes), *_against_time(writes), *faults]


def _writes(model: Model, history: History) -> list[tuple[int, Operation]]:  # type: ignore[type-arg]
    found = []
    for each in history:
        index = model.written_at(each.request, each.answer) if each.answer is not None else None
        if index is not None:
            found.append((index, each))
    return found


def _shared(writes: list[tuple[int, Operation]]) -> list[IndexFault]:
    """Two writes that were answered with the same index."""
    owners: dict[int, Operation] = {}
    faults = []
    for index, each in writes:
        other = owners.setdefault(index, each)
        if other is not each:
            faults.append(IndexFault(f"index {index} was answered to two writes", other, each))
    return faults


def _against_time(writes: list[tuple[int, Operation]]) -> list[IndexFault]:
    """A write that began after another was answered, but has a lower index."""
    return _backward(writes, "a later write was answered a lower index")


def _backward_reads(reads: list[Operation]) -> list[IndexFault]:
    """A read that began after another of the same object was answered, but shows a lower index."""
    answered = [(each.answer.index, each) for each in reads if each.answer is not None and each.answer.index]
    return _backward(answered, "a later read was answered a lower index")


def _backward(answered: list[tuple[int, Operation]], text: str) -> list[IndexFault]:
    returned: Callable[[tuple[int, Operation]], int] = lambda pair: pair[1].returned or 0  # noqa: E731
    ended = sorted(answered, key=returned)
    faults, highest, at = [], None, 0
    for index, each in sorted(answered, key=lambda pair: pair[1].invoked):
        while at < len(ended) and returned(ended[at]) < each.invoked:
            if highest is None or ended[at][0] > highest[0]:
                highest = ended[at]
            at += 1
        if highest is not None and index < highest[0]:
            faults.append(IndexFault(text, highest[1], each))
    return faults
