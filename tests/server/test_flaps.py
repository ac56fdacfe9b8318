"""Leadership that comes and goes in any order, with duties that are slow to begin and slow to end (A3, A4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.fsm.snapshot import digest
from yurt.sdk.errors import Unavailable
from yurt.server.leadership.roles import Roles
from yurt.server.resources.periodic import PeriodicDispatcher
from yurt.structs.commands import KeepAlive
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.cluster_models.shared_log import AppendOutcome
from yurt.testing.fakes import FakeEnv, eventually

SLOW_TURNS = 30
BOUND_S = 30.0
TURNS_MAX = 10_000

WORDS = st.lists(
    st.tuples(st.sampled_from((*NAMES, "", "unknown", "lost")), st.sampled_from((0, 1, 3, 10, 40))),
    min_size=1,
    max_size=12,
)
"""Who leads next, or an append of unknown outcome; and for how many turns of the loop that lasts."""


class SlowDuty:
    """A duty that does not end at once; never twice on one server."""

    def __init__(self) -> None:
        self.writers: list[Any] = []

    @property
    def running(self) -> int:
        """On how many servers it runs."""
        return len(self.writers)

    async def run(self, writer: Any) -> None:
        """Until cancelled, and some turns more."""
        assert writer not in self.writers, "two terms of one server at once"
        self.writers.append(writer)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(SLOW_TURNS):
                await asyncio.sleep(0)
            self.writers.remove(writer)


async def slow_defaults(self: Roles) -> None:
    """The beginning of a term takes its time."""
    for _ in range(SLOW_TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def slow_group() -> AsyncIterator[tuple[ServerGroup, SlowDuty]]:
    """Three servers whose terms begin and end slowly."""
    duty = SlowDuty()
    with (
        mock.patch.object(PeriodicDispatcher, "run", lambda self: duty.run(self._writer)),
        mock.patch.object(Roles, "_set_defaults", slow_defaults),
    ):
        async with ServerGroup(FakeEnv()).running() as group:
            yield group, duty


async def flap(words: list[tuple[str, int]]) -> None:
    """Have the words come, ask servers meanwhile, and look at what is left when it is quiet."""
    async with slow_group() as (group, duty):
        acknowledged = 0
        for word, turns in words:
            if word in ("unknown", "lost") and group.log.leader:
                group.view(group.log.leader).outcomes.append(
                    AppendOutcome.STORED if word == "unknown" else AppendOutcome.LOST
                )
                acknowledged += await tries_to_write(group)
            elif word in (*NAMES, ""):
                group.log.elect(word)
            for _ in range(turns):
                await asyncio.sleep(0)
            for server in group.servers.values():
                server.http.facts.gauges()
                assert server.leader_name == server.config.name or not server.log.writer.is_open
            acknowledged += await tries_to_write(group)
        await calm(group)
        await eventually(lambda: duty.running == 1 and running_roles() == [1, 2, 1], within_s=BOUND_S)
        assert len([command for command in group.log.commands() if isinstance(command, KeepAlive)]) >= acknowledged
        assert len({digest(server.state) for server in group.servers.values()}) == 1


def running_roles() -> list[int]:
    """How many lead, follow and apply plans."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [names.count(name) for name in ("leader", "follower", "plan applier")]


async def tries_to_write(group: ServerGroup) -> int:
    """A write at whoever accepts it; how many were acknowledged. It ends in time either way."""
    server = next((server for server in group.servers.values() if server.log.writer.is_open), None)
    if server is None:
        return 0
    try:
        async with asyncio.timeout(BOUND_S):
            await server.replica.propose(KeepAlive())
    except Unavailable:
        return 0
    return 1


async def calm(group: ServerGroup) -> None:
    """The first server leads for good, and all have what there is."""
    for view in group.log.views.values():
        view.outcomes.clear()
    group.log.elect(NAMES[0])
    for _ in range(TURNS_MAX):  # news of this election, and of earlier ones, may still be on their way
        if await tries_to_write(group):
            break
        await asyncio.sleep(0)
    else:
        pytest.fail("nobody accepts writes")
    await eventually(
        lambda: {server.state.index for server in group.servers.values()} == {group.log.last_index}, within_s=BOUND_S
    )
    await eventually(lambda: [server.is_leader for server in group.servers.values()] == [True, False, False])


@settings(max_examples=15, deadline=None)
@given(words=WORDS)
def test_no_order_of_gains_and_losses_blocks_a_server_or_leaves_a_duty_behind(words: list[tuple[str, int]]) -> None:
    asyncio.run(flap(words))


@pytest.mark.parametrize("turns", range(0, 60, 7))
async def test_a_loss_and_a_gain_while_a_term_begins_leave_one_term(turns: int) -> None:
    await flap([(NAMES[1], turns), (NAMES[0], turns), (NAMES[1], 0), ("", 0), (NAMES[0], 0), (NAMES[1], turns)])


async def test_duties_of_two_servers_overlap_only_until_the_loss_is_known() -> None:
    async with slow_group() as (group, duty):
        await eventually(lambda: duty.running == 1)
        held: Any = group.view(NAMES[0]).delivers
        held.clear()
        group.log.elect(NAMES[1])
        await eventually(lambda: group[NAMES[1]].is_leader)
        assert duty.running == 2
        with pytest.raises(Unavailable, match="No cluster leader"):
            await group[NAMES[0]].replica.propose(KeepAlive())
        await eventually(lambda: duty.running == 1)
        held.set()
