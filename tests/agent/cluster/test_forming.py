"""Servers found a cluster only when they agree on it; whoever meets one that has data joins it."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.agent.cluster.formation import Decision, Founds, Joins, Waits, decide, lost_majority, token_of
from yurt.agent.cluster.records import MembershipUpdate
from yurt.sdk.value import replace
from yurt.structs.member import ALIVE, FAILED, LEFT, Member
from yurt.testing.nightly import cases


def server(name: str, **changes: object) -> Member:
    full = f"{name}.global"
    base = Member(
        name=full,
        region="global",
        datacenter="dc1",
        version="1",
        address=f"{name}:4648",
        rpc_addr=f"{name}:4647",
        http_addr=f"{name}:4646",
        etcd_addr=f"{name}:4649",
        expect=3,
    )
    return replace(base, **changes)


A, B, C, D = (server(name) for name in "abcd")
ALL = (A, B, C)
FOUNDERS = {each.name: each.etcd_addr for each in ALL}


def report(sender: Member, *members: Member, **more: object) -> dict[str, MembershipUpdate]:
    return {sender.name: MembershipUpdate(sender=sender.name, members=members, **more)}


def test_three_servers_that_know_each_other_found_a_cluster() -> None:
    assert decide(A, ALL, report(B, *ALL) | report(C, *ALL)) == Founds(founders=FOUNDERS)


def test_servers_whose_etcd_members_have_one_address_are_told() -> None:
    twin = server("b", etcd_addr=A.etcd_addr)
    decision = decide(A, (A, twin), report(twin, A, twin))
    assert isinstance(decision, Waits)
    assert decision.reason.startswith("a.global and b.global both have their etcd member at a:4649: give one")


def test_servers_with_and_without_tls_begin_no_cluster() -> None:
    mixed = (replace(A, has_tls=True), replace(B, has_tls=False), C)
    decision = decide(mixed[0], mixed, report(B, *mixed) | report(C, *mixed))
    assert isinstance(decision, Waits)
    assert decision.reason.endswith("a.global with it, b.global without")


def test_a_server_waits_for_as_many_as_are_expected() -> None:
    decision = decide(A, (A, B), report(B, A, B))
    assert decision == Waits(reason="waiting for 3 servers: know a.global, b.global")


def test_servers_that_only_join_are_named_to_those_that_wait_for_more() -> None:
    joins = replace(C, expect=0)
    decision = decide(A, (A, B, joins), report(B, A, B, joins))
    names = "know a.global, b.global; not counted, as they have no bootstrap_expect: c.global"
    assert decision == Waits(reason=f"waiting for 3 servers: {names}")
    own = decide(joins, (A, B, joins), report(A, A, B, joins))
    assert isinstance(own, Waits) and own.reason.endswith("to begin a cluster with them, set bootstrap_expect here too")


def test_a_server_waits_until_the_others_know_the_same_servers() -> None:
    decision = decide(A, ALL, report(B, A, B) | report(C, *ALL))
    assert decision == Waits(reason="waiting for the servers to know each other: b.global not yet")


def test_failed_servers_and_those_of_other_regions_do_not_count() -> None:
    dead, far = replace(C, status=FAILED), replace(C, region="mars")
    for members in ((A, B, dead), (A, B, far)):
        assert isinstance(decide(A, members, report(B, *members)), Waits)


def test_different_expectations_are_told_with_names() -> None:
    decision = decide(A, (A, B, replace(C, expect=5)), {})
    assert isinstance(decision, Waits)
    assert "a.global says 3, b.global says 3, c.global says 5" in decision.reason


def test_a_server_that_meets_one_with_data_joins_it() -> None:
    settled = replace(B, has_data=True)
    assert decide(A, (A, settled, C), report(settled, A, settled, C)) == Joins(through=(settled,))


def test_a_server_never_founds_while_one_with_data_is_away() -> None:
    members = (A, B, C, replace(D, has_data=True, status=FAILED))
    decision = decide(A, members, report(B, *members) | report(C, *members))
    assert decision == Waits(reason="waiting for d.global, who has the cluster's data and cannot be reached")
    gone = (A, B, C, replace(D, has_data=True, status=LEFT))
    assert isinstance(decide(A, gone, report(B, *gone) | report(C, *gone)), Founds)


def test_a_founder_follows_the_one_that_founded_first() -> None:
    first = replace(A, has_data=True)
    told = report(first, first, B, C, founding=FOUNDERS, awaited=(B.name, C.name))
    assert decide(B, (first, B, C, D), told) == Founds(founders=FOUNDERS)


def test_a_founder_that_has_begun_once_is_not_a_founder_again() -> None:
    first, third = replace(A, has_data=True), replace(C, has_data=True)
    told = report(first, founding=FOUNDERS, awaited=(B.name,)) | report(third, founding=FOUNDERS, awaited=())
    assert decide(B, (first, B, third), told) == Joins(through=(first, third))


def test_a_server_that_keeps_its_state_alone_is_not_joined() -> None:
    decision = decide(A, (A, replace(B, has_data=True, etcd_addr="")), {})
    assert isinstance(decision, Waits)
    assert "takes no other servers in" in decision.reason


def test_servers_whose_majority_has_lost_its_data_say_what_to_do() -> None:
    settled = replace(A, has_data=True)
    for own, others in ((settled, (B, C)), (B, (settled, C)), (B, (settled, replace(C, status=FAILED)))):
        said = lost_majority(own, (own, *others))
        assert "only a.global has data of the cluster, and 2 of 3 servers must have it" in said
        assert "save what a.global knows (`yurt operator snapshot save -stale FILE`" in said
    assert "2 of 3" in lost_majority(server("new", expect=0), (settled,)), "also to one that only joins"


def test_nobody_is_told_to_begin_anew_who_need_not() -> None:
    settled, also = replace(A, has_data=True), replace(B, has_data=True)
    assert lost_majority(settled, (also, C)) == "", "a majority has its data"
    assert lost_majority(settled, (replace(B, status=FAILED), replace(C, status=FAILED))) == "", "they may come back"
    assert lost_majority(settled, (B, C), awaited=(B.name, C.name)) == "", "they begin by themselves"
    assert lost_majority(B, (A, C)) == "", "nobody has begun"
    assert lost_majority(settled, (replace(B, region="mars"),)) == ""


def test_a_server_that_only_joins_waits_for_a_cluster() -> None:
    own = replace(A, expect=0)
    assert isinstance(decide(own, (own, B, C), {}), Waits)
    assert decide(own, (own, replace(B, has_data=True)), {}) == Joins(through=(replace(B, has_data=True),))


def test_the_token_depends_on_the_founders_alone() -> None:
    assert token_of(FOUNDERS) == token_of(dict(reversed(FOUNDERS.items())))
    assert token_of(FOUNDERS) != token_of({**FOUNDERS, D.name: D.etcd_addr})


@dataclasses.dataclass
class Simulated:
    """A server that starts, meets others one by one, and decides after each meeting."""

    own: Member
    known: dict[str, Member] = dataclasses.field(default_factory=dict)
    reports: dict[str, MembershipUpdate] = dataclasses.field(default_factory=dict)
    founding: dict[str, str] = dataclasses.field(default_factory=dict)

    def update(self) -> MembershipUpdate:
        awaited = tuple(name for name in self.founding if name != self.own.name)
        members = tuple({**self.known, self.own.name: self.own}.values())
        return MembershipUpdate(sender=self.own.name, members=members, founding=self.founding, awaited=awaited)

    def hear(self, update: MembershipUpdate) -> None:
        self.reports[update.sender] = update
        for each in update.members:
            known = self.known.get(each.name)
            if each.name != self.own.name and (known is None or each.has_data >= known.has_data):
                self.known[each.name] = each

    def decide(self) -> Decision | None:
        if self.own.has_data:
            return None
        members = tuple({**self.known, self.own.name: self.own}.values())
        decision = decide(self.own, members, self.reports)
        if isinstance(decision, Founds):
            self.founding, self.own = dict(decision.founders), replace(self.own, has_data=True)
        return decision


@settings(max_examples=cases(400), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=80))
def test_in_whatever_order_servers_meet_they_found_one_cluster_at_most(meetings: list[tuple[int, int, bool]]) -> None:
    servers = [Simulated(server(name)) for name in "abcde"]
    for one, other, decides in meetings:
        if one != other:
            servers[one].hear(servers[other].update())
        if decides:
            servers[one].decide()
    founded = [each.founding for each in servers if each.founding]
    assert all(each == founded[0] for each in founded)
    assert all(len(each) >= 3 for each in founded)
    assert all(each.own.name in each.founding for each in servers if each.founding)


def test_servers_that_all_meet_found_together() -> None:
    servers = [Simulated(server(name)) for name in "abc"]
    for one in servers * 3:
        for other in servers:
            if one is not other:
                one.hear(other.update())
        one.decide()
    assert [each.founding for each in servers] == [FOUNDERS] * 3
    assert all(each.own.status == ALIVE for each in servers)
