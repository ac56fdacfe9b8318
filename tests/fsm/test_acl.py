"""Policies, roles and login methods in the log."""

from __future__ import annotations

import pytest
from yurt.sdk.value import replace
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.replica import Replica

OPS = acl.ACLPolicy(name="ops", rules='node { policy = "read" }')
WEB = acl.ACLRole(id="r1", name="web", policies=(acl.ACLRolePolicyLink(name="ops"),))
METHOD = acl.ACLAuthMethod(name="ci", type="JWT", default=True, modify_time=5)
RULE = acl.ACLBindingRule(id="b1", auth_method="ci", bind_type="policy", bind_name="ops", modify_time=7)


@pytest.fixture
def filled(replica: Replica) -> Replica:
    replica.apply(
        c.UpsertACLPolicies(policies=(OPS,)),
        c.CreateACLRole(role=WEB),
        c.UpsertACLAuthMethod(method=METHOD),
        c.CreateACLBindingRule(rule=RULE),
    )
    return replica


def test_a_policy_keeps_when_it_was_made(replica: Replica) -> None:
    replica.apply(c.UpsertACLPolicies(policies=(OPS,)))
    replica.apply(c.UpsertACLPolicies(policies=(replace(OPS, description="d"),)))
    stored = replica.state.acl_policies["ops"]
    assert (stored.modify_index - stored.create_index, stored.description) == (1, "d")


def test_a_write_that_changes_nothing_moves_no_index(filled: Replica) -> None:
    before = filled.state
    filled.apply(c.UpsertACLPolicies(policies=(OPS,)), c.UpdateACLRole(role=WEB))
    assert filled.state.acl_policies is before.acl_policies
    assert filled.state.acl_roles is before.acl_roles


def test_a_policy_may_go_while_roles_name_it(filled: Replica) -> None:
    filled.apply(c.DeleteACLPolicies(names=("ops",)))
    assert filled.state.acl_roles["r1"].policies == WEB.policies
    assert filled.reject(c.DeleteACLPolicies(names=("ops",))).message == "ACL policy not found"


def test_policies_are_found_by_the_namespace_of_their_workloads(replica: Replica) -> None:
    attached = replace(OPS, job_acl=acl.JobACL(namespace="prod", job_id="web"))
    replica.apply(c.UpsertACLPolicies(policies=(attached, replace(OPS, name="other"))))
    assert [each.name for each in replica.state.acl_policies.where("namespace", "prod")] == ["ops"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (c.CreateACLRole(role=replace(WEB, id="r2")), "role with name web already exists"),
        (c.CreateACLRole(role=replace(WEB, name="new")), "a role with this id exists"),
        (
            c.CreateACLRole(role=replace(WEB, id="r2", name="n", policies=(acl.ACLRolePolicyLink(name="x"),))),
            "cannot find policy x",
        ),
        (c.UpdateACLRole(role=replace(WEB, id="r9")), "cannot find role ID"),
        (c.DeleteACLRoles(role_ids=("r9",)), "ACL role not found"),
        (c.UpsertACLAuthMethod(method=replace(METHOD, name="other")), "default method already exists: ci"),
        (c.DeleteACLAuthMethods(names=("other",)), "ACL auth method not found"),
        (c.CreateACLBindingRule(rule=replace(RULE, id="b2", auth_method="x")), "ACL auth method x not found"),
        (c.UpdateACLBindingRule(rule=replace(RULE, id="b2")), "cannot find binding rule ID"),
        (
            c.UpdateACLBindingRule(rule=replace(RULE, auth_method="x")),
            "cannot update auth method for binding rule, create a new rule instead",
        ),
        (c.DeleteACLBindingRules(rule_ids=("b2",)), "ACL binding rule not found"),
    ],
)  # fmt: skip
def test_what_contradicts_the_state_is_refused(filled: Replica, command: c.AclCommand, text: str) -> None:
    assert filled.reject(command).message == text


def test_a_role_does_not_take_the_name_of_another(filled: Replica) -> None:
    filled.apply(c.CreateACLRole(role=replace(WEB, id="r2", name="db")))
    refused = filled.reject(c.UpdateACLRole(role=replace(WEB, name="db")))
    assert refused.message == "ACL role with name db already exists"
    filled.apply(c.UpdateACLRole(role=replace(WEB, name="api")))
    assert filled.state.acl_roles["r1"].name == "api"


def test_methods_and_rules_keep_when_they_were_made(filled: Replica) -> None:
    filled.apply(
        c.UpsertACLAuthMethod(method=replace(METHOD, modify_time=9)),
        c.UpdateACLBindingRule(rule=replace(RULE, description="d", modify_time=9)),
    )
    method, rule = filled.state.acl_auth_methods["ci"], filled.state.acl_binding_rules["b1"]
    assert (method.create_time, method.modify_time) == (5, 9)
    assert (rule.create_time, rule.modify_time, rule.description) == (7, 9, "d")


def test_the_rules_of_a_method_that_is_gone_stay(filled: Replica) -> None:
    filled.apply(c.DeleteACLAuthMethods(names=("ci",)))
    assert list(filled.state.acl_binding_rules.keys()) == ["b1"]
    filled.apply(c.UpsertACLAuthMethod(method=replace(METHOD, name="other")))


def test_secrets_of_a_method_are_blanked() -> None:
    key = acl.OIDCClientAssertionKey(pem_key="pem")
    config = acl.ACLAuthMethodConfig(
        oidc_client_secret="hush", oidc_client_assertion=acl.OIDCClientAssertion(private_key=key)
    )
    shown = acl.without_method_secrets(replace(METHOD, config=config)).config
    assert shown is not None and shown.oidc_client_assertion is not None
    assert shown.oidc_client_assertion.private_key == replace(key, pem_key="redacted")
    assert shown.oidc_client_secret == "redacted"


def test_the_spelling_of_a_secret_does_not_matter() -> None:
    assert acl.hash_of_secret("ABCD-EF") == acl.hash_of_secret("abcd-ef") != acl.hash_of_secret("abcd-e")
