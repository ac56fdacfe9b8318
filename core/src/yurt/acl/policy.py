"""A parsed policy: its grants and denials by label, each with its rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic


SEPARATOR: Final = "\0"
"""Separates the namespace and the path in the label of a path; neither contains it."""


def path_label(namespace: str, path: str) -> str:
    """A path in a namespace as one label; it is a glob when either part is."""
    return f"{namespace}{SEPARATOR}{path}"


class Rule(msgspec.Struct, frozen=True):
    """One grant or denial of a policy, with its place in the text."""

    policy: str
    line: int
    column: int
    text: str
    """The rule in the words of the language: `namespace "prod-*" { policy = "write" }`."""

    def __str__(self) -> str:
        return f'{self.text} (policy "{self.policy}", line {self.line})'


Granted = Mapping[str, Rule]
"""The rule that grants each capability; of a denial the only key is `deny`."""


class Block(msgspec.Struct, frozen=True):
    """A policy's rules about the objects of one label."""

    label: str
    granted: Granted
    rule: Rule
    """The block itself, which also counts when it grants nothing."""


class PathBlock(msgspec.Struct, frozen=True):
    """A policy's rules about paths of variables in the namespaces of a label."""

    namespace: str
    path: str
    granted: Granted
    rule: Rule


class AreaLevel(msgspec.Struct, frozen=True):
    """The level that a policy gives in an area of the cluster."""

    area: str
    level: str
    rule: Rule


class Written(msgspec.Struct, frozen=True):
    """One word of a policy in its text: a level, or a capability in a list."""

    kind: str
    """The block: `namespace`, `path`, `node_pool`, `host_volume`, or an area."""
    label: str
    """The block's label; of a path the namespace, NUL and the path (`compiled.path_label`)."""
    block: int
    """Which block of the policy, counted as they are read."""
    word: str
    is_level: bool
    rule: Rule


class Policy(msgspec.Struct, frozen=True):
    """One policy; several blocks may have the same label."""

    name: str
    namespaces: tuple[Block, ...] = ()
    node_pools: tuple[Block, ...] = ()
    host_volumes: tuple[Block, ...] = ()
    variables: tuple[PathBlock, ...] = ()
    levels: tuple[AreaLevel, ...] = ()
    operator: tuple[Granted, ...] = ()
    """Capabilities of operators, by block."""


class PolicyError(Invalid):
    """A policy cannot be used; `diagnostics` holds every finding with its place."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(f"{each} {each.hint}" if each.hint else str(each) for each in diagnostics))
