"""Servers are taken into the cluster one at a time; an etcd member of a lost disk goes before its successor comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from yurt.agent.cluster.voters import REMOVE_LIMIT_S, Admitter, Reach, Voter, leave, peer_urls, put_out
from yurt.sdk.errors import Conflict, NotFound, Unavailable
from yurt.sdk.value import replace
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import FAILED, LEFT, Member
from yurt.structs.rules import RULES_VERSION, UNPUBLISHED_RULES
from yurt.testing.fake_cluster import FakeCluster, member
from yurt.testing.fakes import FakeEnv, settle
from yurt.testing.unique_ports import quiet_port


class FakeEtcd:
    """Members in memory; like etcd it adds nobody while one of them is away, and one learner at a time."""

    def __init__(self, *members: Member, away: str = "") -> None:
        self.next_id = len(members)
        self.kept = [Voter(id=f"{n:x}", name=each.name, address=each.etcd_addr) for n, each in enumerate(members)]
        self.away = away
        self.is_in_sync = True
        self.calls: list[str] = []

    async def voters(self) -> tuple[Voter, ...]:
        return tuple(self.kept)

    async def add(self, address: str, *, is_tls: bool, is_learner: bool) -> Voter:
        await asyncio.sleep(0)
        if is_learner and any(voter.is_learner for voter in self.kept):
            raise Conflict("too many learner members in cluster")
        if any(voter.name == self.away for voter in self.kept if self.away):
            raise Unavailable("unhealthy cluster")
        self.calls.append(f"learn {address}" if is_learner else f"add {address}")
        reach = Reach.BY_TLS if is_tls else Reach.IN_PLAIN_TEXT
        added = Voter(id=f"{self.next_id:x}", name="", address=address, reach=reach, is_learner=is_learner)
        self.kept.append(added)
        self.next_id += 1
        return added

    async def promote(self, voter_id: str) -> None:
        found = next((voter for voter in self.kept if voter.id == voter_id), None)
        if found is None:
            raise NotFound("member not found")
        if not found.is_learner or not self.is_in_sync:
            raise Conflict("can only promote a learner member which is in sync with leader")
        self.calls.append(f"promote {voter_id}")
        self.kept[self.kept.index(found)] = replace(found, is_learner=False)

    async def remove(self, voter_id: str) -> None:
        if voter_id not in {voter.id for voter in self.kept}:
            raise NotFound("no such member")
        self.calls.append(f"remove {voter_id}")
        self.kept = [voter for voter in self.kept if voter.id != voter_id]

    async def move(self, voter_id: str, address: str, reach: Reach) -> None:
        self.calls.append(f"move {voter_id} {address}")

    async def db_bytes(self) -> int:
        return 4096

    async def close(self) -> None:
        pass


A, B, C = (member(name, etcd_addr=f"127.0.0.1:{port}") for name, port in (("a", 1), ("b", 2), ("c", 3)))


class Pauses(FakeEnv):
    """Its waits end at once, after what happens `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    async def sleep(self, seconds: float) -> None:
        self.meanwhile()


def admitter(etcd: FakeEtcd, *members: Member, **config: bool) -> Admitter:
    return Admitter(etcd, FakeCluster(*members), lambda: AutopilotConfiguration(**config), env=Pauses())


async def test_a_new_server_is_told_all_members_by_name() -> None:
    etcd = FakeEtcd(A, B)
    admission = await admitter(etcd, A, B, C).admit(C)
    assert admission.cluster == {"a.global": A.etcd_addr, "b.global": B.etcd_addr, "c.global": C.etcd_addr}
    assert etcd.calls == ["add 127.0.0.1:3"]


async def test_a_server_that_cannot_apply_the_state_is_not_admitted() -> None:
    etcd = FakeEtcd(A, B)
    refusing = Admitter(etcd, FakeCluster(A, B), AutopilotConfiguration, env=FakeEnv(), rules=lambda: RULES_VERSION)
    for rules, applied in ((RULES_VERSION - 1, RULES_VERSION - 1), (0, UNPUBLISHED_RULES)):
        with pytest.raises(Conflict, match=f"follows rules {RULES_VERSION}, and c.global applies {applied}"):
            await refusing.admit(replace(C, rules=rules))
    assert etcd.calls == []
    await refusing.admit(C)
    assert etcd.calls == ["add 127.0.0.1:3"]


async def test_a_new_server_is_told_who_is_reached_by_tls() -> None:
    etcd = FakeEtcd(A, B)
    etcd.kept[0] = replace(etcd.kept[0], reach=Reach.BY_TLS)
    secure = replace(C, has_tls=True)
    assert (await admitter(etcd, A, B, secure).admit(secure)).by_tls == ("a.global",), "it begins as the others go on"
    etcd.kept = [replace(each, reach=Reach.BY_TLS) for each in etcd.kept]
    admission = await admitter(etcd, A, B, secure).admit(secure)
    assert admission.by_tls == ("a.global", "b.global", "c.global")


async def test_a_new_server_is_told_who_is_turning_to_tls() -> None:
    """etcd lets nobody in that does not know all recorded URLs."""
    etcd = FakeEtcd(A, B)
    etcd.kept[1] = replace(etcd.kept[1], reach=Reach.BY_BOTH)
    secure = replace(C, has_tls=True)
    admission = await admitter(etcd, A, B, secure).admit(secure)
    assert (admission.by_tls, admission.by_both) == ((), ("b.global",))
    assert peer_urls("b:1", Reach.BY_BOTH) == ("http://b:1", "https://b:1")


async def test_a_server_without_tls_does_not_join_members_with_it() -> None:
    etcd = FakeEtcd(A, B)
    etcd.kept = [replace(each, reach=Reach.BY_TLS) for each in etcd.kept]
    plain = replace(C, has_tls=False)
    with pytest.raises(Conflict, match=r"the etcd members of this cluster speak TLS, and c.global does not"):
        await admitter(etcd, A, B, plain).admit(plain)
    assert etcd.calls == []


async def test_a_server_without_its_data_replaces_its_old_member() -> None:
    etcd = FakeEtcd(A, B, C)
    await admitter(etcd, A, B, C).admit(C)
    assert etcd.calls == ["remove 2", "add 127.0.0.1:3"]


async def test_a_member_that_no_server_began_goes_before_another_one_comes() -> None:
    """A server whose join was cut short comes back at another address; etcd does not know whose the first member is."""
    etcd = FakeEtcd(A, B)
    await admitter(etcd, A, B, C).admit(C)
    again = replace(C, etcd_addr="127.0.0.1:9")
    admission = await admitter(etcd, A, B, again).admit(again)
    assert etcd.calls == ["add 127.0.0.1:3", "remove 2", "add 127.0.0.1:9"]
    assert admission.cluster == {"a.global": A.etcd_addr, "b.global": B.etcd_addr, "c.global": "127.0.0.1:9"}


async def test_a_member_that_another_server_is_about_to_begin_stays() -> None:
    etcd, other = FakeEtcd(A, B), member("d", etcd_addr="127.0.0.1:4")
    await admitter(etcd, A, B, other).admit(other)
    await admitter(etcd, A, B, C, other).admit(C)
    assert etcd.calls == ["add 127.0.0.1:4", "add 127.0.0.1:3"]


async def test_a_member_whose_server_is_not_known_here_yet_stays() -> None:
    """Two servers may admit one each at the same time; they tell each other within a second or two."""
    etcd, other, known = FakeEtcd(A, B), member("d", etcd_addr="127.0.0.1:4"), FakeCluster(A, B, C)
    await admitter(etcd, A, B, other).admit(other)
    env = Pauses(meanwhile=lambda: setattr(known, "fixed", (A, B, C, other)))
    await Admitter(etcd, known, AutopilotConfiguration, env=env).admit(C)
    assert etcd.calls == ["add 127.0.0.1:4", "add 127.0.0.1:3"]


async def test_a_member_that_still_answers_elsewhere_is_not_replaced() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", quiet_port())
    port = server.sockets[0].getsockname()[1]
    etcd = FakeEtcd(A, B, replace(C, etcd_addr=f"127.0.0.1:{port}"))
    with pytest.raises(Conflict, match="still answers"):
        await admitter(etcd, A, B, C).admit(C)
    server.close()
    await server.wait_closed()
    assert etcd.calls == []
    await admitter(etcd, A, B, C).admit(C)
    assert etcd.calls == ["remove 2", "add 127.0.0.1:3"]


async def test_a_server_that_says_anothers_address_does_not_put_that_one_out() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", quiet_port())
    taken = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    etcd = FakeEtcd(replace(A, etcd_addr=taken), B)
    copied = replace(C, etcd_addr=taken)
    with pytest.raises(Conflict, match=r"a\.global answers; c\.global needs one of its own"):
        await admitter(etcd, A, B, copied).admit(copied)
    assert etcd.calls == []
    server.close()
    await server.wait_closed()
    await admitter(etcd, A, B, copied).admit(copied)
    assert etcd.calls == ["remove 0", f"add {taken}"], "a server that has got another name"


async def test_a_new_server_takes_the_place_of_one_that_has_failed() -> None:
    failed = replace(B, status=FAILED)
    etcd = FakeEtcd(A, B, away="b.global")
    await admitter(etcd, A, failed, C).admit(C)
    assert etcd.calls == ["remove 1", "add 127.0.0.1:3"]


async def test_nobody_is_put_out_for_another_where_that_is_off_or_all_are_there() -> None:
    for members, config in (((A, replace(B, status=FAILED), C), False), ((A, B, C), True)):
        etcd = FakeEtcd(A, B, away="b.global")
        with pytest.raises(Unavailable, match="unhealthy cluster"):
            await admitter(etcd, *members, cleanup_dead_servers=config).admit(C)
        assert etcd.calls == []


async def test_servers_are_taken_in_one_after_the_other() -> None:
    etcd = FakeEtcd(A)
    takes = admitter(etcd, A, B, C)
    first, second = await asyncio.gather(takes.admit(B), takes.admit(C))
    assert (len(first.cluster), len(second.cluster)) == (2, 3)


async def test_a_server_that_knows_learners_is_one_until_it_is_promoted() -> None:
    etcd = FakeEtcd(A)
    takes = admitter(etcd, A, B)
    admission = await takes.admit(B, knows_learners=True)
    assert (admission.learner_id, len(admission.cluster)) == ("1", 2)
    await takes.promote("1")
    await takes.promote("1")
    assert etcd.calls == ["learn 127.0.0.1:2", "promote 1"]
    with pytest.raises(NotFound, match="member not found"):
        await takes.promote("9")


async def test_a_learner_that_is_not_in_sync_is_not_promoted() -> None:
    etcd = FakeEtcd(A)
    takes = admitter(etcd, A, B)
    admission = await takes.admit(B, knows_learners=True)
    etcd.is_in_sync = False
    with pytest.raises(Conflict, match="in sync with leader"):
        await takes.promote(admission.learner_id)


async def test_a_promotion_that_another_server_has_asked_for_meanwhile_succeeds() -> None:
    class Raced(FakeEtcd):
        async def promote(self, voter_id: str) -> None:
            await super().promote(voter_id)
            await super().promote(voter_id)

    etcd = Raced(A)
    takes = admitter(etcd, A, B)
    await takes.promote((await takes.admit(B, knows_learners=True)).learner_id)
    assert [voter.is_learner for voter in etcd.kept] == [False, False]


async def test_a_server_of_an_older_version_is_a_voter_at_once() -> None:
    """It would not ask for its promotion."""
    etcd = FakeEtcd(A)
    assert (await admitter(etcd, A, B).admit(B)).learner_id == ""
    assert etcd.calls == ["add 127.0.0.1:2"]


async def test_a_server_waits_while_another_one_joins() -> None:
    etcd = FakeEtcd(A)
    takes = admitter(etcd, A, B, C)
    first, second = await asyncio.gather(*(takes.admit(each, knows_learners=True) for each in (B, C)))
    assert (second.waits_for, second.cluster) == ("b.global", {})
    await takes.promote(first.learner_id)
    assert (await takes.admit(C, knows_learners=True)).learner_id == "2"


async def test_two_servers_that_admit_one_each_at_the_same_moment_leave_one_waiting() -> None:
    """None of the cluster's failed servers gives way to it."""
    gone = member("d", etcd_addr="127.0.0.1:4", status=FAILED)
    etcd = FakeEtcd(A, gone)
    first, second = await asyncio.gather(
        *(admitter(etcd, A, B, C, gone).admit(each, knows_learners=True) for each in (B, C))
    )
    assert {first.waits_for, second.waits_for} == {"", "b.global"}
    assert etcd.calls == ["learn 127.0.0.1:2"]


@pytest.mark.parametrize("name", ["", "b.global"])
@pytest.mark.parametrize("status", [FAILED, LEFT, ""])
async def test_a_learner_that_has_no_server_any_more_goes_before_another_one_comes(status: str, name: str) -> None:
    etcd, known = FakeEtcd(A), FakeCluster(A, B, C)
    takes = Admitter(etcd, known, AutopilotConfiguration, env=Pauses())
    await takes.admit(B, knows_learners=True)
    etcd.kept[1] = replace(etcd.kept[1], name=name)
    known.fixed = (A, replace(B, status=status), C) if status else (A, C)
    assert (await takes.admit(C, knows_learners=True)).learner_id == "2"
    assert etcd.calls == ["learn 127.0.0.1:2", "remove 1", "learn 127.0.0.1:3"]


async def test_the_last_voter_stays_though_another_server_joins() -> None:
    etcd = FakeEtcd(A)
    await admitter(etcd, A, B).admit(B, knows_learners=True)
    assert not await leave(etcd, "a.global", FakeEnv())
    assert [voter.name for voter in etcd.kept] == ["a.global", ""]


class RefusingEtcd(FakeEtcd):
    """Refuses to remove anybody so many times; the answer of a removal may be lost."""

    def __init__(self, *members: Member, refusals: int, loses_answer: bool = False) -> None:
        super().__init__(*members)
        self.refusals = refusals
        self.loses_answer = loses_answer

    async def remove(self, voter_id: str) -> None:
        if self.refusals > 0:
            self.refusals -= 1
            raise Unavailable("unhealthy cluster")
        await super().remove(voter_id)
        if self.loses_answer:
            raise Unavailable("no answer in time")


@pytest.mark.parametrize("loses_answer", [False, True])
async def test_a_removal_that_etcd_refuses_at_first_is_tried_again(loses_answer: bool) -> None:
    env, etcd = FakeEnv(), RefusingEtcd(A, B, refusals=3, loses_answer=loses_answer)
    removing = asyncio.create_task(put_out(etcd, "1", env))
    await settle()
    assert not removing.done()
    await env.advance(5)
    await removing
    assert [voter.name for voter in etcd.kept] == ["a.global"]


async def test_a_removal_is_given_up_in_time_and_names_what_is_not_there() -> None:
    env, etcd = FakeEnv(), RefusingEtcd(A, B, refusals=1_000)
    removing = asyncio.create_task(put_out(etcd, "1", env))
    await env.advance(2 * REMOVE_LIMIT_S)
    with pytest.raises(Unavailable, match="unhealthy"):
        await removing
    with pytest.raises(NotFound, match="no such member"):
        await put_out(FakeEtcd(A), "7", env)
