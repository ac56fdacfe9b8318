"""Access control objects that a caller may see: all for management tokens, otherwise the caller's own."""

from __future__ import annotations

from yurt.access import ANYWHERE, Access, NoToken, ShownToken, ShownWorkload, needs
from yurt.acl.assignments import attached_policies, policies_of, token_of
from yurt.acl.rights import Workload
from yurt.server.views.rows import Rows
from yurt.state.store import Snapshot
from yurt.structs.acl import (
    ANONYMOUS,
    ACLAuthMethod,
    ACLBindingRule,
    ACLPolicy,
    ACLRole,
    ACLToken,
    without_method_secrets,
)


def is_management(access: Access) -> bool:
    """Whether the caller may see everything."""
    return access.narrowed(needs.MANAGEMENT).allows(ANYWHERE)


def _for_own(access: Access) -> Access:
    """The same caller, restricted regardless of the route's need: each kind adds the caller's own rows."""
    return access.narrowed(needs.each_row(needs.MANAGEMENT))


class TokenRows(Rows[str, ACLToken]):
    """Tokens by accessor id: a caller sees its own."""

    __slots__ = ("_own",)
    name = "acl_tokens"

    def __init__(self, state: Snapshot, access: Access) -> None:
        super().__init__(state, _for_own(access))
        caller = access.actor.caller
        self._own = token_of(state, caller.secret_hash) if isinstance(caller, ShownToken) else None

    def own(self) -> ACLToken | None:
        """The caller's own token."""
        return self._own

    def _sees(self, row: ACLToken) -> bool:
        own = self._own
        return self._access.sees_all or (own is not None and own.accessor_id == row.accessor_id)


class RoleRows(Rows[str, ACLRole]):
    """Roles by id: a caller sees those of its token."""

    __slots__ = ("_own",)
    name = "acl_roles"
    index_min = 1

    def __init__(self, state: Snapshot, access: Access) -> None:
        super().__init__(state, _for_own(access))
        own = TokenRows(state, access).own()
        self._own = frozenset(link.id for link in own.roles) if own is not None else frozenset[str]()

    def named(self, name: str) -> ACLRole | None:
        """The role with a name."""
        return next(iter(self.where("name", name)), None)

    def name_of(self, role_id: str) -> str:
        """The name of a role, for any caller, since a token shows its roles' names; "" for a deleted one."""
        role = self._table.get(role_id)
        return "" if role is None else role.name

    def _sees(self, row: ACLRole) -> bool:
        return self._access.sees_all or row.id in self._own


class PolicyRows(Rows[str, ACLPolicy]):
    """Policies by name: a caller sees those of its token, its roles or its workload, and `anonymous`."""

    __slots__ = ("_own",)
    name = "acl_policies"
    index_min = 1

    def __init__(self, state: Snapshot, access: Access) -> None:
        super().__init__(state, _for_own(access))
        self._own = frozenset(_own_names(state, access))

    def own(self) -> tuple[ACLPolicy, ...]:
        """The policies from which the caller's rights derive, by name."""
        policies = (self._table.get(name) for name in sorted(self._own))
        return tuple(policy for policy in policies if policy is not None)

    def _sees(self, row: ACLPolicy) -> bool:
        return self._access.sees_all or row.name == ANONYMOUS or row.name in self._own


class AuthMethodRows(Rows[str, ACLAuthMethod]):
    """Login methods by name, without their secrets where they are shown."""

    __slots__ = ()
    name = "acl_auth_methods"
    index_min = 1

    @staticmethod
    def shown(row: ACLAuthMethod) -> ACLAuthMethod:
        """A method in the form for callers."""
        return without_method_secrets(row)


class BindingRuleRows(Rows[str, ACLBindingRule]):
    """Binding rules by id, for management tokens only."""

    __slots__ = ()
    name = "acl_binding_rules"
    index_min = 1

    def __init__(self, state: Snapshot, access: Access) -> None:
        super().__init__(state, access.narrowed(needs.MANAGEMENT))


def _own_names(state: Snapshot, access: Access) -> tuple[str, ...]:
    caller = access.actor.caller
    if isinstance(caller, NoToken):
        return (ANONYMOUS,)
    if isinstance(caller, ShownToken):
        token = token_of(state, caller.secret_hash)
        return () if token is None else policies_of(state, token)
    if isinstance(caller, ShownWorkload):
        alloc = state.allocs.get(caller.alloc_id)
        group = "" if alloc is None else alloc.task_group
        workload = Workload(namespace=caller.namespace, job=caller.job, group=group, task=caller.task)
        return tuple(policy.name for policy in attached_policies(state, workload))
    return ()
