"""Conformance suites for hooks and service providers: subclass one and provide the object.

    class TestMine(TaskHookSuite):
        @pytest.fixture
        def hook(self) -> TaskHook:
            return yurt_task_hooks(PluginContext())[0]

`AllocHookSuite` asks for a `hook` of allocations, `ServiceProviderSuite` for a `provider`. The suites hold an object to
the contract that `yurt.sdk.hooks` and `yurt.sdk.services` write down: calls that come again do no harm, what a call
raises is an error of Yurt, nothing blocks the loop or is left behind.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from yurt.sdk.driver import ExecResult, ExitResult, TaskDirs, TaskHandle
from yurt.sdk.hooks import (
    ALLOC_HOOKS,
    TASK_HOOKS,
    Additions,
    AllocFacts,
    AllocHook,
    AllocHookOf,
    TaskFacts,
    TaskHook,
    TaskHookOf,
    order,
)
from yurt.sdk.services import NOMAD, ServiceInstance, ServiceProvider
from yurt.sdk.value import Duration, UnixNano
from yurt.testing.suites.steps import NAME, STEP_LIMIT_S, kept

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HANDLE = TaskHandle(driver="raw_exec", task_id="a/main/0", pid=1)


class _Followed:
    """Background work of a task or an allocation, as a client runs it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.work: set[asyncio.Task[None]] = set()

    def note(self, text: str) -> None:
        """Record the text."""
        self.notes.append(text)

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work."""
        task = asyncio.ensure_future(work)
        self.work.add(task)

    async def stop(self) -> None:
        """Cancel the work, as at the end of a task; raises its failure."""
        for task in self.work:
            task.cancel()
        ends = await asyncio.gather(*self.work, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end


class BenchTask(_Followed):
    """A task for hooks without a client; `env` holds the job's variables and those that hooks added."""

    def __init__(self, folder: Path, *, meta: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.run = 0
        self.env: dict[str, str] = {"NOMAD_TASK_NAME": "main"}
        self.restarts: list[str] = []
        self.failures: list[str] = []
        self.facts = TaskFacts(
            alloc_id="a", task_name="main", job_id="web", group_name="g", namespace="default", node_id="n",
            driver="raw_exec", meta=meta or {},
        )  # fmt: skip
        paths = {
            name: folder / name for name in ("alloc", "alloc/shared", "main", "main/local", "main/secrets", "logs")
        }
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True)
        self.dirs = TaskDirs(
            alloc_dir=str(folder / "alloc"), shared_dir=str(folder / "alloc/shared"), task_dir=str(folder / "main"),
            local_dir=str(folder / "main/local"), secrets_dir=str(folder / "main/secrets"),
            logs_dir=str(folder / "logs"),
        )  # fmt: skip

    def restart(self, reason: str) -> None:
        """Record the reason."""
        self.restarts.append(reason)

    def fail_task(self, reason: str) -> None:
        """Record the reason."""
        self.failures.append(reason)

    async def signal(self, signal: str, reason: str = "") -> None:
        """Accept any signal."""

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Every command succeeds."""
        return ExecResult(exit_code=0)


class BenchAlloc(_Followed):
    """An allocation for hooks, without a client."""

    def __init__(self, folder: Path, *, meta: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.folder = str(folder)
        self.address = ""
        self.running: dict[str, UnixNano] = {}
        self.failures: list[str] = []
        self.changes = 0
        self.facts = AllocFacts(
            alloc_id="a",
            name="web.g[0]",
            job_id="web",
            group_name="g",
            namespace="default",
            node_id="n",
            tasks=("main",),
            meta=meta or {},
        )

    def restart(self, task: str, reason: str) -> None:
        """Record the reason."""
        self.failures.append(f"{task}: {reason}")

    def fail_alloc(self, reason: str) -> None:
        """Record the reason."""
        self.failures.append(reason)

    def changed(self) -> None:
        """Count the call."""
        self.changes += 1


class TaskHookSuite:
    """The tests of a task hook's contract."""

    @pytest.fixture
    def hook(self) -> TaskHook:
        """The hook under test; a subclass overrides this."""
        raise NotImplementedError

    @pytest.fixture
    def meta(self) -> Mapping[str, str]:
        """Metadata of a job that uses the hook."""
        return {}

    @pytest.fixture
    async def task(self, tmp_path: Path, meta: Mapping[str, str]) -> AsyncIterator[BenchTask]:
        """A task to prepare; its background work is stopped afterwards."""
        made = BenchTask(tmp_path, meta=meta)
        yield made
        await made.stop()

    def test_its_name_and_its_place_are_possible(self, hook: TaskHook) -> None:
        assert isinstance(hook, TaskHookOf)
        assert NAME.fullmatch(hook.name) and hook.name not in TASK_HOOKS
        assert hook.name in order(TASK_HOOKS, (hook,))

    async def test_what_it_gives_can_be_given(self, hook: TaskHook, task: BenchTask) -> None:
        given = await kept(hook.prepare(task)) or Additions()
        assert all(VARIABLE.fullmatch(name) for name in (*given.env, *given.fixed_env)), given
        assert all(mount.host_path.startswith("/") and mount.task_path.startswith("/") for mount in given.mounts)
        hook.finish(task)

    async def test_a_whole_life_with_a_restart_of_the_task(self, hook: TaskHook, task: BenchTask) -> None:
        for run in (0, 1):
            task.run = run
            await kept(hook.prepare(task))
            await kept(hook.started(task, HANDLE))
            hook.update(task)
            await kept(hook.exited(task, ExitResult(exit_code=run)))
        hook.finish(task)
        hook.finish(task)

    async def test_preparing_twice_gives_the_same(self, hook: TaskHook, task: BenchTask) -> None:
        first, second = await kept(hook.prepare(task)), await kept(hook.prepare(task))
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert set(first.env) == set(second.env) and first.mounts == second.mounts
        hook.finish(task)

    async def test_a_run_of_an_earlier_agent_is_taken_up(self, hook: TaskHook, task: BenchTask) -> None:
        await kept(hook.recover(task))
        await kept(hook.exited(task, ExitResult()))
        hook.finish(task)

    async def test_a_preparation_can_be_cancelled(self, hook: TaskHook, task: BenchTask) -> None:
        preparing = asyncio.ensure_future(kept(hook.prepare(task)))
        await asyncio.sleep(0)
        preparing.cancel()
        await asyncio.wait({preparing}, timeout=STEP_LIMIT_S)
        assert preparing.done()
        hook.finish(task)

    async def test_a_task_that_was_never_prepared_can_end(self, hook: TaskHook, task: BenchTask) -> None:
        hook.finish(task)
        await hook.close()


