"""Functions of templates that a provider answers: a fake provider, the real renderer and real files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from yurt.client.templates.render_pass import render
from yurt.client.templates.render_protocol import PROVIDED, Question, QuestionAnswer, RenderRequest
from yurt.sdk.errors import NotFound, PermissionDenied, Unavailable
from yurt.sdk.templates import ANSWER_MAX_BYTES, TemplateAnswer, TemplateAsk
from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING
from yurt.structs.task import Template, WaitConfig
from yurt.testing import factories
from yurt.testing.client_objects import placed, running
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

Step = object
"""Something that a fake provider does when it is asked: an answer, an error to raise, or None to end."""


class FakeProvider:
    """Does its steps one after the other, and waits for more."""

    name = "consul"
    functions = ("key", "ls", "consul_own")

    def __init__(self, *steps: Step) -> None:
        self.asks: list[TemplateAsk] = []
        self.closed = 0
        self.steps: asyncio.Queue[Step] = asyncio.Queue()
        self.do(*steps)

    def do(self, *steps: Step) -> None:
        """What comes next."""
        for step in steps:
            self.steps.put_nowait(step)

    async def watch(self, ask: TemplateAsk) -> AsyncGenerator[TemplateAnswer, None]:
        """The steps."""
        self.asks.append(ask)
        try:
            while (step := await self.steps.get()) is not None:
                if isinstance(step, Exception):
                    raise step
                assert isinstance(step, TemplateAnswer)
                yield step
        finally:
            self.closed += 1

    async def close(self) -> None:
        """Nothing is held."""


def template(text: str) -> Template:
    """A file of a task, written again at once, which no change of restarts."""
    at_once = WaitConfig(min=Duration(0), max=Duration(0))
    return Template(dest_path="local/file", embedded_tmpl=text, change_mode="noop", perms="0644", wait=at_once)


def with_template(node_id: str, text: str) -> Allocation:
    """An allocation of one task that has this template and is never started again."""
    job = factories.job(type="service")
    group = job.task_groups[0]
    never = RestartPolicy(attempts=0, mode="fail", interval=seconds(60), delay=seconds(1))
    task = replace(group.tasks[0], templates=(template(text),), restart_policy=never)
    return placed(node_id, job=replace(job, task_groups=(replace(group, tasks=(task,)),)))


def messages(server: FakeServerPort, alloc: Allocation) -> list[str]:
    """What the task's events say so far."""
    if not any(update.id == alloc.id for update in server.updates):
        return []
    (state,) = server.last_update(alloc.id).task_states.values()
    return [event.display_message for event in state.events]


def rendered(driver: FakeDriver) -> str:
    """The file as the task finds it."""
    request = driver.host.tasks[driver.host.starts[-1]].request
    assert request is not None
    return (Path(request.dirs.task_dir) / "local/file").read_text()


def test_a_call_is_a_question_and_its_answer_a_value() -> None:
    text = '{{ range ls "app" 3 }}{{ .Key }}={{ .Value }};{{ end }}'
    question = Question(kind=PROVIDED, name="ls", arguments=("app", "3"))
    request = RenderRequest(name="t", text=text.encode(), provided=("ls",))
    assert render(request).missing == (question,)
    assert question.shown == "ls(app, 3)"
    answer = QuestionAnswer(data=[{"Key": "a", "Value": 1}, {"Key": "b", "Value": True}])
    answered = RenderRequest(name="t", text=text.encode(), provided=("ls",), answers=((question, answer),))
    assert render(answered).output == b"a=1;b=true;"


def test_what_the_operator_denies_no_provider_gives() -> None:
    found = render(RenderRequest(name="t", text=b'{{ key "x" }}', provided=("key",), denied=("key",)))
    assert "disabled by the operator" in found.error


async def test_a_task_follows_what_its_provider_says(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    provider = FakeProvider(TemplateAnswer(data="10"))
    async with run_client(providers={"consul": provider}) as client:
        alloc = with_template(client.node_id, 'limit={{ key "app/limit" }}')
        await running(server, alloc)
        assert rendered(driver) == "limit=10"
        provider.do(TemplateAnswer(data="20"))
        await eventually(lambda: rendered(driver) == "limit=20")
    (ask,) = provider.asks
    assert (ask.function, ask.arguments, ask.alloc_id) == ("key", ("app/limit",), alloc.id)
    assert (ask.job_id, ask.group_name, ask.namespace) == (alloc.job_id, alloc.task_group, alloc.namespace)
    assert provider.closed == 1


async def test_a_task_waits_for_what_is_not_there_yet(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    provider = FakeProvider(NotFound("nothing"), TemplateAnswer(exists=False))
    async with run_client(providers={"consul": provider}) as client:
        alloc = with_template(client.node_id, '{{ key "late" }}')
        server.put_alloc(alloc)
        await eventually(lambda: "Missing: key(late)" in messages(server, alloc))
        provider.do(TemplateAnswer(data="here"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert rendered(driver) == "here"


async def test_a_provider_that_is_away_is_asked_again_and_the_reason_told(
    run_client: Any, server: FakeServerPort, driver: FakeDriver
) -> None:
    provider = FakeProvider(Unavailable("no answer from 10.0.0.1"))
    async with run_client(providers={"consul": provider}) as client:
        alloc = with_template(client.node_id, '{{ key "x" }}')
        server.put_alloc(alloc)
        told = "Missing: key(x) (no answer from 10.0.0.1)"
        await eventually(lambda: told in messages(server, alloc))
        provider.do(TemplateAnswer(data="1"), Unavailable("again"), TemplateAnswer(data="1"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        await eventually(lambda: len(provider.asks) == 3)
        assert rendered(driver) == "1"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (PermissionDenied("the token may not read x"), "the token may not read x"),
        (KeyError("x"), "its provider failed: KeyError: 'x'"),
        (None, "the provider consul gives no answer to key(x)"),
        (TemplateAnswer(data=object()), "is not a plain value"),
        (TemplateAnswer(data="x" * ANSWER_MAX_BYTES), "the most are"),
    ],
)
async def test_what_no_repetition_mends_fails_the_task(
    run_client: Any, server: FakeServerPort, step: Step, told: str
) -> None:
    async with run_client(providers={"consul": FakeProvider(step)}) as client:
        alloc = with_template(client.node_id, '{{ key "x" }}')
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert any(told in message and "t:1" not in message for message in messages(server, alloc))


async def test_an_answer_that_is_final_stays(run_client: Any, server: FakeServerPort, driver: FakeDriver) -> None:
    provider = FakeProvider(TemplateAnswer(data="once"), None)
    async with run_client(providers={"consul": provider}) as client:
        alloc = with_template(client.node_id, '{{ consul_own "x" }}')
        await running(server, alloc)
        assert rendered(driver) == "once"
        await eventually(lambda: provider.closed == 1)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
