"""A client runs what its servers place on it, reports how it fares, and never harms a task because of the servers."""

from __future__ import annotations

import asyncio

import pytest
from yurt.lifecycle.task import STOPPING
from yurt.sdk.driver import UNDETECTED, ExitResult, Fingerprint
from yurt.sdk.errors import Conflict, DriverError, Invalid, NotFound, RecoverableError, Unavailable
from yurt.sdk.value import replace, seconds
from yurt.storage.client_db import ClientDatabase
from yurt.structs.policies import DisconnectStrategy, RestartPolicy
from yurt.structs.service import Service
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_FAILED,
    CLIENT_RUNNING,
    CLIENT_UNKNOWN,
    DESIRED_STOP,
    JOB_BATCH,
    NODE_INIT,
    NODE_READY,
)
from yurt.structs.task import DispatchPayloadConfig, TaskLifecycle, TaskSchedule, TaskScheduleCron
from yurt.testing import factories
from yurt.testing.client_objects import messages, placed, running, with_task
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually, settle


def batch(**changes: object) -> object:
    return factories.job(type=JOB_BATCH, **changes)


async def test_a_placed_allocation_runs_and_its_end_is_reported(run_client, server, driver: FakeDriver, caplog):
    caplog.set_level("INFO", "yurt.client")
    async with run_client() as client:
        alloc = placed(client.node_id, job=batch())
        await running(server, alloc)

        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=0))

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert messages(server, alloc) == [
            "Task received by client",
            "Building Task Directory",
            "Task started by client",
            "Exit Code: 0",
        ]
        await eventually(lambda: not driver.host.tasks)
        who = f"alloc={alloc.id[:8]} name={alloc.name}"
        own = [message for message in caplog.messages if alloc.id[:8] in message]
        assert own == [f"allocation started: {who}", f"allocation ended: {who}"]


async def test_the_node_is_registered_with_its_drivers_and_their_schemas(run_client, server: FakeServerPort):
    async with run_client() as client:
        request = server.registrations[-1]

        assert request.node.drivers["fake"].healthy and request.node.attributes["driver.fake"] == "1"
        assert [each["driver"] for each in request.schemas.values()] == ["fake"]
        assert request.node.node_resources.cpu.cpu_shares > 0
        assert request.node.node_resources.memory.memory_mb > 0
        assert client.node.attributes["nomad.version"].startswith("2.0")


async def test_a_driver_that_falls_ill_is_told_to_the_servers_and_in_the_log(run_client, server, driver, caplog):
    async with run_client():
        driver.publish(Fingerprint(health=UNDETECTED, description="gone", fix="install it"))

        await eventually(lambda: not server.registrations[-1].node.drivers["fake"].healthy)
        assert "driver.fake" not in server.registrations[-1].node.attributes
        assert server.registrations[-1].node.drivers["fake"].health_description == "gone; install it"
        assert "driver became unhealthy: driver=fake reason=gone; install it" in caplog.messages


async def test_the_node_is_ready_only_after_its_allocations_are_reported(run_client, server: FakeServerPort):
    async with run_client() as client:
        calls = server.calls

        assert calls.index("register_node") < calls.index("pull_allocs") < calls.index("heartbeat")
        assert server.nodes[client.node_id].status == NODE_READY


async def test_a_restarted_agent_finds_its_tasks_and_starts_none(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        node_id = client.node_id
    server.statuses.clear()
    server.updates.clear()
    again = FakeDriver(driver.host)

    async with run_client(with_driver=again) as client:
        assert client.node_id == node_id
        assert server.status_of(alloc.id) == CLIENT_RUNNING, "reported before ready"
        assert driver.host.starts == [f"{alloc.id}/web/0"] and driver.host.stops == []
        assert server.last_update(alloc.id).task_states["web"].restarts == 0
        again.finish(f"{alloc.id}/web/0", ExitResult(exit_code=3))
        await eventually(lambda: "Exit Code: 3" in messages(server, alloc))


async def test_an_end_while_the_agent_was_away_is_noticed(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id, job=batch())
        await running(server, alloc)
    driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=0))

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert driver.host.starts == [f"{alloc.id}/web/0"]


async def test_a_completed_batch_allocation_is_not_run_again_after_a_restart(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id, job=batch())
        await running(server, alloc)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)

        assert len(driver.host.starts) == 1


