"""The rendezvous of gangs: members wait here until all of them are set up, and learn when one is lost.

Who waits is known to the leader alone, and is no part of the state: a call is an allocation that waits, and clients
call again after a change of leaders. What all members must agree on, the roster of a generation, is decided in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied
from yurt.sdk.value import replace
from yurt.server.failures import no_leader
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.state.gangs import candidates, gang_key, gang_of, is_live, loss, size_needed, version_of
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


class _Call:
    """A member that waits for a generation, or for the end of one."""

    def __init__(self, query: GangQuery) -> None:
        self.query = query
        self.changed = asyncio.Event()
        self.is_sent_away = False
        """This server leads no more."""


class _View(NamedTuple):
    """A gang as one state shows it, and who waits; all its members' calls are answered from it."""

    state_index: int
    calls: int
    roster: GangRoster | None
    ranks: Mapping[str, int]
    end: str
    """Why the roster's generation is over."""
    found: Sequence[Allocation]
    """The candidates for the next generation."""
    missing: tuple[str, ...]
    """The names of those that do not wait yet."""
    needed: int


class _Gang:
    """The calls of one gang's members."""

    def __init__(self) -> None:
        self.calls: set[_Call] = set()
        self.changes = 0
        """How often a call came or ended."""
        self.view: _View | None = None
        self.is_forming = False
        """A command that forms the next generation is under way."""

    def waiting(self) -> dict[str, int]:
        """The allocations that wait for a generation, with the last one that they ran in."""
        return {call.query.alloc_id: call.query.generation for call in self.calls if not call.query.is_running}

    def wake(self, *, only_running: bool = False) -> None:
        """Have calls look again."""
        for call in self.calls:
            if call.query.is_running or not only_running:
                call.changed.set()


class GangRendezvous:
    """The calls of the members of all gangs, at the leader."""

    def __init__(self, replica: Replica, watches: Watches) -> None:
        self._replica = replica
        self._watches = watches
        self._gangs: dict[GangKey, _Gang] = {}

    async def follow(self, query: GangQuery) -> GangAnswer:
        """Answer once a generation has formed with the allocation, or, while it runs, once that one is over.

        After the query's time the answer is `waiting`, with what is missing. Raises NotFound, PermissionDenied or
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
                    while True:
                        if call.is_sent_away:
                            raise no_leader()
                        call.changed.clear()
                        answer = self._answer(key, gang, query)
                        if answer.status != WAITING:
                            return answer
                        if not await self._form(key, gang):
                            await call.changed.wait()
            except TimeoutError:
                return self._answer(key, gang, query)

    def end_term(self) -> None:
        """Send all who wait here to the next leader."""
        for gang in self._gangs.values():
            for call in gang.calls:
                call.is_sent_away = True
            gang.wake()

    @contextmanager
    def _called(self, key: GangKey, query: GangQuery) -> Iterator[tuple[_Gang, _Call]]:
        """Count a call while it waits.

        Who waits as well need not hear of it, the last one who comes forms the generation; those that run may have to
        start again.
        """
        gang, call = self._gangs.setdefault(key, _Gang()), _Call(query)
        cancel = self._watches.add((("allocs", "job", key[:2]), ("gang_rosters", key)), call.changed.set)
        gang.calls.add(call)
        gang.changes += 1
        if not query.is_running:
            gang.wake(only_running=True)
        try:
            yield gang, call
        finally:
            cancel()
            gang.calls.discard(call)
            gang.changes += 1
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

    def _answer(self, key: GangKey, gang: _Gang, query: GangQuery) -> GangAnswer:
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None or not is_live(alloc):
            # Its client stops it soon.
            return GangAnswer(status=WAITING, generation=query.generation)
        view = self._view(key, gang)
        roster, is_member = view.roster, query.alloc_id in view.ranks
        if query.is_running:
            end = view.end
            if roster is not None and not (is_member and roster.generation == query.generation):
                end = end or "another generation has formed"
            return GangAnswer(status=OVER if end else WAITING, reason=end, generation=query.generation)
        if roster is not None and is_member and roster.generation > query.generation and not view.end:
            return GangAnswer(status=FORMED, roster=roster)
        return GangAnswer(
            status=WAITING,
            missing=view.missing,
            unplaced=max(0, view.needed - len(view.found)),
            generation=query.generation,
            is_busy=roster is not None and not view.end,
        )

    def _view(self, key: GangKey, gang: _Gang) -> _View:
        """The gang now; made once for each change, because all members ask after each."""
        state = self._replica.state
        if gang.view is None or (gang.view.state_index, gang.view.calls) != (state.index, gang.changes):
            gang.view = _look(state, key, gang)
        return gang.view

    async def _form(self, key: GangKey, gang: _Gang) -> bool:
        """Begin the next generation if all of its members wait; whether that was tried."""
        view = self._view(key, gang)
        if gang.is_forming or not view.found or view.missing or len(view.found) < view.needed:
            return False
        namespace, job_id, group = key
        command = FormGang(
            namespace=namespace,
            job_id=job_id,
            group=group,
            generation=(view.roster.generation if view.roster is not None else 0) + 1,
            members=tuple(alloc.id for alloc in view.found),
        )
        gang.is_forming = True
        try:
            with suppress(Conflict):  # A member was lost meanwhile: look again.
                await self._replica.propose(command)
        finally:
            gang.is_forming = False
            gang.wake()
        return True


def _look(state: Snapshot, key: GangKey, calls: _Gang) -> _View:
    roster, waiting = state.gang_rosters.get(key), calls.waiting()
    found = candidates(state.allocs_of_job(*key[:2]), key[2])
    job = state.jobs.get(key[:2])
    group = job.group(key[2]) if job is not None else None
    gang = gang_of(found[0]) if found else None
    needed = 1
    if gang is not None and group is not None:
        needed = size_needed(gang, group.count, roster, state.allocs.get, version=version_of(found))
    ranks = {member.alloc_id: rank for rank, member in enumerate(roster.members)} if roster is not None else {}
    is_elastic = gang is not None and gang.elastic
    return _View(
        state_index=state.index,
        calls=calls.changes,
        roster=roster,
        ranks=ranks,
        end=_end(state, roster, waiting, found if is_elastic else ()) if roster is not None else "",
        found=found,
        missing=tuple(alloc.name for alloc in found if alloc.id not in waiting),
        needed=needed,
    )


def _end(state: Snapshot, roster: GangRoster, waiting: Mapping[str, int], joining: Iterable[Allocation]) -> str:
    """Why a generation is over: a member is lost or starts again, or an elastic gang gets another one."""
    if reason := loss(roster, state.allocs.get):
        return reason
    members = {member.alloc_id for member in roster.members}
    again = (member.name for member in roster.members if waiting.get(member.alloc_id, -1) >= roster.generation)
    if name := next(again, ""):
        return f"{name} starts again"
    name = next((alloc.name for alloc in joining if alloc.id in waiting and alloc.id not in members), "")
    return f"{name} joins" if name else ""
