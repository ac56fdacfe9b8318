"""The rights of one caller: compiled policies, and rights that follow from the caller's identity.

A part of the scope that is None means "anywhere": the answer is yes where some rule grants, and the view decides again
about each row. `yurt.acl.decisions` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from yurt.access import ANYWHERE, Need, Scope
from yurt.access.needs import (
    AllOf,
    Anonymous,
    AnyInNamespace,
    AnyOf,
    Area,
    AsNode,
    AsOperator,
    AsWorkload,
    AtLevel,
    Authenticated,
    EachRow,
    InNamespace,
    InNodePool,
    Level,
    Management,
    OnHostVolume,
    OnVariable,
    VariableCapability,
)
from yurt.acl.compiled import CompiledPolicies, GrantLabels, Grants
from yurt.acl.globs import STAR, matcher
from yurt.acl.policy import SEPARATOR, path_label
from yurt.acl.vocabulary import DENY
from yurt.sdk.value import Value


class Workload(Value):
    """The content of a workload identity: the job is the parent's for dispatched and periodic children."""

    namespace: str
    job: str
    group: str
    task: str = ""
    """"" for the identity of a service."""
    alloc_id: str = ""

    @property
    def paths(self) -> frozenset[str]:
        """The variables that are the workload's own."""
        job = f"nomad/jobs/{self.job}"
        own = ("nomad/jobs", job, f"{job}/{self.group}")
        return frozenset((*own, f"{job}/{self.group}/{self.task}") if self.task else own)


class AuthenticationLevel(StrEnum):
    """How far a caller is authenticated."""

    NOBODY = "nobody"
    """A token was shown that is unknown, revoked or expired: only what needs no caller is allowed."""
    ANONYMOUS = "anonymous"
    """No token was shown."""
    KNOWN = "known"
    MANAGEMENT = "management"


NEEDS_MAX: Final = 256
"""Needs whose answers are remembered; then all are forgotten."""
_NOTHING: Final = CompiledPolicies(())
_IMPLICIT: Final = frozenset((VariableCapability.LIST, VariableCapability.READ))
_LEVELS_FOR: Final[Mapping[Level, frozenset[str]]] = {
    Level.LIST: frozenset(("list", "read")),
    Level.READ: frozenset(("read", "write")),
    Level.WRITE: frozenset(("write",)),
}
_PLUGIN_READ: Final = frozenset(("read",))
"""Level `write` on plugins means neither list nor read, as in Nomad."""


