"""Images: found locally, pulled, or loaded from an archive; removed some time after their last use.

A pull is a stream on the event loop with two limits: the whole may take `image_pull_timeout`, and the engine must say
something every `pull_activity_timeout`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.engine import Engine, EngineDown, lines_of
from yurt.sdk.containers.images import (
    PulledImages,
    PullReport,
    SharedPulls,
    auth_header,
    is_denied,
    is_hopeless,
    open_archive,
)
from yurt.sdk.containers.options import AgentAuth
from yurt.sdk.containers.packages import import_whole
from yurt.sdk.containers.progress import StartProgress
from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.schema import duration_option
from yurt.sdk.value import NANOSECONDS

from yurt_driver_docker.config import PluginConfig, TaskConfig

log = logging.getLogger(__name__)

DEFAULT_REGISTRY = "docker.io"
READ_BYTES = 1024 * 1024


class ImageName(msgspec.Struct, frozen=True):
    """`repository` with its registry, and a tag or a digest."""

    repository: str
    tag: str

    @property
    def text(self) -> str:
        """The name in the engine's form."""
        return f"{self.repository}{'@' if ':' in self.tag else ':'}{self.tag}"

    @property
    def registry(self) -> str:
        """The registry's host."""
        first, slash, _ = self.repository.partition("/")
        is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
        return first if is_host else DEFAULT_REGISTRY


def parse_image(text: str) -> ImageName:
    """Parse an image name such as `registry:5000/team/app:1.2`; the default tag is `latest`."""
    plain = text.removeprefix("docker://").removeprefix("https://").removeprefix("http://")
    repository, at, digest = plain.partition("@")
    if at:
        return ImageName(repository, digest)
    head, slash, last = plain.rpartition("/")
    name, _, tag = last.partition(":")
    return ImageName(head + slash + name, tag or "latest")


