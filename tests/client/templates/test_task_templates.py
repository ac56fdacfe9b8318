"""Templates of tasks on a client: a fake server and driver, the real renderer and real files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.client.client import Client
from yurt.client.templates.settings import TemplateSettings
from yurt.sdk.driver import ExitResult, TaskRequest
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING, TASK_DEAD
from yurt.structs.task import ChangeScript, DispatchPayloadConfig, TaskLifecycle, Template, WaitConfig
from yurt.testing import factories
from yurt.testing.client_objects import placed, running
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually

AT_ONCE = WaitConfig(min=Duration(0), max=Duration(0))
VARIABLE = "nomad/jobs/web"


def template(text: str, **changes: Any) -> Template:
    made = Template(dest_path="local/file", embedded_tmpl=text, change_mode="restart", perms="0644", wait=AT_ONCE)
    return replace(made, **changes)


def variable(**items: str) -> Mapping[str, Any]:
    return {"Namespace": "default", "Path": VARIABLE, "Items": items, "ModifyIndex": 7}


def with_templates(node_id: str, *templates: Template, **changes: Any) -> Allocation:
    job = factories.job(type="service")
    group = job.task_groups[0]
    task = replace(group.tasks[0], templates=templates, **changes)
    return placed(node_id, job=replace(job, task_groups=(replace(group, tasks=(task,)),)))


@pytest.fixture
async def client(run_client: Any) -> AsyncIterator[Client]:
    async with run_client() as made:
        yield made


def states(server: FakeServerPort, alloc: Allocation) -> Any:
    return next(iter(server.last_update(alloc.id).task_states.values()))


def messages(server: FakeServerPort, alloc: Allocation) -> list[str]:
    if not any(update.id == alloc.id for update in server.updates):
        return []
    return [event.display_message for event in states(server, alloc).events]


def request_of(driver: FakeDriver) -> TaskRequest:
    request = driver.host.tasks[driver.host.starts[-1]].request
    assert request is not None
    return request


def rendered(driver: FakeDriver, name: str = "local/file") -> str:
    return (Path(request_of(driver).dirs.task_dir) / name).read_text()


async def test_a_template_fails_after_the_configured_attempts(
    run_client: Any, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise Unavailable("no leader")

    monkeypatch.setattr(server, "ask_for_template", refuse)
    settings = TemplateSettings(retry_first_s=0.001, retry_attempts=3)
    async with run_client(template=settings) as client:
        never = RestartPolicy(attempts=0, mode="fail", interval=seconds(60), delay=seconds(1))
        asking = template('{{ with nomadVar "nomad/jobs" }}{{ .a }}{{ end }}')
        alloc = with_templates(client.node_id, asking, restart_policy=never)
        server.put_alloc(alloc)
        await eventually(lambda: any("in 3 attempts: no leader" in each for each in messages(server, alloc)))
        await eventually(lambda: server.last_update(alloc.id).client_status == CLIENT_FAILED)


async def test_a_template_is_written_before_its_task_starts(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    alloc = with_templates(client.node_id, template('id {{ env "NOMAD_ALLOC_ID" }}', perms="0600"))
    await running(server, alloc)
    assert rendered(driver) == f"id {alloc.id}"
    assert (Path(request_of(driver).dirs.local_dir) / "file").stat().st_mode & 0o777 == 0o600


async def test_a_template_knows_the_values_of_its_node(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = '{{ env "node.unique.id" }} {{ env "attr.cpu.arch" }} {{ env "meta.none" }}.'
    await running(server, with_templates(client.node_id, template(text)))
    assert rendered(driver) == f"{client.node_id} {client.node.attributes['cpu.arch']} ."


async def test_no_job_gets_a_setuid_file_out_of_the_agent(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    await running(server, with_templates(client.node_id, template("#!/bin/sh", perms="6755")))
    assert (Path(request_of(driver).dirs.local_dir) / "file").stat().st_mode & 0o7777 == 0o755


async def test_a_task_waits_for_a_variable_and_says_so(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    alloc = with_templates(client.node_id, template(text))
    server.put_alloc(alloc)
    await eventually(lambda: f"Missing: nomad.var.block({VARIABLE}@default)" in messages(server, alloc))
    assert not driver.host.starts
    server.tell("variable", VARIABLE, variable(user="anna"))
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    assert rendered(driver) == "anna"


async def test_a_changed_variable_restarts_the_task_once_although_two_templates_use_it(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    alloc = with_templates(client.node_id, template(text), template(text, dest_path="local/other"))
    await running(server, alloc)
    server.tell("variable", VARIABLE, variable(user="bert"))
    await eventually(lambda: len(driver.host.starts) == 2)
    assert rendered(driver) == rendered(driver, "local/other") == "bert"
    assert messages(server, alloc).count("Template with change_mode restart re-rendered") == 1
    assert states(server, alloc).restarts == 1


async def test_an_answer_that_changes_no_text_does_not_restart_the_task(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    alloc = with_templates(
        client.node_id, template(text), template("{{ range nomadService `db` }}x{{ end }}", dest_path="b")
    )
    await running(server, alloc)
    server.tell("variable", VARIABLE, variable(user="anna", other="new"))
    server.tell("service", "db", [service("db", 1)])
    await eventually(lambda: len(driver.host.starts) == 2)
    assert rendered(driver, "b") == "x"
    assert states(server, alloc).restarts == 1


def service(name: str, port: int) -> Mapping[str, Any]:
    return {
        "ID": f"_nomad-{name}-{port}", "ServiceName": name, "NodeID": "n", "Datacenter": "dc1", "Tags": ["a"],
        "JobID": "j", "AllocID": "x", "Address": "127.0.0.1", "Port": port,
    }  # fmt: skip


async def test_a_change_sends_a_signal(client: Client, server: FakeServerPort, driver: FakeDriver) -> None:
    text = "{{ range nomadService `db` }}{{ .Address }}:{{ .Port }} {{ end }}"
    await running(server, with_templates(client.node_id, template(text, change_mode="signal", change_signal="SIGUSR1")))
    assert rendered(driver) == ""
    server.tell("service", "db", [service("db", 1), service("db", 2)])
    task = driver.host.tasks[driver.host.starts[0]]
    await eventually(lambda: task.signals == ["SIGUSR1"])
    assert rendered(driver) == "127.0.0.1:1 127.0.0.1:2 "


async def test_a_change_runs_a_script_whose_failure_may_end_the_task(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    script = ChangeScript(command="/bin/reload", args=("now",), timeout=seconds(1), fail_on_error=True)
    text = "{{ range nomadService `db` }}{{ .Port }}{{ end }}"
    alloc = with_templates(client.node_id, template(text, change_mode="script", change_script=script))
    await running(server, alloc)
    server.tell("service", "db", [service("db", 1)])
    shown = "script /bin/reload with arguments: [now]"
    await eventually(lambda: any(shown in message for message in messages(server, alloc)))
    driver.exec_exit_code = 3
    server.tell("service", "db", [service("db", 2)])
    await eventually(lambda: states(server, alloc).state == TASK_DEAD)
    assert states(server, alloc).failed
    assert f"Template failed to run {shown} on change: exit code 3" in messages(server, alloc)


async def test_variables_of_an_env_template_reach_task_and_configuration(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = 'export A="one\\ntwo"\n# no\nB=\'{{ env "NOMAD_TASK_NAME" }}\'\n'
    alloc = with_templates(
        client.node_id, template(text, envvars=True, dest_path="secrets/env"), config={"command": "${B}"}
    )
    await running(server, alloc)
    request = request_of(driver)
    assert request.env["A"] == "one\ntwo"
    assert request.config.command == request.env["B"] == request.task_name


async def test_a_template_that_cannot_be_fails_the_task_and_says_where(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    alloc = with_templates(client.node_id, template("line\n{{ nope }}"))
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == "failed")
    assert 'Template failed: local/file:2:4: function "nope" not defined' in messages(server, alloc)
    assert not driver.host.starts


@pytest.mark.parametrize("path", ["../other/file", "local/../../x", "a\0b", ".", ""])
async def test_a_destination_outside_of_the_task_is_refused(
    path: str, client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    alloc = with_templates(client.node_id, template("x", dest_path=path))
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == "failed")
    assert not driver.host.starts


async def test_what_is_missing_after_the_start_leaves_task_and_file_alone(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    alloc = with_templates(client.node_id, template(text))
    await running(server, alloc)
    server.tell("variable", VARIABLE, None)
    await eventually(lambda: any("its last text stays" in message for message in messages(server, alloc)))
    assert rendered(driver) == "anna"
    assert len(driver.host.starts) == 1


async def test_a_new_agent_finds_the_same_text_and_leaves_the_task_alone(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    async with run_client() as first:
        alloc = with_templates(first.node_id, template(text))
        await running(server, alloc)
    calls = len(server.calls)
    async with run_client():
        await eventually(lambda: "ask_for_template" in server.calls[calls:])
        server.tell("service", "other", [])
        assert len(driver.host.starts) == 1
        server.tell("variable", VARIABLE, variable(user="bert"))
        await eventually(lambda: len(driver.host.starts) == 2)
    assert rendered(driver) == "bert"


async def test_a_change_while_the_agent_was_away_is_carried_out_by_the_next_one(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    async with run_client() as first:
        alloc = with_templates(first.node_id, template(text))
        await running(server, alloc)
    server.tell("variable", VARIABLE, variable(user="bert"))
    async with run_client():
        await eventually(lambda: len(driver.host.starts) == 2)
    assert rendered(driver) == "bert"


async def test_a_killed_task_stops_waiting_for_its_template(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    alloc = with_templates(client.node_id, template('{{ nomadVar "nomad/jobs/never" }}'))
    server.put_alloc(alloc)
    await eventually(lambda: any("Missing" in message for message in messages(server, alloc)))
    server.put_alloc(replace(alloc, desired_status="stop"))
    await eventually(lambda: states(server, alloc).state == TASK_DEAD)
    assert not driver.host.starts


async def test_a_once_template_is_not_followed(client: Client, server: FakeServerPort, driver: FakeDriver) -> None:
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    followed = template(text, dest_path="local/followed", change_mode="noop")
    await running(server, with_templates(client.node_id, template(text, once=True), followed))
    server.tell("variable", VARIABLE, variable(user="bert"))
    await eventually(lambda: rendered(driver, "local/followed") == "bert")
    assert rendered(driver) == "anna"
    assert len(driver.host.starts) == 1


async def test_changes_close_together_are_one_after_a_time_of_quiet(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    env = FakeEnv()
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    quiet = WaitConfig(min=seconds(4), max=seconds(10))
    async with run_client(env=env) as client:
        alloc = with_templates(client.node_id, template(text, wait=quiet))
        await running(server, alloc)
        for user in ("bert", "carl", "dora"):
            server.tell("variable", VARIABLE, variable(user=user))
            await env.advance(2)
        assert rendered(driver) == "anna"
        await env.advance(3)
        await eventually(lambda: len(driver.host.starts) == 2)
        assert rendered(driver) == "dora"
        assert states(server, alloc).restarts == 1


async def test_quiet_that_never_comes_is_not_waited_for_longer_than_the_most(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    env = FakeEnv()
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="0"))
    quiet = WaitConfig(min=seconds(4), max=seconds(10))
    async with run_client(env=env) as client:
        await running(server, with_templates(client.node_id, template(text, wait=quiet, change_mode="noop")))
        for number in range(1, 7):
            server.tell("variable", VARIABLE, variable(user=str(number)))
            await env.advance(2)
        await eventually(lambda: rendered(driver) != "0")


async def test_a_restart_waits_a_random_part_of_the_splay(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    env = FakeEnv()
    text = f'{{{{ with nomadVar "{VARIABLE}" }}}}{{{{ .user }}}}{{{{ end }}}}'
    server.tell("variable", VARIABLE, variable(user="anna"))
    async with run_client(env=env) as client:
        alloc = with_templates(client.node_id, template(text, splay=seconds(30)))
        await running(server, alloc)
        server.tell("variable", VARIABLE, variable(user="bert"))
        await eventually(lambda: rendered(driver) == "bert")
        assert len(driver.host.starts) == 1
        await env.advance(31)
        await eventually(lambda: len(driver.host.starts) == 2)


@pytest.mark.parametrize("is_each_time", [False, True])
async def test_a_start_renders_again_only_where_the_job_wants_it(
    is_each_time: bool, client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    policy = RestartPolicy(attempts=3, interval=seconds(60), delay=seconds(0.01), render_templates=is_each_time)
    alloc = with_templates(client.node_id, template("{{ timestamp `05.000000` }}"), restart_policy=policy)
    await running(server, alloc)
    first = rendered(driver)
    driver.finish(driver.host.starts[0], ExitResult(exit_code=1))
    await eventually(lambda: len(driver.host.starts) == 2)
    assert (rendered(driver) != first) == is_each_time


async def test_the_text_may_be_a_file_of_the_task(client: Client, server: FakeServerPort, driver: FakeDriver) -> None:
    """Here the payload of a dispatched job; mostly it is an artifact."""
    alloc = with_templates(
        client.node_id,
        template("", source_path="${NOMAD_TASK_DIR}/text.tpl"),
        dispatch_payload=DispatchPayloadConfig(file="text.tpl"),
    )
    assert alloc.job is not None
    await running(server, replace(alloc, job=replace(alloc.job, payload=b'{{ env "NOMAD_JOB_ID" }}')))
    assert rendered(driver) == alloc.job_id


async def test_other_delimiters_leave_the_usual_ones_alone(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    text = '{{ not mine }} <% env "NOMAD_GROUP_NAME" %>'
    alloc = with_templates(client.node_id, template(text, left_delim="<%", right_delim="%>"))
    await running(server, alloc)
    assert rendered(driver) == f"{{{{ not mine }}}} {alloc.task_group}"


async def test_a_file_of_the_task_is_followed(run_client: Any, server: FakeServerPort, driver: FakeDriver) -> None:
    env = FakeEnv()
    async with run_client(env=env) as client:
        text = template("{{ file `local/text.tpl` }}!", change_mode="signal", change_signal="SIGHUP")
        alloc = with_templates(client.node_id, text, dispatch_payload=DispatchPayloadConfig(file="text.tpl"))
        assert alloc.job is not None
        await running(server, replace(alloc, job=replace(alloc.job, payload=b"one")))
        assert rendered(driver) == "one!"
        task = driver.host.tasks[driver.host.starts[0]]
        assert task.request is not None
        (Path(task.request.dirs.local_dir) / "text.tpl").write_text("two")
        await env.advance(3)
        await eventually(lambda: task.signals == ["SIGHUP"])
        assert rendered(driver) == "two!"


async def test_a_task_that_had_ended_renders_anew_when_its_group_starts_again(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> None:
    job = factories.job(type="service")
    group = job.task_groups[0]
    text = template("{{ timestamp `05.000000` }}")
    first = replace(group.tasks[0], name="first", lifecycle=TaskLifecycle(hook="prestart"), templates=(text,))
    alloc = placed(client.node_id, job=replace(job, task_groups=(replace(group, tasks=(first, group.tasks[0])),)))
    server.put_alloc(alloc)
    await eventually(lambda: driver.host.starts)
    before = rendered(driver)
    driver.finish(driver.host.starts[0])
    await eventually(lambda: len(driver.host.starts) == 2)
    await client.calls.restart_alloc(alloc.id, task="", all_tasks=True)
    await eventually(lambda: len(driver.host.starts) == 3)
    assert driver.host.starts[2].startswith(f"{alloc.id}/first/")
    assert rendered(driver) != before
