"""The simulated etcd against a real one: the same calls of the real client, the same answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from yurt.sdk.errors import YurtError
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.key_layout import get, is_at, is_value, put, remove
from yurt.storage.etcd.messages import message
from yurt.testing.services.etcd import LocalEtcd, local_etcd, missing
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.loop import SimLoop, run_on
from yurt.testing.sim.network import SimNetwork

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd"),
    pytest.mark.keeps_processes,
]
CALLS, SEEDS = 150, 3
KEYS = [b"a", b"b", b"c/1", b"c/2", b"d"]


@pytest.fixture(scope="module")
def etcd() -> Iterator[LocalEtcd]:
    with local_etcd(1) as cluster:
        yield cluster


def calls(seed: int) -> list[tuple[str, Any]]:
    """Random calls; revisions are relative to the first one."""
    chance = random.Random(seed)
    return [_call(chance) for _ in range(CALLS)]


def _call(chance: random.Random) -> tuple[str, Any]:
    key, value = chance.choice(KEYS), b"%d" % chance.randrange(5)
    match chance.choice(("range", "range", "put", "delete", "txn", "txn", "txn", "compact")):
        case "range":
            end = chance.choice((b"", b"c0", b"\0"))
            return "range", {"key": key, "range_end": end, "limit": chance.choice((0, 1, 2))}
        case "put":
            return "put", (key, value)
        case "delete":
            return "delete", (key, chance.choice((b"", b"c0")))
        case "compact":
            return "compact", chance.randrange(0, 60)
        case _:
            return "txn", [_operations(chance) for _ in range(2)] + [(key, value, chance.randrange(30))]


def _operations(chance: random.Random) -> list[Any]:
    found: list[Any] = []
    for _ in range(chance.randrange(3)):
        key = chance.choice(KEYS)
        found.append(
            chance.choice(
                (put(key, b"%d" % chance.randrange(5)), get(key, b"\0"), remove(key, chance.choice((b"", b"c0"))))
            )
        )
    return found


async def answers(client: EtcdClient, seed: int) -> list[Any]:
    """What the client is told, with revisions counted from the first one."""
    await client.delete(b"\0", b"\0")
    first = int((await client.put(b"start", b"")).header.revision)
    found = []
    for name, given in calls(seed):
        try:
            found.append(_told(await _ask(client, name, given, first), first))
        except YurtError as error:
            found.append(type(error).__name__)
    found.append(await _watched(client, first))
    return found


async def _ask(client: EtcdClient, name: str, given: Any, first: int) -> Any:
    match name:
        case "range":
            return await client.range(given["key"], given["range_end"], limit=given["limit"])
        case "put":
            return await client.put(*given)
        case "delete":
            return await client.delete(*given)
        case "compact":
            return await client.compact(first + given)
    success, failure, (key, value, at) = given
    compare = [is_value(key, value)] if at % 2 else [is_at(key, 0 if at % 4 else first + at)]
    return await client.txn(compare, success, failure)


async def _watched(client: EtcdClient, first: int) -> Any:
    """What a watch tells from the first revision on; the events, without how they are cut into responses."""
    end = int((await client.put(b"end", b"")).header.revision)
    try:
        return [_told(event, first) for event in await _events(client, first, end)]
    except YurtError as error:
        return type(error).__name__


async def _events(client: EtcdClient, first: int, end: int) -> list[Any]:
    found: list[Any] = []
    async with aclosing(client.watch(b"\0", b"\0", start_revision=first)) as watch:
        async for response in watch:
            found += response.events
            if any(event.kv.mod_revision == end for event in response.events):
                break
    return found


def _told(answer: Any, first: int) -> Any:
    def relative(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {
                key: relative(each, key)
                for key, each in value.items()
                if key not in ("clusterId", "memberId", "raftTerm")
            }
        if isinstance(value, list):
            return [relative(each) for each in value]
        return int(value) - first if name.lower().endswith("revision") else value

    return None if answer is None else relative(MessageToDict(answer))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_answer_alike(etcd: LocalEtcd, seed: int) -> None:
    client = EtcdClient(etcd.endpoints)
    try:
        real = await answers(client, seed)
    finally:
        await client.close()
    assert _simulated(seed) == real


def _simulated(seed: int) -> list[Any]:
    from threading import Thread

    found: list[Any] = []

    def run() -> None:
        loop = SimLoop(seed)
        loop.network = SimNetwork(loop, seed)
        simulated = SimEtcd(loop.network, ("10.0.0.1",), seed)
        client = EtcdClient((simulated.endpoint("10.0.0.1"),), connect=simulated.channel)
        found.extend(run_on(loop, answers(client, seed)))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_requests_of_the_model_are_etcds_own() -> None:
    assert message("Compare", key=b"k", target=2, mod_revision=5).WhichOneof("target_union") == "mod_revision"
