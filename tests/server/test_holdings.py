"""What a server still holds of allocations that a collection of garbage has deleted."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

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


ALLOCS: Final = 20
WARM_UP, ROUNDS = 3, 4


async def collected_round(bench: Any, number: int, with_count: Any) -> int:
    """Have a job's allocations end and collect them; how many blocks of memory Python's objects take then."""
    server, name = bench.server, f"round-{number}"
    await server.resources.jobs.register(with_count(factories.job(id=name, name=name, type="batch"), ALLOCS))
    await bench.until(lambda: len(bench.live(name)) == ALLOCS)
    ended = tuple(AllocUpdate(id=each.id, node_id=each.node_id, client_status="complete") for each in bench.live(name))
    await server.replica.propose(UpdateAllocsFromClient(updates=ended, now=bench.env.now()))
    await bench.idle()
    await server.resources.jobs.deregister("default", name, purge=True)
    await bench.idle()
    await server.resources.system.collect_garbage()
    await bench.until(lambda: not len(server.state.allocs))
    await bench.idle()
    gc.collect()
    return sys.getallocatedblocks()


async def test_collected_allocations_leave_no_objects(run_server: Any, with_count: Any) -> None:
    """Counts blocks, not pages: how many of these go back depends on what lies beside them.

    No event is kept for late readers: the buffer of 100 would have to be full first.
    """
    async with run_server(log=MemoryLog(), dev=True, event_buffer_size=0) as bench:
        for _ in range(4):
            await bench.add_node()
        counts = [await collected_round(bench, number, with_count) for number in range(WARM_UP + ROUNDS)]
        # A round writes five steps of the node columns' history, of two blocks each, until that begins anew. A job
        # whose resources are kept takes 40 blocks.
        assert counts[-1] - counts[WARM_UP - 1] < 20 * ROUNDS, counts
