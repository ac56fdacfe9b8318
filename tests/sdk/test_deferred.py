"""A deferred driver is made when its engine is there or a task needs it, and not before."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from yurt.sdk import deferred
from yurt.sdk.deferred import DeferredDriver
from yurt.sdk.driver import HEALTHY, UNDETECTED, UNHEALTHY, Capabilities, Driver, Fingerprint, TaskHandle
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.testing.fakes import FakeConfig, FakeDriver

ABSENT = Fingerprint(health=UNDETECTED, description="there is no engine")
LIMIT_S = 10


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket of an engine, which is not there yet."""
    monkeypatch.setattr(deferred, "LOOK_EVERY_S", 0.01)
    return tmp_path / "engine.sock"


@pytest.fixture
def driver(engine: Path) -> DeferredDriver:
    return DeferredDriver(
        "fake",
        task_config=FakeConfig,
        capabilities=Capabilities(exec=True),
        absence=lambda: None if engine.exists() else ABSENT,
        module="yurt.testing.fakes",
        make=FakeDriver,
    )


async def test_without_an_engine_it_is_undetected_and_closed_without_being_made(driver: DeferredDriver) -> None:
    found = driver.fingerprint()

    assert await anext(found) == ABSENT
    await driver.close()
    assert [each async for each in found] == []
    assert not driver.is_made


async def test_an_engine_that_comes_later_is_found(driver: DeferredDriver, engine: Path) -> None:
    found = driver.fingerprint()
    assert await anext(found) == ABSENT

    engine.touch()  # noqa: ASYNC240 - an empty file

    assert (await asyncio.wait_for(anext(found), LIMIT_S)).health == HEALTHY
    assert driver.is_made


async def test_a_task_that_needs_it_makes_it_at_once(driver: DeferredDriver) -> None:
    found = driver.fingerprint()
    assert await anext(found) == ABSENT

    with pytest.raises(NotFound, match="no task x"):
        await driver.recover_task(TaskHandle(driver="fake", task_id="x"))

    assert (await asyncio.wait_for(anext(found), LIMIT_S)).health == HEALTHY


async def test_calls_at_the_same_time_make_one_driver(driver: DeferredDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeDriver] = []
    monkeypatch.setattr(driver, "_make", lambda: made.append(FakeDriver()) or made[-1])

    await asyncio.gather(*(driver.task_stats("x") for _ in range(3)), return_exceptions=True)

    assert len(made) == 1


async def test_what_its_driver_does_not_offer_is_refused(driver: DeferredDriver) -> None:
    with pytest.raises(DriverError, match="creates no networks"):
        await driver.create_network("a")
    with pytest.raises(DriverError, match="no interactive commands"):
        await driver.exec_stream("x", ("sh",), tty=False)
    assert await driver.leftovers() == ()
    assert [text async for text in driver.progress("x")] == []


def test_it_is_a_driver(driver: DeferredDriver) -> None:
    assert isinstance(driver, Driver)


async def test_a_driver_that_is_closed_while_its_module_is_imported_is_not_made(
    driver: DeferredDriver, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.touch()  # noqa: ASYNC240 - an empty file
    loop = asyncio.get_running_loop()
    importing, may_end = asyncio.Event(), threading.Event()

    def imported(module: str) -> None:
        loop.call_soon_threadsafe(importing.set)
        assert may_end.wait(LIMIT_S)

    monkeypatch.setattr(deferred, "import_module", imported)
    found = asyncio.ensure_future(anext(driver.fingerprint(), None))
    await importing.wait()
    await driver.close()
    may_end.set()

    assert await asyncio.wait_for(found, LIMIT_S) is None
    assert not driver.is_made
    with pytest.raises(DriverError, match="the fake driver is closed"):
        await driver.task_stats("x")


async def test_a_module_that_cannot_be_imported_makes_it_unhealthy_until_it_can(
    driver: DeferredDriver, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.touch()  # noqa: ASYNC240 - an empty file
    monkeypatch.setattr(driver, "_module", "yurt.no_such_module")
    found = driver.fingerprint()

    problem = await anext(found)
    assert problem.health == UNHEALTHY and "cannot be loaded: No module named" in problem.description
    with pytest.raises(RecoverableError, match="cannot be loaded"):
        await driver.recover_task(TaskHandle(driver="fake", task_id="x"))

    monkeypatch.setattr(driver, "_module", "yurt.testing.fakes")
    assert (await asyncio.wait_for(anext(found), LIMIT_S)).health == HEALTHY
