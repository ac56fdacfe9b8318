"""Binding rules: which roles and policies a login gets, and why.

A rule of the method counts when its selector holds for the mapped claims. A rule that binds `management` decides alone,
so such rules are asked first and their order with others does not matter. A bind name that is not a name after
interpolation ends the login, as otherwise a claim would choose between some rights and others. A role or policy that
does not exist adds nothing: policies and roles are looked up now, so that one created later is not granted unseen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from yurt.acl.login.claims import MappedClaims
from yurt.acl.login.refusals import misconfigured
from yurt.acl.login.selectors import compile_selector, selector_row
from yurt.acl.login.templates import VALUE, interpolated, lower_ascii
from yurt.acl.names import NAME
from yurt.filters import Row
from yurt.sdk.errors import Invalid
from yurt.state import Snapshot
from yurt.structs.acl import MANAGEMENT, POLICY, ROLE, ACLAuthMethod, ACLBindingRule, ACLTokenRoleLink

NOTHING_BOUND: Final = "no role or policy bindings matched"


class BindingOutcome(StrEnum):
    """The outcome of a rule."""

    BOUND = "bound"
    NOT_SELECTED = "selector does not match"
    SELECTOR_FAILED = "selector failed"
    NO_SUCH_ROLE = "role does not exist"
    NO_SUCH_POLICY = "policy does not exist"


class RuleOutcome(NamedTuple):
    """The outcome of one rule, to explain a login's rights."""

    rule_id: str
    outcome: BindingOutcome
    detail: str = ""
    """The bind name, or the text of the selector's failure."""


class Bound(NamedTuple):
    """The rights of a login."""

    is_management: bool
    policies: tuple[str, ...]
    roles: tuple[ACLTokenRoleLink, ...]
    outcomes: tuple[RuleOutcome, ...]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.is_management or bool(self.policies or self.roles)


def bind(state: Snapshot, method: ACLAuthMethod, claims: MappedClaims) -> Bound:
    """What the rules of a method grant for claims, possibly nothing; raises Invalid for an invalid bind name."""
    rules = sorted(state.acl_binding_rules.where("auth_method", method.name), key=_management_first)
    row, names = selector_row(claims), _variables(method, claims)
    policies: dict[str, None] = {}
    roles: dict[str, ACLTokenRoleLink] = {}
    outcomes: list[RuleOutcome] = []
    for rule in rules:
        refused = _selection(rule, row)
        if refused is not None:
            outcomes.append(refused)
            continue
        if rule.bind_type == MANAGEMENT:
            return Bound(True, (), (), (*outcomes, RuleOutcome(rule.id, BindingOutcome.BOUND)))
        name = _bind_name(rule, names)
        outcome = BindingOutcome.BOUND
        if rule.bind_type == POLICY:
            if name in state.acl_policies:
                policies[name] = None
            else:
                outcome = BindingOutcome.NO_SUCH_POLICY
        else:
            found = {role.id: ACLTokenRoleLink(id=role.id, name=name) for role in state.acl_roles.where("name", name)}
            roles.update(found)
            outcome = BindingOutcome.BOUND if found else BindingOutcome.NO_SUCH_ROLE
        outcomes.append(RuleOutcome(rule.id, outcome, name))
    return Bound(False, tuple(policies), tuple(roles.values()), tuple(outcomes))


def _management_first(rule: ACLBindingRule) -> tuple[bool, str]:
    return rule.bind_type != MANAGEMENT, rule.id


def _selection(rule: ACLBindingRule, row: Row) -> RuleOutcome | None:
    """Why the rule does not count; None when it does."""
    try:
        is_selected = compile_selector(rule.selector)(row)
    except Invalid as error:
        return RuleOutcome(rule.id, BindingOutcome.SELECTOR_FAILED, str(error))
    return None if is_selected else RuleOutcome(rule.id, BindingOutcome.NOT_SELECTED)


def _variables(method: ACLAuthMethod, claims: MappedClaims) -> dict[str, str]:
    """The variables of bind names: every mapped name, with an empty text where the token lacks the claim."""
    mapped = () if method.config is None else method.config.claim_mappings.values()
    return {f"{VALUE}{name}": lower_ascii(claims.values.get(name, "")) for name in mapped}


def _bind_name(rule: ACLBindingRule, names: dict[str, str]) -> str:
    if rule.bind_type not in (POLICY, ROLE):
        raise misconfigured(f'unsupported bind type: "{rule.bind_type[:64]}"')
    try:
        name = interpolated(rule.bind_name, names)
    except Invalid as error:
        raise misconfigured(f'cannot compute "{rule.bind_type}" bind name for bind target: {error}') from None
    if not NAME.fullmatch(name):
        raise misconfigured(f'computed "{rule.bind_type}" bind name for bind target is invalid: "{name[:140]}"')
    return name
