"""Records of servers are merged the same way in whatever order news come, and a server has the last word on itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.agent.cluster.records import (
    FAILED_AFTER_S,
    FORGET_FAILED_S,
    FORGET_FAR_FAILED_S,
    FORGET_LEFT_S,
    Records,
)
from yurt.sdk.value import replace
from yurt.structs.member import ALIVE, FAILED, LEAVING, LEFT, Member

NAMES = ("a.global", "b.global", "c.global")


def member(name: str = "b.global", **changes: object) -> Member:
    base = Member(
        name=name,
        region=name.partition(".")[2],
        datacenter="dc1",
        version="1",
        address=f"{name}:4648",
        rpc_addr=f"{name}:4647",
        http_addr=f"{name}:4646",
        incarnation=1,
    )
    return replace(base, **changes)


def records(**own: object) -> Records:
    return Records(own=member("a.global", **own))


def facts(known: Records) -> object:
    """What a server knows, without what only it has seen."""
    return known.own, {name: seen.member for name, seen in known.others.items()}, dict(known.forgotten)


told = st.builds(
    member,
    st.sampled_from(NAMES),
    incarnation=st.integers(0, 4),
    status=st.sampled_from([ALIVE, FAILED, LEAVING, LEFT]),
    has_data=st.booleans(),
)
update = st.tuples(st.lists(told, max_size=4), st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), max_size=2))


@given(st.lists(update, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_news_does_not_matter_for_what_is_known_of_others(batches: list[object], random: object) -> None:
    shuffled = list(batches)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    outcomes = []
    for order in (batches, shuffled):
        known = records()
        for members, forgotten in order:  # type: ignore[misc]
            known = known.merged(members, forgotten, 0.0)
        outcomes.append(facts(known)[1:])  # type: ignore[index]
    assert outcomes[0] == outcomes[1]


@given(update, update)
def test_hearing_the_same_again_changes_nothing(first: object, second: object) -> None:
    known = records().merged(*first, 0.0).merged(*second, 0.0)  # type: ignore[misc]
    assert facts(known.merged(*second, 1.0)) == facts(known)  # type: ignore[misc]


@given(st.lists(update, max_size=5))
def test_a_server_always_outbids_what_others_say_of_it(batches: list[object]) -> None:
    known = records()
    for members, forgotten in batches:  # type: ignore[misc]
        before = known.own
        known = known.merged(members, forgotten, 0.0)
        assert known.own.status == ALIVE
        assert known.own.incarnation >= before.incarnation
        other = Records(own=member("z.global")).merged(members, forgotten, 0.0).merged([known.own], {}, 0.0)
        assert other.others["a.global"].member == known.own


@given(st.lists(update, min_size=1, max_size=3), st.lists(update, max_size=3))
def test_two_servers_that_tell_each_other_agree_on_the_third(ours: list[object], theirs: list[object]) -> None:
    one, two = records(), Records(own=member("b.global", incarnation=9))
    for members, forgotten in ours:  # type: ignore[misc]
        one = one.merged(members, forgotten, 0.0)
    for members, forgotten in theirs:  # type: ignore[misc]
        two = two.merged(members, forgotten, 0.0)
    for _ in range(2):
        two = two.merged(one.members(0.0), one.forgotten, 0.0)
        one = one.merged(two.members(0.0), two.forgotten, 0.0)
    ours_of_third, theirs_of_third = (known.others.get("c.global") for known in (one, two))
    assert (ours_of_third and ours_of_third.member) == (theirs_of_third and theirs_of_third.member)
    assert one.others["b.global"].member == two.own and two.others["a.global"].member == one.own


def statuses(known: Records, now: float) -> dict[str, str]:
    return {each.name: each.status for each in known.members(now)}


def test_a_silent_server_counts_as_failed_and_one_that_speaks_again_as_alive() -> None:
    known = records().merged([member()], {}, 0.0)
    assert statuses(known, FAILED_AFTER_S) == {"a.global": ALIVE, "b.global": ALIVE}
    assert statuses(known, FAILED_AFTER_S + 1)["b.global"] == FAILED
    assert statuses(known.heard("b.global", 9.0), 10.0)["b.global"] == ALIVE


def test_a_server_that_comes_as_failed_is_not_alive_before_it_is_heard() -> None:
    known = records().merged([member(status=FAILED)], {}, 0.0)
    assert statuses(known, 0.0)["b.global"] == FAILED
    assert statuses(known.merged([member(incarnation=2)], {}, 1.0), 1.0)["b.global"] == ALIVE


def test_what_another_one_sees_as_failed_stays_alive_for_who_hears_it() -> None:
    known = records().merged([member()], {}, 0.0).merged([member(status=FAILED)], {}, 1.0)
    assert statuses(known, 1.0)["b.global"] == ALIVE


def test_a_server_that_was_forced_to_leave_comes_back_with_a_higher_incarnation() -> None:
    known = records().merged([member()], {}, 0.0).forced_out("b.global", 10.0, forget=False)
    assert statuses(known, 10.0)["b.global"] == LEFT
    back = Records(own=member()).merged(known.members(10.0), known.forgotten, 0.0)
    assert statuses(known.merged([back.own], {}, 11.0), 11.0)["b.global"] == ALIVE


def test_a_forgotten_server_is_not_brought_back_by_those_who_still_know_it() -> None:
    known = records().merged([member()], {}, 0.0)
    pruned = known.forced_out("b.global", 10.0, forget=True)
    assert "b.global" not in statuses(pruned.merged(known.members(10.0), known.forgotten, 10.0), 10.0)
    assert "b.global" not in statuses(known.merged([], pruned.forgotten, 10.0), 10.0)
    assert statuses(pruned.merged([member(incarnation=2)], {}, 11.0), 11.0)["b.global"] == ALIVE


def test_servers_are_forgotten_when_they_left_or_failed_long_ago() -> None:
    left = records().merged([member(status=LEFT)], {}, 0.0)
    assert statuses(left.reaped(FORGET_LEFT_S), 0.0)["b.global"] == LEFT
    assert "b.global" not in statuses(left.reaped(FORGET_LEFT_S + 1), 0.0)
    failed = records().merged([member(), member("b.far")], {}, 0.0)
    assert set(statuses(failed.reaped(FORGET_FAILED_S + 1), 0.0)) == {"a.global", "b.far"}
    assert set(statuses(failed.reaped(FORGET_FAR_FAILED_S + 1), 0.0)) == {"a.global"}


def test_a_change_of_a_server_itself_raises_its_incarnation_once() -> None:
    known = records().with_own(has_data=True)
    assert (known.own.has_data, known.own.incarnation) == (True, 2)
    assert known.with_own(has_data=True) == known


def test_a_failed_server_that_holds_the_rules_back_is_not_forgotten() -> None:
    known = records(rules=6).merged([member("b.global", rules=5), member("c.global", rules=6)], {}, 0.0)
    assert set(statuses(known.reaped(FORGET_FAILED_S * 10), 0.0)) == {"a.global", "b.global"}
    assert "b.global" not in statuses(known.forced_out("b.global", 0.0, forget=True), 0.0)