class PullProgress:
    """The progress of a pull, for its messages."""

    def __init__(self) -> None:
        self.layers: dict[str, tuple[int, int]] = {}
        self.complete: set[str] = set()

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of the engine."""
        layer, status = str(message.get("id") or ""), str(message.get("status") or "")
        detail = message.get("progressDetail") or {}
        if status == "Downloading":
            self.layers[layer] = (int(detail.get("current") or 0), int(detail.get("total") or 0))
        elif status in ("Pull complete", "Already exists"):
            self.complete.add(layer)
        elif status == "Pulling fs layer":
            self.layers.setdefault(layer, (0, 0))

    def __str__(self) -> str:
        layers = self.complete | set(self.layers)
        mib = sum(current for current, _ in self.layers.values()) / (1 << 20)
        return f"{len(self.complete)} of {len(layers)} layers complete, {mib:.1f} MiB downloaded"


class Images:
    """The images of one engine that tasks of this client need."""

    def __init__(self, engine: Engine, config: PluginConfig, background: DriverTasks) -> None:
        self.engine = engine
        self.start_progress = StartProgress()
        self._progress: dict[str, PullProgress] = {}
        self.config = config
        self._pulls = SharedPulls(background)
        self.pulled_images = PulledImages(
            background,
            Path(config.state_dir, "pulled-images.json"),
            self._remove,
            delay_s=config.durations.image_delay_s,
            removes=config.options.gc.image,
        )

    async def ensure(self, request: TaskRequest) -> str:
        """Pull or load the task's image if missing; returns its id."""
        config: TaskConfig = request.config
        if config.load:
            return await self._load(request)
        name = parse_image(config.image)
        present = await self._id_of(name.text)
        if present and not config.force_pull and name.tag != "latest":
            return present
        try:
            return await self._shared_pull(name, config, task_id=request.task_id)
        except DriverError as error:
            if not present or config.force_pull:
                raise
            log.info("docker driver: %s could not be pulled, the local one is used: %s", name.text, error)
            return present

    async def ensure_infra(self, image: str, timeout: str) -> str:
        """The id of the image of pause containers, pulled if missing."""
        name = parse_image(image)
        return await self._id_of(name.text) or await self._shared_pull(
            name, TaskConfig(image=image, image_pull_timeout=timeout)
        )

    async def _id_of(self, name: str) -> str:
        """The id of a local image; empty when it is missing."""
        try:
            return str((await self.engine.ask(f"/images/{name}/json"))["Id"])
        except NotFound:
            return ""

    async def _shared_pull(self, name: ImageName, config: TaskConfig, *, task_id: str = "") -> str:
        """Pull, or wait for a pull in progress, and report the progress to the task."""
        user = config.auth.username if config.auth else ""
        report = PullReport(
            functools.partial(self.start_progress.publish, task_id),
            lambda: str(self._progress.get(name.text) or "it begins"),
        )
        return await self._pulls.pull(name.text, user, lambda: self._pull_with_auth(name, config), report=report)

    async def _pull_with_auth(self, name: ImageName, config: TaskConfig) -> str:
        """Pull with the configured credentials, and retry without them if `auth_soft_fail`."""
        before = await self._id_of(name.text)
        try:
            await self._pull(name, config, await self._auth_header(name, config))
        except DriverError as error:
            if not config.auth_soft_fail or not is_denied(str(error)):
                raise
            await self._pull(name, config, {})
        pulled = await self._id_of(name.text)
        if not pulled:
            raise RecoverableError(f'image "{name.text}" was pulled and is gone again')
        if pulled != before:
            self.pulled_images.own(pulled)
        return pulled

    async def _pull(self, name: ImageName, config: TaskConfig, headers: Mapping[str, str]) -> None:
        """Stream one pull to its end."""
        durations = self.config.durations
        timeout = config.image_pull_timeout
        own = duration_option(timeout, option="image_pull_timeout") / NANOSECONDS if timeout else None
        limit_s = durations.pull_s if own is None else own
        progress = self._progress[name.text] = PullProgress()
        query = {"fromImage": name.repository, "tag": name.tag}
        try:
            async with (
                asyncio.timeout(limit_s),
                self.engine.stream(
                    "POST", "/images/create", query=query, headers=headers, idle_s=durations.pull_activity_s
                ) as response,
            ):
                await messages_to(progress.take, response)
        except TimeoutError:
            raise RecoverableError(
                f'image "{name.text}" was not pulled within {limit_s:g} s ({progress});'
                " raise image_pull_timeout or look at the way to the registry"
            ) from None
        except EngineDown as error:
            raise RecoverableError(f'pull of image "{name.text}" broke off ({progress}): {error}') from None
        except (NotFound, DriverError) as error:
            raise pull_failure(name, str(error)) from None
        finally:
            self._progress.pop(name.text, None)

    async def _auth_header(self, name: ImageName, config: TaskConfig) -> dict[str, str]:
        """The task's credentials, or those from the agent's configuration."""
        if config.auth and (config.auth.username or config.auth.password):
            auth = config.auth
            return auth_header(
                {
                    "username": auth.username,
                    "password": auth.password,
                    "email": auth.email,
                    "serveraddress": auth.server_address or name.registry,
                }
            )
        where = self.config.options.auth
        if not where.config and not where.helper:
            return {}
        found = await self.engine.act(lambda client: stored_auth(where, name.registry))
        return auth_header(found) if found else {}

    async def _load(self, request: TaskRequest) -> str:
        """Load an archive from the task's `local` folder, then find the image by name."""
        config: TaskConfig = request.config
        archive = await asyncio.to_thread(open_archive, config.load, request.dirs, option="load")
        try:
            async with (
                asyncio.timeout(self.config.durations.pull_s),
                self.engine.stream(
                    "POST", "/images/load", query={"quiet": "1"}, body=archive,
                    headers={"Content-Type": "application/x-tar"},
                ) as response,
            ):  # fmt: skip
                await messages_to(lambda message: None, response)
        except TimeoutError:
            raise RecoverableError(
                f'load = "{config.load}" took more than {self.config.durations.pull_s:g} s'
            ) from None
        loaded = await self._id_of(parse_image(config.image).text)
        if not loaded:
            raise DriverError(f'load = "{config.load}" holds no image "{config.image}"; name the one that it holds')
        self.pulled_images.own(loaded)
        return loaded

    async def _remove(self, image_id: str) -> None:
        await self.engine.act(lambda client: client.remove_image(image_id), slow=True)


async def messages_to(take: Callable[[Mapping[str, Any]], None], response: aiohttp.ClientResponse) -> None:
    """Pass on each message of a long answer; a message with an error is raised."""
    async for message in lines_of(response):
        take(message)
        if "error" in message:
            raise DriverError(str(message["error"]))


def pull_failure(name: ImageName, reason: str) -> DriverError:
    """The error for a failed pull; permanent errors are not recoverable."""
    text = f'image "{name.text}" cannot be pulled: {reason}'
    return DriverError(text) if is_hopeless(reason) else RecoverableError(text)


def stored_auth(where: AgentAuth, registry: str) -> dict[str, Any] | None:
    """In a thread: a registry's credentials from the agent's docker config file, or from its helper."""
    auth, credentials = import_whole("docker.auth"), import_whole("docker.credentials")
    server = auth.INDEX_URL if registry == DEFAULT_REGISTRY else registry
    if where.helper:
        try:
            found = credentials.Store(where.helper).get(server)
        except credentials.errors.CredentialsNotFound:
            return None
        except credentials.errors.StoreError as error:
            raise DriverError(f'auth.helper "{where.helper}" failed: {error}') from None
        return {"username": found["Username"], "password": found["Secret"], "serveraddress": server}
    if not os.path.exists(where.config):
        raise DriverError(f'auth.config = "{where.config}" does not exist; write credentials there or unset it')
    resolved: dict[str, Any] | None = auth.load_config(where.config).resolve_authconfig(registry)
    return resolved
