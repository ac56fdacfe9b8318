"""What a caller showed becomes rights, or none: tokens, roles, policies, workloads and nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from yurt.access import (
    ANYWHERE,
    Access,
    Actor,
    Caller,
    InvalidToken,
    NoToken,
    Scope,
    ShownNode,
    ShownToken,
    ShownWorkload,
    needs,
)
from yurt.access.needs import Capability, VariableCapability
from yurt.acl import AclAuthority, AuthenticationLevel, Resolver
from yurt.acl.lru_cache import LruCache
from yurt.sdk.errors import PermissionDenied
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.structs import acl, status
from yurt.structs import commands as c
from yurt.testing import factories
from yurt.testing.factories import NOW, number_id
from yurt.testing.replica import Replica

READ = needs.namespace(Capability.READ_JOB)
PROD = Scope(namespace="prod")


def policy(name: str, rules: str = 'namespace "prod" { policy = "read" }', **job: str) -> c.UpsertACLPolicies:
    attached = acl.JobACL(**job) if job else None
    return c.UpsertACLPolicies(policies=(acl.ACLPolicy(name=name, rules=rules, job_acl=attached),))


def token(number: int = 1, **changes: object) -> acl.ACLToken:
    made = acl.ACLToken(accessor_id=number_id(number), secret_hash=shown(number).secret_hash, create_time=NOW)
    return replace(made, **changes)


def shown(number: int = 1) -> ShownToken:
    return ShownToken(secret_hash=acl.hash_of_secret(f"secret-{number}"))


def may(replica: Replica, caller: Caller, resolver: Resolver | None = None, *, now: int = NOW) -> bool:
    resolved = (resolver or Resolver()).resolve(replica.state, caller, UnixNano(now))
    return resolved.rights.allows(READ, PROD)


def test_a_token_has_the_rights_of_its_policies(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",))))
    assert may(replica, shown())
    assert not may(replica, shown(2))
    assert not may(replica, NoToken())


def test_a_token_has_the_rights_of_its_roles(replica: Replica) -> None:
    role = acl.ACLRole(id="r", name="r", policies=(acl.ACLRolePolicyLink(name="ops"),))
    links = (acl.ACLTokenRoleLink(id="r"),)
    replica.apply(policy("ops"), c.CreateACLRole(role=role), c.CreateACLToken(token=token(roles=links)))
    resolver = Resolver()
    assert may(replica, shown(), resolver)
    replica.apply(c.DeleteACLRoles(role_ids=("r",)))
    assert not may(replica, shown(), resolver)


def test_a_management_token_may_do_everything(replica: Replica) -> None:
    replica.apply(c.BootstrapACL(token=token(type=acl.MANAGEMENT)))
    rights = Resolver().resolve(replica.state, shown(), NOW).rights
    assert rights.allows(needs.MANAGEMENT, ANYWHERE) and rights.allows_everywhere(needs.MANAGEMENT)


def test_a_caller_without_a_token_has_the_policy_anonymous(replica: Replica) -> None:
    replica.apply(policy("anonymous"))
    assert may(replica, NoToken())
    assert not Resolver().resolve(replica.state, NoToken(), NOW).rights.allows(needs.AUTHENTICATED, ANYWHERE)


def test_whoever_shows_a_bad_token_is_less_than_anonymous(replica: Replica) -> None:
    replica.apply(policy("anonymous"))
    for caller in (shown(), InvalidToken(problem="bad"), ShownNode(node_id="n"), workload()):
        assert not may(replica, caller)
        rights = Resolver().resolve(replica.state, caller, NOW).rights
        assert rights.kind is AuthenticationLevel.NOBODY
        assert not rights.allows(needs.each_row(READ), ANYWHERE)
        assert rights.allows(needs.ANONYMOUS, ANYWHERE)


def test_a_revoked_token_is_worth_nothing_at_once(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",))))
    resolver = Resolver()
    assert may(replica, shown(), resolver)
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    assert not may(replica, shown(), resolver)
    assert resolver.resolve(replica.state, shown(), NOW).problem == "ACL token not found"


def test_a_token_expires_at_its_time_without_any_write(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",), expiration_time=NOW + 10)))
    resolver = Resolver()
    assert may(replica, shown(), resolver, now=NOW + 9)
    assert not may(replica, shown(), resolver, now=NOW + 10)
    assert resolver.resolve(replica.state, shown(), UnixNano(NOW + 10)).problem == "ACL token expired"


def test_a_management_token_expires_too(replica: Replica) -> None:
    replica.apply(c.BootstrapACL(token=token(type=acl.MANAGEMENT, expiration_time=NOW + 10)))
    assert not may(replica, shown(), now=NOW + 10)


def test_a_changed_policy_counts_at_once_and_a_deleted_one_gives_nothing(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops", "none"))))
    resolver = Resolver()
    assert may(replica, shown(), resolver)
    replica.apply(policy("ops", 'namespace "prod" { policy = "deny" }'))
    assert not may(replica, shown(), resolver)
    replica.apply(policy("ops"))
    assert may(replica, shown(), resolver)
    replica.apply(c.DeleteACLPolicies(names=("ops",)))
    assert not may(replica, shown(), resolver)


def test_two_texts_under_one_index_are_two_policies(replica: Replica) -> None:
    """A snapshot of another cluster may bring a policy of the same name and index."""
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",))))
    resolver = Resolver()
    assert may(replica, shown(), resolver)
    stored = replica.state.acl_policies["ops"]
    edit = replica.state.edit(replica.state.index + 1)
    edit.put(Tables.acl_policies, "ops", replace(stored, rules='namespace "dev" { policy = "read" }'))
    replica.state = edit.commit()
    assert not may(replica, shown(), resolver)


def test_a_policy_that_cannot_be_read_leaves_no_rights(replica: Replica) -> None:
    replica.apply(policy("ops"), policy("bad", 'namespace "prod" { policy = "future" }'))
    replica.apply(c.CreateACLToken(token=token(policies=("ops", "bad"))))
    resolved = Resolver().resolve(replica.state, shown(), NOW)
    assert resolved.rights.kind is AuthenticationLevel.NOBODY and resolved.problem.startswith("bad:1:")


def workload(**changes: str) -> ShownWorkload:
    return ShownWorkload(
        **{"alloc_id": number_id(5), "namespace": "prod", "job": "web", "task": "main", **changes}
    )  # fmt: skip


@pytest.fixture
def running(replica: Replica) -> Replica:
    """A replica with a running allocation of group `web` of job `web` in namespace `prod`."""
    put_alloc(replica)
    return replica


def put_alloc(replica: Replica, **changes: object) -> None:
    job = factories.job("web", namespace="prod")
    edit = replica.state.edit(replica.state.index + 1)
    edit.put(Tables.allocs, number_id(5), factories.alloc(job, id=number_id(5), namespace="prod", **changes))
    replica.state = edit.commit()


@pytest.mark.parametrize(
    ("job", "is_attached"),
    [
        ({"namespace": "prod"}, True),
        ({"namespace": "prod", "job_id": "web"}, True),
        ({"namespace": "prod", "job_id": "web", "group": "web"}, True),
        ({"namespace": "prod", "job_id": "web", "group": "web", "task": "main"}, True),
        ({"namespace": "prod", "job_id": "db"}, False),
        ({"namespace": "prod", "job_id": "web", "group": "db"}, False),
        ({"namespace": "prod", "job_id": "web", "group": "web", "task": "other"}, False),
        ({"namespace": "dev", "job_id": "web"}, False),
        ({"namespace": ""}, False),
    ],
)
def test_a_workload_has_the_policies_that_are_attached_to_it(
    running: Replica, job: dict[str, str], is_attached: bool
) -> None:
    running.apply(policy("ops", **job))
    assert may(running, workload()) is is_attached


def test_a_workload_has_its_variables_without_any_policy(running: Replica) -> None:
    rights = Resolver().resolve(running.state, workload(), NOW).rights
    read = needs.variable(VariableCapability.READ)
    assert rights.allows(read, Scope(namespace="prod", variable="nomad/jobs/web/web/main"))
    assert not rights.allows(read, Scope(namespace="prod", variable="nomad/jobs/web/web/other"))
    assert rights.allows(needs.WORKLOAD, PROD)


def test_a_workload_that_ended_or_is_another_one_has_no_rights(running: Replica) -> None:
    resolver = Resolver()
    running.apply(policy("ops", namespace="prod"))
    assert may(running, workload(), resolver)
    assert not may(running, workload(namespace="dev"), resolver)
    put_alloc(running, client_status=status.CLIENT_COMPLETE)
    assert not may(running, workload(), resolver)


def test_a_node_reads_nodes_and_agents_and_nothing_of_namespaces(replica: Replica) -> None:
    node = factories.node(number_id(1))
    replica.apply(c.RegisterNode(node=node))
    rights = Resolver().resolve(replica.state, ShownNode(node_id=node.id), NOW).rights
    assert rights.allows(needs.NODE_READ, ANYWHERE) and rights.allows(needs.AGENT_READ, ANYWHERE)
    for need in (needs.NODE_WRITE, needs.WORKLOAD, READ, needs.MANAGEMENT):
        assert not rights.allows(need, ANYWHERE)


def test_the_authority_decides_by_the_newest_state(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",))))
    now: Callable[[], UnixNano] = lambda: NOW  # noqa: E731
    authority = AclAuthority(replica, now)
    actor = Actor(caller=shown())
    Access(actor, READ, authority).require(PROD)
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    with pytest.raises(PermissionDenied, match="Permission denied"):
        Access(actor, READ, authority).require(PROD)
    assert authority.decide(actor, READ, PROD).reason == "ACL token not found"
    assert not authority.allows_everywhere(actor, READ)


def test_the_authority_refuses_a_token_that_expired_since_it_was_looked_up_in_the_same_state(replica: Replica) -> None:
    replica.apply(policy("ops"), c.CreateACLToken(token=token(policies=("ops",), expiration_time=NOW + 10)))
    times = [NOW]
    authority = AclAuthority(replica, lambda: UnixNano(times[-1]))
    actor = Actor(caller=shown())
    for time, is_allowed in ((NOW, True), (NOW + 9, True), (NOW + 10, False)):
        times.append(time)
        assert authority.allows(actor, READ, PROD) is is_allowed


def test_a_cache_keeps_what_was_used_last() -> None:
    cache: LruCache[int, str] = LruCache(2)
    cache.put(1, "a")
    cache.put(2, "b")
    assert cache.get(1) == "a"
    cache.put(3, "c")
    assert (cache.get(2), cache.get(1), len(cache)) == (None, "a", 2)


def test_an_entry_that_is_stored_again_counts_as_used() -> None:
    cache: LruCache[int, str] = LruCache(2)
    cache.put(1, "a")
    cache.put(2, "b")
    cache.put(1, "c")
    cache.put(3, "d")
    assert (cache.get(1), cache.get(2)) == ("c", None)


def test_a_caller_with_too_much_text_in_its_policies_has_no_rights(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.acl.resolver.CALLER_CHARACTERS_MAX", 50)
    replica.apply(policy("a"), policy("b"), c.CreateACLToken(token=token(policies=("a",))))
    assert may(replica, shown())
    replica.apply(c.CreateACLToken(token=token(2, policies=("a", "b"))))
    resolver = Resolver()
    assert resolver.preparation(replica.state, shown(2)) is None
    assert "characters, 50 are possible" in resolver.resolve(replica.state, shown(2), NOW).problem


def test_long_policies_are_read_ahead_once_and_a_broken_one_gives_no_rights(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.acl.resolver.LONG_TEXT", 10)
    replica.apply(policy("good"), policy("bad", "namespace {{{{{{{{{"))
    for number, names in ((1, ("good",)), (2, ("good", "bad"))):
        replica.apply(c.CreateACLToken(token=token(number, policies=names)))
        resolver = Resolver()
        work = resolver.preparation(replica.state, shown(number))
        assert work is not None
        work()()
        assert resolver.preparation(replica.state, shown(number)) is None
        assert may(replica, shown(number), resolver) is (number == 1)