async def test_a_list_older_than_one_seen_stops_nothing(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        kept, server.allocs, server.index = server.allocs, {}, 2

        server.wake()
        await eventually(lambda: server.calls[-1] == "pull_allocs")

        assert driver.host.stops == []
        server.allocs, server.index = kept, 1000


async def test_an_older_list_stops_nothing_after_a_restart_either(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
    server.allocs, server.index = {}, 2

    async with run_client(with_driver=FakeDriver(driver.host), wait_ready=False):
        await eventually(lambda: server.calls.count("pull_allocs") > 3)

        assert driver.host.stops == []
        server.index = 1000
        server.wake()
        await eventually(lambda: driver.host.stops == [f"{alloc.id}/web/0"])


async def test_unreachable_servers_stop_nothing(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        server.failure = Unavailable("No cluster leader")

        server.wake()
        await eventually(lambda: server.calls[-2:] == ["pull_allocs", "pull_allocs"])

        assert driver.host.stops == []


async def test_reports_that_failed_arrive_once_the_servers_are_back(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id, job=batch())
        await running(server, alloc)
        server.failure = Unavailable("No cluster leader")
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: "update_allocs" in server.calls[-3:])

        server.failure = None

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_a_stopped_allocation_is_killed_politely_and_completes(run_client, server, driver: FakeDriver):
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), kill_signal="SIGTERM")
        await running(server, alloc)

        server.put_alloc(replace(alloc, desired_status=DESIRED_STOP))

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert driver.host.stops == [f"{alloc.id}/web/0"]
        assert messages(server, alloc)[-3:] == [
            "Sent interrupt. Waiting 5s before force killing",
            "Exit Code: 130",
            "Task successfully killed",
        ]


async def test_an_allocation_that_the_servers_forgot_goes_with_its_directory(run_client, server, driver, tmp_path):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        assert (tmp_path / "alloc" / alloc.id / "web" / "secrets").stat().st_mode & 0o777 == 0o700

        server.drop_alloc(alloc.id)

        await eventually(lambda: not (tmp_path / "alloc" / alloc.id).exists())
        assert driver.host.stops == [f"{alloc.id}/web/0"]


async def test_a_failed_start_is_retried_and_then_fails_the_allocation(
    run_client, server, driver: FakeDriver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "yurt.client")
    driver.start_errors = [RecoverableError("busy"), DriverError("no such image")]
    async with run_client() as client:
        alloc = with_task(
            placed(client.node_id),
            restart_policy=RestartPolicy(attempts=5, interval=seconds(60), delay=seconds(0.01), mode="fail"),
        )

        server.put_alloc(alloc)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        told = messages(server, alloc)
        assert told[2] == "busy" and told[3].startswith("Task restarting in 1")
        assert told[4:] == ["no such image", "Error was unrecoverable"]
        lines = [line for line in caplog.messages if line.startswith("allocation")]
        assert lines == [f"allocation failed: alloc={alloc.id[:8]} name={alloc.name} task=web: no such image"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"driver": "docker"}, "docker"),
        ({"config": {"comand": "x"}}, "comand"),
    ],
)
async def test_what_cannot_be_given_fails_with_a_clear_event(run_client, server, changes, word):
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), **changes)

        server.put_alloc(alloc)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert any(word in message for message in messages(server, alloc)), messages(server, alloc)


async def test_a_failed_task_ends_its_sibling(run_client, server: FakeServerPort, driver: FakeDriver):
    two = (factories.task("web", restart_policy=RestartPolicy(mode="fail")), factories.task("api"))
    async with run_client() as client:
        alloc = placed(client.node_id, job=factories.job(task_groups=(factories.group(tasks=two),)))
        await running(server, alloc)
        await eventually(lambda: len(driver.host.tasks) == 2)

        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=1))

        await eventually(lambda: driver.host.stops == [f"{alloc.id}/api/0"])
        await eventually(lambda: 'Task\'s sibling "web" failed' in messages(server, alloc, "api"))
        assert server.status_of(alloc.id) == CLIENT_FAILED


async def test_users_restart_and_signal_tasks(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)

        await client.calls.signal_alloc(alloc.id, task="", signal="SIGHUP")
        assert driver.host.tasks[f"{alloc.id}/web/0"].signals == ["SIGHUP"]
        await client.calls.restart_alloc(alloc.id, task="web", all_tasks=False)

        await eventually(lambda: driver.host.starts == [f"{alloc.id}/web/0", f"{alloc.id}/web/1"])
        await eventually(lambda: server.last_update(alloc.id).task_states["web"].restarts == 1)
        assert {"Task being sent signal SIGHUP", "User requested task to restart"} <= set(messages(server, alloc))


