"""The rendezvous of gangs: members wait here until all of them are set up, and learn when one is lost.

The waiting members are known to the leader alone, and are not part of the state: a call is an allocation that waits,
and clients call again after a change of leaders. What all members must agree on, the roster of a generation, is decided
in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied
from yurt.sdk.value import replace
from yurt.server.failures import no_leader
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.state.gangs import candidates, gang_key, gang_of, is_live, loss, size_needed
from yurt.state.watch import Watches
from yurt.structs.alloc import Allocation
from yurt.structs.commands import FormGang
from yurt.structs.queueing.gang import (
    FORMED,
    LATEST,
    OVER,
    WAITING,
    GangAnswer,
    GangKey,
    GangQuery,
    GangRoster,
)

WAIT_MAX_S: Final = 60.0
"""The longest wait of one call."""


class _GangCall:
    """A member that waits for a generation, or for the end of one."""

    def __init__(self, query: GangQuery) -> None:
        self.query = query
        self.changed = asyncio.Event()
        self.is_sent_away = False
        """Whether this server has stopped leading."""


class _GangView(NamedTuple):
    """A gang in one state."""

    state_index: int
    roster: GangRoster | None
    members: frozenset[str]
    """The ids of the roster's allocations."""
    loss: str
    """Which member of it is lost."""
    is_running: bool
    """A member of it is live."""
    candidates: Sequence[Allocation]
    """The candidates for the next generation."""
    needed: int
    is_elastic: bool


class _GangCalls:
    """The calls of one gang's members."""

    def __init__(self) -> None:
        self.calls: dict[_GangCall, None] = {}
        """In the order in which they came, by which they are answered."""
        self.waiting: dict[str, int] = {}
        """The allocations that wait for a generation, with the last one that they ran in."""
        self.view: _GangView | None = None
        self.is_forming = False
        """A command that forms the next generation is under way."""

    def add(self, call: _GangCall) -> None:
        """A call begins."""
        self.calls[call] = None
        if not call.query.is_running:
            self.waiting[call.query.alloc_id] = call.query.generation

    def discard(self, call: _GangCall) -> None:
        """A call ends; an allocation waits as long as one of its calls does."""
        self.calls.pop(call, None)
        query = call.query
        if not query.is_running and not any(
            each.query.alloc_id == query.alloc_id and not each.query.is_running for each in self.calls
        ):
            self.waiting.pop(query.alloc_id, None)

    def wake(self, *, only_running: bool = False) -> None:
        """Have the calls check the state again."""
        for call in self.calls:
            if call.query.is_running or not only_running:
                call.changed.set()

    def end(self, view: _GangView) -> str:
        """Why the generation is over: a member is lost or starts again, or an elastic gang gets another one."""
        if view.loss or view.roster is None:
            return view.loss
        for member in view.roster.members:
            if self.waiting.get(member.alloc_id, -1) >= view.roster.generation:
                return f"{member.name} starts again"
        joining = (each for each in view.candidates if each.id in self.waiting and each.id not in view.members)
        name = next((alloc.name for alloc in joining), "") if view.is_elastic else ""
        return f"{name} joins" if name else ""


