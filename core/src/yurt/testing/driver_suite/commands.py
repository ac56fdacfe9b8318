"""Tests of commands that run inside a task."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.exec import ExecSession, StreamsExec, TerminalSize
from yurt.sdk.value import seconds
from yurt.testing.driver_suite.bench import LIMIT_S, DriverBench, DriverCases, eventually, needed

SESSIONS = 20
FLOOD_BYTES = 60_000_000


class CommandTests:
    """Tests of `exec_task` and `exec_stream`."""

    async def test_a_command_runs_in_a_task(self, bench: DriverBench, cases: DriverCases) -> None:
        if not bench.driver.capabilities.exec:
            pytest.skip("this driver runs no commands in tasks")
        handle = await bench.start(needed(cases.executes, "runs commands"))
        result = await bench.driver.exec_task(handle.task_id, cases.exec_command, timeout=seconds(10))
        assert (result.exit_code, result.stdout) == (4, b"inside\n")

    async def test_a_command_that_does_not_end_is_killed(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        word = unlikely_number()
        with pytest.raises(DriverError, match="did not end within"):
            await bench.driver.exec_task(handle.task_id, ("sleep", word), timeout=seconds(0.5))
        await eventually("the command is gone", lambda: not runs_here("sleep", word))

    async def test_a_command_gets_input_and_gives_both_outputs(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        async with opened(bench, handle, "sh", "-c", "cat; echo problem >&2; exit 6") as session:
            await session.write(b"first\n")
            await session.write(b"second\n")
            await session.close_input()
            found = await everything(session)
            assert found == {"stdout": b"first\nsecond\n", "stderr": b"problem\n"}
            assert await session.wait() == 6

    async def test_a_command_that_is_not_there_says_so(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        try:
            async with opened(bench, handle, "/no/such/program") as session:
                said = await everything(session)
                code = await session.wait()
        except DriverError as error:
            assert "/no/such/program" in str(error)
        else:
            assert code in (126, 127), said

    async def test_a_command_has_a_terminal_of_any_size(self, bench: DriverBench, cases: DriverCases) -> None:
        command = needed(cases.exec_size_command, "tells the size of its terminal")
        handle = await shell_task(bench, cases)
        async with opened(bench, handle, "sh", tty=True) as session:
            await session.resize(TerminalSize(width=101, height=33))
            look = f"until {' '.join(command)} | grep '33 101'; do sleep 0.05; done; exit 3\n"
            await session.write(look.encode())  # a runtime that stands between passes the size on in its own time
            found = await everything(session)
            assert b"33 101" in found["stdout"]
            assert await session.wait() == 3

    async def test_the_end_of_input_ends_a_command_at_a_terminal(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        async with opened(bench, handle, "cat", tty=True) as session:
            await session.write(b"word\n")
            await session.close_input()
            assert b"word" in (await everything(session))["stdout"]
            assert await session.wait() == 0

    @pytest.mark.parametrize("tty", [False, True])
    async def test_closing_a_session_kills_its_command(self, bench: DriverBench, cases: DriverCases, tty: bool) -> None:
        handle = await shell_task(bench, cases)
        word = unlikely_number()
        async with opened(bench, handle, "sh", "-c", f"trap '' HUP; sleep {word} & sleep {word}", tty=tty):
            await eventually("the command runs", lambda: runs_here("sleep", word))
        await eventually("the command is gone", lambda: not runs_here("sleep", word))
        assert await bench.is_running_after(handle.task_id, 0.05)

    async def test_stopping_a_task_ends_its_sessions(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        word = unlikely_number()
        async with opened(bench, handle, "sleep", word) as session:
            await eventually("the command runs", lambda: runs_here("sleep", word))
            await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(1))
            await asyncio.wait_for(everything(session), LIMIT_S)
            assert await asyncio.wait_for(session.wait(), LIMIT_S) != 0
        await eventually("the command is gone", lambda: not runs_here("sleep", word))

    async def test_output_that_nobody_takes_costs_no_memory(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)
        async with opened(bench, handle, "head", "-c", str(FLOOD_BYTES), "/dev/zero") as session:
            output = session.output()
            first = await anext(output)
            before = psutil.Process().memory_info().rss
            await asyncio.sleep(0.3)
            assert psutil.Process().memory_info().rss - before < FLOOD_BYTES / 4
            taken = len(first.data)
            async for piece in output:
                taken += len(piece.data)
            assert taken == FLOOD_BYTES

    async def test_many_sessions_at_once(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await shell_task(bench, cases)

        async def one(number: int) -> bool:
            async with opened(bench, handle, "cat") as session:
                await session.write(f"number {number}".encode())
                await session.close_input()
                found = await everything(session)
                return found["stdout"] == f"number {number}".encode() and await session.wait() == 0

        assert all(await asyncio.gather(*(one(number) for number in range(SESSIONS))))

    async def test_an_unknown_task_has_no_sessions(self, bench: DriverBench) -> None:
        with pytest.raises(NotFound):
            await streaming(bench).exec_stream("no/such/task", ("true",), tty=False)


def streaming(bench: DriverBench) -> StreamsExec:
    """The driver, when it supports sessions in its tasks; skips the test otherwise."""
    if not isinstance(bench.driver, StreamsExec):
        pytest.skip("this driver has no exec_stream: its commands get no input and no terminal")
    return bench.driver


async def shell_task(bench: DriverBench, cases: DriverCases) -> TaskHandle:
    """A running task in which real commands can be run."""
    if not bench.driver.capabilities.exec:
        pytest.skip("this driver runs no commands in tasks")
    if not cases.has_shell:
        pytest.skip("the commands that this driver runs in tasks are not real")
    return await bench.start(needed(cases.executes, "runs commands"))


@asynccontextmanager
async def opened(
    bench: DriverBench, handle: TaskHandle, *command: str, tty: bool = False
) -> AsyncIterator[ExecSession]:
    """A session that is closed twice afterwards, which must not matter."""
    session = await asyncio.wait_for(streaming(bench).exec_stream(handle.task_id, command, tty=tty), LIMIT_S)
    assert isinstance(session, ExecSession)
    try:
        yield session
    finally:
        await asyncio.wait_for(session.close(), LIMIT_S)
        await session.close()


async def everything(session: ExecSession) -> dict[str, bytes]:
    """Read both outputs of a session to their ends."""
    found = {"stdout": b"", "stderr": b""}
    async with asyncio.timeout(LIMIT_S):
        async for piece in session.output():
            found[piece.stream] += piece.data
    return found


def unlikely_number() -> str:
    """A number of seconds that identifies a command among all processes of the machine."""
    return str(9_000_000 + uuid.uuid4().int % 1_000_000)


def runs_here(*words: str) -> bool:
    """Whether a process of this machine has exactly these arguments."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-len(words) :] == list(words):
                return True
    return False
