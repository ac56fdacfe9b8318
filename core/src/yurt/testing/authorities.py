"""An authority with a few rights, to show what views, operations and the dispatcher leave out."""

from __future__ import annotations

from yurt.access import ANYWHERE, Actor, Capability, Decision, Identity, Need, Scope
from yurt.access.needs import AnyInNamespace, InNamespace, Leaf, OnVariable, VariableCapability, satisfied


class Grants:
    """Everybody has some capabilities in one namespace, and what `elsewhere` names, and nothing else."""

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

    def has_allowed(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """No decision is remembered."""
        return False

    def preparation(self, actor: Actor) -> None:
        """Nothing takes long."""

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
        """Only while it is off."""
        return not self.is_on

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> None:
        """Unknown."""

    def standing(self, actor: Actor) -> None:
        """Unknown."""

    def identify(self, actor: Actor) -> Identity:
        """Nobody in particular."""
        return Identity(resolved_by="a test")

    def is_secret(self, text: str) -> bool:
        """There are no tokens."""
        return False
