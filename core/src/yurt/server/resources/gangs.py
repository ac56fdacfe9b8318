"""The rendezvous of gangs: members wait here until all of them are set up, and learn when one is lost.

Who waits is known to the leader alone, and is no part of the state: a call is an allocation that waits, and clients
call again after a change of leaders. What all members must agree on, the roster of a generation, is decided in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied
from yurt.sdk.value import replace
from yurt.server.failures import no_leader
from yurt.server.log.replica import Replica
from yurt.state.gangs import candidates, gang_key, gang_of, is_live, loss, size_needed
from yurt.state.watch import Watches
from yurt.structs.alloc import Allocation
from yurt.structs.commands import FormGang
from yurt.structs.policies import Gang
from yurt.structs.queueing.gang import (
    FORMED,
    LATEST,
    OVER,
    WAITING,
    GangAnswer,
    GangKey,
    GangQuery,
    GangRoster,
    GangStatus,
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


class GangRendezvous:
    """The calls of the members of all gangs, at the leader."""

    def __init__(self, replica: Replica, watches: Watches) -> None:
        self._replica = replica
        self._watches = watches
        self._calls: dict[GangKey, set[_Call]] = {}

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
        with self._called(key, query) as call:
            try:
                async with self._replica.env.timeout(min(query.timeout_s, WAIT_MAX_S)):
                    while True:
                        if call.is_sent_away:
                            raise no_leader()
                        call.changed.clear()
                        answer = self._answer(key, query)
                        if answer.status != WAITING:
                            return answer
                        if not await self._form(key):
                            await call.changed.wait()
            except TimeoutError:
                return self._answer(key, query)

    def end_term(self) -> None:
        """Send all who wait here to the next leader."""
        for key, calls in self._calls.items():
            for call in calls:
                call.is_sent_away = True
            self._wake(key)

    @contextmanager
    def _called(self, key: GangKey, query: GangQuery) -> Iterator[_Call]:
        """Count a call while it waits, and wake it, and the others of its gang, by what changes."""
        call = _Call(query)
        cancel = self._watches.add((("allocs", "job", key[:2]), ("gang_rosters", key)), call.changed.set)
        self._calls.setdefault(key, set()).add(call)
        self._wake(key)
        try:
            yield call
        finally:
            cancel()
            self._calls[key].discard(call)
            if not self._calls[key]:
                del self._calls[key]

    def _wake(self, key: GangKey) -> None:
        for call in self._calls[key]:
            call.changed.set()

    def _alloc_of(self, query: GangQuery) -> Allocation:
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id:
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")
        if gang_of(alloc) is None:
            raise Invalid(f"the group of allocation {alloc.id} has no rendezvous")
        return alloc

    def _answer(self, key: GangKey, query: GangQuery) -> GangAnswer:
        state = self._replica.state
        roster, alloc = state.gang_rosters.get(key), state.allocs.get(query.alloc_id)
        if alloc is None or not is_live(alloc):
            # Its client stops it soon.
            return GangAnswer(status=WAITING, generation=query.generation)
        end = self._end(key, roster) if roster is not None else ""
        if query.is_running:
            if roster is not None and (roster.generation != query.generation or roster.rank_of(alloc.id) < 0):
                end = end or "another generation has formed"
            status: GangStatus = OVER if end else WAITING
            return GangAnswer(status=status, reason=end, generation=query.generation)
        if roster is not None and roster.generation > query.generation and roster.rank_of(alloc.id) >= 0 and not end:
            return GangAnswer(status=FORMED, roster=roster)
        answer = self._waiting(key, roster, is_busy=roster is not None and not end)
        return replace(answer, generation=query.generation)

    def _waiting(self, key: GangKey, roster: GangRoster | None, *, is_busy: bool) -> GangAnswer:
        found, waiting = self._candidates(key), self._who_waits(key)
        needed = self._needed(key, found, roster)
        return GangAnswer(
            status=WAITING,
            missing=tuple(alloc.name for alloc in found if alloc.id not in waiting),
            unplaced=max(0, needed - len(found)),
            is_busy=is_busy,
        )

    def _end(self, key: GangKey, roster: GangRoster) -> str:
        """Why a generation is over: a member is lost or starts again, or an elastic gang gets a new one."""
        state, waiting = self._replica.state, self._who_waits(key)
        if reason := loss(roster, state.allocs.get):
            return reason
        for member in roster.members:
            if waiting.get(member.alloc_id, -1) >= roster.generation:
                return f"{member.name} starts again"
        for alloc in self._candidates(key):
            gang = gang_of(alloc)
            if gang is not None and gang.elastic and alloc.id in waiting and roster.rank_of(alloc.id) < 0:
                return f"{alloc.name} joins"
        return ""

    async def _form(self, key: GangKey) -> bool:
        """Begin the next generation if all of its members wait; whether that was tried."""
        found, waiting = self._candidates(key), self._who_waits(key)
        roster = self._replica.state.gang_rosters.get(key)
        if not found or any(alloc.id not in waiting for alloc in found):
            return False
        if len(found) < self._needed(key, found, roster):
            return False
        members = tuple(alloc.id for alloc in found)
        generation = (roster.generation if roster is not None else 0) + 1
        namespace, job_id, group = key
        with suppress(Conflict):  # Another call was faster, or a member was lost: look again.
            await self._replica.propose(
                FormGang(namespace=namespace, job_id=job_id, group=group, generation=generation, members=members)
            )
        return True

    def _candidates(self, key: GangKey) -> list[Allocation]:
        return candidates(self._replica.state.allocs_of_job(*key[:2]), key[2])

    def _needed(self, key: GangKey, found: list[Allocation], roster: GangRoster | None) -> int:
        state = self._replica.state
        job = state.jobs.get(key[:2])
        group = job.group(key[2]) if job is not None else None
        gang: Gang | None = gang_of(found[0]) if found else None
        if gang is None or group is None:
            return 1
        return size_needed(gang, group.count, roster, state.allocs.get)

    def _who_waits(self, key: GangKey) -> dict[str, int]:
        """The allocations that wait for a generation, with the last one that they ran in."""
        calls = self._calls.get(key, ())
        return {call.query.alloc_id: call.query.generation for call in calls if not call.query.is_running}
