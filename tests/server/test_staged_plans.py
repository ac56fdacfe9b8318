"""Plans that are too large for one command and must appear at once, on a running server."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import ApplyPlan, StagePlan
from yurt.structs.commands.packed import unpacked
from yurt.structs.plan import Plan
from yurt.structs.policies import Gang
from yurt.structs.resources import EphemeralDisk, Resources
from yurt.testing import factories


def _job(count: int, **changes: Any) -> Any:
    gang = changes.pop("gang", None)
    task = factories.task(resources=Resources(cpu=1, memory_mb=10))
    disk = EphemeralDisk(size_mb=110)
    group = factories.group(count=count, tasks=(task,), gang=gang, ephemeral_disk=disk)
    return factories.job(task_groups=(group,), **changes)


def _note(seen: set[int], count: int) -> int:
    seen.add(count)
    return count


async def _seen(bench: Any, log: MemoryLog) -> list[int]:
    """How many allocations each command made visible."""
    return [
        len(unpacked(command.plan).placements) + (200 * command.parts if command.staged else 0)
        for entry in [entry async for entry in log.entries(0)]
        for command in entry.commands
        if isinstance(command, ApplyPlan)
    ]


@pytest.mark.parametrize("changes", [{"gang": Gang()}, {"all_at_once": True}])
async def test_a_large_gang_or_all_at_once_job_appears_in_one_step(run_server: Any, changes: dict[str, Any]) -> None:
    log = MemoryLog(keep=None)
    async with run_server(log=log) as bench:
        await bench.add_node()
        seen: set[int] = set()
        await bench.server.resources.jobs.register(_job(450, **changes))
        await bench.until(lambda: _note(seen, len(bench.live())) == 450)
        assert seen <= {0, 450}
        assert len({alloc.create_index for alloc in bench.live()}) == 1
        commands = [c for e in [e async for e in log.entries(0)] for c in e.commands]
        assert sum(isinstance(command, StagePlan) for command in commands) >= 2
        assert await _seen(bench, log) == [450]
        assert not len(bench.server.state.staged_plans)
        (evaluation,) = bench.server.state.evals.where("job", ("default", "web"))
        assert (await bench.server.scheduling.replays.replay(evaluation.id)).is_identical


async def test_a_large_job_that_may_appear_in_parts_is_not_staged(run_server: Any) -> None:
    log = MemoryLog(keep=None)
    async with run_server(log=log) as bench:
        await bench.add_node()
        await bench.server.resources.jobs.register(_job(450))
        await bench.until(lambda: len(bench.live()) == 450)
        assert await _seen(bench, log) == [200, 200, 50]


async def test_a_new_leader_drops_what_the_last_one_staged_and_places_the_gang_itself(run_server: Any) -> None:
    log = MemoryLog(keep=None)
    job = replace(_job(300, gang=Gang()), stop=False)
    async with run_server(log=log) as bench:
        await bench.add_node()
        plan = Plan(eval_id="e", namespace="default", job_id=job.id)
        await bench.server.replica.propose(StagePlan(plan_id="left", number=0, plan=plan))
        assert len(bench.server.state.staged_plans) == 1
    async with run_server(log=log) as bench:
        assert not len(bench.server.state.staged_plans)
        node = next(iter(bench.server.state.nodes.keys()))
        await bench.server.clients.calls.heartbeat(node, "ready")
        await bench.server.resources.jobs.register(job)
        await bench.until(lambda: len(bench.live()) == 300)
        assert len({alloc.create_index for alloc in bench.live()}) == 1
