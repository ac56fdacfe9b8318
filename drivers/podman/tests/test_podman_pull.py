"""Images from a registry: pulled once for all, with credentials, with a time limit, and removed after use."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.driver import AgentPaths, PluginContext, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.schema import decode_config
from yurt.testing.services.engines import PodmanEngine
from yurt.testing.services.registry import PASSWORD, USER, Registry
from yurt_driver_podman.config import TaskConfig, plugin_config
from yurt_driver_podman.engine import new_engine
from yurt_driver_podman.images import Images

LIMIT_S = 60.0
PLAIN = {"auth": {"tls_verify": False}}
"""The registries of these tests speak plain HTTP."""
KNOWN = {"auth": {"tls_verify": False, "username": USER, "password": PASSWORD}}
NO_LIMITS = TaskResources()


class Puller:
    """Images of the test engine, as a driver would want them."""

    def __init__(self, engine: PodmanEngine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.background = DriverTasks("podman")
        self.way = new_engine(str(engine.socket))
        self.images = self.configured()

    def configured(self, **options: object) -> Images:
        """The images under these options of the agent."""
        context = PluginContext(config=options, paths=AgentPaths(state_dir=str(self.folder / "state"), run_dir=""))
        self.images = Images(self.way, plugin_config(context), self.background, socket="default")
        return self.images

    async def ensure(self, image: str, **options: object) -> str:
        config = decode_config(TaskConfig, {"image": image, **options})
        dirs = TaskDirs(alloc_dir="", shared_dir="", task_dir="", local_dir="", secrets_dir="", logs_dir="")
        request = TaskRequest(
            task_id="a/web/0", alloc_id="a", task_name="web", job_id="job", group_name="group", namespace="default",
            config=config, env={}, dirs=dirs, resources=NO_LIMITS,
        )  # fmt: skip
        return await asyncio.wait_for(self.images.ensure(request), LIMIT_S)

    def is_here(self, image: str) -> bool:
        return self.engine.run("image", "exists", image).returncode == 0

    async def until_gone(self, image: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.is_here(image):  # noqa: ASYNC110 - what happens is outside this process
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def puller(engine: PodmanEngine, tmp_path: Path) -> AsyncIterator[Puller]:
    made = Puller(engine, tmp_path)
    yield made
    await made.background.close()
    await made.way.close()


async def test_a_pulled_image_is_shared_and_goes_some_time_after_its_last_task(
    puller: Puller, registry: Registry
) -> None:
    puller.configured(gc={"image_delay": "50ms"})
    name = registry.push(puller.engine, "app:1")
    pulled = {await each for each in [asyncio.ensure_future(puller.ensure(f"docker://{name}", **PLAIN)) for _ in "123"]}
    (image_id,) = pulled
    assert puller.is_here(name)
    puller.images.pulled_images.hold(image_id, "one")
    puller.images.pulled_images.release(image_id, "one")
    await puller.until_gone(name)


async def test_a_registry_without_tls_is_asked_only_where_the_task_says_so(puller: Puller, registry: Registry) -> None:
    name = registry.push(puller.engine, "app:2")
    with pytest.raises(DriverError, match=r"app:2.*HTTP response to HTTPS client"):
        await puller.ensure(name)


async def test_credentials_of_the_task_open_a_closed_registry(puller: Puller, closed_registry: Registry) -> None:
    name = closed_registry.push(puller.engine, "app:3")
    with pytest.raises(DriverError, match=r"app:3.*(authentication required|unauthorized)"):
        await puller.ensure(name, **PLAIN)
    assert await puller.ensure(name, **KNOWN)


async def test_credentials_come_from_the_agents_auth_file(puller: Puller, closed_registry: Registry) -> None:
    name = closed_registry.push(puller.engine, "app:4")
    file = puller.folder / "auth.json"
    word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    file.write_text(json.dumps({"auths": {closed_registry.address: {"auth": word}}}))
    puller.configured(auth={"config": str(file)})
    assert await puller.ensure(name, **PLAIN)


async def test_credentials_come_from_the_agents_helper(puller: Puller, closed_registry: Registry) -> None:
    name = closed_registry.push(puller.engine, "app:5")
    helper = puller.folder / "helper"
    credentials = json.dumps({"Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\ngrep -q '^{closed_registry.address}$' || exit 1\necho '{credentials}'\n")
    helper.chmod(0o755)
    puller.configured(auth={"helper": str(helper)})
    assert await puller.ensure(name, **PLAIN)


async def test_wrong_credentials_are_refused_or_fail_softly_where_none_are_needed(
    puller: Puller, closed_registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = closed_registry.push(puller.engine, "app:6")
    wrong = {"tls_verify": False, "username": USER, "password": "wrong"}
    with pytest.raises(DriverError, match="app:6"):
        await puller.ensure(name, auth=wrong, auth_soft_fail=True)
    everybody = Registry(tmp_path_factory.mktemp("open"), is_open=True)
    try:
        assert await puller.ensure(everybody.push(puller.engine, "app:7"), auth=wrong, auth_soft_fail=True)
    finally:
        everybody.stop()


async def test_a_missing_image_is_a_final_error(puller: Puller, registry: Registry) -> None:
    registry.push(puller.engine, "app:8")
    with pytest.raises(DriverError, match="none:1") as caught:
        await puller.ensure(f"{registry.address}/none:1", **PLAIN)
    assert not isinstance(caught.value, RecoverableError)


async def test_a_pull_takes_no_longer_than_the_task_allows(puller: Puller) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(RecoverableError, match=r"within 0\.3 s.*image_pull_timeout"):
            await puller.ensure(f"127.0.0.1:{silent.getsockname()[1]}/app:1", image_pull_timeout="300ms", **PLAIN)


async def test_latest_is_asked_for_again_and_the_local_one_will_do(puller: Puller, registry: Registry) -> None:
    name = registry.push(puller.engine, "app:latest")
    pulled = await puller.ensure(name, **PLAIN)
    registry.stop()
    assert await puller.ensure(name, **PLAIN) == pulled
    with pytest.raises(DriverError):
        await puller.ensure(name, force_pull=True, **PLAIN)
