"""Workload identities of tasks on a client, with a fake server, driver and clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace, seconds
from yurt.structs.service import WorkloadIdentity
from yurt.structs.status import CLIENT_RUNNING
from yurt.structs.task import Template
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually

NS = 1_000_000_000


def with_identities(node_id: str, *identities: WorkloadIdentity, **changes: Any) -> Any:
    job = factories.job(type="service")
    group = job.task_groups[0]
    task = replace(group.tasks[0], identities=identities, **changes)
    return placed(node_id, job=replace(job, task_groups=(replace(group, tasks=(task,)),)))


async def test_tokens_are_in_environment_and_files_of_the_task(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    default = WorkloadIdentity(name="default", env=True, file=True)
    named = WorkloadIdentity(name="db", env=True, file=True, filepath="local/db.jwt")
    hidden = WorkloadIdentity(name="none")
    text = Template(dest_path="local/t", embedded_tmpl='{{ env "NOMAD_TOKEN" }}')
    async with run_client() as client:
        alloc = with_identities(client.node_id, named, hidden, identity=default, templates=(text,))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        request = driver.host.tasks[driver.host.starts[0]].request
        assert request is not None
        folder, task = Path(request.dirs.task_dir), request.task_name
    assert request.env["NOMAD_TOKEN"] == f"{task}.default.1" == (folder / "secrets/nomad_token").read_text()
    assert request.env["NOMAD_TOKEN_db"] == f"{task}.db.2" == (folder / "local/db.jwt").read_text()
    assert "NOMAD_TOKEN_none" not in request.env
    assert (folder / "secrets/nomad_token").stat().st_mode & 0o777 == 0o644
    assert (folder / "local/t").read_text() == request.env["NOMAD_TOKEN"]


async def test_a_token_is_renewed_at_half_its_time_and_the_task_is_told(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    env = FakeEnv()
    server.token_ends_at = lambda: env.now() + 60 * NS
    short = WorkloadIdentity(name="db", file=True, ttl=seconds(60), change_mode="signal", change_signal="SIGUSR1")
    async with run_client(env=env) as client:
        alloc = with_identities(client.node_id, short)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        task = driver.host.tasks[driver.host.starts[0]]
        assert task.request is not None
        file = Path(task.request.dirs.secrets_dir) / "nomad_db.jwt"
        first = file.read_text()
        await env.advance(26)
        assert file.read_text() == first and not task.signals
        await env.advance(5)
        await eventually(lambda: task.signals == ["SIGUSR1"])
        assert file.read_text() != first


async def test_a_renewal_that_restarts_gives_the_new_run_a_new_token(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    env = FakeEnv()
    server.token_ends_at = lambda: env.now() + 60 * NS
    short = WorkloadIdentity(name="db", env=True, ttl=seconds(60), change_mode="restart")
    async with run_client(env=env) as client:
        alloc = with_identities(client.node_id, short)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        first = driver.host.tasks[driver.host.starts[0]].request
        await env.advance(31)
        await eventually(lambda: len(driver.host.starts) == 2)
        await eventually(lambda: driver.host.starts[1] in driver.host.tasks)
        second = driver.host.tasks[driver.host.starts[1]].request
    assert first is not None and second is not None
    assert first.env["NOMAD_TOKEN_db"] != second.env["NOMAD_TOKEN_db"]


async def test_a_start_without_a_token_is_tried_again(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        alloc = with_identities(client.node_id, WorkloadIdentity(name="db", env=True))
        sign, failures = server.sign_identity, [Unavailable("No cluster leader")]

        async def refuse(query: Any) -> Any:
            if failures:
                raise failures.pop()
            return await sign(query)

        server.sign_identity = refuse  # type: ignore[method-assign]
        server.put_alloc(alloc)
        await eventually(lambda: not failures)
        states = server.last_update(alloc.id).task_states
        await eventually(
            lambda: any(
                "cannot hand out the task's identity: No cluster leader" in event.display_message
                for update in server.updates
                for state in update.task_states.values()
                for event in state.events
            )
        )
        assert not driver.host.starts and states


async def test_a_new_agent_signs_again_for_a_task_that_runs_on(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    short = WorkloadIdentity(name="db", file=True, ttl=seconds(600))
    server.token_ends_at = lambda: 2**62
    async with run_client() as client:
        alloc = with_identities(client.node_id, short)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    request = driver.host.tasks[driver.host.starts[0]].request
    assert request is not None
    file = Path(request.dirs.secrets_dir) / "nomad_db.jwt"
    first = file.read_text()
    async with run_client():
        await eventually(lambda: file.read_text() != first)
    assert len(driver.host.starts) == 1