class Rights:
    """The rights of one caller: computed once, and consulted for every decision."""

    __slots__ = ("_everywhere", "_in_namespaces", "kind", "node_id", "own_paths", "policies", "workload")

    def __init__(
        self,
        kind: AuthenticationLevel,
        policies: CompiledPolicies = _NOTHING,
        *,
        workload: Workload | None = None,
        node_id: str = "",
    ) -> None:
        self.kind = kind
        self.policies = policies
        self.workload = workload
        self.node_id = node_id
        """The node whose identity was shown; "" for any other caller."""
        self.own_paths = frozenset[str]() if workload is None else workload.paths
        self._everywhere: dict[int, tuple[bool, Need]] = {}
        """Answers of `allows_everywhere`, by the `id()` of the need, which the value keeps alive: each request asks for
        one, routes need few different things, and the hash of a need costs more than the look-up.
        """
        self._in_namespaces: dict[int, tuple[frozenset[str], frozenset[str], Need]] = {}
        """The last answer of `namespaces_allowed` for each need, by its `id()` too: the names, those that are allowed,
        and the need.
        """

    def copy(self) -> Rights:
        """The same rights, without cached answers."""
        return Rights(self.kind, self.policies, workload=self.workload, node_id=self.node_id)

    def allows(self, need: Need, scope: Scope) -> bool:
        """Whether the need is satisfied in the scope."""
        if self.kind is AuthenticationLevel.MANAGEMENT:
            return True
        return _DECIDED_BY[type(need)](self, need, scope)

    def allows_everywhere(self, need: Need) -> bool:
        """Whether `allows` is true in every scope."""
        if self.kind is AuthenticationLevel.MANAGEMENT:
            return True
        cached = self._everywhere.get(id(need))
        if cached is None:
            if len(self._everywhere) >= NEEDS_MAX:
                self._everywhere.clear()
            cached = self._everywhere[id(need)] = (self._found_everywhere(need), need)
        return cached[0]

    def namespaces_allowed(self, need: Need, names: frozenset[str]) -> frozenset[str]:
        """The namespaces among `names` in which `allows` is true."""
        if self.kind is AuthenticationLevel.MANAGEMENT:
            return names
        cached = self._in_namespaces.get(id(need))
        if cached is None or cached[0] != names:
            if len(self._in_namespaces) >= NEEDS_MAX:
                self._in_namespaces.clear()
            allowed = frozenset(name for name in names if self.allows(need, Scope(namespace=name)))
            cached = self._in_namespaces[id(need)] = (names, allowed, need)
        return cached[1]

    def _found_everywhere(self, need: Need) -> bool:
        match need:
            case AnyOf(needs=parts):
                return any(map(self.allows_everywhere, parts))
            case AllOf(needs=parts):
                return all(map(self.allows_everywhere, parts))
            case EachRow(need=inner):
                return self.kind is not AuthenticationLevel.NOBODY and self.allows_everywhere(inner)
            case InNamespace() | AnyInNamespace():
                return _is_only_label(self.policies.namespaces) and self.allows(need, ANYWHERE)
            case InNodePool():
                return _is_only_label(self.policies.node_pools) and self.allows(need, ANYWHERE)
            case OnHostVolume():
                return _is_only_label(self.policies.host_volumes) and self.allows(need, ANYWHERE)
            case OnVariable() | AsWorkload() | AsNode():
                return False
            case _:
                return self.allows(need, ANYWHERE)

    # One function for each kind of need. Where a name is known one label decides; else any label that grants.

    def _anonymous(self, need: Anonymous, scope: Scope) -> bool:
        return True

    def _authenticated(self, need: Authenticated, scope: Scope) -> bool:
        return self.kind is AuthenticationLevel.KNOWN

    def _management(self, need: Management, scope: Scope) -> bool:
        return False

    def _in_namespace(self, need: InNamespace, scope: Scope) -> bool:
        return _grants(self.policies.namespaces, scope.namespace, need.capabilities)

    def _any_in_namespace(self, need: AnyInNamespace, scope: Scope) -> bool:
        if scope.namespace is None:
            return bool(self.policies.namespaces.anywhere)
        found = self.policies.namespaces.find(scope.namespace)
        return found is not None and _is_some(found)

    def _in_node_pool(self, need: InNodePool, scope: Scope) -> bool:
        return _grants(self.policies.node_pools, scope.node_pool, (need.capability,))

    def _on_host_volume(self, need: OnHostVolume, scope: Scope) -> bool:
        return _grants(self.policies.host_volumes, scope.host_volume, need.capabilities)

    def _on_variable(self, need: OnVariable, scope: Scope) -> bool:
        namespace, path = scope.namespace, scope.variable
        if namespace is None or path is None:
            return self.on_some_variable(need, namespace, path)
        found = self.path_grants(need, namespace, path)
        return found is True or (found is not None and need.capability in found.capabilities)

    def _as_workload(self, need: AsWorkload, scope: Scope) -> bool:
        return self.workload is not None and scope.namespace in (None, self.workload.namespace)

    def _as_node(self, need: AsNode, scope: Scope) -> bool:
        return bool(self.node_id) and scope.node in (None, self.node_id)

    def _at_level(self, need: AtLevel, scope: Scope) -> bool:
        granted = self.policies.areas.get(need.area)
        if granted is None:
            return False
        if need.area is Area.PLUGIN and need.level is Level.READ:
            return granted.level in _PLUGIN_READ
        return granted.level in _LEVELS_FOR[need.level]

    def _as_operator(self, need: AsOperator, scope: Scope) -> bool:
        level = self.policies.areas.get(Area.OPERATOR)
        if level is not None and level.level == DENY:
            return False
        return need.capability in self.policies.operator

    def _any_of(self, need: AnyOf, scope: Scope) -> bool:
        # Loops, because a generator costs as much as the decision.
        for part in need.needs:  # noqa: SIM110
            if _DECIDED_BY[type(part)](self, part, scope):
                return True
        return False

    def _all_of(self, need: AllOf, scope: Scope) -> bool:
        for part in need.needs:  # noqa: SIM110
            if not _DECIDED_BY[type(part)](self, part, scope):
                return False
        return True

    def _each_row(self, need: EachRow, scope: Scope) -> bool:
        return self.kind is not AuthenticationLevel.NOBODY and (scope == ANYWHERE or self.allows(need.need, scope))

    # Variables.

    def path_grants(self, need: OnVariable, namespace: str, path: str) -> Grants | Literal[True] | None:
        """The grants for a path; True for the workload's own path.

        The workload's own paths come behind a rule for exactly this path and before every glob.
        """
        label = path_label(namespace, path)
        exact = self.policies.variables.exact(label)
        if exact is not None:
            return exact
        if self._owns(need, namespace, path):
            return True
        return self.policies.variables.find(label)

    def _owns(self, need: OnVariable, namespace: str, path: str) -> bool:
        return (
            path in self.own_paths
            and need.capability in _IMPLICIT
            and self.workload is not None
            and self.workload.namespace == namespace
        )

    def on_some_variable(self, need: OnVariable, namespace: str | None, path: str | None) -> bool:
        """Whether a rule may grant the capability on some path, or in some namespace."""
        workload = self.workload
        if (
            workload is not None
            and need.capability in _IMPLICIT
            and namespace in (None, workload.namespace)
            and (path is None or path in self.own_paths)
        ):
            return True
        if need.capability not in self.policies.variables.anywhere:
            return False
        if path is None and namespace is None:
            return True
        for each in self.policies.variables.values():
            if need.capability not in each.capabilities:
                continue
            in_namespace, _, in_path = each.label.partition(SEPARATOR)
            if _may_match(in_namespace, namespace) and _may_match(in_path, path):
                return True
        return False


