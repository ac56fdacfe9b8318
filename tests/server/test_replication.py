"""Copies of what the authoritative region shares: what is stored, what is deleted, and what no answer may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import pytest
from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import replace
from yurt.server.config import AclConfig
from yurt.server.resources.region_replication import (
    ACL_KINDS,
    BUILT_IN,
    CLUSTER_KINDS,
    Replication,
    ReplicationPage,
    difference,
)
from yurt.server.server import Server
from yurt.state import TABLES
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.quota import QuotaSpec
from yurt.structs.shared_rows import SharedDigests, row_digest
from yurt.structs.variable import RootKeyMeta
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.factories import NOW, number_id
from yurt.testing.fakes import FakeEnv, eventually
from yurt.testing.replica import Replica

OPS = acl.ACLPolicy(name="ops", rules='node { policy = "read" }')
ROLE = acl.ACLRole(id=number_id(5), name="web", policies=(acl.ACLRolePolicyLink(name="ops"),))
METHOD = acl.ACLAuthMethod(name="ci", type="JWT", default=True, modify_time=5)
RULE = acl.ACLBindingRule(id=number_id(6), auth_method="ci", bind_type="policy", bind_name="ops", modify_time=7)


class Bench(NamedTuple):
    """A server and its clock."""

    server: Server
    env: FakeEnv


ALL = {kind.table: kind for kind in CLUSTER_KINDS + ACL_KINDS}


def token(number: int, **changes: Any) -> acl.ACLToken:
    made = acl.ACLToken(
        accessor_id=number_id(number), secret_hash=acl.hash_of_secret(number_id(number)), policies=("ops",),
        is_global=True, create_time=NOW,
    )  # fmt: skip
    return replace(made, **changes)


def new_region() -> Replica:
    """A state whose next command comes after the built-in rows, which stand at index 1."""
    replica = Replica()
    replica.apply(c.KeepAlive(), c.KeepAlive())
    return replica


class FakeAuthority:
    """The authoritative region: a state of its own, and faults that a test asks for."""

    def __init__(self) -> None:
        self.replica = new_region()
        self.problem = ""
        self.asked: list[str] = []
        self.page = 64
        self.opened: dict[str, acl.ACLAuthMethod] = {}
        self._changed = asyncio.Event()

    def apply(self, *commands: c.AnyCommand) -> None:
        self.replica.apply(*commands)
        self.notify()

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def digests(self, table: str, *, min_index: int, wait_s: float) -> SharedDigests:
        self.asked.append(table)
        if self.problem:
            raise Unavailable(self.problem)
        while min_index > 0 and self.replica.state.table(table).index <= min_index:
            await self._changed.wait()
            if self.problem:
                raise Unavailable(self.problem)
        rows = self.replica.state.table(table)
        shared = {key: row_digest(row) for key, row in rows.items() if ALL[table].is_shared(row)}
        return SharedDigests(index=rows.index, digests=shared)

    async def rows(self, table: str, keys: Sequence[str]) -> ReplicationPage:
        if self.problem:
            raise Unavailable(self.problem)
        rows = self.replica.state.table(table)
        found = tuple(self.opened.get(key, row) for key in keys[: self.page] if (row := rows.get(key)) is not None)
        return ReplicationPage(found, tuple(keys[self.page :]))


@pytest.fixture
def authority() -> FakeAuthority:
    return FakeAuthority()


@pytest.fixture
async def east(run_server: Any, authority: FakeAuthority) -> AsyncIterator[Any]:
    """A region with access control whose leader copies."""
    async with run_server(acl=AclConfig(enabled=True)) as bench:
        server = bench.server
        duty = Replication(server.replica, authority, server.metrics, seal=server.resources.acl_policies.sealed)
        running = asyncio.ensure_future(duty.run())
        try:
            yield bench
        finally:
            running.cancel()
            await asyncio.wait({running})


async def until(bench: Any, condition: Any) -> None:
    """Wait for a condition while time passes."""
    for _ in range(50):
        if condition():
            return
        await bench.env.advance(1)
    await eventually(condition)


def is_equal(bench: Any, authority: FakeAuthority) -> bool:
    """Whether the region has what the authority shares."""

    def content(state: Any, table: str) -> dict[str, str]:
        rows = state.table(table).items()
        return {key: row_digest(row) for key, row in rows if ALL[table].is_shared(row)}

    ours, theirs = bench.server.state, authority.replica.state
    return all(content(ours, each) == content(theirs, each) for each in ALL)


async def test_a_table_that_was_never_written_is_waited_for_like_any_other(east: Any, authority: FakeAuthority) -> None:
    """Its index is 0, and a query past index 0 is answered at once: each such table was asked for 9 times a second."""
    assert authority.replica.state.table("quotas").index == 0
    await until(east, lambda: set(authority.asked) == set(ALL))
    for _ in range(5):
        await east.env.advance(1)
    assert authority.asked.count("quotas") <= 2
    authority.apply(c.UpsertQuotas(quotas=(QuotaSpec(name="gold"),)))
    await until(east, lambda: is_equal(east, authority))


def fill(authority: FakeAuthority) -> None:
    authority.apply(
        c.UpsertNamespaces(namespaces=(Namespace(name="web"),)),
        c.UpsertNodePools(pools=(NodePool(name="gpu", description="cards"),)),
        c.UpsertACLPolicies(policies=(OPS,)),
        c.CreateACLRole(role=ROLE),
        c.CreateACLToken(token=token(1, roles=(acl.ACLTokenRoleLink(id=ROLE.id),))),
        c.CreateACLToken(token=token(2, is_global=False)),
        c.UpsertACLAuthMethod(method=METHOD),
        c.CreateACLBindingRule(rule=RULE),
    )


async def test_all_that_regions_share_is_copied_changed_and_deleted(east: Any, authority: FakeAuthority) -> None:
    fill(authority)
    await until(east, lambda: is_equal(east, authority))
    assert set(east.server.state.acl_tokens.keys()) == {number_id(1)}, "local tokens stay where they are"
    authority.apply(
        c.UpsertNodePools(pools=(NodePool(name="gpu", description="more cards"),)),
        c.UpsertACLPolicies(policies=(replace(OPS, rules=""),)),
        c.UpdateACLToken(token=token(1, name="renamed", expiration_ttl=0)),
    )
    await until(east, lambda: is_equal(east, authority))
    authority.apply(
        c.DeleteNamespaces(names=("web",)),
        c.DeleteNodePools(names=("gpu",)),
        c.DeleteACLTokens(accessor_ids=(number_id(1),)),
        c.DeleteACLRoles(role_ids=(ROLE.id,)),
        c.DeleteACLPolicies(names=("ops",)),
        c.DeleteACLBindingRules(rule_ids=(RULE.id,)),
        c.DeleteACLAuthMethods(names=("ci",)),
    )
    await until(east, lambda: is_equal(east, authority))
    assert number_id(1) in east.server.state.acl_revocations, "a restore of this region does not bring it back"
    assert all(name in east.server.state.node_pools for name in BUILT_IN)


async def test_many_rows_come_in_bounded_answers(east: Any, authority: FakeAuthority) -> None:
    authority.page = 7
    authority.apply(c.UpsertACLPolicies(policies=tuple(replace(OPS, name=f"p{number}") for number in range(150))))
    await until(east, lambda: is_equal(east, authority))


async def test_two_roles_may_exchange_their_names(east: Any, authority: FakeAuthority) -> None:
    fill(authority)
    other = replace(ROLE, id=number_id(7), name="ops")
    authority.apply(c.CreateACLRole(role=other))
    await until(east, lambda: is_equal(east, authority))
    for role in (replace(other, name="between"), replace(ROLE, name="ops"), replace(other, name="web")):
        authority.apply(c.UpdateACLRole(role=role))
    await until(east, lambda: is_equal(east, authority))


@pytest.mark.parametrize("problem", ["403: Permission denied", "has not answered for 90 s", "cannot be read"])
async def test_a_refusal_deletes_nothing_and_is_told(
    east: Any, authority: FakeAuthority, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    caplog.set_level("INFO")
    fill(authority)
    await until(east, lambda: is_equal(east, authority))
    authority.apply(c.DeleteACLPolicies(names=("ops",)))
    await until(east, lambda: is_equal(east, authority))
    before = east.server.state
    authority.problem = problem
    authority.notify()
    asked = len(authority.asked)
    await until(east, lambda: len(authority.asked) > asked + 20)
    assert all(east.server.state.table(name) is before.table(name) for name in ALL)
    lines = [each for each in caplog.records if problem in each.getMessage()]
    assert len(lines) == len(ALL), "a problem that lasts is told once for each kind"
    authority.problem = ""
    authority.apply(c.UpsertACLPolicies(policies=(OPS,)))
    await until(east, lambda: is_equal(east, authority))
    assert "replication works again" in caplog.text
    assert east.server.metrics.counters["replication.failed"] >= len(ALL)


async def test_a_region_that_starts_anew_deletes_nothing(east: Any, authority: FakeAuthority, caplog: Any) -> None:
    fill(authority)
    await until(east, lambda: is_equal(east, authority))
    authority.replica = new_region()
    authority.problem = "the connection was lost"
    authority.notify()
    await until(east, lambda: "the connection was lost" in caplog.text)
    authority.problem = ""
    await until(east, lambda: "is new and has none" in caplog.text)
    assert number_id(1) in east.server.state.acl_tokens
    assert "ops" in east.server.state.acl_policies


async def test_a_lower_index_of_a_restored_region_is_followed(east: Any, authority: FakeAuthority) -> None:
    fill(authority)
    earlier = authority.replica.state
    authority.apply(c.UpsertACLPolicies(policies=(replace(OPS, rules="", description="later"),)))
    await until(east, lambda: is_equal(east, authority))
    authority.replica = Replica(earlier)
    authority.problem = "restarting"
    authority.notify()
    await until(east, lambda: east.server.metrics.counters.get("replication.failed", 0) > 5)
    authority.problem = ""
    await until(east, lambda: is_equal(east, authority))
    assert east.server.state.acl_policies["ops"].description == ""


async def test_a_token_that_a_restore_of_the_authority_revives_stays_revoked(
    east: Any, authority: FakeAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    fill(authority)
    earlier = authority.replica.state
    await until(east, lambda: number_id(1) in east.server.state.acl_tokens)
    authority.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    await until(east, lambda: number_id(1) not in east.server.state.acl_tokens)
    authority.replica = Replica(earlier)
    authority.apply(c.UpsertACLPolicies(policies=(replace(OPS, rules=""),)), c.CreateACLToken(token=token(3)))
    authority.problem = "restarting"
    authority.notify()
    await until(east, lambda: east.server.metrics.counters.get("replication.failed", 0) > 5)
    authority.problem = ""
    await until(east, lambda: number_id(3) in east.server.state.acl_tokens)
    assert number_id(1) not in east.server.state.acl_tokens
    assert f"accessor_id={number_id(1)} reason='it was revoked here'" in caplog.text
    authority.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    authority.apply(c.CreateACLToken(token=token(1, create_time=NOW + 9)))
    await until(east, lambda: number_id(1) in east.server.state.acl_tokens)


async def test_local_tokens_are_neither_replaced_nor_deleted(
    east: Any, authority: FakeAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    await east.server.replica.propose(c.CreateACLToken(token=token(1, is_global=False, name="ours")))
    await east.server.replica.propose(c.CreateACLToken(token=token(8, is_global=False, secret_hash="same")))
    fill(authority)
    authority.apply(c.CreateACLToken(token=token(4)), c.CreateACLToken(token=token(9, secret_hash="same")))
    await until(east, lambda: number_id(4) in east.server.state.acl_tokens)
    tokens = east.server.state.acl_tokens
    assert tokens[number_id(1)].name == "ours"
    assert number_id(9) not in tokens and number_id(8) in tokens
    assert "a local token has its accessor id" in caplog.text and "another token has its secret" in caplog.text


async def test_rows_that_were_not_asked_for_are_refused(east: Any, authority: FakeAuthority, caplog: Any) -> None:
    async def rows(table: str, keys: Sequence[str]) -> ReplicationPage:
        return ReplicationPage((token(2, is_global=False, accessor_id=keys[0]),), ())

    authority.rows = rows  # type: ignore[method-assign]
    authority.apply(c.CreateACLToken(token=token(1)))
    await until(east, lambda: "that were not asked for" in caplog.text)
    assert not len(east.server.state.acl_tokens)


@pytest.mark.parametrize("table", ALL)
def test_a_new_authoritative_region_deletes_nothing_of_any_kind(table: str) -> None:
    kind, new = ALL[table], new_region().state.table(table)
    theirs = SharedDigests(index=new.index, digests={key: row_digest(row) for key, row in new.items()})
    copies = theirs.digests | {"copied": "1"}
    assert difference(theirs, copies, kind) == ((), ())
    written = SharedDigests(index=new.index + 2, digests=theirs.digests)
    assert difference(written, copies, kind) == ((), ("copied",))


async def test_what_the_region_needs_is_kept_and_what_is_equal_is_not_written(
    east: Any, authority: FakeAuthority
) -> None:
    await east.server.replica.propose(c.UpsertNamespaces(namespaces=(Namespace(name="used"), Namespace(name="idle"))))
    await east.server.resources.jobs.register(factories.job(namespace="used"))
    authority.apply(c.UpsertNamespaces(namespaces=(Namespace(name="web"),)))
    await until(east, lambda: "idle" not in east.server.state.namespaces and "web" in east.server.state.namespaces)
    assert "used" in east.server.state.namespaces
    index, asked = east.server.state.namespaces.index, len(authority.asked)
    authority.apply(c.UpsertNamespaces(namespaces=(Namespace(name="web"),)))
    await until(east, lambda: len(authority.asked) > asked)
    assert east.server.state.namespaces.index == index


async def test_a_namespace_comes_with_the_quota_that_it_names_and_both_go(
    east: Any, authority: FakeAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    team = Namespace(name="team", quota="small")
    authority.apply(c.UpsertQuotas(quotas=(QuotaSpec(name="small"),)), c.UpsertNamespaces(namespaces=(team,)))
    await until(east, lambda: is_equal(east, authority))
    authority.apply(c.UpsertNamespaces(namespaces=(replace(team, quota=""),)), c.DeleteQuotas(names=("small",)))
    await until(east, lambda: is_equal(east, authority))
    assert "replication failed" not in caplog.text


async def test_without_access_control_nothing_of_it_is_asked_for(run_server: Any, authority: FakeAuthority) -> None:
    async with run_server() as bench:
        duty = Replication(bench.server.replica, authority, bench.server.metrics)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(duty.run())
            authority.apply(c.UpsertNamespaces(namespaces=(Namespace(name="web"),)))
            await until(bench, lambda: "web" in bench.server.state.namespaces)
            running.cancel()
    assert set(authority.asked) == {"namespaces", "node_pools", "quotas"}


async def test_secrets_of_login_methods_are_sealed_with_a_key_of_the_region(
    east: Any, authority: FakeAuthority
) -> None:
    config = acl.ACLAuthMethodConfig(oidc_discovery_url="https://id.example", oidc_client_secret="hidden")
    shown = replace(METHOD, name="corp", type="OIDC", default=False, config=config)
    masked = acl.without_method_secrets(shown)
    sealed = replace(masked, key_id="theirs", sealed_secrets=b"theirs")
    authority.apply(c.PutRootKey(key=RootKeyMeta(key_id="theirs")), c.UpsertACLAuthMethod(method=sealed))
    authority.opened = {"corp": replace(shown, create_time=shown.modify_time)}
    await until(east, lambda: is_equal(east, authority))
    stored = east.server.state.acl_auth_methods["corp"]
    assert stored.config.oidc_client_secret == acl.REDACTED
    assert stored.key_id in east.server.state.root_keys
    assert east.server.resources.acl_policies.opened(stored).config.oidc_client_secret == "hidden"


async def test_the_next_leader_goes_on_where_the_one_before_was_cut_off(authority: FakeAuthority) -> None:
    authority.page, env = 3, FakeEnv()
    fill(authority)
    authority.apply(c.UpsertACLPolicies(policies=tuple(replace(OPS, name=f"p{number}") for number in range(90))))
    group = ServerGroup(env, authority=authority, acl=AclConfig(enabled=True))
    async with group.running():
        for turn in range(6):
            old = group.log.leader
            await eventually(lambda: group.servers[group.log.leader].is_leader)
            authority.apply(
                c.UpsertACLPolicies(policies=(replace(OPS, name=f"turn-{turn}"),)),
                c.DeleteACLPolicies(names=(f"p{turn}",)),
            )
            for _ in range(turn * 3):
                await asyncio.sleep(0)
            group.log.elect(NAMES[(NAMES.index(old) + 1) % len(NAMES)])
        leader = group.servers[group.log.leader]
        await until(Bench(leader, env), lambda: is_equal(Bench(leader, env), authority))
        assert "p0" not in leader.state.acl_policies and "turn-5" in leader.state.acl_policies


def test_built_in_names_stay_and_a_table_that_was_never_written_deletes_nothing() -> None:
    pools, policies = ALL["node_pools"], ALL["acl_policies"]
    ours = dict.fromkeys(("all", "default", "gpu", "old"), "x")
    theirs = SharedDigests(index=3, digests={"gpu": "y", "new": "z", "default": "w"})
    assert difference(theirs, ours, pools) == (("gpu", "new"), ("old",))
    assert difference(SharedDigests(index=0, digests={}), {"ops": "x"}, policies) == ((), ())
    assert difference(SharedDigests(index=9, digests={}), {"ops": "x"}, policies) == ((), ("ops",))


@pytest.mark.parametrize("row", [replace(OPS, name="x"), ROLE, token(1), METHOD, RULE, Namespace(name="n")])
def test_a_digest_ignores_the_indexes_alone(row: Any) -> None:
    assert row_digest(replace(row, create_index=3, modify_index=9)) == row_digest(row)
    changed = replace(row, description="d") if hasattr(row, "description") else replace(row, name="other")
    assert row_digest(changed) != row_digest(row)


def test_a_copied_token_is_global_and_complete() -> None:
    replica = Replica()
    assert Invalid.__name__.lower() == replica.reject(c.ReplicateACLTokens(tokens=(token(1, is_global=False),))).kind
    replica.reject(c.ReplicateACLTokens(tokens=(token(1, secret_hash=""),)))
    assert all(name in TABLES for name in ALL)
