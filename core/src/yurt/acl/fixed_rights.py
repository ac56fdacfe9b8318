"""The rights of one caller at one time, for work outside the event loop."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from yurt.access import Actor, Need, Scope

if TYPE_CHECKING:
    from yurt.acl.rights import Rights


class FixedRights:
    """Answers by the rights that a caller had when the work began; any thread may ask it.

    It looks at no state and shares nothing that it stores with other callers, so a later change has no effect on it,
    and it has none on later answers.
    """

    __slots__ = ("_rights",)

    def __init__(self, rights: Rights) -> None:
        self._rights = rights.copy()

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the rights satisfy the need in the scope."""
        return self._rights.allows(need, scope)

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` is true in every scope."""
        return self._rights.allows_everywhere(need)

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str]:
        """The namespaces among `names` in which `allows` is true."""
        return self._rights.namespaces_allowed(need, names)

    def standing(self, actor: Actor) -> Hashable | None:
        """None: no other request shares its answers."""
        return None

    def fixed(self, actor: Actor, need: Need) -> FixedRights:
        """Itself."""
        return self
