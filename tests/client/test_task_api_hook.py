"""The API socket of a task: bound with its directories, served at its preparation, closed at its end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.client.hooks.task_api import Bound, TaskApiHook
from yurt.client.tasks.client_task import ClientTask
from yurt.client.tasks.task_setup import SetupProblem, TaskSetup
from yurt.sdk.driver import TaskDirs
from yurt.structs.alloc import TaskEvent


class Server:
    """Serves sockets; `in_thread` counts the preparations that needed a thread of their own."""

    def __init__(self) -> None:
        self.served: list[socket.socket] = []
        self.threads = 0

    async def serve(self, listening: socket.socket) -> Callable[[], None]:
        self.served.append(listening)
        return listening.close

    async def in_thread(self, call: Callable[..., Bound | None], *args: Any) -> Bound | None:
        self.threads += 1
        return call(*args)


class Task:
    """The part of a task that the hook sees."""

    def __init__(self, dirs: TaskDirs) -> None:
        self.key, self.dirs, self.notes = ("a", "t"), dirs, list[TaskEvent]()
        self.spec = SimpleNamespace(task=SimpleNamespace(user=""))

    def note(self, event: TaskEvent) -> None:
        self.notes.append(event)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def hook(server: Server) -> TaskApiHook:
    return TaskApiHook(cast(Any, SimpleNamespace(env=server, task_api=server.serve)))


@pytest.fixture
def task(tmp_path: Path) -> ClientTask:
    build_alloc_dir(str(tmp_path), "a")
    return cast(ClientTask, Task(build_task_dir(str(tmp_path), "a", "t")))


async def test_a_socket_that_was_bound_with_the_directories_is_served_without_a_further_thread(
    hook: TaskApiHook, server: Server, task: ClientTask
) -> None:
    bound = hook.bind(task.dirs, "")
    hook.keep(task, bound)
    await hook.prepare(task)
    assert (server.threads, server.served) == (0, [bound])
    hook.finish(task)
    assert [each.fileno() for each in server.served] == [-1]


async def test_a_recovered_task_gets_a_new_socket(hook: TaskApiHook, server: Server, task: ClientTask) -> None:
    await hook.recover(task)
    assert (server.threads, len(server.served)) == (1, 1)
    hook.finish(task)


def test_a_task_that_ends_before_its_preparation_leaves_no_socket(hook: TaskApiHook, task: ClientTask) -> None:
    bound = hook.bind(task.dirs, "")
    hook.keep(task, bound)
    hook.finish(task)
    assert isinstance(bound, socket.socket)
    assert bound.fileno() == -1


async def test_a_task_whose_intent_cannot_be_stored_leaves_no_socket(
    hook: TaskApiHook, task: ClientTask, tmp_path: Path
) -> None:
    bound: list[Bound | None] = []

    def bind(dirs: TaskDirs, user: str) -> Bound | None:
        bound.append(TaskApiHook.bind(hook, dirs, user))
        return bound[-1]

    async def saved() -> None:
        raise OSError("the disk is full")

    cast(Any, hook).bind = bind
    context = SimpleNamespace(config=SimpleNamespace(alloc_dir=str(tmp_path), dev=True))
    setup = TaskSetup(cast(Any, context), cast(Any, None), cast(Any, None), task_api=hook, providers=())
    asked = SimpleNamespace(name="t", user="", dispatch_payload=None)
    task.spec = cast(Any, SimpleNamespace(alloc=SimpleNamespace(id="a"), task=asked))

    with pytest.raises(SetupProblem, match="the disk is full"):
        await setup._make_dirs(task, saved)

    assert [cast(socket.socket, each).fileno() for each in bound] == [-1]


async def test_a_task_without_a_socket_is_told_why(hook: TaskApiHook, server: Server, task: ClientTask) -> None:
    hook.keep(task, OSError("no room"))
    await hook.prepare(task)
    assert [each.display_message for each in cast(Any, task).notes] == ["The task has no API socket: no room"]
    assert not server.served
