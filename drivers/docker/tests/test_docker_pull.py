"""Images from a registry: pulled once for all, with credentials, with time limits, and removed after use."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.images import PulledImages
from yurt.sdk.driver import AgentPaths, PluginContext, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import Conflict, DriverError, RecoverableError
from yurt.sdk.schema import decode_config
from yurt.testing.fakes import eventually
from yurt_driver_docker.config import TaskConfig, plugin_config
from yurt_driver_docker.engine import new_engine
from yurt_driver_docker.images import Images

LIMIT_S = 60.0
NO_LIMITS = TaskResources()


class Puller:
    """Images of the test engine, as a driver would want them."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.background = DriverTasks("docker")
        self.way = new_engine(engine.endpoint, plugin_config(PluginContext()).options.tls)
        self.images = self.configured()

    def configured(self, **options: Any) -> Images:
        """The images under these options of the agent."""
        context = PluginContext(config=options, paths=AgentPaths(state_dir=str(self.folder / "state"), run_dir=""))
        self.images = Images(self.way, plugin_config(context), self.background)
        return self.images

    async def ensure(self, image: str, **options: Any) -> str:
        config = decode_config(TaskConfig, {"image": image, **options})
        dirs = TaskDirs(alloc_dir="", shared_dir="", task_dir="", local_dir="", secrets_dir="", logs_dir="")
        request = TaskRequest(
            task_id="a/web/0", alloc_id="a", task_name="web", job_id="job", group_name="group", namespace="default",
            config=config, env={}, dirs=dirs, resources=NO_LIMITS,
        )  # fmt: skip
        return await asyncio.wait_for(self.images.ensure(request), LIMIT_S)

    def is_here(self, image: str) -> bool:
        return bool(self.engine.run("images", "-q", image).stdout)

    async def until_gone(self, image: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.is_here(image):  # noqa: ASYNC110 - what happens is outside this process
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def puller(engine: Any, tmp_path: Path) -> AsyncIterator[Puller]:
    made = Puller(engine, tmp_path)
    yield made
    await made.background.close()
    await made.way.close()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_starts_that_need_the_same_image_share_one_pull(puller: Puller, registry: Any) -> None:
    name = registry.push(puller.engine, "app:1")
    waiting = [asyncio.get_running_loop().create_task(puller.ensure(name)) for _ in range(5)]
    async with asyncio.timeout(LIMIT_S):
        while not puller.images._pulls._under_way:  # noqa: ASYNC110 - the pull begins when the engine has answered
            await asyncio.sleep(0)
    assert len(puller.images._pulls._under_way) == 1
    assert len({await each for each in waiting}) == 1
    assert puller.is_here(name)


async def test_a_pulled_image_is_removed_some_time_after_its_last_task(puller: Puller, registry: Any) -> None:
    puller.configured(gc={"image_delay": "50ms"})
    name = registry.push(puller.engine, "app:2")
    image_id = await puller.ensure(name)
    for task in ("one", "two"):
        puller.images.pulled_images.hold(image_id, task)
    puller.images.pulled_images.release(image_id, "one")
    assert not puller.background.tasks
    puller.images.pulled_images.release(image_id, "two")
    await puller.until_gone(name)


async def test_a_task_hears_how_far_its_image_is(
    puller: Puller, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.sdk.containers.images.FIRST_REPORT_S", 0.05)
    texts = puller.images.start_progress.follow("a/web/0")
    first = asyncio.ensure_future(anext(texts))
    await asyncio.sleep(0)
    name = f"{silent_server}/app:1"
    pulling = asyncio.get_running_loop().create_task(puller.ensure(name, image_pull_timeout="1s"))
    assert await asyncio.wait_for(first, LIMIT_S) == f'Downloading image "{name}"'
    assert (await asyncio.wait_for(anext(texts), LIMIT_S)).startswith(f'Downloading image "{name}": ')
    await texts.aclose()
    with pytest.raises(DriverError, match="was not pulled within 1 s"):
        await pulling


async def test_an_image_that_a_container_still_uses_is_removed_later(
    puller: Puller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.sdk.containers.images.REMOVE_PAUSE_S", 0.001)
    refusals = [Conflict("a container uses it"), EngineDown("away")]

    async def remove(image_id: str) -> None:
        if refusals:
            raise refusals.pop(0)

    pulled_images = PulledImages(puller.background, tmp_path / "images", remove, delay_s=0, removes=True)
    pulled_images.own("sha256:1")
    pulled_images.hold("sha256:1", "one")
    pulled_images.release("sha256:1", "one")
    await eventually(lambda: not puller.background.tasks)
    assert (refusals, pulled_images._owned()) == ([], set())


async def test_an_image_that_was_here_before_stays(puller: Puller) -> None:
    puller.configured(gc={"image_delay": "1ms"})
    image_id = await puller.ensure("yurt-test/busybox:1")
    puller.images.pulled_images.hold(image_id, "one")
    puller.images.pulled_images.release(image_id, "one")
    assert not puller.background.tasks
    assert puller.is_here("yurt-test/busybox:1")


async def test_credentials_of_the_task_open_a_closed_registry(puller: Puller, closed_registry: Any) -> None:
    name = closed_registry.push(puller.engine, "app:3")
    with pytest.raises(DriverError, match=r"app:3.*no basic auth|app:3.*unauthorized"):
        await puller.ensure(name)
    assert await puller.ensure(name, auth={"username": "user", "password": "secret"})


async def test_credentials_come_from_the_agents_docker_config(puller: Puller, closed_registry: Any) -> None:
    name = closed_registry.push(puller.engine, "app:4")
    file = puller.folder / "config.json"
    word = base64.b64encode(b"user:secret").decode()
    file.write_text(json.dumps({"auths": {closed_registry.address: {"auth": word}}}))
    puller.configured(auth={"config": str(file)})
    assert await puller.ensure(name)


async def test_wrong_credentials_may_fail_softly_where_none_are_needed(puller: Puller, registry: Any) -> None:
    name = registry.push(puller.engine, "app:5")
    assert await puller.ensure(name, auth={"username": "user", "password": "wrong"}, auth_soft_fail=True)


async def test_a_missing_image_is_a_final_error(puller: Puller, registry: Any) -> None:
    registry.push(puller.engine, "app:6")
    with pytest.raises(DriverError, match="none:1") as caught:
        await puller.ensure(f"{registry.address}/none:1")
    assert not isinstance(caught.value, RecoverableError)


async def test_a_registry_that_falls_silent_is_given_up(puller: Puller, silent_server: str) -> None:
    puller.configured(pull_activity_timeout="300ms")
    with pytest.raises(RecoverableError, match="broke off"):
        await puller.ensure(f"{silent_server}/app:1")


async def test_a_pull_takes_no_longer_than_the_task_allows(puller: Puller, silent_server: str) -> None:
    with pytest.raises(RecoverableError, match=r"within 0\.3 s.*image_pull_timeout"):
        await puller.ensure(f"{silent_server}/app:1", image_pull_timeout="300ms")


async def test_latest_is_asked_for_again_and_the_local_one_will_do(puller: Puller, registry: Any) -> None:
    name = registry.push(puller.engine, "app:latest")
    pulled = await puller.ensure(name)
    registry.stop()
    assert await puller.ensure(name) == pulled
    with pytest.raises(DriverError):
        await puller.ensure(name, force_pull=True)
