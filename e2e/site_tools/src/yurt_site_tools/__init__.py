"""Facts for tasks, licences for allocations, and a directory of services in files."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
from yurt.sdk.driver import ExitResult, PluginContext
from yurt.sdk.errors import DriverError, Unavailable
from yurt.sdk.hooks import Additions, AllocHook, HookedAlloc, HookedTask, TaskHook
from yurt.sdk.plugin import plugin_function
from yurt.sdk.services import ServiceInstance, ServiceProvider

ASKED = "facts"
LICENCE = "licence"


class Facts(TaskHook):
    """Writes what the site knows of a task into its local folder, before each start."""

    name = "facts"

    def __init__(self, site: str) -> None:
        self.site = site

    async def prepare(self, task: HookedTask) -> Additions | None:
        asked = task.facts.meta.get(ASKED)
        if asked is None:
            return None
        if asked not in ("short", "long"):
            raise DriverError(f'meta {ASKED} = "{asked}" must be "short" or "long"')
        facts = {"site": self.site, "job": task.facts.job_id} | ({"run": task.run} if asked == "long" else {})
        path = Path(task.dirs.local_dir, "facts.json")
        await asyncio.to_thread(path.write_text, json.dumps(facts))
        return Additions(env={"SITE": self.site})

    async def exited(self, task: HookedTask, result: ExitResult) -> None:
        if ASKED in task.facts.meta:
            task.note(f"run {task.run} ended with {result.exit_code} at {self.site}")


class Licences(AllocHook):
    """Lets no more allocations of the node run with a program than there are licences for it."""

    name = "licences"

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts
        self.holders: dict[str, str] = {}

    async def prepare(self, alloc: HookedAlloc) -> None:
        program = alloc.facts.meta.get(LICENCE)
        if program is None or alloc.facts.alloc_id in self.holders:
            return
        count = self.counts.get(program, 0)
        if list(self.holders.values()).count(program) >= count:
            raise DriverError(f"no licence for {program} is free on this node; licences={count}")
        self.holders[alloc.facts.alloc_id] = program

    async def recover(self, alloc: HookedAlloc) -> None:
        if program := alloc.facts.meta.get(LICENCE):  # its tasks may run: it keeps what an earlier agent gave it
            self.holders[alloc.facts.alloc_id] = program

    def finish(self, alloc: HookedAlloc) -> None:
        self.holders.pop(alloc.facts.alloc_id, None)


class Directory:
    """A file for each service, which the programs of a site read."""

    name = "directory"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        await asyncio.to_thread(self.write, services)

    def write(self, services: tuple[ServiceInstance, ...]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for service in services:
                (self.folder / service.id).write_text(msgspec.json.encode(service).decode())
        except OSError as error:
            raise Unavailable(f"the directory of services: {error}") from None

    async def deregister(self, ids: tuple[str, ...]) -> None:
        for each in ids:
            (self.folder / each).unlink(missing_ok=True)

    async def close(self) -> None:
        """Files stay: services outlive the agent."""


@plugin_function
def yurt_task_hooks(context: PluginContext) -> list[TaskHook]:
    return [Facts(context.config.get("site", "unknown"))]


@plugin_function
def yurt_alloc_hooks(context: PluginContext) -> list[AllocHook]:
    return [Licences(context.config.get("licences", {}))]


@plugin_function
def yurt_service_providers(context: PluginContext) -> list[ServiceProvider]:
    folder = context.config.get("folder", f"{context.paths.state_dir}/services")
    return [Directory(Path(folder))]