class GangRendezvous:
    """The calls of the members of all gangs, at the leader."""

    def __init__(self, replica: Replica, watches: Watches) -> None:
        self._replica = replica
        self._watches = watches
        self._gangs: dict[GangKey, _GangCalls] = {}

    async def follow(self, query: GangQuery) -> GangAnswer:
        """Answer once a generation has formed with the allocation, or, while it runs, once that one is over.

        After the query's time the answer is `waiting`, with the missing members. Raises NotFound, PermissionDenied or
        Invalid for an allocation that is not the node's or has no rendezvous, Unavailable when this server leads no
        more.
        """
        key = gang_key(self._alloc_of(query))
        roster = self._replica.state.gang_rosters.get(key)
        if query.generation == LATEST:
            query = replace(query, generation=roster.generation if roster is not None else 0)
        with self._called(key, query) as (gang, call):
            try:
                async with self._replica.env.timeout(min(query.timeout_s, WAIT_MAX_S)):
                    return await self._settled(key, gang, call)
            except TimeoutError:
                return self._answer(key, gang, query)

    async def _settled(self, key: GangKey, gang: _GangCalls, call: _GangCall) -> GangAnswer:
        """The answer that is not `waiting`."""
        while True:
            if call.is_sent_away:
                raise no_leader()
            call.changed.clear()
            answer = self._answer(key, gang, call.query)
            if answer.status != WAITING:
                return answer
            if not await self._form(key, gang):
                await call.changed.wait()

    def end_term(self) -> None:
        """Send all who wait here to the next leader."""
        for gang in self._gangs.values():
            for call in gang.calls:
                call.is_sent_away = True
            gang.wake()

    @contextmanager
    def _called(self, key: GangKey, query: GangQuery) -> Iterator[tuple[_GangCalls, _GangCall]]:
        """Count a call while it waits.

        Who waits as well need not hear of it, the last one who comes forms the generation; those that run may have to
        start again.
        """
        gang, call = self._gangs.setdefault(key, _GangCalls()), _GangCall(query)
        cancel = self._watches.add((("allocs", "job", key[:2]), ("gang_rosters", key)), call.changed.set)
        gang.add(call)
        if not query.is_running:
            gang.wake(only_running=True)
        try:
            yield gang, call
        finally:
            cancel()
            gang.discard(call)
            if not gang.calls:
                self._gangs.pop(key, None)

    def _alloc_of(self, query: GangQuery) -> Allocation:
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id:
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")
        if gang_of(alloc) is None:
            raise Invalid(f"the group of allocation {alloc.id} has no rendezvous")
        return alloc

    def _answer(self, key: GangKey, gang: _GangCalls, query: GangQuery) -> GangAnswer:
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None or not is_live(alloc):
            # Its client stops it soon.
            return GangAnswer(status=WAITING, generation=query.generation)
        view = self._view(key, gang)
        roster, is_member, end = view.roster, query.alloc_id in view.members, gang.end(view)
        if query.is_running:
            if query.generation and not (roster is not None and is_member and roster.generation == query.generation):
                end = end or "another generation has formed"
            return GangAnswer(status=OVER if end else WAITING, reason=end, generation=query.generation)
        if roster is not None and is_member and roster.generation > query.generation and not end:
            return GangAnswer(status=FORMED, roster=roster)
        return GangAnswer(
            status=WAITING,
            missing=tuple(alloc.name for alloc in view.candidates if alloc.id not in gang.waiting),
            unplaced=max(0, view.needed - len(view.candidates)),
            generation=query.generation,
            is_busy=view.is_running and not end,
        )

    def _view(self, key: GangKey, gang: _GangCalls) -> _GangView:
        """The gang in the present state; made once for each, because all members ask after each change."""
        state = self._replica.state
        if gang.view is None or gang.view.state_index != state.index:
            gang.view = _look(state, key)
        return gang.view

    async def _form(self, key: GangKey, gang: _GangCalls) -> bool:
        """Begin the next generation if all of its members wait; whether that was tried."""
        view = self._view(key, gang)
        if gang.is_forming or len(view.candidates) < max(1, view.needed):
            return False
        if any(alloc.id not in gang.waiting for alloc in view.candidates):
            return False
        namespace, job_id, group = key
        command = FormGang(
            namespace=namespace,
            job_id=job_id,
            group=group,
            after=view.roster.generation if view.roster is not None else 0,
            members=tuple(alloc.id for alloc in view.candidates),
        )
        gang.is_forming = True
        try:
            with suppress(Conflict):  # A member was lost meanwhile: look again.
                await self._replica.propose(command)
        finally:
            gang.is_forming = False
            gang.wake()
        return True


def _look(state: Snapshot, key: GangKey) -> _GangView:
    roster, find = state.gang_rosters.get(key), state.allocs.get
    candidate_allocs = candidates(state.allocs_of_job(*key[:2]), key[2])
    job = state.jobs.get(key[:2])
    group = job.group(key[2]) if job is not None else None
    gang = gang_of(candidate_allocs[0]) if candidate_allocs else None
    members = [find(member.alloc_id) for member in roster.members] if roster is not None else []
    needed = 1
    if gang is not None and group is not None:
        needed = size_needed(gang, group.count, roster, find, candidate_allocs=candidate_allocs)
    return _GangView(
        state_index=state.index,
        roster=roster,
        members=frozenset(alloc.id for alloc in members if alloc is not None),
        loss=loss(roster, find) if roster is not None else "",
        is_running=any(alloc is not None and is_live(alloc) for alloc in members),
        candidates=candidate_allocs,
        needed=needed,
        is_elastic=gang is not None and gang.elastic,
    )
