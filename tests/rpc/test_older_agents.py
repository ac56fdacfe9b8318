"""Calls between agents of this version and of the one before it: parameters that changed, calls that were renamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import ANY as ANYTHING

import msgspec
import pytest
from yurt.access.calls import CallerKind, ProvenCaller, allowed
from yurt.agent.cluster.members_port import MembersPort
from yurt.broker import Delivery
from yurt.client.node_calls import NodeCalls
from yurt.client.ports import ServerPort
from yurt.http.agent_routes.alloc_disk import schedule_state
from yurt.http.api_port import ApiPort
from yurt.rpc.contract import contract_of
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import far_port
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.server.keys.sessions import Session
from yurt.server.login.requests import LoginRequest, Parties
from yurt.server.peers import LeaderPort, PeerPort
from yurt.server.ports import NodePort
from yurt.testing import factories
from yurt.testing.cluster_models.wires import joined_peers

PORTS = (ServerPort, LeaderPort, PeerPort, NodePort, ApiPort, MembersPort)
PARAMETERS = Path(__file__).parent / "parameters.txt"
SERVER = ProvenCaller(kind=CallerKind.SERVER)


def recorded() -> dict[str, list[str]]:
    """Calls with their parameters; those with a default end with "="."""
    lines = [line.split() for line in PARAMETERS.read_text().splitlines()]
    return {name: parameters for name, *parameters in lines}


def declared(port: type) -> dict[str, list[str]]:
    """The same of a port, as it travels."""
    found = {}
    for name, method in contract_of(port).items():
        fields = msgspec.structs.fields(method.request)
        found[f"{port.__name__}.{name}"] = [each.name + "=" * (not each.required) for each in fields]
    return found


def test_no_call_and_no_parameter_that_agents_in_use_send_is_renamed_or_left_out() -> None:
    now = {name: parameters for port in PORTS for name, parameters in declared(port).items()}
    for name, parameters in recorded().items():
        assert name in now, f"{name}: older agents make this call"
        missing = {each.rstrip("=") for each in parameters} - {each.rstrip("=") for each in now[name]}
        assert not missing, f"{name}: older agents send {', '.join(sorted(missing))}"
        new = [each for each in now[name] if each.rstrip("=") not in {one.rstrip("=") for one in parameters}]
        assert all(each.endswith("=") for each in new), (
            f"{name}: older agents do not send {', '.join(new)}: add defaults"
        )
    lines = [" ".join([name, *parameters]) for name, parameters in sorted(now.items())]
    assert PARAMETERS.read_text().splitlines() == lines, "record the new calls and parameters"


@pytest.mark.parametrize(
    ("record", "array"),
    [
        (Delivery(factories.evaluation(), "token", 7), [ANYTHING, "token", 7]),
        (Session("id", "hash", UnixNano(1), UnixNano(2)), ["id", "hash", 1, 2]),
        (LoginRequest(b"seed", 7, UnixNano(3)), [b"seed", 7, 3]),
        (Parties("sso", "nonce", "http://localhost"), ["sso", "nonce", "http://localhost"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_records_that_agents_in_use_send_as_arrays_stay_arrays(record: Any, array: list[Any]) -> None:
    """Deliveries to other servers' workers; sessions and logins, which any server of the region opens."""
    sent = msgspec.msgpack.encode(record)
    assert msgspec.msgpack.decode(sent) == array
    assert msgspec.msgpack.decode(sent, type=type(record)) == record


def test_a_delivery_of_an_older_leader_is_read_and_one_to_an_older_worker_too() -> None:
    class OldDelivery(msgspec.Struct, array_like=True):
        evaluation: Any
        token: str

    evaluation = factories.evaluation()
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(OldDelivery(evaluation, "token")), type=Delivery)
    assert old == Delivery(evaluation, "token")
    new = msgspec.msgpack.decode(msgspec.msgpack.encode(Delivery(evaluation, "token", 7)), type=OldDelivery)
    assert new.token == "token"


class OldNodePort(Protocol):
    """The calls as they were before tasks had schedules."""

    @allowed(CallerKind.SERVER)
    async def pause_task(self, alloc_id: str, *, task: str, is_paused: bool) -> None: ...

    @allowed(CallerKind.SERVER)
    async def is_task_paused(self, alloc_id: str, *, task: str) -> bool: ...


class OldNode:
    """An agent of that version; the task named "gone" is none of the allocation."""

    def __init__(self) -> None:
        self.is_paused = False

    async def pause_task(self, alloc_id: str, *, task: str, is_paused: bool) -> None:
        self.is_paused = is_paused

    async def is_task_paused(self, alloc_id: str, *, task: str) -> bool:
        if task == "gone":
            raise Invalid("no such task")
        return self.is_paused


class Operations:
    """What an agent of this version does with its tasks."""

    def __init__(self) -> None:
        self.state = "run"

    async def pause_task(self, alloc_id: str, *, task: str, wish: str) -> None:
        self.state = wish

    async def schedule_state(self, alloc_id: str, *, task: str) -> str:
        return self.state


def new_node(operations: Any) -> NodeCalls:
    """The calls of an agent of this version, with nothing behind them but its tasks."""
    none: Any = None
    return NodeCalls(
        files=none, operations=operations, garbage=none, usage=none, figures=none, metadata=none, token=none,
        host_volumes=none, history=none, is_debug=False,
    )  # fmt: skip


@asynccontextmanager
async def called(callers_port: type, served_port: type, node: Any) -> AsyncIterator[Any]:
    """A node as a server of one version sees it, served by an agent of another."""
    async with joined_peers({}, {"node": Served(contract_of(served_port), node, SERVER)}) as (near, _):

        async def peer() -> Peer:
            return near

        yield far_port(contract_of(callers_port), "node", peer)


@pytest.mark.parametrize("wish", ["pause", "run", "scheduled"])
async def test_this_server_pauses_tasks_of_an_older_agent(wish: str) -> None:
    node = OldNode()
    async with called(NodePort, OldNodePort, node) as port:
        await port.pause_task("alloc", task="web", wish=wish, is_paused=wish == "pause")
        assert await schedule_state(port, "alloc", "web") == ("pause" if wish == "pause" else "run")
        with pytest.raises(Invalid, match="no such task"):
            await schedule_state(port, "alloc", "gone")


@pytest.mark.parametrize("is_paused", [True, False])
async def test_an_older_server_pauses_tasks_of_this_agent(is_paused: bool) -> None:
    operations = Operations()
    async with called(OldNodePort, NodePort, new_node(operations)) as port:
        await port.pause_task("alloc", task="web", is_paused=is_paused)
        assert operations.state == ("pause" if is_paused else "run")
        assert await port.is_task_paused("alloc", task="web") is is_paused


async def test_a_task_outside_its_schedule_counts_as_paused_for_an_older_server() -> None:
    operations = Operations()
    operations.state = "scheduled_pause"
    async with called(OldNodePort, NodePort, new_node(operations)) as port:
        assert await port.is_task_paused("alloc", task="web")
