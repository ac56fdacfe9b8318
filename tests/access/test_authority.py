"""A request is bound to an actor, a need and an authority, which is asked once for each place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from yurt.access import EVERYBODY, Access, Actor, AllowAll, Decision, Need, Scope, needs
from yurt.access.needs import Capability
from yurt.sdk.errors import PermissionDenied

READ = needs.namespace(Capability.READ_JOB)


class OnlyNamespace:
    """Allows everything in one namespace; counts what it is asked."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.asked: list[Scope] = []

    def recall(self, actor: Actor, need: Need, scope: Scope) -> None:
        return None

    def fixed(self, actor: Actor, need: Need) -> OnlyNamespace:
        return self

    def preparation(self, actor: Actor) -> None:
        return None

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        self.asked.append(scope)
        return scope.namespace == self.namespace

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        raise AssertionError("nobody shows the reason")

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        return False

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> frozenset[str]:
        return names & {self.namespace}

    def standing(self, actor: Actor) -> None:
        return None


def test_everybody_may_do_everything_while_access_control_is_off() -> None:
    access = Access(EVERYBODY, needs.MANAGEMENT, AllowAll())
    access.require(Scope(namespace="a"))
    assert access.sees_all


def test_a_place_that_is_not_allowed_is_denied() -> None:
    access = Access(EVERYBODY, READ, OnlyNamespace("a"))
    access.require(Scope(namespace="a"))
    with pytest.raises(PermissionDenied, match="Permission denied"):
        access.require(Scope(namespace="b"))


def test_each_place_is_decided_once_for_a_request() -> None:
    authority = OnlyNamespace("a")
    access = Access(EVERYBODY, READ, authority)
    answers = [access.allows(Scope(namespace=name)) for name in ("a", "b", "a", "b")]
    assert answers == [True, False, True, False]
    assert authority.asked == [Scope(namespace="a"), Scope(namespace="b")]


def test_a_list_with_decisions_of_two_times_or_about_an_unknown_namespace_is_nobodys() -> None:
    authority, within = OnlyNamespace("a"), frozenset(("a", "b"))
    access = Access(EVERYBODY, READ, authority)
    visibility = access.visibility(within)
    assert access.allows_namespace("a") and access.is_still(visibility, within)
    assert (
        access.visibility(within)
        == Access(EVERYBODY, READ, authority).visibility(within)
        != access.visibility(frozenset("a"))
    )
    authority.namespace = "b"
    assert not access.is_still(visibility, within), "the caller sees other namespaces now"
    assert access.allows_namespace("b")
    authority.namespace = "a"
    assert not access.is_still(visibility, within), "it saw both, one after the other"
    access.renew()
    assert not access.allows_namespace("c")
    assert not access.is_still(visibility, within), "c is a namespace that the key does not decide about"


def test_decisions_about_variables_are_not_kept() -> None:
    authority = OnlyNamespace("a")
    access = Access(EVERYBODY, READ, authority)
    scope = Scope(namespace="a", variable="nomad/jobs")
    assert access.allows(scope) and access.allows(scope)
    assert authority.asked == [scope, scope]


def test_a_renewed_request_is_decided_anew() -> None:
    authority = OnlyNamespace("a")
    access = Access(EVERYBODY, READ, authority)
    assert access.allows(Scope(namespace="a"))
    authority.namespace = "b"
    access.renew()
    assert not access.allows(Scope(namespace="a"))


class Answers:
    """Earlier answers: the need is satisfied in one of two namespaces."""

    everywhere: bool | None = False
    names: frozenset[str] | None = frozenset({"own", "other"})
    allowed = frozenset({"own"})


def test_earlier_answers_are_used_without_asking_until_the_request_waits() -> None:
    recalled = Answers()
    access = Access(EVERYBODY, READ, OnlyNamespace("other"))
    access.begin_step(recalled)
    assert access.visibility(recalled.names) == (recalled.names, frozenset({"own"}))
    access.end_step()
    assert access.visibility(recalled.names) == (recalled.names, frozenset({"other"}))


@pytest.mark.parametrize("end", [Access.end_step, Access.renew])
def test_a_right_everywhere_is_asked_again_after_the_request_waited(end: Callable[[Access], None]) -> None:
    recalled = Answers()
    recalled.everywhere = True
    access = Access(EVERYBODY, READ, OnlyNamespace("own"))
    access.begin_step(recalled)
    assert access.sees_all
    end(access)
    assert not access.sees_all and not access.allows(Scope(namespace="other"))
