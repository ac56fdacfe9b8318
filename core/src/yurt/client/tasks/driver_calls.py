"""The driver calls of one task; a replacement of the driver's code interrupts none of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from yurt.client.drivers.driver_table import passage, wait_end
from yurt.client.tasks.unanswered_call import UnansweredCall
from yurt.client.timed_waits import GIVE_UP_LIMIT_S, abandonable, forget, wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import outcome_of
from yurt.sdk.driver import Driver, ExitResult, ProgressDriver, TaskHandle, TaskRequest
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import NANOSECONDS, Duration

KILL_RETRY_FIRST_S = 5.0
KILL_RETRY_MAX_S = 120.0
KILL_ATTEMPTS = 5

log = logging.getLogger(__name__)


class DriverCalls:
    """Calls the driver of a name for one task, in the version that is loaded at each call.

    `report` is called with a sentence about a call that the driver does not answer.
    """

    def __init__(
        self, drivers: Mapping[str, Driver], name: str, env: Env, *, task: str, report: Callable[[str], None]
    ) -> None:
        self.name = name
        self._drivers = drivers
        self._env = env
        self._task = task
        self._report = report

    @property
    def driver(self) -> Driver | None:
        """The driver; None when this node does not have it."""
        return self._drivers.get(self.name)

    @property
    def finds_by_id(self) -> bool:
        """Whether the driver finds a task by its id alone."""
        return self.driver is not None and self.driver.capabilities.finds_by_id

    def _present(self) -> Driver:
        assert self.driver is not None, self.name
        return self.driver

    def _passage(self) -> contextlib.AbstractAsyncContextManager[None]:
        """A block in which the driver is not replaced."""
        return passage(self._drivers, self.name)

    @contextlib.asynccontextmanager
    async def _watched(self, what: str, expected_s: float = 0.0) -> AsyncIterator[UnansweredCall]:
        """Like `_passage`; reports the call when the driver does not answer it."""
        async with self._passage():
            with UnansweredCall(
                self._env, self.name, what, self._task, report=self._report, expected_s=expected_s
            ) as call:
                yield call

    async def start(
        self,
        request: TaskRequest,
        *,
        on_text: Callable[[str], None],
        keep: Callable[[TaskHandle], Awaitable[None]],
    ) -> TaskHandle:
        """Start the task; raises YurtError. `on_text` gets the driver's progress messages.

        An agent that ends meanwhile waits for the handle and stores it (`keep`), because no later agent would find the
        task without it. It waits for at most `GIVE_UP_LIMIT_S`, so that a driver that hangs does not block its end.
        """
        async with self._watched("start") as call:
            driver = self._present()

            def hear(text: str) -> None:
                call.hear()
                on_text(text)

            following = asyncio.ensure_future(_follow(driver, request.task_id, hear))  # noqa: TID251 - ended below
            starting = asyncio.ensure_future(driver.start_task(request))  # noqa: TID251 - awaited or given up
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                if await self._ends_soon(starting):
                    await keep(await starting)
                raise
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _ends_soon(self, starting: asyncio.Future[TaskHandle]) -> bool:
        """Wait for a start while the agent ends; returns False when it takes too long."""
        limit = asyncio.ensure_future(self._env.sleep(GIVE_UP_LIMIT_S))  # noqa: TID251 - cancelled below
        either: set[asyncio.Future[Any]] = {starting, limit}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        if starting.done():
            return True
        log.error(
            "the agent ends without waiting longer for a start: limit_s=%g driver=%s task=%s",
            GIVE_UP_LIMIT_S, self.name, self._task,
        )  # fmt: skip
        forget(starting)
        return False

    async def recover(self, handle: TaskHandle) -> None:
        """Have the driver find a run of an earlier agent; raises NotFound when there is none."""
        with UnansweredCall(self._env, self.name, "recovery", self._task, report=self._report):
            await self._present().recover_task(handle)

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end of a run; a driver that fails to watch it gives a result with an error."""
        outcome = await outcome_of(wait_end(self._drivers, self.name, task_id))
        if isinstance(outcome, YurtError):
            return ExitResult(error=str(outcome))
        if isinstance(outcome, Exception):
            log.error("watching a task failed: driver=%s task=%s", self.name, task_id, exc_info=outcome)
            failure = f"failed unexpectedly: {type(outcome).__name__}: {outcome}"
            return ExitResult(error=f"driver {self.name!r} watching the task {failure}")
        return outcome

    async def stop(self, task_id: str, *, signal: str, timeout: Duration, ended: asyncio.Event) -> str:
        """Stop a run, retrying while the driver fails and the run has not `ended`; returns the failure, or ""."""
        retry_s, failure, last = KILL_RETRY_FIRST_S, "", self._present()
        signal = signal or ("SIGTERM" if last.capabilities.fs_isolation == "image" else "SIGINT")
        for _ in range(KILL_ATTEMPTS):
            try:
                async with self._watched("stop", timeout / NANOSECONDS):
                    last = self.driver or last
                    await abandonable(last.stop_task(task_id, signal=signal, timeout=timeout))
            except NotFound:
                return ""
            except YurtError as error:
                failure = str(error)
                await wait_or_sleep(self._env, ended, retry_s)
                retry_s = min(retry_s * 2, KILL_RETRY_MAX_S)
            else:
                return ""
        return failure

    async def kill(self, task_id: str) -> None:
        """Kill a run at once."""
        async with self._watched("kill"):
            await abandonable(self._present().stop_task(task_id, signal="SIGKILL", timeout=Duration(0)))

    async def destroy(self, task_id: str) -> None:
        """Free the driver's resources of an ended run."""
        with contextlib.suppress(NotFound):
            async with self._watched("removal"):
                await abandonable(self._present().destroy_task(task_id))

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal to a run."""
        async with self._watched("signal"):
            await abandonable(self._present().signal_task(task_id, signal))

    async def watch_end(self, ended: asyncio.Event) -> None:
        """Wait for the end of a run whose stop the driver has answered; reports the driver when it sees no end."""
        with UnansweredCall(self._env, self.name, "wait for the end", self._task, report=self._report):
            await ended.wait()


async def _follow(driver: Driver, task_id: str, on_text: Callable[[str], None]) -> None:
    """Receive the driver's progress messages of a start."""
    if isinstance(driver, ProgressDriver):
        async for text in driver.progress(task_id):
            on_text(text)
