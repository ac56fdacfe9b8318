"""Services and checks of allocations on a client, with a fake server and driver and real sockets for the checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from yurt.client.services.probe import probe
from yurt.lifecycle.checks import CheckSpec
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import AllocatedResources, AllocatedSharedResources, Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.network import PortMapping
from yurt.structs.policies import RestartPolicy
from yurt.structs.service import CheckRestart, Service, ServiceCheck
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

OFTEN = {"interval": seconds(0.02), "timeout": seconds(1)}


class Site:
    """An HTTP server whose answer can be changed."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        """The present status."""
        self.asked.append(request.path)
        return web.Response(status=self.status, text="I am well" if self.status == 200 else "I am ill")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site on a loopback port."""
    made, app = Site(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


def service(**changes: Any) -> Service:
    return replace(Service(name="web", port_label="http", provider="nomad", address_mode="auto"), **changes)


def http_check(**changes: Any) -> ServiceCheck:
    return replace(ServiceCheck(name="alive", type="http", path="/health", **OFTEN), **changes)


def alloc_of(client: Any, group: TaskGroup, port: int = 8080) -> Allocation:
    """An allocation that was given a port with the label `http`."""
    given = PortMapping(label="http", value=port, host_ip="127.0.0.1")
    alloc = placed(client.node_id, job=factories.job(task_groups=(group,)))
    return replace(alloc, allocated_resources=AllocatedResources(shared=AllocatedSharedResources(ports=(given,))))


def with_services(*services: Service, **changes: Any) -> TaskGroup:
    return factories.group(tasks=(factories.task(services=services, **changes),))


async def test_a_service_is_registered_while_its_task_runs(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = alloc_of(client, with_services(service(tags=("${NOMAD_TASK_NAME}",))))
        server.put_alloc(alloc)
        await eventually(lambda: server.services)
        (found,) = server.services.values()
        assert (found.service_name, found.alloc_id, found.port, found.tags) == ("web", alloc.id, 8080, ("web",))
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: not server.services)


async def test_services_go_before_the_task_is_stopped(run_client, server: FakeServerPort, driver: FakeDriver):
    async with run_client() as client:
        alloc = alloc_of(client, factories.group(services=(service(),)))
        server.put_alloc(alloc)
        await eventually(lambda: server.services)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert server.services == {}
        registered, gone = server.calls.index("register_services"), server.calls.index("deregister_services")
        stopped = [at for at, name in enumerate(server.calls) if name == "update_allocs"][-1]
        assert registered < gone < stopped


async def test_servers_that_cannot_be_reached_keep_no_task_alive(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = alloc_of(client, with_services(service()))
        server.put_alloc(alloc)
        await eventually(lambda: server.services)

        async def refuse(node_id: str, ids: tuple[str, ...]) -> int:
            raise Unavailable("No cluster leader")

        server.deregister_services = refuse  # type: ignore[method-assign]
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_a_registration_is_tried_until_the_servers_answer(run_client, server: FakeServerPort):
    async with run_client() as client:
        failures = [Unavailable("No cluster leader")]
        register = server.register_services

        async def flaky(node_id: str, services: Any) -> int:
            if failures:
                raise failures.pop()
            return await register(node_id, services)

        server.register_services = flaky  # type: ignore[method-assign]
        server.put_alloc(alloc_of(client, with_services(service())))
        await eventually(lambda: server.services)


async def test_a_node_that_registers_again_tells_its_services_again(run_client, server: FakeServerPort):
    server.ttl_s = 0.05
    async with run_client() as client:
        server.put_alloc(alloc_of(client, with_services(service())))
        await eventually(lambda: server.services)
        server.services.clear()
        server.nodes.clear()
        await eventually(lambda: server.services)


async def test_checks_are_run_and_told(run_client, server: FakeServerPort, site: Site):
    async with run_client() as client:
        alloc = alloc_of(client, with_services(service(checks=(http_check(),))), site.port)
        server.put_alloc(alloc)
        await eventually(lambda: site.asked)

        async def told(status: str) -> bool:
            async with asyncio.timeout(60):
                while [check.status for check in await client.calls.alloc_checks(alloc.id)] != [status]:  # noqa: ASYNC110 - polled
                    await asyncio.sleep(0.005)
            return True

        assert await told("success")
        (check,) = await client.calls.alloc_checks(alloc.id)
        assert (check.check, check.service, check.task, check.status_code) == ("alive", "web", "web", 200)
        assert site.asked[0] == "/health"
        site.status = 503
        assert await told("failure")
        assert (await client.calls.alloc_checks(alloc.id))[0].output == "I am ill"


async def test_a_deployment_waits_for_checks(run_client, server: FakeServerPort, site: Site):
    site.status = 500
    update = factories.update_strategy(min_healthy_time=seconds(0.01))
    group = replace(with_services(service(checks=(http_check(),))), update=update)
    async with run_client() as client:
        alloc = replace(alloc_of(client, group, site.port), deployment_id=factories.new_id())
        server.put_alloc(alloc)
        await eventually(lambda: len(site.asked) > 3)
        status = server.last_update(alloc.id).deployment_status
        assert status is None or status.healthy is None
        site.status = 200

        def is_healthy() -> bool:
            told = server.last_update(alloc.id).deployment_status
            return told is not None and told.healthy is True

        await eventually(is_healthy)


async def test_an_ill_task_is_restarted_by_its_restart_policy_until_that_gives_up(
    run_client, server: FakeServerPort, driver: FakeDriver, site: Site
):
    site.status = 500
    check = http_check(check_restart=CheckRestart(limit=2))
    policy = RestartPolicy(attempts=1, interval=seconds(3600), delay=seconds(0.01), mode="fail")
    async with run_client() as client:
        group = with_services(service(checks=(check,)), restart_policy=policy)
        alloc = alloc_of(client, group, site.port)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert driver.host.starts == [f"{alloc.id}/web/0", f"{alloc.id}/web/1"]
        texts = [event.display_message for event in server.last_update(alloc.id).task_states["web"].events]
        assert 'healthcheck: check "alive" unhealthy' in texts


async def test_a_service_without_an_address_is_mentioned(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = alloc_of(client, with_services(service(port_label="admin")))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)

        def is_told() -> bool:
            events = server.last_update(alloc.id).task_states["web"].events
            return any('has no port "admin"' in event.display_message for event in events)

        await eventually(is_told)
        assert server.services == {}


async def test_probes_answer_whatever_happens(site: Site):
    good = CheckSpec(id="c", name="c", kind="tcp", service="s", group="g", host="127.0.0.1", port=site.port)
    assert (await probe(good)).output == "nomad: tcp ok"
    assert (await probe(replace(good, kind="http"))).output == "nomad: http ok"
    assert not (await probe(replace(good, port=1))).is_ok
    assert not (await probe(replace(good, kind="http", port=1))).is_ok
    assert not (await probe(replace(good, kind="http", protocol="https"))).is_ok
    assert not (await probe(replace(good, kind="http", host="not a host"))).is_ok


async def test_a_probe_has_a_time_limit():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        slow = CheckSpec(
            id="c", name="c", kind="http", service="s", group="g", host="127.0.0.1", port=port, timeout=seconds(0.05)
        )
        assert (await probe(slow)).output == "nomad: http check failed: no answer within 0.05s"
        await asyncio.wait_for(ended.wait(), 60)
