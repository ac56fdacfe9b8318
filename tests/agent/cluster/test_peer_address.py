"""A formed cluster turns to TLS once all of its servers speak it, one etcd member after the other."""

from __future__ import annotations

from yurt.agent.cluster.peer_address import obstacle
from yurt.agent.cluster.voters import Voter
from yurt.sdk.value import replace
from yurt.structs.member import FAILED
from yurt.testing.fake_cluster import member

ALL = tuple(member(name, has_tls=True) for name in "abc")


def voters(*by_tls: str) -> list[Voter]:
    return [Voter(id=name, name=f"{name}.global", address=f"{name}:4649", is_tls=name in by_tls) for name in "abc"]


def test_members_turn_by_name_once_all_servers_speak_tls() -> None:
    assert obstacle("a.global", voters(), ALL) == ""
    assert obstacle("b.global", voters(), ALL) == "waiting for the etcd member of a.global to turn to TLS first"
    assert obstacle("b.global", voters("a"), ALL) == ""
    assert obstacle("c.global", voters("a", "b"), ALL) == ""


def test_a_server_that_is_away_or_does_not_speak_tls_is_waited_for_by_name() -> None:
    for other in (replace(ALL[1], status=FAILED), replace(ALL[1], has_tls=False), replace(ALL[1], has_tls=None)):
        told = obstacle("a.global", voters(), (ALL[0], other, ALL[2]))
        assert "waiting for b.global: restart with `tls { rpc = true }`" in told
        assert "`yurt server force-leave`" in told


def test_a_member_that_has_not_begun_is_waited_for_by_its_address() -> None:
    joining = Voter(id="d", name="", address="d:4649")
    assert "waiting for d:4649: restart" in obstacle("a.global", [*voters(), joining], ALL)
