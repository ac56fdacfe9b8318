"""What a server still holds of allocations that a collection of garbage has deleted."""

from __future__ import annotations

import gc
from typing import Any

from yurt.state import Snapshot
from yurt.state.store import Change
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import AllocUpdate, UpdateAllocsFromClient
from yurt.testing import factories


async def test_after_a_collection_no_old_state_is_held(run_server: Any) -> None:
    async with run_server(log=MemoryLog(), dev=True) as bench:
        server = bench.server
        await bench.add_node()
        await server.resources.jobs.register(factories.job(id="gone", name="gone", type="batch"))
        await bench.until(lambda: bench.live("gone"))
        allocs = [alloc.id for alloc in bench.live("gone")]
        ended = tuple(
            AllocUpdate(id=each, node_id=server.state.allocs[each].node_id, client_status="complete") for each in allocs
        )
        await server.replica.propose(UpdateAllocsFromClient(updates=ended, now=bench.env.now()))
        await bench.idle()
        await server.resources.jobs.deregister("default", "gone", purge=True)
        await bench.idle()
        await server.resources.system.collect_garbage()
        await bench.until(lambda: not len(server.state.allocs))
        await bench.idle()
        gc.collect()
        rows = [each for each in gc.get_objects() if isinstance(each, Change) and each.key in allocs]
        assert not rows
        holders = [each for each in gc.get_objects() if isinstance(each, Snapshot) and allocs[0] in each.allocs]
        assert not holders
