"""Rows whose devices cannot meet a group's requests, as earlier attempts found out.

In a full pool nearly every node refuses, and each refusal costs a look at its devices. An attempt at an equal request
knows the refusals of the ones before, as long as neither the node nor what is in use on it has changed. They only save
work: a row that is unknown here is asked, with the same result.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import msgspec
import numpy as np

from yurt.scheduler.capacity.ask import NO_DEVICES, GroupAsk
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.ranking import Ranker, SetAsideRows
from yurt.state.arrays import IntArray
from yurt.state.columns import CHUNK, Chunk
from yurt.state.exclusive_resources import NOTHING_IN_USE, ExclusiveResources
from yurt.structs.node import Node

KEYS: Final = "keys of device refusals"
REQUESTS_MAX: Final = 32
"""The maximum number of different requests whose refusals are kept."""


class _Refusals(msgspec.Struct, frozen=True):
    """The rows that refused a request; never changed, since attempts in other threads read it."""

    chunks: tuple[Chunk, ...]
    """The columns' chunks for which the refusals were last checked."""
    is_refused: BoolArray
    nodes: list[Node | None]
    in_use: list[ExclusiveResources | None]


class DeviceRefusals:
    """The known refusals of one group's device requests in the state of an attempt."""

    def __init__(self, view: ClusterView, ask: GroupAsk) -> None:
        self._view = view
        # What a node is asked for before its devices belongs to the key: a row without cores refuses for these.
        self._key = ("device refusals", tuple(request for _, request in ask.devices), ask.cores, tuple(ask.volumes))
        self._new: list[int] = []

    def note(self, row: int) -> None:
        """Record that a row refused."""
        self._new.append(row)

    def rows(self) -> IntArray:
        """The rows that refuse, other than those that the plan changes."""
        is_refused = self._valid().is_refused
        if not is_refused.any():
            return np.zeros(0, np.int64)
        changed = self._view.rows_in_plan
        if changed:
            is_refused = is_refused.copy()
            is_refused[changed] = False
        rows: IntArray = np.flatnonzero(is_refused)
        return rows

    def keep(self) -> None:
        """Keep what was recorded, for later attempts."""
        if not self._new:
            return
        new = {row for row in self._new if not self._view.is_in_plan(row)}
        self._new.clear()
        if not new:
            return
        cached = self._valid()
        new = {row for row in new if not cached.is_refused[row]}
        if not new:
            return
        is_refused, nodes, in_use = cached.is_refused.copy(), cached.nodes.copy(), cached.in_use.copy()
        for row in new:
            is_refused[row] = True
            nodes[row], in_use[row] = self._view.node(row), self._view.in_use(row)
        self._store(_Refusals(cached.chunks, is_refused, nodes, in_use))

    def _valid(self) -> _Refusals:
        """The refusals that still hold."""
        cached: _Refusals | None = self._view.rows.lasting.get(self._key)
        chunks = self._view.columns.chunks
        size = len(chunks) * CHUNK
        if cached is None or len(cached.nodes) > size:
            return _Refusals(chunks, np.zeros(size, np.bool_), [None] * size, [None] * size)
        if cached.chunks is chunks:
            return cached
        cached = self._checked(cached, chunks)
        self._store(cached)
        return cached

    def _checked(self, cached: _Refusals, chunks: tuple[Chunk, ...]) -> _Refusals:
        more = len(chunks) * CHUNK - len(cached.nodes)
        is_refused = np.concatenate([cached.is_refused, np.zeros(more, np.bool_)])
        nodes, in_use = cached.nodes + [None] * more, cached.in_use + [None] * more
        ids, now, table = self._view.rows.ids, self._view.columns.in_use, self._view.snapshot.nodes
        for number, (chunk, then) in enumerate(zip(chunks, cached.chunks, strict=False)):
            # A change of a node, or of what is in use on it, makes new arrays for its chunk.
            if chunk.used is then.used and chunk.offered is then.offered:
                continue
            first = number * CHUNK
            for row in (np.flatnonzero(is_refused[first : first + CHUNK]) + first).tolist():
                is_same = now.get(ids[row], NOTHING_IN_USE) is in_use[row] and table.get(ids[row]) is nodes[row]
                if not is_same:
                    is_refused[row], nodes[row], in_use[row] = False, None, None
        return _Refusals(chunks, is_refused, nodes, in_use)

    def _store(self, refusals: _Refusals) -> None:
        lasting = self._view.rows.lasting
        if self._key not in lasting:
            keys: list[Hashable] = lasting.setdefault(KEYS, [])
            keys.append(self._key)
            if len(keys) > REQUESTS_MAX:
                lasting.pop(keys.pop(0), None)
        lasting[self._key] = refusals


class RefusalsInTurn:
    """The rows that refuse during one placement, from the first on: each is closed when its turn in the ranking comes.

    Known refusals are set aside together once a first row refuses for its devices. Those that rank before the next row
    count as asked: results are those of asking each.
    """

    def __init__(self, ranker: Ranker, *, is_plain: bool) -> None:
        """`is_plain`: the ranking has no exceptions for this placement."""
        self._ranker = ranker
        self._valid = DeviceRefusals(ranker.view, ranker.ask) if ranker.ask.devices else None
        """The known refusals of the group's devices; None for a group without any."""
        self._can_set_aside = is_plain and ranker.can_set_aside
        self._aside: SetAsideRows | None = None

    def add(self, row: int, reason: str) -> None:
        """The best row refused."""
        ranker = self._ranker
        ranker.exhausted.refuse(row, reason)
        ranker.close(row)
        if self._valid is not None and reason == NO_DEVICES:
            self._valid.note(row)
            if self._can_set_aside:
                self._can_set_aside = False
                self._aside = ranker.set_aside(self._valid.rows())

    def pass_over(self, row: int | None) -> int:
        """The next row is asked, or there is none: close the known refusals before it; their number."""
        if self._aside is None:
            number = 0
        else:
            passed, self._aside = self._ranker.pass_over(self._aside, row)
            self._ranker.exhausted.refuse_all(passed, NO_DEVICES)
            number = len(passed)
        if row is None and self._valid is not None:
            self._valid.keep()
        return number

    def end(self) -> None:
        """A row is placed on."""
        if self._aside is not None:
            self._ranker.bring_back(self._aside)
        if self._valid is not None:
            self._valid.keep()
