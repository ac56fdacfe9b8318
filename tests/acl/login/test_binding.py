"""From checked claims to a token: selectors, bind names, roles and policies, the token itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.acl.login.binding import BindingOutcome, bind
from yurt.acl.login.checks import checked_jwt
from yurt.acl.login.claims import MappedClaims
from yurt.acl.login.minting import Login, NewToken, log_in
from yurt.acl.names import NAME
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.replica import Replica

S = 1_700_000_000
NOW = UnixNano(S * NANOSECONDS)
HOUR = Duration(3600 * NANOSECONDS)
METHOD = acl.ACLAuthMethod(
    name="ci", type="JWT", token_locality="local", token_name_format="${auth_method_type}-${auth_method_name}",
    max_token_ttl=HOUR,
    config=acl.ACLAuthMethodConfig(
        claim_mappings={"team": "team", "role": "role"}, list_claim_mappings={"groups": "groups"}
    ),
)  # fmt: skip
CLAIMS = {"exp": S + 1, "team": "Web", "groups": ["dev", "ops"]}
MAPPED = MappedClaims({"team": "Web"}, {"groups": ("dev", "ops")})


def rule(number: int = 1, **changes: str) -> acl.ACLBindingRule:
    made = acl.ACLBindingRule(id=f"rule-{number}", auth_method="ci", bind_type="policy", bind_name="deploy")
    return replace(made, **changes)


def replica_with(*rules: acl.ACLBindingRule, method: acl.ACLAuthMethod = METHOD) -> Replica:
    replica = Replica()
    policies = tuple(acl.ACLPolicy(name=name, rules='agent { policy = "read" }') for name in ("deploy", "team-web"))
    role = acl.ACLRole(id="r1", name="web", policies=(acl.ACLRolePolicyLink(name="deploy"),))
    other = acl.ACLAuthMethod(name="other", type="JWT", max_token_ttl=HOUR)
    replica.apply(c.UpsertACLPolicies(policies=policies), c.CreateACLRole(role=role))
    replica.apply(*(c.UpsertACLAuthMethod(method=each) for each in (method, other)))
    replica.apply(*(c.CreateACLBindingRule(rule=each) for each in rules))
    return replica


def login(replica: Replica, **claims: object) -> Login:
    checked = checked_jwt(replica.state.acl_auth_methods["ci"], {**CLAIMS, **claims}, NOW)
    return log_in(replica.state, checked, NewToken("accessor", "hash", NOW))


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True), ("value.team == Web", True), ("value.team == web", False), ('value["team"] == "Web"', True),
        ("value.team != Web", False), ("ops in list.groups", True), ("admins not in list.groups", True),
        ("list.groups contains dev", True), ("We in value.team", True), ("value.team matches `^W`", True),
        ("value.team not matches `^W`", False), ("list.groups is not empty", True), ("list.other is empty", True),
        ("value.missing == x", False), ("value.missing != x", True), ("x in list.missing", False),
        ("value.missing is empty", True), ("value.team == Web and not (admins in list.groups)", True),
        ("any list.groups as g { g == ops }", True), ("all list.groups as g { g == ops }", False),
        # Errors bind nothing, also where `not` stands before them.
        ("any value.team as t { t == x }", False), ("not any value.team as t { t == x }", False),
        ("value.team ==", False), ("other.team != x", False),
    ],
)  # fmt: skip
def test_a_rule_counts_when_its_selector_holds(selector: str, is_selected: bool) -> None:
    bound = bind(replica_with(rule(selector=selector)).state, METHOD, MAPPED)
    assert bound.policies == (("deploy",) if is_selected else ())
    assert bool(bound) is is_selected


@pytest.mark.parametrize(
    ("bind_type", "bind_name", "policies", "roles"),
    [
        ("policy", "deploy", ("deploy",), ()),
        ("policy", "team-${value.team}", ("team-web",), ()),
        ("policy", "missing", (), ()),
        ("role", "web", (), ("r1",)),
        ("role", "${value.team}", (), ("r1",)),
        ("role", "${value.team}${value.role}", (), ("r1",)),
        ("role", "missing", (), ()),
        ("role", "deploy", (), ()),
        ("policy", "web", (), ()),
    ],
)
def test_what_exists_is_bound(bind_type: str, bind_name: str, policies: tuple[str], roles: tuple[str]) -> None:
    bound = bind(replica_with(rule(bind_type=bind_type, bind_name=bind_name)).state, METHOD, MAPPED)
    assert (bound.policies, tuple(link.id for link in bound.roles)) == (policies, roles)
    assert not bound.is_management


@pytest.mark.parametrize(
    ("bind_type", "bind_name", "claim", "text"),
    [
        ("role", "${value.other}", "web", 'cannot compute "role" bind name for bind target: unknown variable accessed'),
        ("policy", "x-${value.team}", "x y", 'computed "policy" bind name for bind target is invalid: "x-x y"'),
        ("policy", "${value.role}", "web", 'computed "policy" bind name for bind target is invalid: ""'),
        ("policy", "${value.team}", "*", "is invalid"),
        ("policy", "${value.team}", "../deploy", "is invalid"),
        ("policy", "${value.team}", "deploy\n", "is invalid"),
        ("policy", "${value.team}", "${value.role}", "is invalid"),
        ("role", "wor\u212a-${value.team}", "web", "is invalid"),
        ("policy", "${value.team}", "\u212a8s", "is invalid"),
        ("policy", "${value.team}", "x" * 129, "is invalid"),
        ("whatever", "deploy", "web", 'unsupported bind type: "whatever"'),
    ],
)
def test_a_bind_name_that_is_no_name_ends_the_login(bind_type: str, bind_name: str, claim: str, text: str) -> None:
    replica = replica_with(rule(1), rule(2, bind_type=bind_type, bind_name=bind_name))
    with pytest.raises(Invalid) as refused:
        login(replica, team=claim)
    assert text in str(refused.value) and refused.value.status == 500


@given(claim=st.text(max_size=20) | st.text("Ka\u212a-9", max_size=4) | st.sampled_from(["deploy", "Deploy"]))
def test_whatever_a_claim_says_only_names_are_looked_up(claim: str) -> None:
    replica = replica_with(rule(1, bind_name="${value.team}"))
    try:
        bound = bind(replica.state, METHOD, MappedClaims({"team": claim}, {}))
    except Invalid:
        assert not NAME.fullmatch(claim)
        return
    assert NAME.fullmatch(claim)
    assert bound.policies == ((claim.lower(),) if claim.lower() in ("deploy", "team-web") else ())


def test_management_decides_alone_whatever_other_rules_say() -> None:
    rules = (rule(1, bind_name="${value.other}"), rule(2), rule(3, bind_type="management", bind_name=""))
    made = login(replica_with(*rules))
    assert (made.token.type, made.token.policies, made.token.roles) == (acl.MANAGEMENT, (), ())
    assert made.bound.outcomes == (("rule-3", BindingOutcome.BOUND, ""),)


def test_a_management_rule_that_is_not_selected_gives_nothing() -> None:
    rules = (rule(1), rule(2, bind_type="management", bind_name="", selector="value.team == admins"))
    assert (login(replica_with(*rules)).token.type, len(login(replica_with(*rules)).bound.outcomes)) == (acl.CLIENT, 2)


def test_every_rule_says_what_came_of_it() -> None:
    rules = (
        rule(1), rule(2, selector="value.team == x"), rule(3, selector="other.x is empty"),
        rule(4, bind_name="missing"), rule(5, bind_type="role", bind_name="missing"), rule(6, auth_method="other"),
    )  # fmt: skip
    outcomes = bind(replica_with(*rules).state, METHOD, MAPPED).outcomes
    assert [(each.rule_id, each.outcome) for each in outcomes] == [
        ("rule-1", BindingOutcome.BOUND), ("rule-2", BindingOutcome.NOT_SELECTED),
        ("rule-3", BindingOutcome.SELECTOR_FAILED),
        ("rule-4", BindingOutcome.NO_SUCH_POLICY), ("rule-5", BindingOutcome.NO_SUCH_ROLE),
    ]  # fmt: skip
    assert "'other' is not one of list, value" in outcomes[2].detail


@pytest.mark.parametrize(
    "rules",
    [
        (), (rule(selector="value.team == x"),), (rule(bind_name="missing"),),
        (rule(auth_method="other", bind_type="management", bind_name=""),),
    ],
)  # fmt: skip
def test_a_login_that_nothing_binds_is_refused(rules: tuple[acl.ACLBindingRule, ...]) -> None:
    with pytest.raises(Invalid, match=r"^no role or policy bindings matched$") as refused:
        login(replica_with(*rules))
    assert refused.value.status == 400


def test_a_token_has_the_rights_name_and_lifetime_of_its_login() -> None:
    method = replace(METHOD, token_name_format="${auth_method_name}: ${value.team}", token_locality="global")
    rules = (rule(1), rule(2), rule(3, bind_type="role", bind_name="web"), rule(4, bind_type="role", bind_name="WEB"))
    replica = replica_with(*rules[:3], method=method)
    assert login(replica).token == acl.ACLToken(
        accessor_id="accessor", secret_hash="hash", name="ci: Web", type=acl.CLIENT, policies=("deploy",),
        roles=(acl.ACLTokenRoleLink(id="r1", name="web"),), is_global=True, create_time=NOW,
        expiration_time=UnixNano(NOW + HOUR), expiration_ttl=HOUR,
    )  # fmt: skip


def test_a_local_method_makes_local_tokens_with_the_default_name() -> None:
    token = login(replica_with(rule(), method=replace(METHOD, token_name_format=""))).token
    assert (token.is_global, token.name) == (False, "JWT-ci")


def test_a_token_of_a_method_without_a_lifetime_is_over_at_once() -> None:
    token = login(replica_with(rule(), method=replace(METHOD, max_token_ttl=Duration(0)))).token
    assert acl.is_expired(token, NOW)


@pytest.mark.parametrize(
    ("name_format", "team", "text"),
    [
        ("${value.role}", "web", "cannot compute the name of the token: unknown variable accessed: value.role"),
        ("${value.team}", "x" * 257, "token name too long"),
    ],
)
def test_a_token_without_a_possible_name_is_not_made(name_format: str, team: str, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        login(replica_with(rule(), method=replace(METHOD, token_name_format=name_format)), team=team)


@pytest.mark.parametrize("change", [c.DeleteACLAuthMethods(names=("ci",)), c.UpsertACLAuthMethod(method=METHOD)])
def test_a_method_that_changes_during_a_login_gives_no_token(change: c.AnyCommand) -> None:
    replica = replica_with(rule(), method=replace(METHOD, max_token_ttl=Duration(1)))
    checked = checked_jwt(replica.state.acl_auth_methods["ci"], CLAIMS, NOW)
    with pytest.raises(Invalid, match="has changed during the login"):
        log_in(replica.apply(change), checked, NewToken("accessor", "hash", NOW))
