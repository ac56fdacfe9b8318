"""Tasks of a preempted allocation save their work before they are stopped, and the servers hear when they did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from yurt.client.tasks.checkpoints import DONE
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation, RescheduleTracker
from yurt.structs.policies import Checkpoint, Requeue
from yurt.structs.status import CLIENT_COMPLETE, DESIRED_EVICT, DESIRED_STOP
from yurt.testing import factories
from yurt.testing.client_objects import messages, placed, running
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

LONG = seconds(3600)


def trainer(node_id: str, *, grace: Duration = LONG, **changes: Any) -> Allocation:
    """An allocation whose task saves its work."""
    saves = Checkpoint(signal="SIGUSR1", grace=grace, path="deep/saved")
    group = factories.group(update=None, checkpoint=saves, requeue=Requeue())
    return replace(placed(node_id, job=factories.job(type="batch", task_groups=(group,))), **changes)


def folder(tmp_path: Path, alloc: Allocation) -> Path:
    """The checkpoint directory on the host."""
    return tmp_path / "alloc" / alloc.id / "alloc" / "data" / "deep" / "saved"


def kinds(server: FakeServerPort, alloc: Allocation) -> list[str]:
    """The types of the task's events."""
    return [event.type for event in server.last_update(alloc.id).task_states["web"].events]


async def preempt(server: FakeServerPort, driver: FakeDriver, alloc: Allocation) -> str:
    """Preempt an allocation; returns its run once it has got the signal."""
    run = f"{alloc.id}/web/0"
    server.put_alloc(replace(alloc, desired_status=DESIRED_EVICT, desired_description="Preempted by alloc ID b"))
    await eventually(lambda: driver.host.tasks[run].signals == ["SIGUSR1"])
    return run


async def test_a_task_that_ends_in_its_grace_is_preempted_whatever_its_exit_code(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
) -> None:
    async with run_client() as client:
        alloc = trainer(client.node_id)
        await running(server, alloc)
        run = await preempt(server, driver, alloc)
        part = folder(tmp_path, alloc) / "state"
        part.write_text("half")
        driver.finish(run, ExitResult(exit_code=3))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert kinds(server, alloc)[-5:] == ["Preempting", "Killing", "Checkpointing", "Terminated", "Killed"]
        assert "Preempted by alloc ID b" in messages(server, alloc)
        state = server.last_update(alloc.id).task_states["web"]
        assert not state.failed and state.checkpointed_at == part.stat().st_mtime_ns


async def test_a_task_that_says_it_has_saved_is_stopped_before_its_grace_is_over(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
) -> None:
    async with run_client() as client:
        alloc = trainer(client.node_id)
        await running(server, alloc)
        run = await preempt(server, driver, alloc)
        (folder(tmp_path, alloc) / DONE).touch()
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert driver.host.stops == [run]


async def test_a_grace_ends(run_client, server: FakeServerPort, driver: FakeDriver) -> None:
    async with run_client() as client:
        alloc = trainer(client.node_id, grace=Duration(10_000_000))
        await running(server, alloc)
        run = await preempt(server, driver, alloc)
        await eventually(lambda: driver.host.stops == [run])


async def test_what_is_stopped_for_good_gets_no_warning(run_client, server: FakeServerPort, driver: FakeDriver) -> None:
    async with run_client() as client:
        alloc = trainer(client.node_id)
        await running(server, alloc)
        server.put_alloc(replace(alloc, desired_status=DESIRED_STOP))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert {"Preempting", "Checkpointing"}.isdisjoint(kinds(server, alloc))


async def test_a_task_reads_where_to_save_and_what_became_of_those_before_it(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
) -> None:
    async with run_client() as client:
        alloc = trainer(client.node_id, reschedule_tracker=RescheduleTracker(requeues=2))
        await running(server, alloc)
        env = driver.host.tasks[f"{alloc.id}/web/0"].request.env
        assert env["YURT_CHECKPOINT_DIR"].endswith("/data/deep/saved")
        assert (env["YURT_REQUEUE_COUNT"], env["YURT_REQUEUE_REASON"]) == ("2", "preempted")


@pytest.mark.parametrize("at", ["deep", "deep/saved"])
async def test_a_link_in_the_place_of_the_directory_is_not_followed(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path, at: str
) -> None:
    async with run_client() as client:
        first = trainer(client.node_id)
        await running(server, first)
        place = tmp_path / "alloc" / first.id / "alloc" / "data" / at
        place.rename(place.with_name("aside"))
        os.symlink("/etc", place)
        await preempt(server, driver, first)
        driver.finish(f"{first.id}/web/0", ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(first.id) == CLIENT_COMPLETE)
        assert not server.last_update(first.id).task_states["web"].checkpointed_at