async def test_a_task_that_is_being_stopped_can_be_signalled(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), shutdown_delay=seconds(3600))
        await running(server, alloc)
        server.put_alloc(replace(alloc, desired_status=DESIRED_STOP))
        await eventually(lambda: client.allocs.live[alloc.id].tasks["web"].machine.phase == STOPPING)

        await client.calls.signal_alloc(alloc.id, task="", signal="SIGQUIT")
        await client.calls.signal_alloc(alloc.id, task="web", signal="SIGUSR1")

        assert driver.host.tasks[f"{alloc.id}/web/0"].signals == ["SIGQUIT", "SIGUSR1"]
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_users_pause_and_resume_a_task(
    run_client, server: FakeServerPort, driver: FakeDriver, database: ClientDatabase
):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        await client.calls.pause_task(alloc.id, task="", wish="pause")
        (record,) = await database.allocs()
        assert record.tasks["web"].state.paused == "pause"
        await eventually(lambda: server.last_update(alloc.id).task_states["web"].paused == "pause")
        await eventually(lambda: "Task is paused until it is resumed" in messages(server, alloc))
        assert await client.calls.schedule_state(alloc.id, task="web") == "pause"
        await client.calls.pause_task(alloc.id, task="web", wish="run")
        await eventually(lambda: driver.host.starts == [f"{alloc.id}/web/0", f"{alloc.id}/web/1"])


async def test_a_task_runs_in_the_hours_of_its_schedule_unless_a_user_wants_otherwise(
    run_client, server: FakeServerPort, driver: FakeDriver
):
    never = TaskSchedule(cron=TaskScheduleCron(start="0 0 1 1 * 2000", end="0 1", timezone="UTC"))
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), schedule=never)
        server.put_alloc(alloc)
        await eventually(lambda: any(update.id == alloc.id for update in server.updates))
        await eventually(lambda: "Task is being paused by its schedule" in messages(server, alloc))
        assert await client.calls.schedule_state(alloc.id, task="web") == "scheduled_pause"
        assert driver.host.starts == []

        await client.calls.pause_task(alloc.id, task="web", wish="run")
        await eventually(lambda: driver.host.starts == [f"{alloc.id}/web/0"])
        assert await client.calls.schedule_state(alloc.id, task="web") == "run"

        await client.calls.pause_task(alloc.id, task="web", wish="scheduled")
        await eventually(lambda: "Task is paused until it is resumed" in messages(server, alloc))
        server.put_alloc(replace(alloc, desired_status=DESIRED_STOP))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


NEVER = TaskSchedule(cron=TaskScheduleCron(start="0 0 1 1 * 2000", end="0 1", timezone="UTC"))


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_task_that_is_taken_up_outside_of_its_hours_does_not_run(
    run_client, server: FakeServerPort, driver: FakeDriver, database: ClientDatabase, *, is_found: bool
):
    """The first agent ran it within its hours; they end while no agent runs."""
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
    if not is_found:
        del driver.host.tasks[f"{alloc.id}/web/0"]
    later = with_task(alloc, schedule=NEVER)
    await database.put_alloc(later)
    server.put_alloc(later)
    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: "Task is being paused by its schedule" in messages(server, alloc))
        await eventually(lambda: "Task is paused until it is resumed" in messages(server, alloc))
        assert driver.host.starts == [f"{alloc.id}/web/0"]


async def test_a_task_whose_schedule_is_gone_after_a_restart_of_the_agent_runs(
    run_client, server: FakeServerPort, driver: FakeDriver, database: ClientDatabase
):
    async with run_client() as client:
        alloc = placed(client.node_id)
        server.put_alloc(with_task(alloc, schedule=NEVER))
        await eventually(lambda: any(update.id == alloc.id for update in server.updates))
        await eventually(lambda: "Task is being paused by its schedule" in messages(server, alloc))
    await database.put_alloc(alloc)
    server.put_alloc(alloc)
    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: driver.host.starts == [f"{alloc.id}/web/0"])


