"""The rules of other servers, as one server knows them over its restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.agent.cluster.cluster_files import SERVERS_FILE, KnownServers, save
from yurt.agent.cluster.known_servers import ADDRESSES_TRUSTED_S, KnownServersRecord
from yurt.agent.cluster.membership import Membership
from yurt.structs.rules import RULES_VERSION
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import FakeEnv

OWN = {"a.global": RULES_VERSION}


class Start:
    """One start of server a."""

    def __init__(self, folder: Path, **options: bool) -> None:
        self.env = FakeEnv()
        self.membership = Membership(member("a"), env=self.env)
        self.record = KnownServersRecord(folder, self.membership, self.env, **options)

    def hear(self, name: str, region: str = "global", **changes: object) -> None:
        """Hear from another server."""
        self.membership.merge_update(Membership(member(name, region, **changes), env=self.env).update())

    @property
    def rules(self) -> dict[str, int]:
        """The rules by name."""
        return dict(self.record.published_rules())


def test_a_server_of_the_region_counts_from_when_it_is_heard_until_it_leaves(tmp_path: Path) -> None:
    start = Start(tmp_path)
    assert start.rules == OWN
    start.hear("b", rules=4)
    start.hear("far", "west", rules=4)
    assert start.rules == OWN | {"b.global": 4}
    start.hear("b", status="left", incarnation=start.env.now())
    assert start.rules == OWN and Start(tmp_path).rules == OWN


def test_a_server_that_was_heard_counts_after_restarts_until_it_is_heard_again(tmp_path: Path) -> None:
    first = Start(tmp_path)
    first.hear("b", rules=4)
    first.hear("c")
    second = Start(tmp_path)
    second.hear("c")
    third = Start(tmp_path)
    third.hear("c")
    for start in (second, third):
        assert start.rules == OWN | {"b.global": 4, "c.global": RULES_VERSION}
    third.hear("b")
    assert third.rules["b.global"] == RULES_VERSION == Start(tmp_path).rules["b.global"]


def test_an_operator_forces_out_a_server_that_is_never_heard_again(tmp_path: Path) -> None:
    Start(tmp_path).hear("b", rules=4)
    start = Start(tmp_path)
    start.hear("c", rules=5)
    assert start.record.unheard == {"b.global": 4}
    start.record.drop("b.global")
    assert start.rules == OWN | {"c.global": 5} == Start(tmp_path).rules


@pytest.mark.parametrize("ends", ["heard", "time"])
def test_addresses_without_rules_count_until_a_server_of_the_region_is_heard(tmp_path: Path, ends: str) -> None:
    save(tmp_path / SERVERS_FILE, KnownServers(addresses=("b:4648",)))
    start = Start(tmp_path)
    start.hear("far", "west")
    assert start.rules == OWN | {"b:4648": 0}
    if ends == "heard":
        start.hear("b")
        assert start.rules == OWN | {"b.global": RULES_VERSION}
    else:
        start.env.monotonic = lambda: ADDRESSES_TRUSTED_S + 1e6  # type: ignore[method-assign]
        assert start.rules == OWN


def test_a_server_whose_log_nobody_else_reads_asks_nobody(tmp_path: Path) -> None:
    save(tmp_path / SERVERS_FILE, KnownServers(addresses=("far:4648",), rules={"b.global": 4}))
    assert Start(tmp_path, is_alone=True).rules == OWN
