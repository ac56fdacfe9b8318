"""Service providers of packages that hang or fail, and what an agent's restart leaves at them."""

from __future__ import annotations

import asyncio

import pytest
from yurt.client.config import AddedHooks
from yurt.client.services import registrations
from yurt.sdk.errors import Unavailable
from yurt.sdk.services import ServiceInstance
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import RestartPolicy
from yurt.structs.service import Service
from yurt.structs.status import CLIENT_RUNNING
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from .conftest import MakeClient
from .test_hooks import Directory, alloc_of
from .test_unruly_hooks import cancelled_within

NEVER_AGAIN = RestartPolicy(attempts=0, interval=seconds(600), delay=seconds(1), mode="fail")


class Unruly(Directory):
    """Fails in the way that it is told to, once; then it is a good provider."""

    def __init__(self, register: str = "", deregister: str = "") -> None:
        super().__init__()
        self.faults = {"register": register, "deregister": deregister}
        self.calls: list[str] = []

    async def _misbehave(self, call: str) -> None:
        self.calls.append(call)
        match self.faults.pop(call, ""):
            case "hangs":
                await asyncio.sleep(3600)
            case "cancelled":
                await cancelled_within(None)
            case "fails":
                raise Unavailable("down")

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        await self._misbehave("register")
        await super().register(services)

    async def deregister(self, ids: tuple[str, ...]) -> None:
        await self._misbehave("deregister")
        await super().deregister(ids)


def with_provider(directory: Directory) -> AddedHooks:
    return AddedHooks(service_providers={"directory": directory})


def served(node_id: str) -> Allocation:
    return alloc_of(node_id, restart_policy=NEVER_AGAIN, services=(Service(name="web", provider="directory"),))


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "RETRY_S", 0.01)
    monkeypatch.setattr(registrations, "CALL_LIMIT_S", 0.2, raising=False)


@pytest.mark.parametrize("fault", ["hangs", "cancelled", "fails"])
async def test_a_service_is_registered_in_the_end(run_client: MakeClient, server: FakeServerPort, fault: str) -> None:
    directory = Unruly(register=fault)
    async with run_client(added=with_provider(directory)) as client:
        server.put_alloc(served(client.node_id))
        await eventually(lambda: directory.known)
    assert directory.calls[:2] == ["register", "register"]


@pytest.mark.parametrize("fault", ["hangs", "cancelled", "fails"])
async def test_a_service_is_deregistered_in_the_end(run_client: MakeClient, server: FakeServerPort, fault: str) -> None:
    directory = Unruly(deregister=fault)
    async with run_client(added=with_provider(directory)) as client:
        alloc = served(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: directory.known)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: not directory.known)


async def test_the_log_names_the_provider(
    run_client: MakeClient, server: FakeServerPort, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Unruly(register="fails")
    async with run_client(added=with_provider(directory)) as client:
        server.put_alloc(served(client.node_id))
        await eventually(lambda: directory.known)
    assert "provider=directory: down" in caplog.text


async def test_sending_all_again_forgets_no_deregistration(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "RETRY_S", 3600)
    directory = Unruly(deregister="fails")
    async with run_client(added=with_provider(directory)) as client:
        alloc = served(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: directory.known)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: "deregister" in directory.calls)
        client.allocs.live[alloc.id].resend_services()
        await eventually(lambda: not directory.known)


async def test_services_of_a_run_that_is_gone_after_a_restart_of_the_host_are_deregistered(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    directory = Directory()
    async with run_client(added=with_provider(directory)) as client:
        server.put_alloc(served(client.node_id))
        await eventually(lambda: directory.known)
    driver.host.tasks.clear()
    async with run_client(with_driver=FakeDriver(driver.host), added=with_provider(directory)):
        await eventually(lambda: not directory.known)


async def test_services_of_a_run_that_is_found_again_are_not_deregistered(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    directory = Unruly()
    async with run_client(added=with_provider(directory)) as client:
        alloc = served(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: directory.known)
    async with run_client(with_driver=FakeDriver(driver.host), added=with_provider(directory)):
        await eventually(lambda: directory.calls.count("register") == 2)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
    assert "deregister" not in directory.calls
