"""Pause containers: each holds the network namespace of one allocation, which its tasks join."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.common import NOMAD_LABEL, OWNER_LABEL, ROLE_LABEL
from yurt.sdk.containers.engine import Engine
from yurt.sdk.errors import Conflict, DriverError, NotFound

from yurt_driver_docker.calls import DockerCalls
from yurt_driver_docker.config import PluginConfig
from yurt_driver_docker.images import Images

ROLE = "pause"


def pause_name(alloc_id: str) -> str:
    """The container's name, as Nomad's."""
    return f"nomad_init_{alloc_id}"


def pause_body(alloc_id: str, hostname: str, image_id: str, config: PluginConfig) -> dict[str, Any]:
    """A container with a network namespace and no workload."""
    return {
        "Image": image_id,
        "Hostname": hostname,
        "Labels": {NOMAD_LABEL + "alloc_id": alloc_id, OWNER_LABEL: config.owner, ROLE_LABEL: ROLE},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "Memory": 0,
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "unless-stopped"},
        },
    }


class PauseContainers:
    """Creates and removes pause containers."""

    def __init__(self, engine: Engine, calls: DockerCalls, config: PluginConfig, images: Images) -> None:
        self.engine = engine
        self.calls = calls
        self.config = config
        self.images = images

    async def id_of(self, alloc_id: str) -> str:
        """The allocation's pause container; empty when this driver did not create the namespace."""
        labels = [f"{NOMAD_LABEL}alloc_id={alloc_id}", f"{ROLE_LABEL}={ROLE}"]
        found = await self.engine.ask("/containers/json", {"filters": json.dumps({"label": labels})})
        if not found:
            raise DriverError(
                f"allocation {alloc_id} has a network namespace that no Docker container can join;"
                " its group's network must be made by this driver"
            )
        return str(found[0]["Id"])

    async def create(self, alloc_id: str, hostname: str) -> str:
        """Create or find the container; returns the path of its namespace on this machine."""
        options = self.config.options
        image_id = await self.images.ensure_infra(options.infra_image, options.infra_image_pull_timeout)
        name = pause_name(alloc_id)
        body = pause_body(alloc_id, hostname, image_id, self.config)
        with suppress(Conflict):
            await self.calls.create(name, body)
        await self.calls.start(name)
        pid = int((await self.calls.inspect(name))["State"]["Pid"])
        if not pid:
            raise DriverError(f'the pause container of allocation {alloc_id} ended at once; look at "{name}"')
        return f"/proc/{pid}/ns/net"

    async def destroy(self, alloc_id: str) -> None:
        """Remove the container; does nothing for an absent one."""
        try:
            found = await self.calls.inspect(pause_name(alloc_id))
        except NotFound:
            return
        await self.calls.remove(str(found["Id"]))
