"""The simulated etcd: its watches share responses and survive compactions, and its calls end at their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from yurt.sdk.errors import Unavailable
from yurt.storage.etcd.client import Compacted, EtcdClient
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.loop import SimLoop, run_on
from yurt.testing.sim.network import SimNetwork

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
Script = Callable[[SimEtcd], Coroutine[Any, Any, None]]


def run(script: Script) -> None:
    loop = SimLoop(1)
    loop.network = SimNetwork(loop, 1)
    run_on(loop, script(SimEtcd(loop.network, HOSTS, 1)))


def client_of(etcd: SimEtcd, host: str) -> EtcdClient:
    return EtcdClient((etcd.endpoint(host),), connect=etcd.channel)


async def responses(etcd: SimEtcd, host: str, found: list[Any], *, start_revision: int = 0) -> None:
    """Collect the responses of a watch of the keys below `a/`."""
    async for response in client_of(etcd, host).watch(b"a/", b"a0", start_revision=start_revision):
        if response.events:
            found.append(response)


def test_watches_of_a_range_share_a_response() -> None:
    async def script(etcd: SimEtcd) -> None:
        found: list[list[Any]] = [[], [], []]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(responses(etcd, host, each)) for host, each in zip(HOSTS, found, strict=True)]
            await asyncio.sleep(0.1)
            for value in (b"1", b"2"):
                await client_of(etcd, HOSTS[0]).put(b"a/x", value)
                await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
        for number, value in enumerate((b"1", b"2")):
            first, *others = [each[number] for each in found]
            assert [event.kv.value for event in first.events] == [value]
            assert all(other is first for other in others)

    run(script)


def test_a_watch_without_changes_survives_a_compaction() -> None:
    async def script(etcd: SimEtcd) -> None:
        client, found = client_of(etcd, HOSTS[0]), list[Any]()
        watching = asyncio.ensure_future(responses(etcd, HOSTS[1], found))
        await asyncio.sleep(0.1)
        for number in range(20):
            await client.put(b"b", b"%d" % number)
        await client.compact(etcd.store.revision)
        await client.put(b"a/x", b"1")
        await asyncio.sleep(0.1)
        assert len(found) == 1
        watching.cancel()

    run(script)


@pytest.mark.parametrize("has_other", [False, True])
def test_a_watch_from_a_compacted_revision_ends(has_other: bool) -> None:
    async def script(etcd: SimEtcd) -> None:
        client = client_of(etcd, HOSTS[0])
        others = [asyncio.ensure_future(responses(etcd, HOSTS[1], []))] if has_other else []
        await asyncio.sleep(0.1)
        await client.put(b"a/x", b"1")
        for number in range(20):
            await client.put(b"b", b"%d" % number)
        await client.compact(etcd.store.revision)
        with pytest.raises(Compacted):
            await responses(etcd, HOSTS[2], [], start_revision=5)
        for other in others:
            other.cancel()

    run(script)


@pytest.mark.parametrize("fault", ["slow", "no majority"])
def test_a_call_ends_at_its_deadline(fault: str) -> None:
    async def script(etcd: SimEtcd) -> None:
        client, loop = client_of(etcd, HOSTS[0]), asyncio.get_running_loop()
        if fault == "slow":
            etcd.slow_s = 60.0
        else:
            etcd.down.update(HOSTS[1:])
        began = loop.time()
        with pytest.raises(Unavailable, match="Deadline Exceeded"):
            await client.txn([], [], timeout_s=0.75)
        assert loop.time() - began == pytest.approx(0.75)

    run(script)
