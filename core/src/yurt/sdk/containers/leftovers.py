"""Leftovers of a previous agent at a container engine: its containers and pinned mount sources."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from yurt.sdk import mounting
from yurt.sdk.containers.common import ROLE_LABEL, TASK_LABEL
from yurt.sdk.driver import Leftover
from yurt.sdk.errors import DriverError
from yurt.sdk.pinned_paths import PinnedPaths

CONTAINER, PINNED_MOUNT = "container", "held mount"


def container_leftovers(listing: Iterable[Mapping[str, Any]]) -> list[Leftover]:
    """Containers from an engine's list; those of tasks before those that hold their networks."""
    found = []
    for each in listing:
        labels = each.get("Labels") or {}
        names = ", ".join(str(name).lstrip("/") for name in each.get("Names") or ())
        purpose = f"task {labels[TASK_LABEL]}" if labels.get(TASK_LABEL) else "network of an allocation"
        detail = f"{names} ({each.get('State') or 'state unknown'}), {purpose}"
        found.append((bool(labels.get(ROLE_LABEL)), Leftover(kind=CONTAINER, name=str(each["Id"]), detail=detail)))
    return [leftover for _, leftover in sorted(found, key=lambda pair: pair[0])]


def pinned_leftovers(places: PinnedPaths) -> list[Leftover]:
    """Mounts that pinned the sources of starting containers; blocking."""
    points = mounting.points_below(places.folder)
    detail = f"{len(points)} mounts of containers that were being started"
    return [Leftover(kind=PINNED_MOUNT, name=places.folder, detail=detail)] if points else []


async def remove(leftover: Leftover, places: PinnedPaths, remove_container: Callable[[str], Awaitable[None]]) -> None:
    """Remove one leftover; raises DriverError."""
    if leftover.kind != PINNED_MOUNT:
        return await remove_container(leftover.name)
    await asyncio.to_thread(places.clear)
    if await asyncio.to_thread(mounting.points_below, places.folder):
        raise DriverError(f"{places.folder} stays mounted; see `findmnt -R {places.folder}`")
    return None


def has_engine(socket_path: str) -> bool:
    """Whether an engine may run: a remote one, or one whose socket exists."""
    return not socket_path or os.path.exists(socket_path)
