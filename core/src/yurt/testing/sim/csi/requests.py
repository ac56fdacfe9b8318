"""What users do with CSI volumes: they register, change, deregister and detach them, and their jobs ask for them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from yurt.structs.volumes.csi import FILE_SYSTEM, MULTI_WRITER
from yurt.testing.sim.agents import ClientAgent
from yurt.testing.sim.csi.plugin import PLUGIN
from yurt.testing.sim.http import Answer

Ask = Callable[..., Awaitable[Answer | None]]
Acknowledge = Callable[[int, str], None]
NAMES: Final = ("disk", "disk", "share")
"""Few names, so that jobs meet at volumes."""
PER_ALLOC: Final = ("disk[0]", "disk[1]")
WRITER, READERS, ONE_WRITER = "single-node-writer", "multi-node-reader-only", "multi-node-single-writer"
MODES: Final = (WRITER, WRITER, READERS, MULTI_WRITER, ONE_WRITER)
KIND_OF_JOB: Final = ("service", "batch")
PLUGIN_JOB: Final = "csi-plugin"


def plugin_job(driver: str, *, has_controller: bool) -> dict[str, Any]:
    """The job of the plugin, with an allocation on each node."""
    task = {
        "Name": "plugin", "Driver": driver, "Config": {},
        "Resources": {"CPU": 50, "MemoryMB": 32}, "KillTimeout": 2_000_000_000,
        "CSIPluginConfig": {
            "ID": PLUGIN, "Type": "monolith" if has_controller else "node", "MountDir": "/csi",
            "StagePublishBaseDir": "/volumes", "HealthTimeout": 30_000_000_000,
        },
    }  # fmt: skip
    restarts = {"Attempts": 20, "Delay": 1_000_000_000, "Interval": 60_000_000_000, "Mode": "delay"}
    group = {"Name": "plugins", "Count": 1, "Tasks": [task], "RestartPolicy": restarts}
    return {
        "ID": PLUGIN_JOB, "Name": PLUGIN_JOB, "Type": "system", "Datacenters": ["*"], "Priority": 90,
        "TaskGroups": [group],
    }  # fmt: skip


class CsiRequests:
    """The requests of all users of a run."""

    def __init__(
        self, chance: random.Random, ask: Ask, acknowledge: Acknowledge, clients: Sequence[ClientAgent]
    ) -> None:
        self._chance = chance
        self._ask = ask
        self._acknowledge = acknowledge
        self._clients = clients

    def changed(self, group: dict[str, Any], job_type: str) -> dict[str, Any]:
        """The group, at times with a CSI volume. With a single writer and no volume for each, it is of one."""
        chance = self._chance
        mode, is_per_alloc = chance.choice(MODES), chance.random() < 0.2
        is_exclusive = mode in (WRITER, ONE_WRITER) and not is_per_alloc
        has_canaries = bool(group.get("Update", {}).get("Canary"))
        if job_type not in KIND_OF_JOB or chance.random() < 0.3 or "Gang" in group or (is_per_alloc and has_canaries):
            return group
        request = {
            "Name": "storage", "Type": "csi", "Source": chance.choice(NAMES), "AccessMode": mode,
            "AttachmentMode": FILE_SYSTEM, "PerAlloc": is_per_alloc,
            "ReadOnly": mode == READERS or (mode == MULTI_WRITER and chance.random() < 0.2),
        }  # fmt: skip
        mount = {"Volume": "storage", "Destination": "/storage"}
        task = group["Tasks"][0]
        changed = group | {
            "Volumes": group.get("Volumes", {}) | {"storage": request},
            "Tasks": [task | {"VolumeMounts": [*task.get("VolumeMounts", ()), mount]}],
        }
        return changed | {"Count": min(1, group["Count"])} if is_exclusive else changed

    async def act(self, user: str) -> None:
        """Register, change, deregister, detach or read a volume."""
        name = self._chance.choice((*NAMES, *PER_ALLOC))
        match self._chance.choice(("register", "register", "deregister", "detach", "read")):
            case "register":
                await self._register(user, name)
            case "deregister":
                await self._ask(user, "DELETE", f"/v1/volume/csi/{name}")
            case "detach":
                node_id = self._chance.choice(self._clients).node_id
                await self._ask(user, "DELETE", f"/v1/volume/csi/{name}/detach?node={node_id}")
            case _:
                await self._ask(user, "GET", f"/v1/volume/csi/{name}")

    async def register_all(self, user: str) -> None:
        """Register each volume."""
        for name in dict.fromkeys((*NAMES, *PER_ALLOC)):
            await self._register(user, name)

    async def _register(self, user: str, name: str) -> None:
        modes = sorted({*MODES} if self._chance.random() < 0.6 else {*self._chance.sample(MODES, k=2)})
        capabilities = [{"AccessMode": mode, "AttachmentMode": FILE_SYSTEM} for mode in modes]
        volume = {
            "ID": name, "Name": name, "ExternalID": f"at-{name}", "PluginID": PLUGIN,
            "RequestedCapabilities": capabilities,
        }  # fmt: skip
        answer = await self._ask(user, "PUT", f"/v1/volume/csi/{name}", {"Volumes": [volume]})
        if answer is not None and answer.status == 200:
            self._acknowledge(int(answer.headers["X-Nomad-Index"]), "UpsertVolumes")
