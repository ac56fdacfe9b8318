"""The names of attributes and metadata that nodes have, for the warnings about a job's references.

A few nodes tell the names and datacenters that most have, so an ordinary job is checked on the event loop at the cost
of a few look-ups. A name that they lack is looked for on all nodes, in a thread and in one pass for all names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import is_
from typing import Final, Protocol
from weakref import ref

import msgspec

from yurt.rules.likeness import nearest
from yurt.structs.node import Node

NODES_SAMPLED: Final = 50
"""The number of nodes from which the common names are taken, among which similar ones are searched."""
ALIKE: Final = 0.75


class NodeTable(Protocol):
    """The nodes of a state."""

    def __len__(self) -> int: ...
    def values(self) -> Iterator[Node]: ...


class NodeSample(msgspec.Struct, frozen=True):
    """What a few nodes have; the names in the order of the nodes."""

    nodes: tuple[Node, ...] = ()
    names: frozenset[str] = frozenset()
    ordered: tuple[str, ...] = ()
    datacenters: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    """Those that a node reports, disabled ones included."""


NO_NODES: Final = NodeSample()


def _no_table() -> None:
    """The table of no sample."""


class _Newest(msgspec.Struct, frozen=True):
    """The newest sample and its table: nodes change seldom, and each registration asks."""

    table: Callable[[], NodeTable | None] = _no_table
    """A weak reference, which keeps no old state."""
    sample: NodeSample = NO_NODES


class _Samples:
    """Holds the newest sample; threads replace it as a whole."""

    def __init__(self) -> None:
        self.newest = _Newest()


_SAMPLES: Final = _Samples()


def sample_of(table: NodeTable) -> NodeSample:
    """The sample of a state's nodes."""
    newest = _SAMPLES.newest
    if newest.table() is table:
        return newest.sample
    nodes, sample = tuple(islice(table.values(), NODES_SAMPLED)), newest.sample
    if len(nodes) != len(sample.nodes) or not all(map(is_, nodes, sample.nodes)):
        sample = _sample(nodes)
    _SAMPLES.newest = _Newest(ref(table), sample)
    return sample


def _sample(nodes: tuple[Node, ...]) -> NodeSample:
    names: dict[str, None] = {}
    for node in nodes:
        names |= dict.fromkeys(f"attr.{key}" for key in node.attributes)
        names |= dict.fromkeys(f"meta.{key}" for key in node.meta)
    return NodeSample(
        nodes,
        names=frozenset(names),
        ordered=tuple(names),
        datacenters=frozenset(node.datacenter for node in nodes),
        drivers=frozenset().union(*(node.drivers for node in nodes)),
    )


class CommonNames:
    """The names of a few nodes; `has_open_names` after a question that only all nodes can answer."""

    __slots__ = ("_has_nodes", "_names", "has_open_names")

    def __init__(self, sample: NodeSample) -> None:
        """An empty sample: there are no nodes, or the caller may not read them."""
        self._has_nodes = bool(sample.nodes)
        self._names = sample.names
        self.has_open_names = False

    def has(self, name: str) -> bool | None:
        """True for a common name; None for all others."""
        if name in self._names:
            return True
        self.has_open_names |= self._has_nodes
        return None

    def nearest(self, name: str) -> str | None:
        """None: names are compared in a thread."""
        return None


class NodeNames:
    """Answers for one admission. A caller who may not read nodes learns nothing about their names."""

    __slots__ = ("_all", "_common", "_nodes")

    def __init__(self, nodes: NodeTable | None) -> None:
        """`nodes` None: the caller may not read them."""
        self._nodes = nodes
        self._common = sample_of(nodes) if nodes else NodeSample()
        self._all: dict[str, set[str]] | None = None

    def has(self, name: str) -> bool | None:
        """Whether some node has the name; None without nodes. The first name that few nodes have costs a pass."""
        if not self._nodes:
            return None
        if name in self._common.names:
            return True
        if self._all is None:
            self._all = {"attr": set(), "meta": set()}
            for node in self._nodes.values():
                self._all["attr"].update(node.attributes)
                self._all["meta"].update(node.meta)
        kind, _, key = name.partition(".")
        return key in self._all[kind]

    def nearest(self, name: str) -> str | None:
        """A common name of the same kind that looks alike; None without one."""
        kind = name.partition(".")[0]
        return nearest(name, (each for each in self._common.ordered if each.startswith(f"{kind}.")), cutoff=ALIKE)
