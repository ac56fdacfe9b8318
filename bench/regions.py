"""Measures access control with 10,000 policies: the time to resolve a caller and to replicate a change to a region.

Two servers in this process, each with a log in memory; the second copies from the first over HTTP on loopback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Final, NamedTuple, cast

from yurt.access import Capability, Scope, ShownToken, Through, needs
from yurt.acl.resolver import Resolver
from yurt.agent.regions import FarAuthority, RegionLinks
from yurt.http.api_port import ApiPort
from yurt.http.forwarding.forward import OwnApi, ServerApi
from yurt.sdk.value import UnixNano
from yurt.server.config import AclConfig
from yurt.server.resources.region_replication import Replication
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.http_api import Api, serving
from yurt.testing.replica import Replica

from bench.table import Row, print_table

POLICIES: Final = 10_000
HELD: Final = 1_024
BATCH: Final = 200
TIMES: Final = 10_000
CHANGES: Final = 10
NOW: Final = UnixNano(1_800_000_000_000_000_000)
ROOT: Final = "00000000-0000-4000-8000-000000000001"
ACCESSOR: Final = "00000000-0000-4000-8000-000000000002"
READ: Final = needs.namespace(Capability.READ_JOB)


def policies() -> list[c.UpsertACLPolicies]:
    """Commands that store the policies."""
    rules = 'namespace "team-{0}" {{ policy = "write" }}\nnode {{ policy = "read" }}'
    rows = [acl.ACLPolicy(name=f"p{number}", rules=rules.format(number)) for number in range(POLICIES)]
    return [c.UpsertACLPolicies(policies=tuple(rows[at : at + BATCH])) for at in range(0, POLICIES, BATCH)]


def resolving() -> list[Row]:
    """A token with as many policies as one may have."""
    replica, resolver = Replica(), Resolver()
    replica.apply(*policies())
    names = tuple(f"p{number}" for number in range(HELD))
    token = acl.ACLToken(accessor_id=ACCESSOR, secret_hash=acl.hash_of_secret(ROOT), policies=names, create_time=NOW)
    replica.apply(c.CreateACLToken(token=token))
    shown = ShownToken(secret_hash=token.secret_hash)

    def resolve() -> None:
        resolver.resolve(replica.state, shown, NOW)

    first_s, again_s = _took_s(resolve), _took_s(resolve, TIMES)
    replica.apply(c.DeleteACLPolicies(names=("p7",)))
    changed_s = _took_s(resolve)
    rights = resolver.resolve(replica.state, shown, NOW).rights
    decided_s = _took_s(lambda: rights.allows(READ, Scope(namespace="team-9")), TIMES)
    return [
        Row(f"a token of {HELD:,} policies, first", "-", f"{first_s * 1e3:.0f} ms", "-"),
        Row("again", "-", f"{again_s * 1e6:.1f} us", "-"),
        Row("after one of its policies went", "-", f"{changed_s * 1e3:.0f} ms", "-"),
        Row("one decision", "-", f"{decided_s * 1e6:.2f} us", "-"),
    ]


class _Links(NamedTuple):
    """The one other region."""

    port: ApiPort

    def api(self, region: str) -> ApiPort:
        return self.port


@asynccontextmanager
async def _copied(west: Api, east: Api) -> AsyncIterator[None]:
    """East copies from west during the block."""
    own = OwnApi(str(west.client.make_url("")).rstrip("/"))
    links = cast(RegionLinks, _Links(cast(ApiPort, ServerApi(own, Through.REGION, "east"))))
    server = east.server
    duty = Replication(
        server.replica, FarAuthority(links, "west", token=ROOT), server.metrics,
        seal=server.resources.acl_policies.sealed,
    )  # fmt: skip
    running = asyncio.ensure_future(duty.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
        await own.close()


async def copying() -> list[Row]:
    """A new region, a changed policy, a revoked token."""
    async with serving(acl=AclConfig(enabled=True)) as west, serving(acl=AclConfig(enabled=True)) as east:
        tokens, here = west.server.resources.acl_tokens, east.server
        await tokens.bootstrap(ROOT)
        for command in policies():
            await west.server.replica.propose(command)
        begin = time.perf_counter()
        async with _copied(west, east):
            await _until(lambda: len(here.state.acl_policies) == POLICIES)
            all_s, changes, ends = time.perf_counter() - begin, [], []
            for number in range(CHANGES):
                change_s, end_s = await _change(west, east, f"new-{number}")
                changes.append(change_s)
                ends.append(end_s)
    return [
        Row(f"a new region has {POLICIES:,} policies", "-", f"{all_s:.1f} s", "-"),
        Row("it has one more, median", "-", f"{median(changes) * 1e3:.0f} ms", "-"),
        Row("it refuses a revoked token, median", "-", f"{median(ends) * 1e3:.0f} ms", "-"),
    ]


async def _change(west: Api, east: Api, name: str) -> tuple[float, float]:
    """Seconds until the other region has a policy, and until it refuses a revoked token."""
    tokens, here = west.server.resources.acl_tokens, east.server
    made = await tokens.create(acl.ACLToken(type=acl.CLIENT, policies=(name,), is_global=True))
    accessor = made.token.accessor_id
    await _until(lambda: accessor in here.state.acl_tokens)
    await asyncio.sleep(0.3)  # the pause in which changes gather is over
    begin = time.perf_counter()
    await west.server.resources.acl_policies.put_policy(acl.ACLPolicy(name=name, rules=""))
    await _until(lambda: name in here.state.acl_policies)
    change_s, begin = time.perf_counter() - begin, time.perf_counter()
    await tokens.delete(accessor)
    await _until(lambda: accessor not in here.state.acl_tokens)
    return change_s, time.perf_counter() - begin


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - any condition, not an event
            await asyncio.sleep(0.001)


def _took_s(work: Callable[[], object], times: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begin) / times


def main() -> None:
    """Measure and print."""
    print_table(f"access control, {POLICIES:,} policies", [*resolving(), *asyncio.run(copying())])