async def test_a_schedule_that_an_update_takes_away_releases_its_task_at_once(
    run_client, server: FakeServerPort, driver: FakeDriver
):
    async with run_client() as client:
        alloc = placed(client.node_id)
        server.put_alloc(with_task(alloc, schedule=NEVER))
        await eventually(lambda: any(update.id == alloc.id for update in server.updates))
        await eventually(lambda: "Task is being paused by its schedule" in messages(server, alloc))
        server.put_alloc(alloc)
        await eventually(lambda: driver.host.starts == [f"{alloc.id}/web/0"])


async def test_a_schedule_that_the_node_cannot_read_is_told(run_client, server: FakeServerPort):
    odd = TaskSchedule(cron=TaskScheduleCron(start="0 0 * * * *", end="59 23", timezone="No/Where"))
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), schedule=odd)
        server.put_alloc(alloc)
        await eventually(lambda: any(update.id == alloc.id for update in server.updates))
        await eventually(lambda: any("cannot follow the schedule" in text for text in messages(server, alloc)))


async def test_wrong_requests_say_what_is_wrong(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = placed(client.node_id, job=batch())
        await running(server, alloc)

        with pytest.raises(NotFound, match="Could not find task 'api'"):
            await client.calls.restart_alloc(alloc.id, task="api", all_tasks=False)
        with pytest.raises(NotFound, match="Unknown allocation"):
            await client.calls.signal_alloc("other", task="", signal="SIGHUP")
        with pytest.raises(Conflict, match="stop it first"):
            await client.calls.collect_garbage(alloc.id)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: alloc.id in client.allocs.ended)
        with pytest.raises(Invalid, match="no task"):
            await client.calls.signal_alloc(alloc.id, task="", signal="SIGHUP")


async def test_a_deployment_allocation_becomes_healthy(run_client, server: FakeServerPort):
    update = factories.update_strategy(min_healthy_time=seconds(0.05))
    async with run_client() as client:
        job = factories.job(task_groups=(factories.group(update=update),))
        alloc = replace(placed(client.node_id, job=job), deployment_id=factories.new_id())
        await running(server, alloc)

        await eventually(lambda: server.last_update(alloc.id).deployment_status is not None)
        assert server.last_update(alloc.id).deployment_status.healthy is True


async def test_a_dispatch_payload_is_written_for_the_task(run_client, server: FakeServerPort, tmp_path):
    async with run_client() as client:
        alloc = with_task(
            placed(client.node_id, job=batch(payload=b"work to do")),
            dispatch_payload=DispatchPayloadConfig(file="in/work.txt"),
        )
        await running(server, alloc)

        assert (tmp_path / "alloc" / alloc.id / "web" / "local" / "in" / "work.txt").read_bytes() == b"work to do"


async def test_a_reconnected_client_says_so_and_reports_again(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)

        server.put_alloc(replace(alloc, client_status=CLIENT_UNKNOWN))

        await eventually(lambda: "Client reconnected" in messages(server, alloc))


async def test_a_node_that_the_servers_forgot_registers_again(run_client, server: FakeServerPort):
    server.ttl_s = 0.02
    async with run_client() as client:
        server.nodes.clear()

        await eventually(lambda: client.node_id in server.nodes and server.nodes[client.node_id].status == NODE_READY)


async def test_a_node_kept_initializing_reports_again_before_the_next_beat(run_client, server: FakeServerPort):
    server.ttl_s = 0.02
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        count = len(server.updates)
        server.keep_initializing = True

        await eventually(lambda: len(server.updates) > count)
        assert server.statuses[-1] == NODE_INIT
        server.keep_initializing = False
        await eventually(lambda: server.statuses[-1] == NODE_READY)


async def test_without_contact_only_the_group_that_wants_it_is_stopped(run_client, server, driver: FakeDriver):
    env = FakeEnv()
    wants = factories.group(disconnect=DisconnectStrategy(stop_on_client_after=seconds(30)))
    async with run_client(env=env, wait_ready=False) as client:
        await eventually(server.is_ready)
        patient, cut_off = placed(client.node_id), placed(client.node_id, job=factories.job("b", task_groups=(wants,)))
        await running(server, patient)
        await running(server, cut_off)
        server.failure = Unavailable("No cluster leader")

        await env.advance(29)
        assert driver.host.stops == []
        await env.advance(5)

        await eventually(lambda: driver.host.stops == [f"{cut_off.id}/web/0"])


async def test_heartbeats_come_at_the_servers_pace(run_client, server: FakeServerPort):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False):
        await eventually(server.is_ready)
        count = server.calls.count("heartbeat")

        await env.advance(server.ttl_s * 3 + 1)

        assert server.calls.count("heartbeat") == count + 3


