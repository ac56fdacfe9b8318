"""A simulated command in a simulated task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, TerminalSize

from yurt_driver_mock.config import Behaviour, ScriptedOutput

KILLED_CODE = 137


class MockExecSession:
    """Simulates an `exec_command` block: writes its outputs, and ends after its duration."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._over = asyncio.get_running_loop().call_later(behaviour.run_for_s, self._end_by_script)

    def _end_by_script(self) -> None:
        end = self._behaviour.end
        self.end(128 + end.signal if end.signal else end.exit_code)

    def end(self, code: int) -> None:
        """End the command, unless it has ended."""
        self._over.cancel()
        if not self._code.done():
            self._code.set_result(code)

    async def output(self) -> AsyncIterator[ExecOutput]:
        """Each text at once, and again at its interval."""
        for stream, script in ((STDOUT, self._behaviour.stdout), (STDERR, self._behaviour.stderr)):
            left = script.repeat + 1 if script.text else 0
            while left > 0:
                yield ExecOutput(data=script.text.encode(), stream=stream)
                left -= 1
                if left > 0 and await self._is_over_within(script):
                    break
        await self.wait()

    async def _is_over_within(self, script: ScriptedOutput) -> bool:
        """Wait until the next write; returns whether the command ended before."""
        done, _ = await asyncio.wait([self._code], timeout=script.every_s)
        return bool(done)

    async def write(self, data: bytes) -> None:
        """Discard the input."""

    async def close_input(self) -> None:
        """Does nothing: a simulated command has neither input nor terminal."""

    async def resize(self, size: TerminalSize) -> None:
        """Does nothing: a simulated command has neither input nor terminal."""

    async def wait(self) -> int:
        """Wait for its end."""
        return await asyncio.shield(self._code)

    async def close(self) -> None:
        """End it."""
        self.end(KILLED_CODE)
