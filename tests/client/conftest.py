"""A client with a fake server and a fake driver, and the objects that its tests need."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from yurt.client.client import Client, Surroundings
from yurt.client.config import AddedHooks, ClientConfig, FingerprintRetry
from yurt.client.networks.detection import Offered
from yurt.client.networks.settings import NetworkSettings
from yurt.client.servers.node_token import identified
from yurt.client.templates.settings import TemplateSettings
from yurt.lifecycle.device_health import DeviceHealthSettings
from yurt.runtime.env import Env, RealEnv
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver
from yurt.sdk.templates import TemplateProvider
from yurt.storage.client_db import ClientDatabase
from yurt.structs.node import DrainSpec, HostVolumeInfo
from yurt.testing.fakes import FakeDriver, FakeServerPort

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]


async def no_networks(settings: NetworkSettings) -> Offered:
    """What a machine without root and plugins offers."""
    return Offered()


@pytest.fixture
def server() -> FakeServerPort:
    """A server with no allocations."""
    return FakeServerPort()


@pytest.fixture
def driver() -> FakeDriver:
    """A driver with no tasks."""
    return FakeDriver()


@pytest.fixture
async def database() -> AsyncIterator[ClientDatabase]:
    """What survives a restart of the client in a test."""
    made = ClientDatabase(None)
    yield made
    await made.close()


@pytest.fixture
def run_client(tmp_path: Path, server: FakeServerPort, driver: FakeDriver, database: ClientDatabase) -> MakeClient:
    """Run a client for the length of a block; leaving the block is the end of the agent, not of the tasks."""

    @contextlib.asynccontextmanager
    async def run(
        *,
        env: Env | None = None,
        with_driver: Driver | None = None,
        more_drivers: Sequence[Driver] = (),
        devices: Mapping[str, DevicePlugin] | None = None,
        wait_ready: bool = True,
        dev: bool = True,
        providers: Mapping[str, TemplateProvider] | None = None,
        added: AddedHooks | None = None,
        options: Mapping[str, str] | None = None,
        shutdown_drain: DrainSpec | None = None,
        device_health: DeviceHealthSettings | None = None,
        fingerprint_retries: Mapping[str, FingerprintRetry] | None = None,
        template: TemplateSettings | None = None,
        host_volumes: Mapping[str, HostVolumeInfo] | None = None,
    ) -> AsyncIterator[Client]:
        chosen, env = with_driver or driver, env or RealEnv()
        client = Client(
            ClientConfig(
                state_dir=str(tmp_path / "state"),
                alloc_dir=str(tmp_path / "alloc"),
                dev=dev,
                template_providers=providers or {},
                added=added or AddedHooks(),
                options=options or {},
                shutdown_drain=shutdown_drain,
                fingerprint_retries=fingerprint_retries or {},
                template=template or TemplateSettings(),
                device_health=device_health or DeviceHealthSettings(),
                host_volumes=host_volumes or {},
            ),
            env,
            Surroundings(
                identity=await identified(database, env),
                server=server,
                database=database,
                drivers={each.name: each for each in (chosen, *more_drivers)},
                devices=devices or {},
                find_networks=no_networks,
            ),
        )
        ready = asyncio.Event()
        running = asyncio.ensure_future(client.run(ready=ready))
        try:
            if wait_ready:
                waiting = asyncio.ensure_future(ready.wait())
                done, _ = await asyncio.wait({waiting, running}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if running in done:
                    await running
                assert ready.is_set(), "the client did not become ready"
            yield client
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    return run