class AllocHookSuite:
    """The tests of an allocation hook's contract."""

    @pytest.fixture
    def hook(self) -> AllocHook:
        """The hook under test; a subclass overrides this."""
        raise NotImplementedError

    @pytest.fixture
    def meta(self) -> Mapping[str, str]:
        """Metadata of a job that uses the hook."""
        return {}

    @pytest.fixture
    async def alloc(self, tmp_path: Path, meta: Mapping[str, str]) -> AsyncIterator[BenchAlloc]:
        """An allocation to prepare; its background work is stopped afterwards."""
        made = BenchAlloc(tmp_path, meta=meta)
        yield made
        await made.stop()

    def test_its_name_and_its_place_are_possible(self, hook: AllocHook) -> None:
        assert isinstance(hook, AllocHookOf)
        assert NAME.fullmatch(hook.name) and hook.name not in ALLOC_HOOKS
        assert hook.name in order(ALLOC_HOOKS, (hook,))

    @pytest.mark.parametrize("is_recovered", [False, True])
    async def test_a_whole_life(self, hook: AllocHook, alloc: BenchAlloc, is_recovered: bool) -> None:
        await kept(hook.recover(alloc) if is_recovered else hook.prepare(alloc))
        for running in ({}, {"main": UnixNano(1)}, {"main": UnixNano(1)}):
            alloc.running = running
            wake_at = hook.update(alloc)
            assert wake_at is None or wake_at >= 0
        work = hook.stopping(alloc)
        if work is not None:
            await kept(work)
        alloc.running = {}
        hook.update(alloc)
        await kept(hook.exited(alloc))
        hook.finish(alloc)

    async def test_preparing_and_ending_twice_do_no_harm(self, hook: AllocHook, alloc: BenchAlloc) -> None:
        await kept(hook.prepare(alloc))
        await kept(hook.prepare(alloc))
        hook.finish(alloc)
        hook.finish(alloc)

    async def test_an_allocation_that_was_never_prepared_can_end(self, hook: AllocHook, alloc: BenchAlloc) -> None:
        hook.finish(alloc)
        await hook.close()


class ServiceProviderSuite:
    """The tests of a service provider's contract."""

    @pytest.fixture
    def provider(self) -> ServiceProvider:
        """The provider under test, connected to its registry or to a fake of it."""
        raise NotImplementedError

    def known(self, provider: ServiceProvider) -> Mapping[str, ServiceInstance] | None:
        """The registered services by id, when the test can read them."""
        return None

    @pytest.fixture
    def service(self) -> ServiceInstance:
        """A service."""
        return ServiceInstance(
            id="_nomad-task-a-web", name="web", namespace="default", node_id="n", datacenter="dc1", job_id="web",
            alloc_id="a", group_name="g", tags=("v1",), address="127.0.0.1", port=8080,
        )  # fmt: skip

    def test_its_name_is_valid(self, provider: ServiceProvider) -> None:
        assert isinstance(provider, ServiceProvider)
        assert NAME.fullmatch(provider.name) and provider.name != NOMAD

    async def test_a_service_is_known_until_it_is_deregistered(
        self, provider: ServiceProvider, service: ServiceInstance
    ) -> None:
        await provider.register((service,))
        known = self.known(provider)
        assert known is None or known == {service.id: service}
        await provider.deregister((service.id,))
        assert not self.known(provider)
        await provider.close()

    async def test_both_calls_may_come_again(self, provider: ServiceProvider, service: ServiceInstance) -> None:
        await provider.register((service,))
        await provider.register((service,))
        known = self.known(provider)
        assert known is None or len(known) == 1
        await provider.deregister((service.id,))
        await provider.deregister((service.id,))
        await provider.close()
