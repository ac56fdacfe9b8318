"""Policies that are gone, roles that name none, and 10,000 of them: nothing grants by accident."""

from __future__ import annotations

import pytest
from yurt.access import ANYWHERE, Capability, Scope, ShownToken, needs
from yurt.acl.resolver import CALLERS_MAX, COMPILED_MAX, Resolver
from yurt.acl.rights import Rights
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.factories import NOW, number_id
from yurt.testing.replica import Replica

POLICIES = 10_000
READ = needs.namespace(Capability.READ_JOB)


def rules(number: int) -> str:
    return f'namespace "team-{number}" {{ policy = "read" }}'


def shown(number: int) -> ShownToken:
    return ShownToken(secret_hash=acl.hash_of_secret(number_id(number)))


def token(number: int, *policies: str, role: str = "") -> c.CreateACLToken:
    made = acl.ACLToken(
        accessor_id=number_id(number), secret_hash=shown(number).secret_hash, policies=policies, create_time=NOW,
        roles=(acl.ACLTokenRoleLink(id=role),) if role else (),
    )  # fmt: skip
    return c.CreateACLToken(token=made)


def reads(rights: Rights, number: int) -> bool:
    return rights.allows(READ, Scope(namespace=f"team-{number}"))


@pytest.fixture(scope="module")
def many() -> Replica:
    """10,000 policies, each for a namespace of its own."""
    replica = Replica()
    for start in range(0, POLICIES, 500):
        some = tuple(acl.ACLPolicy(name=f"p{number}", rules=rules(number)) for number in range(start, start + 500))
        replica.apply(c.UpsertACLPolicies(policies=some))
    return replica


def test_a_token_has_the_rights_of_its_policies_among_ten_thousand(many: Replica) -> None:
    replica = Replica(many.state)
    replica.apply(token(1, "p7", "p9999", "p10000"))
    rights = Resolver().resolve(replica.state, shown(1), NOW).rights
    assert [number for number in (0, 7, 8, 9998, 9999, 10_000) if reads(rights, number)] == [7, 9999]
    assert not rights.allows(needs.NODE_READ, ANYWHERE)


def test_policies_that_are_deleted_under_a_live_token_grant_nothing_from_then_on(many: Replica) -> None:
    replica, resolver = Replica(many.state), Resolver()
    replica.apply(token(1, *(f"p{number}" for number in range(1_000))))
    assert reads(resolver.resolve(replica.state, shown(1), NOW).rights, 500)
    replica.apply(c.DeleteACLPolicies(names=("p500",)))
    rights = resolver.resolve(replica.state, shown(1), NOW).rights
    assert reads(rights, 499) and not reads(rights, 500)
    replica.apply(c.DeleteACLPolicies(names=tuple(f"p{number}" for number in range(POLICIES) if number != 500)))
    rights = resolver.resolve(replica.state, shown(1), NOW).rights
    assert not any(reads(rights, number) for number in range(1_000))
    replica.apply(c.UpsertACLPolicies(policies=(acl.ACLPolicy(name="p3", rules=rules(3)),)))
    assert reads(resolver.resolve(replica.state, shown(1), NOW).rights, 3), "the name stays, and counts again"


def test_a_role_that_names_missing_policies_or_itself_grants_nothing() -> None:
    replica = Replica()
    links = tuple(
        acl.ACLRolePolicyLink(name=name) for name in ("empty", *(f"gone-{number}" for number in range(1_000)))
    )
    role = acl.ACLRole(id=number_id(5), name="empty", policies=links)
    replica.apply(c.ReplicateACLRoles(roles=(role,)), token(1, role=role.id))
    rights = Resolver().resolve(replica.state, shown(1), NOW).rights
    for need in (READ, needs.NODE_READ, needs.AGENT_READ, needs.OPERATOR_READ, needs.MANAGEMENT):
        assert not rights.allows(need, ANYWHERE)
    replica.apply(c.DeleteACLRoles(role_ids=(role.id,)))
    assert not Resolver().resolve(replica.state, shown(1), NOW).rights.allows(READ, ANYWHERE)


def test_what_a_resolver_remembers_of_many_callers_is_bounded(many: Replica) -> None:
    replica, resolver = Replica(many.state), Resolver()
    count = CALLERS_MAX + 50
    for number in range(count):
        replica.apply(token(number, f"p{number}"))
    for number in range(count):
        assert reads(resolver.resolve(replica.state, shown(number), NOW).rights, number)
    assert len(resolver._callers) == CALLERS_MAX and len(resolver._compiled) == COMPILED_MAX
    assert reads(resolver.resolve(replica.state, shown(0), NOW).rights, 0)
