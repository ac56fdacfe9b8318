"""What the authority remembers about a token ends with the token, its expiry, its roles and its policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import pytest
from yurt.access import ANYWHERE, Access, Actor, Scope, ShownToken, needs
from yurt.access.needs import Capability
from yurt.acl import AclAuthority, Resolver, resolver
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano, replace
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.factories import NOW, number_id
from yurt.testing.replica import Replica

READ = needs.namespace(Capability.READ_JOB)
MANAGE = needs.MANAGEMENT
PROD = Scope(namespace="prod")
NAMES = frozenset(("prod", "dev"))
RULES = 'namespace "*" { policy = "read" }'
CALLER = ShownToken(secret_hash=acl.hash_of_secret("secret"))
ACTOR = Actor(caller=CALLER)


class Clock:
    """A time that a test sets, and the age of the state."""

    def __init__(self) -> None:
        self.now: UnixNano = NOW
        self.state_age_s = 0.0
        self.newest_at_s = -math.inf
        """Nothing is known from before: the age decides."""
        self.monotonic_s = 1000.0

    def monotonic(self) -> float:
        """The time by the clock of `newest_at_s`."""
        return self.monotonic_s


def put_policy(replica: Replica, rules: str = RULES) -> None:
    replica.apply(c.UpsertACLPolicies(policies=(acl.ACLPolicy(name="ops", rules=rules),)))


def put_token(replica: Replica, **changes: object) -> None:
    token = acl.ACLToken(accessor_id=number_id(1), secret_hash=CALLER.secret_hash, create_time=NOW)
    replica.apply(c.CreateACLToken(token=replace(token, **changes)))


MANY = frozenset(f"n{number}" for number in range(64))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(replica: Replica, clock: Clock) -> AclAuthority:
    """About a replica with a policy for every namespace and no token yet."""
    put_policy(replica)
    return AclAuthority(replica, lambda: clock.now, age=clock, age_max_s=30.0, thread=get_ident)


def answers(authority: AclAuthority, actor: Actor = ACTOR) -> list[bool]:
    """The answers to each question of a request; they do not depend on the order in which they are asked."""
    known = authority.recall(actor, READ, PROD)
    asked: list[bool] = [
        authority.allows(actor, READ, PROD),
        authority.allows_everywhere(actor, READ),
        authority.namespaces_allowed(actor, READ, NAMES) == NAMES,
    ]
    assert not known or asked[0], "what is known must be what a decision would say"
    return [*asked, authority.recall(actor, READ, PROD) is not None]


ALL, NONE = [True] * 4, [False] * 4


def test_a_revoked_token_loses_every_remembered_answer(replica: Replica, authority: AclAuthority) -> None:
    put_token(replica, policies=("ops",))
    assert answers(authority) == answers(authority) == ALL
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    assert not authority.recall(ACTOR, READ, PROD)
    assert answers(authority) == NONE


def test_remembered_answers_outlive_other_writes(replica: Replica, authority: AclAuthority) -> None:
    put_token(replica, policies=("ops",))
    assert answers(authority) == ALL
    replica.apply(c.UpsertNamespaces(namespaces=()))
    assert authority.recall(ACTOR, READ, PROD)


def test_remembered_answers_end_when_the_token_expires(replica: Replica, authority: AclAuthority, clock: Clock) -> None:
    put_token(replica, policies=("ops",), expiration_time=NOW + 10)
    clock.now = UnixNano(NOW + 9)
    assert answers(authority) == ALL
    assert authority.recall(ACTOR, READ, PROD)
    clock.now = UnixNano(NOW + 10)
    assert not authority.recall(ACTOR, READ, PROD)
    assert answers(authority) == NONE


def test_a_management_token_is_remembered_until_it_expires(
    replica: Replica, authority: AclAuthority, clock: Clock
) -> None:
    put_token(replica, type=acl.MANAGEMENT, expiration_time=NOW + 10)
    assert answers(authority) == ALL
    clock.now = UnixNano(NOW + 10)
    assert answers(authority) == NONE


@pytest.mark.parametrize(
    "change",
    [
        lambda replica: put_policy(replica, 'namespace "*" { policy = "deny" }'),
        lambda replica: replica.apply(c.DeleteACLPolicies(names=("ops",))),
    ],
    ids=("denied", "deleted"),
)
def test_a_policy_that_changes_under_a_live_token_counts_at_once(
    replica: Replica, authority: AclAuthority, change: Callable[[Replica], object]
) -> None:
    put_token(replica, policies=("ops",))
    assert answers(authority) == ALL
    change(replica)
    assert answers(authority) == NONE
    put_policy(replica)
    assert answers(authority) == ALL


def test_a_deleted_role_counts_at_once(replica: Replica, authority: AclAuthority) -> None:
    role = acl.ACLRole(id="r", name="r", policies=(acl.ACLRolePolicyLink(name="ops"),))
    replica.apply(c.CreateACLRole(role=role))
    put_token(replica, roles=(acl.ACLTokenRoleLink(id="r"),))
    assert answers(authority) == ALL
    replica.apply(c.DeleteACLRoles(role_ids=("r",)))
    assert answers(authority) == NONE


def test_nothing_remembered_is_used_while_the_state_is_too_old(
    replica: Replica, authority: AclAuthority, clock: Clock
) -> None:
    put_token(replica, policies=("ops",))
    assert answers(authority) == ALL
    clock.state_age_s = 31.0
    assert not authority.recall(ACTOR, READ, PROD)
    for ask in (
        lambda: authority.allows(ACTOR, READ, PROD),
        lambda: authority.allows_everywhere(ACTOR, READ),
        lambda: authority.namespaces_allowed(ACTOR, READ, NAMES),
    ):
        with pytest.raises(Unavailable, match="31 s behind the leader"):
            ask()


def test_remembered_answers_end_once_the_state_was_not_the_newest_for_too_long(
    replica: Replica, authority: AclAuthority, clock: Clock
) -> None:
    put_token(replica, policies=("ops",))
    clock.newest_at_s = clock.monotonic_s
    assert answers(authority) == ALL
    clock.monotonic_s += 30.0
    clock.state_age_s = 30.0
    assert authority.recall(ACTOR, READ, PROD)
    clock.monotonic_s += 1.0
    clock.state_age_s = 31.0
    assert not authority.recall(ACTOR, READ, PROD)
    with pytest.raises(Unavailable, match="31 s behind the leader"):
        authority.allows(ACTOR, READ, PROD)


def test_the_session_of_a_browser_is_never_remembered(replica: Replica, authority: AclAuthority) -> None:
    put_token(replica, policies=("ops",))
    session = replace(CALLER, session_id="s", key_id="k", valid_until=NOW + 10)
    assert answers(authority, Actor(caller=session)) == NONE, "its root key does not exist"
    assert answers(authority) == ALL
    assert not authority.recall(Actor(caller=session), READ, PROD)


def test_other_namespaces_are_another_question(replica: Replica, authority: AclAuthority) -> None:
    put_policy(replica, 'namespace "prod" { policy = "read" }')
    put_token(replica, policies=("ops",))
    assert authority.namespaces_allowed(ACTOR, READ, NAMES) == {"prod"}
    assert authority.namespaces_allowed(ACTOR, READ, frozenset(("dev",))) == frozenset()
    assert authority.namespaces_allowed(ACTOR, READ, NAMES) == {"prod"}
    assert not authority.allows_everywhere(ACTOR, READ)


def test_the_number_of_remembered_scopes_is_bounded(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.acl.authority.ANSWERS_MAX", 3)
    put_token(replica, policies=("ops",))
    for number in range(9):
        assert authority.allows(ACTOR, READ, Scope(namespace=f"n{number}"))
    known = [authority.recall(ACTOR, READ, Scope(namespace=f"n{number}")) is not None for number in range(9)]
    assert known[-1] and sum(known) <= 3


def test_remembered_names_of_namespaces_count_in_the_bound(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.acl.authority.ANSWERS_MAX", 4)
    put_token(replica, policies=("ops",))
    assert authority.allows(ACTOR, READ, PROD)
    assert authority.namespaces_allowed(ACTOR, READ, MANY) == MANY
    assert authority.recall(ACTOR, READ, PROD)
    assert authority.allows(ACTOR, READ, Scope(namespace="dev"))
    assert not authority.recall(ACTOR, READ, PROD), "64 names fill the bound, so all was forgotten"


def test_other_names_of_the_same_question_take_the_place_of_the_first_in_the_bound(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.acl.authority.ANSWERS_MAX", 8)
    put_token(replica, policies=("ops",))
    assert authority.allows(ACTOR, READ, PROD)
    for names in (MANY, MANY | NAMES, MANY, MANY | NAMES):
        assert authority.namespaces_allowed(ACTOR, READ, names) == names
    assert authority.recall(ACTOR, READ, PROD)


def test_an_answer_of_an_older_state_is_not_remembered(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is deleted while its rights are looked up, as by another thread."""
    put_token(replica, policies=("ops",))
    resolve = Resolver.resolve

    def overtaken(self: Resolver, *arguments: Any) -> Any:
        found = resolve(self, *arguments)
        replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
        return found

    monkeypatch.setattr(Resolver, "resolve", overtaken)
    assert authority.allows(ACTOR, READ, PROD), "the token existed when it was asked"
    monkeypatch.undo()
    assert answers(authority) == NONE


