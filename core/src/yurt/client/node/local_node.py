"""The current description of this client's node, which fingerprints and volumes change.

A change makes a heartbeat due, which then registers the node again. The parts of a client change the description by
pure functions from node to node, so that the order of their changes does not matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from yurt.structs.node import Node

Schemas = Mapping[str, Mapping[str, Any]]
"""The option schemas of the drivers, by digest."""


class LocalNode:
    """Holds the node, and whether it differs from its last registration."""

    def __init__(self, node: Node, *, visible: Callable[[Node], Node] = lambda node: node) -> None:
        """`visible` removes the attributes that the operator excludes from fingerprints."""
        self.value = node
        self.schemas: Schemas = {}
        self.is_changed = False
        self._visible = visible
        self.beat_due = asyncio.Event()
        """Set when a heartbeat should be sent before it is due."""

    @property
    def id(self) -> str:
        """The node's id, which never changes."""
        return self.value.id

    def current(self) -> Node:
        """The current node."""
        return self.value

    def change(self, change: Callable[[Node], Node]) -> None:
        """Change the description; a difference is registered with the servers."""
        new = self._visible(change(self.value))
        assert new.id == self.value.id, (new.id, self.value.id)
        if new != self.value:
            self.value = new
            self.register_again()

    def change_schemas(self, schemas: Schemas) -> None:
        """Set the option schemas of the drivers."""
        if schemas != self.schemas:
            self.schemas = schemas
            self.register_again()

    def register_again(self) -> None:
        """Have the node registered again."""
        self.is_changed = True
        self.beat_due.set()
