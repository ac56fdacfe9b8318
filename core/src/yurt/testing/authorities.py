"""An authority with a few fixed grants, for tests of what views, operations and the dispatcher filter."""

from __future__ import annotations

from yurt.access import ANYWHERE, Actor, Capability, Decision, Identity, Need, Scope
from yurt.access.needs import AnyInNamespace, InNamespace, Leaf, OnVariable, VariableCapability, satisfied


class Grants:
    """Grants every actor some capabilities in one namespace, the needs in `elsewhere`, and nothing else."""

    def __init__(self, namespace: str, *capabilities: Capability | VariableCapability) -> None:
        self.namespace = namespace
        self.capabilities = frozenset(capabilities)
        self.elsewhere: frozenset[Leaf] = frozenset()
        """Needs that are satisfied whatever they are about: a level on nodes for example."""
        self.is_on = True
        """False: everything is allowed, while a test makes what it needs."""

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """As `allows`."""
        return Decision(is_allowed=self.allows(actor, need, scope), reason="the only grant")

    def recall(self, actor: Actor, need: Need, scope: Scope) -> None:
        """None: decisions are not cached."""

    def preparation(self, actor: Actor) -> None:
        """None: decisions need no preparation."""

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the need is one of the capabilities, in the namespace."""

        def holds(leaf: Leaf) -> bool:
            if leaf in self.elsewhere:
                return True
            if scope.namespace not in (None, self.namespace):
                return False
            if isinstance(leaf, InNamespace):
                return not self.capabilities.isdisjoint(leaf.capabilities)
            if isinstance(leaf, OnVariable):
                return leaf.capability in self.capabilities
            return isinstance(leaf, AnyInNamespace)

        return not self.is_on or satisfied(need, holds, has_row=scope != ANYWHERE)

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """True only while the authority is off."""
        return not self.is_on

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> None:
        """None: not known in advance."""

    def standing(self, actor: Actor) -> None:
        """None: not known."""

    def fixed(self, actor: Actor, need: Need) -> Grants:
        """Itself: its grants are those of a test."""
        return self

    def identify(self, actor: Actor) -> Identity:
        """An anonymous identity."""
        return Identity(resolved_by="a test")

    def is_secret(self, text: str) -> bool:
        """Always False: there are no tokens."""
        return False