_DECIDED_BY: Final[Mapping[type, Callable[[Rights, Any, Scope], bool]]] = {
    Anonymous: Rights._anonymous,
    Authenticated: Rights._authenticated,
    Management: Rights._management,
    InNamespace: Rights._in_namespace,
    AnyInNamespace: Rights._any_in_namespace,
    InNodePool: Rights._in_node_pool,
    OnHostVolume: Rights._on_host_volume,
    OnVariable: Rights._on_variable,
    AsWorkload: Rights._as_workload,
    AsNode: Rights._as_node,
    AtLevel: Rights._at_level,
    AsOperator: Rights._as_operator,
    AnyOf: Rights._any_of,
    AllOf: Rights._all_of,
    EachRow: Rights._each_row,
}
"""A table, because a chain of comparisons costs more than the decision."""


def _grants(labels: GrantLabels, name: str | None, required: tuple[str, ...]) -> bool:
    if name is None:
        return not labels.anywhere.isdisjoint(required)
    found = labels.find(name)
    return found is not None and not found.capabilities.isdisjoint(required)


def _is_some(grants: Grants) -> bool:
    return bool(grants.capabilities) and DENY not in grants.capabilities


def _is_only_label(labels: GrantLabels) -> bool:
    """Whether there is one label, and it matches every name, so the empty one too."""
    return len(labels) == 1 and labels.nearest("") is not None


def _may_match(label: str, name: str | None) -> bool:
    return name is None or (matcher(label)(name) if STAR in label else label == name)