async def test_too_many_ended_allocations_lose_their_directories_oldest_first(run_client, server, driver, tmp_path):
    async with run_client() as client:
        client.config = replace(
            client.config, gc_max_allocs=1, gc_disk_usage_threshold=101, gc_inode_usage_threshold=101
        )
        client.calls.garbage._config = client.config
        allocs = [placed(client.node_id, job=batch(id=f"b{number}")) for number in range(3)]
        for alloc in allocs:
            await running(server, alloc)
            driver.finish(f"{alloc.id}/web/0")
            await eventually(lambda alloc=alloc: alloc.id in client.allocs.ended)

        await client.calls.garbage.collect_excess()

        left = [(tmp_path / "alloc" / alloc.id).exists() for alloc in allocs]
        assert left == [False, False, True]
        await client.calls.collect_garbage(None)
        assert not (tmp_path / "alloc" / allocs[2].id).exists()


async def test_stop_all_ends_every_task(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        allocs = [placed(client.node_id, job=factories.job(f"j{number}")) for number in range(5)]
        for alloc in allocs:
            await running(server, alloc)

        await client.stop_all()

        assert sorted(driver.host.stops) == sorted(f"{alloc.id}/web/0" for alloc in allocs)


async def test_an_agent_that_ends_during_a_start_finds_the_task_again(run_client, server, driver: FakeDriver):
    gate = asyncio.Event()
    start = driver.start_task

    async def slow_start(request):
        await gate.wait()
        return await start(request)

    driver.start_task = slow_start
    async with run_client() as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(
            lambda: (
                client.allocs.live.get(alloc.id)
                and client.allocs.live[alloc.id].tasks["web"].machine.phase == "starting"
            )
        )
        await settle()
        asyncio.get_running_loop().call_later(0.01, gate.set)

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert driver.host.starts == [f"{alloc.id}/web/0"]


async def test_a_replacement_waits_for_the_end_of_what_it_replaces_on_this_node(run_client, server, driver: FakeDriver):
    gate = asyncio.Event()
    stop = driver.stop_task

    async def slow_stop(task_id: str, *, signal: str, timeout: int) -> None:
        await gate.wait()
        await stop(task_id, signal=signal, timeout=timeout)

    driver.stop_task = slow_stop
    async with run_client() as client:
        old = placed(client.node_id)
        await running(server, old)
        new = replace(placed(client.node_id), previous_allocation=old.id)

        server.put_alloc(replace(old, desired_status=DESIRED_STOP))
        server.put_alloc(new)
        await eventually(lambda: new.id in client.allocs.live)
        await settle()
        assert len(driver.host.starts) == 1
        gate.set()

        await eventually(lambda: server.status_of(new.id) == CLIENT_RUNNING)


async def test_services_that_cannot_be_registered_are_mentioned(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), services=(Service(name="web"),))
        await running(server, alloc)

        assert any("is not registered: its provider is consul" in text for text in messages(server, alloc))


async def test_restarting_all_tasks_runs_finished_prestart_tasks_again_first(run_client, server, driver: FakeDriver):
    tasks = (factories.task("init", lifecycle=TaskLifecycle(hook="prestart")), factories.task("web"))
    async with run_client() as client:
        alloc = placed(client.node_id, job=factories.job(task_groups=(factories.group(tasks=tasks),)))
        server.put_alloc(alloc)
        await eventually(lambda: driver.host.starts == [f"{alloc.id}/init/0"])
        driver.finish(f"{alloc.id}/init/0")
        await eventually(lambda: f"{alloc.id}/web/0" in driver.host.starts)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)

        await client.calls.restart_alloc(alloc.id, task="", all_tasks=True)

        await eventually(lambda: driver.host.starts[2:] == [f"{alloc.id}/init/1"])
        driver.finish(f"{alloc.id}/init/1")
        await eventually(lambda: driver.host.starts[3:] == [f"{alloc.id}/web/1"])


async def test_denied_variables_of_the_agent_are_not_given_to_tasks(run_client, server, driver, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("HARMLESS", "yes")
    async with run_client() as client:
        alloc = placed(client.node_id)
        await running(server, alloc)

        env = driver.host.tasks[f"{alloc.id}/web/0"].request.env
        assert env["HARMLESS"] == "yes" and "planted" not in env.values()