def test_a_look_up_of_an_older_state_counts_for_no_newer_one(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is deleted, and asked about again, while its known rights are compared with an older state."""
    put_token(replica, type=acl.MANAGEMENT)
    assert authority.allows(ACTOR, MANAGE, ANYWHERE)
    replica.apply(c.UpsertNamespaces(namespaces=()))
    refused: list[bool] = []

    def overtaken(one: object, other: object) -> bool:
        if not refused:
            refused.append(False)
            replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
            refused[0] = not authority.allows(ACTOR, MANAGE, ANYWHERE)
        return one is other

    monkeypatch.setattr(resolver, "_is_same", overtaken)
    authority.allows(ACTOR, READ, PROD)
    assert refused == [True]
    assert not authority.allows(ACTOR, MANAGE, ANYWHERE)
    assert authority.preparation(ACTOR) is None and answers(authority) == NONE


def in_thread(work: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_a_second_thread_may_not_ask(replica: Replica, authority: AclAuthority) -> None:
    put_token(replica, policies=("ops",))
    assert answers(authority) == ALL
    for ask in (
        lambda: authority.allows(ACTOR, READ, PROD),
        lambda: authority.allows_everywhere(ACTOR, READ),
        lambda: authority.namespaces_allowed(ACTOR, READ, NAMES),
        lambda: authority.standing(ACTOR),
        lambda: authority.preparation(ACTOR),
    ):
        with pytest.raises(AssertionError, match="for_thread"):
            in_thread(ask)


def test_a_thread_asks_the_rights_of_its_beginning(replica: Replica, authority: AclAuthority, clock: Clock) -> None:
    put_token(replica, policies=("ops",))
    access = Access(ACTOR, READ, authority).for_thread()
    assert in_thread(lambda: access.allows(PROD) and access.sees_all)
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    assert in_thread(lambda: access.allows(Scope(namespace="dev"))), "the work has begun before"
    assert answers(authority) == NONE
    later = Access(ACTOR, READ, authority).for_thread()
    assert not in_thread(lambda: later.allows(PROD) or later.sees_all)
    clock.state_age_s = 31.0
    with pytest.raises(Unavailable, match="31 s behind the leader"):
        Access(ACTOR, READ, authority).for_thread()


def test_answers_that_were_kept_elsewhere_end_when_all_are_forgotten(
    replica: Replica, authority: AclAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a connection could keep what the limit of remembered answers was to bound."""
    put_token(replica, policies=("ops",))
    assert answers(authority) == ALL
    kept = authority.recall(ACTOR, READ, PROD)
    assert kept is not None and kept.holds()
    monkeypatch.setattr("yurt.acl.authority.ANSWERS_MAX", 0)
    assert authority.allows(ACTOR, READ, Scope(namespace="other"))
    assert not kept.holds()
