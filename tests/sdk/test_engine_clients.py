"""The clients of an engine's package: threads make and use them while the event loop closes the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Barrier, Event
from typing import Any, TypeVar

import pytest
from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.containers.engine import ENDED, THREADS, Engine, EngineDown

LIMIT_S = 30.0
T = TypeVar("T")


class Client:
    """Counts how often it was closed; what is asked of a closed one fails."""

    def __init__(self) -> None:
        self.closed = 0

    def answer(self) -> str:
        assert not self.closed, "a closed client is used"
        return "well"

    def close(self) -> None:
        self.closed += 1


class Package:
    """A package whose clients are made when the test says so."""

    def __init__(self) -> None:
        self.made: list[Client] = []
        self.is_making, self.may_make = Event(), Event()
        self.meeting: Barrier | None = None

    def new_client(self, target: EngineAddress, timeout_s: float) -> Client:
        self.is_making.set()
        assert self.may_make.wait(LIMIT_S)
        if self.meeting is not None:
            self.meeting.wait(LIMIT_S)
        self.made.append(Client())
        return self.made[-1]

    def do(self, act: Callable[[Any], T], client: Any) -> T:
        return act(client)


@pytest.fixture
def package() -> Iterator[Package]:
    made = Package()
    yield made
    made.may_make.set()


@pytest.fixture
def engine(package: Package) -> Engine:
    """An engine that nobody connects to."""
    return Engine("Test", EngineAddress("tcp://127.0.0.1:1"), package)


async def test_a_client_is_made_once_and_closed_with_its_engine(engine: Engine, package: Package) -> None:
    package.may_make.set()
    assert [await engine.act(Client.answer) for _ in range(3)] == ["well"] * 3
    await engine.close()
    assert [client.closed for client in package.made] == [1]


async def test_clients_differ_by_how_long_they_wait(engine: Engine, package: Package) -> None:
    package.may_make.set()
    await engine.warm_up()
    await engine.close()
    assert [client.closed for client in package.made] == [1, 1]


async def test_a_client_that_is_made_while_the_engine_is_closed_is_closed_and_not_used(
    engine: Engine, package: Package
) -> None:
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(raised_by(engine))
        await asyncio.to_thread(package.is_making.wait, LIMIT_S)
        await engine.close()
        package.may_make.set()
    assert isinstance(acting.result(), EngineDown)
    assert [client.closed for client in package.made] == [1]


async def raised_by(engine: Engine) -> Exception | None:
    """How an act failed."""
    try:
        await engine.act(Client.answer)
    except EngineDown as error:
        return error
    return None


async def test_a_client_in_use_is_closed_by_its_last_user(engine: Engine, package: Package) -> None:
    package.may_make.set()
    begun, may_end = Barrier(3), (Event(), Event())

    def act(number: int) -> Callable[[Client], str]:
        def wait_and_ask(client: Client) -> str:
            begun.wait(LIMIT_S)
            assert may_end[number].wait(LIMIT_S)
            return client.answer()

        return wait_and_ask

    await engine.act(Client.answer)
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(engine.act(act(number))) for number in (0, 1))
        await asyncio.to_thread(begun.wait, LIMIT_S)
        await engine.close()
        may_end[0].set()
        assert (await first, package.made[0].closed) == ("well", 0)
        may_end[1].set()
        assert (await second, package.made[0].closed) == ("well", 1)


async def test_of_clients_that_two_threads_make_at_once_one_is_kept(engine: Engine, package: Package) -> None:
    package.meeting = Barrier(2)
    package.may_make.set()
    both = await asyncio.gather(engine.act(Client.answer), engine.act(Client.answer))
    assert both == ["well", "well"]
    assert sorted(client.closed for client in package.made) == [0, 1]
    await engine.close()
    assert [client.closed for client in package.made] == [1, 1]


async def test_what_waits_for_a_thread_when_the_engine_is_closed_is_told_so_and_not_cancelled(
    engine: Engine, package: Package
) -> None:
    package.may_make.set()
    begun, may_end = Barrier(THREADS + 1), Event()

    def hold(client: Client) -> str:
        begun.wait(LIMIT_S)
        assert may_end.wait(LIMIT_S)
        return client.answer()

    async with asyncio.TaskGroup() as group:
        holding = [group.create_task(engine.act(hold)) for _ in range(THREADS)]
        await asyncio.to_thread(begun.wait, LIMIT_S)
        waiting = [group.create_task(raised_by(engine)) for _ in range(3)]
        cancelled = asyncio.ensure_future(raised_by(engine))
        await asyncio.sleep(0)
        cancelled.cancel()
        await engine.close()
        may_end.set()
    assert [task.result() for task in holding] == ["well"] * THREADS
    assert [str(task.result()) for task in waiting] == [ENDED] * 3
    assert (await asyncio.wait({cancelled}))[0] and cancelled.cancelled()


async def test_an_engine_that_was_closed_refuses_whatever_it_is_asked_to_do(engine: Engine, package: Package) -> None:
    package.may_make.set()
    await engine.act(Client.answer)
    await engine.close()
    assert str(await raised_by(engine)) == ENDED


async def test_an_answer_without_json_is_an_error_of_the_engine(package: Package) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        engine = Engine("Test", EngineAddress(f"tcp://127.0.0.1:{port}"), package)
        with pytest.raises(EngineDown, match="no JSON for /containers/x/stats"):
            await engine.ask("/containers/x/stats")
        await engine.close()
