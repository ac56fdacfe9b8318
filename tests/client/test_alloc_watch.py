"""The list of a node's allocations, pulled from one server and fetched from another that knows less."""

from __future__ import annotations

import asyncio

from yurt.client.allocations.alloc_watch import AllocWatch
from yurt.lifecycle.alloc_list import Changes
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.rpc import AllocBatch
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeEnv, FakeServerPort, eventually


class Lags(FakeServerPort):
    """Lists what it has, and gives what another server has that is behind."""

    lag = 1

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """An older state of the allocations, or nothing of them."""
        batch = await super().get_allocs(node_id, alloc_ids)
        older = (replace(each, alloc_modify_index=each.alloc_modify_index - self.lag) for each in batch.allocs)
        return AllocBatch(allocs=tuple(older) if self.lag < 2 else ())


async def test_what_a_server_that_lags_gives_is_not_taken_for_what_was_listed() -> None:
    env, server, taken = FakeEnv(), Lags(), list[Changes]()
    database = ClientDatabase(None)
    alloc = placed("node")
    server.put_alloc(alloc)
    watch = AllocWatch(server, env, database, node_id="node", is_dev=False)

    async def apply(changes: Changes) -> None:
        taken.append(changes)

    running = asyncio.ensure_future(watch.run(least_index=0, apply=apply))
    for server.lag in (1, 2):
        await env.advance(1.5)
        assert not taken
    server.lag = 0
    await env.advance(1.5)
    await eventually(lambda: taken)
    assert [each.id for each in taken[0].fetched] == [alloc.id]
    running.cancel()
    await asyncio.wait({running})
    await database.close()
