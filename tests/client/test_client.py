"""A client runs what its servers place on it and reports how it fares."""

from __future__ import annotations

from yurt.sdk.driver import ExitResult
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually


async def test_a_placed_allocation_runs_and_its_end_is_reported(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id, job=factories.job(type=JOB_BATCH))

        server.put_alloc(alloc)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        texts = [event.display_message for event in server.last_update(alloc.id).task_states["web"].events]
        assert texts == [
            "Task received by client",
            "Building Task Directory",
            "Task started by client",
            "Exit Code: 0",
        ]
