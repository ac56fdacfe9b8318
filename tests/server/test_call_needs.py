"""Every call between agents declares who may make it; all calls and callers are compared with `calls.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest
from yurt.access.calls import CallerKind, CallNeed, ProvenCaller, allowed
from yurt.agent.cluster.members_port import MembersPort
from yurt.client.ports import ServerPort
from yurt.http.api_port import ApiPort
from yurt.rpc.contract import contract_of
from yurt.rpc.peer import Served
from yurt.rpc.proxy import far_port
from yurt.rpc.serving import FarCaller
from yurt.sdk.errors import PermissionDenied, YurtError
from yurt.sdk.value import replace
from yurt.server.peers import LeaderPort, PeerPort
from yurt.server.ports import NodePort
from yurt.structs.commands import AllocUpdate
from yurt.structs.rpc import UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.cluster_models.servers import connected
from yurt.testing.cluster_models.wires import joined_peers

DECISIONS = Path(__file__).parent / "calls.txt"
PORTS = (ServerPort, LeaderPort, PeerPort, NodePort, ApiPort, MembersPort)
CALLS = [(f"{port.__name__}.{name}", call.needs) for port in PORTS for name, call in contract_of(port).items()]


async def callers(bench: Any) -> dict[CallerKind, FarCaller]:
    """One caller of each kind, made as connections make them."""
    known = await bench.add_node(secret_id="secret")
    return {
        CallerKind.NEW_NODE: connected(bench.server, factories.node().id, "secret"),
        CallerKind.NODE: connected(bench.server, known.id, "secret"),
        CallerKind.SERVER: ProvenCaller(kind=CallerKind.SERVER),
        CallerKind.REGION: ProvenCaller(kind=CallerKind.REGION),
    }


async def may(caller: FarCaller, need: CallNeed) -> bool:
    """Whether a caller may make a call that names nothing."""
    try:
        await caller.admit(replace(need, nodes=lambda _: (), allocs=lambda _: ()), None)
    except YurtError:
        return False
    return True


async def test_every_call_is_for_the_callers_that_were_decided(bench: Any) -> None:
    known = await callers(bench)
    assert set(known) == set(CallerKind)
    found = [
        f"{name} | {', '.join([kind for kind, caller in known.items() if await may(caller, need)])}"
        for name, need in CALLS
    ]
    assert found == DECISIONS.read_text().splitlines()


def test_a_port_with_a_call_that_declares_nothing_does_not_import() -> None:
    class Port(Protocol):
        @allowed(CallerKind.SERVER)
        async def declared(self) -> None: ...

        async def forgotten(self) -> None: ...

    with pytest.raises(TypeError, match=r"Port\.forgotten: declare who may call it"):
        contract_of(Port)


def test_a_call_of_nodes_says_which_node_it_is_about() -> None:
    with pytest.raises(AssertionError, match="names the node"):
        allowed(CallerKind.NODE)


class RulePort(Protocol):
    @allowed(CallerKind.SERVER)
    async def rule(self) -> None: ...


class Rules:
    calls = 0

    async def rule(self) -> None:
        self.calls += 1


@pytest.mark.parametrize("kind", [kind for kind in CallerKind if kind is not CallerKind.SERVER])
async def test_a_refused_call_is_not_carried_out(kind: CallerKind) -> None:
    contract, target = contract_of(RulePort), Rules()
    served = {each: Served(contract, target, ProvenCaller(kind=each)) for each in (kind, CallerKind.SERVER)}
    async with joined_peers({}, served) as (near, _):

        async def peer() -> Any:
            return near

        with pytest.raises(PermissionDenied, match=f"this call is not for a {kind}"):
            await far_port(contract, kind, peer).rule()
        assert target.calls == 0
        await far_port(contract, CallerKind.SERVER, peer).rule()
    assert target.calls == 1


async def test_a_report_about_an_allocation_of_another_node_is_refused(bench: Any) -> None:
    own, other = await bench.add_node(secret_id="secret"), await bench.add_node()
    await bench.server.resources.nodes.set_eligibility(own.id, "ineligible")
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    (alloc,) = bench.live()
    assert alloc.node_id == other.id
    client, call = connected(bench.server, own.id, "secret"), contract_of(ServerPort)["update_allocs"]
    update = AllocUpdate(id=alloc.id, node_id=own.id, client_status="complete")
    request = call.pack((UpdateAllocsRequest(node_id=own.id, updates=(update,)),), {})
    with pytest.raises(PermissionDenied, match="this connection speaks for node"):
        await client.admit(call.needs, request)
