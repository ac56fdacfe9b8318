"""A command that only pretends to run in a task that only pretends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, TerminalSize

from yurt_driver_mock.config import Course, ScriptedOutput

KILLED_CODE = 137


class MockExecSession:
    """Goes the course of an `exec_command` block: writes its two outputs, and ends when its time is over."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._over = asyncio.get_running_loop().call_later(course.run_for_s, self._end_as_told)

    def _end_as_told(self) -> None:
        end = self._course.end
        self.end(128 + end.signal if end.signal else end.exit_code)

    def end(self, code: int) -> None:
        """It has ended, if it has not already."""
        self._over.cancel()
        if not self._code.done():
            self._code.set_result(code)

    async def output(self) -> AsyncIterator[ExecOutput]:
        """Each text at once, and again after its time."""
        for stream, told in ((STDOUT, self._course.stdout), (STDERR, self._course.stderr)):
            left = told.repeat + 1 if told.text else 0
            while left > 0:
                yield ExecOutput(data=told.text.encode(), stream=stream)
                left -= 1
                if left > 0 and await self._is_over_within(told):
                    break
        await self.wait()

    async def _is_over_within(self, told: ScriptedOutput) -> bool:
        """Wait for the next time to write."""
        done, _ = await asyncio.wait([self._code], timeout=told.every_s)
        return bool(done)

    async def write(self, data: bytes) -> None:
        """Input is taken and forgotten."""

    async def close_input(self) -> None:
        """Nothing waits for its end."""

    async def resize(self, size: TerminalSize) -> None:
        """It draws nothing."""

    async def wait(self) -> int:
        """Wait for its end."""
        return await asyncio.shield(self._code)

    async def close(self) -> None:
        """End it."""
        self.end(KILLED_CODE)
