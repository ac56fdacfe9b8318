"""What users do with host volumes: they make, register and delete them, and their jobs ask for them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from yurt.structs.volumes.host import FILE_SYSTEM, MULTI_WRITER, READER_ONLY, SINGLE_WRITER, WRITER
from yurt.testing.sim.agents import ClientAgent
from yurt.testing.sim.http import Answer
from yurt.testing.sim.volumes.folders import REGISTERED

Ask = Callable[..., Awaitable[Answer | None]]
NAMES: Final = ("data", "data", "logs")
"""Few names, so that jobs meet at volumes and nodes have volumes of one name."""
PER_ALLOC: Final = ("data[0]", "data[1]")
CAPABILITIES: Final = ((SINGLE_WRITER,), (SINGLE_WRITER,), (SINGLE_WRITER, MULTI_WRITER), (WRITER,), (READER_ONLY,))
"""The access modes that a volume offers."""


class VolumeRequests:
    """The requests of all users of a run."""

    def __init__(self, chance: random.Random, ask: Ask, clients: Sequence[ClientAgent]) -> None:
        self._chance = chance
        self._ask = ask
        self._clients = clients

    def of_group(self) -> dict[str, Any]:
        """The volume block of a group, by its name; empty for a group without one."""
        chance = self._chance
        if chance.random() < 0.4:
            return {}
        is_reader, kind = chance.random() < 0.25, chance.choice(("", "", "sticky", "per_alloc"))
        modes = ("", READER_ONLY) if is_reader else ("", SINGLE_WRITER, SINGLE_WRITER, MULTI_WRITER, WRITER)
        return {
            "disk": {
                "Name": "disk",
                "Type": "host",
                "Source": chance.choice(NAMES),
                "ReadOnly": is_reader,
                "Sticky": kind == "sticky",
                "PerAlloc": kind == "per_alloc",
                "AccessMode": chance.choice(modes),
                "AttachmentMode": chance.choice(("", FILE_SYSTEM)),
            }
        }

    async def act(self, user: str) -> None:
        """Make, register, change or delete a volume, or delete a claim of a sticky one."""
        await getattr(self, f"_{self._chance.choice(('create', 'create', 'register', 'change', 'delete', 'claim'))}")(
            user
        )

    def _document(self) -> dict[str, Any]:
        modes = self._chance.choice(CAPABILITIES)
        name = self._chance.choice((*NAMES, *PER_ALLOC))
        capabilities = [{"AccessMode": mode, "AttachmentMode": FILE_SYSTEM} for mode in modes]
        return {"Name": name, "RequestedCapabilities": capabilities}

    async def _create(self, user: str) -> None:
        document = self._document() | {"PluginID": "mkdir"}
        if self._chance.random() < 0.5:
            document["NodeID"] = self._chance.choice(self._clients).node_id
        await self._ask(user, "PUT", "/v1/volume/host/create", {"Volume": document})

    async def _register(self, user: str) -> None:
        client, name = self._chance.choice(self._clients), self._chance.choice(REGISTERED)
        document = self._document() | {
            "NodeID": client.node_id, "HostPath": str(client.registrable / name),
        }  # fmt: skip
        await self._ask(user, "PUT", "/v1/volume/host/register", {"Volume": document})

    async def _change(self, user: str) -> None:
        """Make a volume again under its id, with other capabilities."""
        volume = await self._some(user, "/v1/volumes?type=host")
        if volume is not None and volume["PluginID"]:
            document = self._document() | {"ID": volume["ID"], "Name": volume["Name"], "PluginID": volume["PluginID"]}
            await self._ask(user, "PUT", "/v1/volume/host/create", {"Volume": document})

    async def _delete(self, user: str) -> None:
        volume = await self._some(user, "/v1/volumes?type=host")
        if volume is not None:
            suffix = "?force=true" if self._chance.random() < 0.3 else ""
            await self._ask(user, "DELETE", f"/v1/volume/host/{volume['ID']}/delete{suffix}")

    async def _claim(self, user: str) -> None:
        claim = await self._some(user, "/v1/volumes/claims")
        if claim is not None:
            await self._ask(user, "DELETE", f"/v1/volumes/claim/{claim['ID']}")

    async def _some(self, user: str, path: str) -> dict[str, Any] | None:
        """A random row of a list; None for an empty list, and without an answer."""
        answer = await self._ask(user, "GET", path)
        rows = answer.json if answer is not None and answer.status == 200 else []
        found: dict[str, Any] | None = self._chance.choice(rows) if rows else None
        return found
