"""Runs the fingerprints of packages, and adds their results to the node.

Each is followed apart: one that fails keeps its last attributes, its reason becomes an attribute and a node event, and
it is asked again after a pause. Neither the start of the agent nor another fingerprint depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

from yurt.client.config import FingerprintRetry
from yurt.client.node.local_node import LocalNode
from yurt.client.node.node_events import NodeEvents
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import DriverError
from yurt.sdk.fingerprints import REASON_ATTRIBUTE, NodeFingerprint, attribute_name, node_attributes
from yurt.sdk.value import replace
from yurt.structs.node import Node

FIRST_FINGERPRINT_S: Final = 10.0
"""The longest wait of a start for the first answers, so that the first registration is complete."""
RETRY: Final = FingerprintRetry()
REASON_CHARACTERS_MAX: Final = 512

log = logging.getLogger(__name__)


class PackageFingerprints:
    """The fingerprints of packages on one node."""

    def __init__(
        self,
        fingerprints: Mapping[str, NodeFingerprint],
        env: Env,
        *,
        node: LocalNode,
        events: NodeEvents,
        group: asyncio.TaskGroup,
        retries: Mapping[str, FingerprintRetry],
    ) -> None:
        self._retries = {name: retries.get(name, RETRY) for name in fingerprints}
        self._failures = Counter[str]()
        self._fingerprints = fingerprints
        self._env = env
        self._node = node
        self._events = events
        self._group = group
        self._first = {name: asyncio.Event() for name in fingerprints}
        self._reasons: dict[str, str] = {}

    def begin(self) -> None:
        """Follow every fingerprint until the group is cancelled."""
        for name in self._fingerprints:
            self._begin_following(name)

    def _begin_following(self, name: str, delay_s: float = 0.0) -> None:
        following = self._follow(name, delay_s)
        if self._retries[name].ends_agent:
            self._group.create_task(self._follow_or_end(name, following), name=f"fingerprint {name}")
            return
        supervised(self._group, f"fingerprint {name}", following, on_error=lambda error: self._broke(name, error))

    async def _follow(self, name: str, delay_s: float) -> None:
        await self._env.sleep(delay_s)
        async for found in self._fingerprints[name].fingerprint():
            attributes = node_attributes(name, found)
            self._node.change(partial(with_attributes, name=name, attributes=attributes))
            self._first[name].set()
            self._failures[name] = 0
            if self._reasons.pop(name, ""):
                self._events.emit("Fingerprint", f"Fingerprint {name}: works again", fingerprint=name)
        self._first[name].set()

    async def _follow_or_end(self, name: str, following: Awaitable[None]) -> None:
        """Follow a fingerprint; raises DriverError, which ends the agent, once its attempts are over."""
        try:
            await following
        except Exception as error:
            self._broke(name, error)
            if self._is_over(name):
                raise DriverError(f"fingerprint {name} failed (exit_on_failure): {error}") from error

    def _is_over(self, name: str) -> bool:
        retry = self._retries[name]
        return self._failures[name] > retry.attempts and (retry.attempts > 0 or retry.ends_agent)

    def _broke(self, name: str, error: Exception) -> None:
        """Log a failure, once per reason, and retry after a pause while attempts are left."""
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
        self._failures[name] += 1
        if not self._is_over(name):
            self._begin_following(name, self._retries[name].interval_s)
        if self._reasons.get(name) != reason:
            self._reasons[name] = reason
            self._node.change(partial(with_reason, name=name, reason=reason))
            self._events.emit("Fingerprint", f"Fingerprint {name} failed: {reason}", fingerprint=name)
        self._first[name].set()

    async def wait_first(self) -> None:
        """Wait, within a bound, for the first answer of every fingerprint."""
        limit = self._env.monotonic() + FIRST_FINGERPRINT_S
        for name, first in self._first.items():
            if not await wait_or_sleep(self._env, first, limit - self._env.monotonic()):
                log.warning("fingerprint has not answered yet: fingerprint=%s", name)


def with_attributes(node: Node, *, name: str, attributes: Mapping[str, str]) -> Node:
    """The node with these attributes in place of all earlier ones of the fingerprint."""
    own = (attribute_name(name, ""), attribute_name(name, "unique."), _reason_attribute(name))
    kept = {key: value for key, value in node.attributes.items() if not key.startswith(own)}
    return replace(node, attributes=kept | dict(attributes))


def with_reason(node: Node, *, name: str, reason: str) -> Node:
    """The node with the reason why the fingerprint failed."""
    return replace(node, attributes={**node.attributes, _reason_attribute(name): reason})


def _reason_attribute(name: str) -> str:
    return f"{REASON_ATTRIBUTE}{name}.reason"
