"""The image of a task: found locally, pulled, or loaded from an archive.

A pull is a stream on the event loop that may take `image_pull_timeout`. Podman reports each layer once and no bytes, so
there is no time limit for silence, as for Docker.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

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
from yurt.sdk.containers.progress import StartProgress
from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError, NotFound, RecoverableError

from yurt_driver_podman.config import PluginConfig, TaskConfig
from yurt_driver_podman.credentials import registry_of, stored_auth
from yurt_driver_podman.engine import delete

ARCHIVES = ("docker-archive:", "oci-archive:")
ASK_S = 5.0


def plain_name(image: str) -> str:
    """The name without the transport prefix of registries."""
    return image.removeprefix("docker://").removeprefix("https://").removeprefix("http://")


def is_latest(name: str) -> bool:
    """Whether the name refers to the newest version; such an image is pulled again at each start."""
    last = name.rpartition("/")[2]
    return "@" not in last and (":" not in last or last.endswith(":latest"))


class Images:
    """The images of one engine that tasks of this client need."""

    def __init__(self, engine: Engine, config: PluginConfig, background: DriverTasks, *, socket: str) -> None:
        self._engine = engine
        self._config = config
        self._pulls = SharedPulls(background)
        self.start_progress = StartProgress()
        self._steps: dict[str, str] = {}
        self.pulled_images = PulledImages(
            background,
            Path(config.state_dir, f"podman-images-{socket}.json"),
            self._remove,
            delay_s=config.durations.image_delay_s,
            removes=config.options.gc.image,
        )

    async def ensure(self, request: TaskRequest) -> str:
        """Pull or load the task's image if missing; returns its id."""
        config: TaskConfig = request.config
        if config.image.startswith(ARCHIVES):
            return await self._load(request)
        name = plain_name(config.image)
        present = await self._id_of(name)
        if present and not config.force_pull and (not is_latest(name) or name.startswith("localhost/")):
            return present
        user = config.auth.username if config.auth else ""
        try:
            report = PullReport(
                functools.partial(self.start_progress.publish, request.task_id),
                lambda: self._steps.get(name, "it begins"),
            )
            return await self._pulls.pull(name, user, lambda: self._pull_with_auth(name, config), report=report)
        except DriverError:
            if not present or config.force_pull:
                raise
            return present

    async def _id_of(self, name: str) -> str:
        """The id of a local image; empty when it is missing."""
        try:
            return str((await self._engine.ask(f"/images/{quote(name, safe='')}/json"))["Id"])
        except NotFound:
            return ""

    async def _pull_with_auth(self, name: str, config: TaskConfig) -> str:
        """Pull with the configured credentials, and retry without them if `auth_soft_fail`."""
        before = await self._id_of(name)
        try:
            pulled = await self._pull(name, config, await self._auth(name, config))
        except DriverError as error:
            if not config.auth_soft_fail or not is_denied(str(error)):
                raise
            pulled = await self._pull(name, config, {})
        if pulled != before:
            self.pulled_images.own(pulled)
        return pulled

    async def _pull(self, name: str, config: TaskConfig, headers: Mapping[str, str]) -> str:
        """Stream one pull to its end; returns the id."""
        limit_s = self._config.durations.limit_s(config.image_pull_timeout)
        verifies = config.auth.tls_verify if config.auth else True
        query = {"reference": name, **({} if verifies else {"tlsVerify": "false"})}
        report: dict[str, Any] = {}
        try:
            async with (
                asyncio.timeout(limit_s),
                self._engine.stream("POST", "/images/pull", query=query, headers=headers) as response,
            ):
                async for message in lines_of(response):
                    report |= message
                    self._steps[name] = str(message.get("stream") or "").strip() or self._steps.get(name, "")
        except TimeoutError:
            raise RecoverableError(
                f'image "{name}" was not pulled within {limit_s:g} s;'
                " raise image_pull_timeout or look at the way to the registry"
            ) from None
        except EngineDown as error:
            raise RecoverableError(f'pull of image "{name}" broke off: {error}') from None
        except (NotFound, DriverError) as error:
            raise pull_failure(name, str(error)) from None
        finally:
            self._steps.pop(name, None)
        if report.get("error") or not report.get("id"):
            raise pull_failure(name, str(report.get("error") or "the engine reported no image id"))
        return str(report["id"])

    async def _auth(self, name: str, config: TaskConfig) -> dict[str, str]:
        """The task's credentials, or those from the agent's configuration."""
        auth = config.auth
        if auth and (auth.username or auth.password):
            return auth_header({"username": auth.username, "password": auth.password})
        where: AgentAuth = self._config.options.auth
        if not where.config and not where.helper:
            return {}
        found = await asyncio.to_thread(stored_auth, where, registry_of(name))
        return auth_header(found) if found else {}

    async def _load(self, request: TaskRequest) -> str:
        """Load an archive from the task's folders, or from the host where the operator permits its paths."""
        config: TaskConfig = request.config
        archive = await asyncio.to_thread(self._archive, request)
        limit_s = self._config.durations.limit_s(config.image_pull_timeout)
        try:
            async with (
                asyncio.timeout(limit_s),
                self._engine.stream(
                    "POST", "/images/load", body=archive,
                    headers={"Content-Type": "application/x-tar"},
                ) as response,
            ):  # fmt: skip
                names = json.loads(await response.content.read(-1)).get("Names") or []
        except TimeoutError:
            raise RecoverableError(f'image = "{config.image}" was not loaded within {limit_s:g} s') from None
        if not names:
            raise DriverError(f'image = "{config.image}" holds no image')
        loaded = await self._id_of(str(names[0]))
        self.pulled_images.own(loaded)
        return loaded

    def _archive(self, request: TaskRequest) -> BinaryIO:
        """The archive file of an image name."""
        image: str = request.config.image
        path = image.partition(":")[2].split(":")[0]
        if self._config.volumes_enabled and os.path.isabs(path) and os.path.isfile(path):
            return open(path, "rb")
        return open_archive(path, request.dirs, option="image")

    async def _remove(self, image_id: str) -> None:
        await self._engine.act(delete(f"/images/{image_id}"), slow=True)


def pull_failure(name: str, reason: str) -> DriverError:
    """The error for a failed pull; permanent errors are not recoverable."""
    text = f'image "{name}" cannot be pulled: {reason}'
    return DriverError(text) if is_hopeless(reason) else RecoverableError(text)
