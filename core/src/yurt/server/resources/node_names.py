"""The names of attributes and metadata that nodes have, for the warnings about a job's references.

An admission asks about each reference of a job while the event loop waits, so the work is bounded: a few nodes tell the
names that most have, only SCANS_MAX other names are looked for on all nodes, and each answer is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Final, Protocol

from yurt.structs.node import Node

NODES_COMPARED: Final = 50
"""So many nodes tell the names among which a near miss is looked for."""
NAMES_COMPARED: Final = 300
"""So many of these names a missing one is compared with."""
SCANS_MAX: Final = 20
"""So many names that those nodes lack are looked for on the other nodes; further ones count as unknown."""
ALIKE: Final = 0.75
LENGTH_MAX: Final = 128
"""Longer names are compared with none."""


class NodeRows(Protocol):
    """The nodes of a state."""

    def __len__(self) -> int: ...
    def values(self) -> Iterator[Node]: ...


class NodeNames:
    """Answers for one admission. A caller who may not read nodes learns nothing about their names."""

    __slots__ = ("_known", "_nodes", "_sample", "_scans")

    def __init__(self, nodes: NodeRows | None) -> None:
        """`nodes` None: the caller may not read them."""
        self._nodes = nodes
        self._known: dict[str, bool] = {}
        self._sample: dict[str, None] | None = None
        self._scans = 0

    def has(self, name: str) -> bool | None:
        """Whether some node has the name; None without nodes, and after SCANS_MAX names that few nodes have."""
        if not self._nodes:
            return None
        if name in self._common():
            return True
        known = self._known.get(name)
        if known is None and self._scans < SCANS_MAX:
            self._scans += 1
            kind, _, key = name.partition(".")
            known = self._known[name] = any(key in _names(node, kind) for node in self._nodes.values())
        return known

    def nearest(self, name: str) -> str | None:
        """A name of the same kind that looks alike; None without one."""
        if len(name) > LENGTH_MAX:
            return None
        kind, _, key = name.partition(".")
        same_kind = (each for each in self._common() if each.startswith(f"{kind}."))
        candidates = islice((each for each in same_kind if _may_be_meant(key, each[len(kind) + 1 :])), NAMES_COMPARED)
        found = get_close_matches(name, list(candidates), n=1, cutoff=ALIKE)
        return found[0] if found else None

    def _common(self) -> Collection[str]:
        """The names of some nodes, in the order of the nodes."""
        if self._sample is None:
            nodes = islice(self._nodes.values(), NODES_COMPARED) if self._nodes else ()
            self._sample = dict.fromkeys(
                f"{kind}.{key}" for node in nodes for kind in ("attr", "meta") for key in _names(node, kind)
            )
        return self._sample


def _names(node: Node, kind: str) -> Mapping[str, str]:
    return node.attributes if kind == "attr" else node.meta


def _may_be_meant(key: str, other: str) -> bool:
    """A cheap test before the comparison: a slip changes the length little, and seldom both ends."""
    return abs(len(key) - len(other)) <= len(key) // 3 + 1 and (key[:1] == other[:1] or key[-1:] == other[-1:])
