"""The names of attributes and metadata that nodes have, for the warnings about a job's references.

An admission asks about each reference of a job while the event loop waits, so the work is bounded: a few nodes tell the
names that most have, only SCANS_MAX other names are looked for on all nodes, and each answer is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

from yurt.rules.likeness import nearest
from yurt.structs.node import Node

NODES_COMPARED: Final = 50
"""So many nodes tell the names among which a near miss is looked for."""
SCANS_MAX: Final = 20
"""So many names that those nodes lack are looked for on the other nodes; further ones count as unknown."""
ALIKE: Final = 0.75


class NodeTable(Protocol):
    """The nodes of a state."""

    def __len__(self) -> int: ...
    def values(self) -> Iterator[Node]: ...


class NodeNames:
    """Answers for one admission. A caller who may not read nodes learns nothing about their names."""

    __slots__ = ("_known", "_nodes", "_sample", "_scans")

    def __init__(self, nodes: NodeTable | None) -> None:
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
        kind = name.partition(".")[0]
        return nearest(name, (each for each in self._common() if each.startswith(f"{kind}.")), cutoff=ALIKE)

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
