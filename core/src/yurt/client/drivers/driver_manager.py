"""Follows the fingerprints of drivers, reports changes as node events, and replaces drivers by newer code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from yurt.client.drivers.driver_exchange import Drivers, Handles, exchange
from yurt.client.drivers.driver_table import DriverTable
from yurt.client.node.local_node import LocalNode
from yurt.client.node.node_events import NodeEvents
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import HEALTHY, UNDETECTED, Driver, Fingerprint
from yurt.sdk.schema import schema_of
from yurt.sdk.value import UnixNano, replace
from yurt.structs.node import DriverInfo, Node

FIRST_FINGERPRINT_S: Final = 2.0
"""The longest wait of a start for the drivers' first fingerprints, so that the first registration is complete."""

log = logging.getLogger(__name__)


class DriverManager:
    """Follows the drivers of one node and describes the node by their fingerprints."""

    def __init__(
        self, table: DriverTable, env: Env, *, node: LocalNode, events: NodeEvents, group: asyncio.TaskGroup
    ) -> None:
        self._table = table
        self._env = env
        self._node = node
        self._events = events
        self._group = group
        self._found = {name: asyncio.Event() for name in table}

    def begin(self) -> None:
        """Follow every driver until the group is cancelled."""
        self._node.change_schemas(driver_schemas(self._table))
        for name, driver in self._table.items():
            self._begin_following(name, driver)

    def _begin_following(self, name: str, driver: Driver) -> None:
        supervised(self._group, f"fingerprint of driver {name}", self._follow(name, driver))

    async def _follow(self, name: str, driver: Driver) -> None:
        async for found in driver.fingerprint():
            if self._table.get(name) is not driver:
                return
            self._take(name, found)

    async def wait_first(self) -> None:
        """Wait, within a bound, for the first fingerprint of every driver."""
        limit = self._env.monotonic() + FIRST_FINGERPRINT_S
        for name, found in self._found.items():
            if not await wait_or_sleep(self._env, found, limit - self._env.monotonic()):
                log.warning("driver has not answered yet: driver=%s", name)

    async def exchange(self, new: Drivers, *, handles: Callable[[], Handles], remake: Callable[[], Drivers]) -> int:
        """Replace drivers by new ones of the same names that recover their tasks; returns the number of tasks.

        Raises Conflict with the reason when the old code goes on.
        """
        former = dict(self._table)
        try:
            kept = await exchange(self._table, new, handles=handles, remake=remake)
        finally:
            self._node.change_schemas(driver_schemas(self._table))
            for name, driver in self._table.items():
                if driver is not former.get(name):
                    self._found.setdefault(name, asyncio.Event())
                    self._begin_following(name, driver)
        for name in new:
            self._report(name, f"its code was reloaded; tasks kept: {kept}")
        return kept

    def _take(self, name: str, found: Fingerprint) -> None:
        """Describe the node by a driver's fingerprint, and send an event when its health has changed."""
        new = with_driver(self._node.value, name, found, self._env.now())
        before, after = self._node.value.drivers.get(name), new.drivers[name]
        self._found[name].set()
        if before is not None and replace(after, update_time=before.update_time) == before:
            return
        self._node.change(lambda _: new)
        if before is not None:
            if before.healthy and not after.healthy:
                log.warning("driver became unhealthy: driver=%s reason=%s", name, after.health_description)
            self._report(name, after.health_description or ("Healthy" if after.healthy else "Unhealthy"))

    def _report(self, name: str, text: str) -> None:
        self._events.emit("Driver", f"Driver {name}: {text}", driver=name)


def with_driver(node: Node, name: str, found: Fingerprint, now: UnixNano) -> Node:
    """The node with the fingerprint of a driver."""
    prefix = f"driver.{name}"
    is_detected = found.health != UNDETECTED
    attributes = {
        key: value for key, value in node.attributes.items() if key != prefix and not key.startswith(f"{prefix}.")
    }
    if is_detected:
        attributes |= found.attributes
    if found.health == HEALTHY:
        attributes[prefix] = "1"
    text = found.description or ("Healthy" if found.health == HEALTHY else "")
    info = DriverInfo(
        attributes=found.attributes,
        detected=is_detected,
        healthy=found.health == HEALTHY,
        health_description=f"{text}; {found.fix}" if found.fix else text,
        update_time=now,
    )
    return replace(node, attributes=attributes, drivers={**node.drivers, name: info})


def driver_schemas(drivers: Mapping[str, Driver]) -> dict[str, Mapping[str, Any]]:
    """The option schema of every driver, by digest."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for name, driver in drivers.items():
        schema = schema_of(driver.task_config)
        schemas[schema.digest] = {"driver": name, "schema": msgspec.to_builtins(schema)}
    return schemas
