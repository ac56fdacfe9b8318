"""One agent per node: refuses a second agent for a node whose own agent is alive.

A copied data directory holds the node's id and secret, so the agent that runs on the copy is the node to all who ask
for no more. Both would be given every allocation, and each would run once on either host. Every process of an agent
therefore names itself when it registers and with each heartbeat, by an id that it makes at its start. The leader
remembers the process of each node. When another one comes, the servers ask the agents that are connected as this
node which processes they are: one that answers lives, and the newcomer is refused. An agent that was restarted, whose
machine failed, or that moved to another server never meets itself there: its earlier process answers nobody, and its
present one is the one that asks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from yurt.sdk.errors import PermissionDenied, Reason, YurtError
from yurt.server.clients.node_ports import NodePorts
from yurt.server.log.replica import Replica
from yurt.server.ports import NodePort
from yurt.structs.commands import AddNodeEvents
from yurt.structs.node import NodeEvent
from yurt.structs.rpc import HeldIdentity

log = logging.getLogger(__name__)

ANSWER_LIMIT_S: Final = 1.5
"""The time limit, in seconds, for agents connected as a node to name their processes."""
REPEAT_S: Final = 600.0
"""The interval, in seconds, at which repeated refusals of an agent appear in the node's events and the log."""
NODES_MAX: Final = 100_000
"""The maximum number of recorded nodes; beyond it all are dropped and register again."""
SECOND_AGENT: Final = "another agent runs as this node"
"""The beginning of the refusal."""
SUBSYSTEM: Final = "Cluster"
REFUSED_ADDRESS, ACTIVE_ADDRESS = "refused_address", "active_address"


class AgentProcess(msgspec.Struct, frozen=True):
    """An agent's process and the servers' view of it."""

    id: str
    address: str


class AgentProcesses:
    """The processes of the nodes' agents, recorded by the leader."""

    def __init__(self, replica: Replica, node_ports: NodePorts) -> None:
        self._replica = replica
        self._node_ports = node_ports
        self._processes: dict[str, AgentProcess] = {}
        self._reported_at: dict[tuple[str, str], float] = {}

    async def registers(self, node_id: str, identity: HeldIdentity | None) -> None:
        """Register an agent as the node; raises PermissionDenied while another one is alive."""
        if identity is not None and identity.process:
            await self._check(node_id, AgentProcess(identity.process, identity.address))

    async def beats(self, node_id: str, identity: HeldIdentity | None) -> None:
        """Confirm the agent of a heartbeat; raises PermissionDenied when another one has replaced it."""
        if identity is None or not identity.process:
            return
        process = AgentProcess(identity.process, identity.address)
        if node_id not in self._processes:
            self._remember(node_id, process)
        else:
            await self._check(node_id, process)

    async def _check(self, node_id: str, process: AgentProcess) -> None:
        registered = self._processes.get(node_id)
        node = self._replica.state.nodes.get(node_id)
        if node is not None and (registered is None or registered.id != process.id):
            others = await self._living(node_id) - {process.id, ""}
            if others:
                active = (
                    registered
                    if registered is not None and registered.id in others
                    else AgentProcess("", node.http_addr)
                )
                await self._refuse(node_id, process, active)
        self._remember(node_id, process)

    def _remember(self, node_id: str, process: AgentProcess) -> None:
        if len(self._processes) >= NODES_MAX:
            self._processes.clear()
        self._processes[node_id] = process

    async def _living(self, node_id: str) -> set[str]:
        """The live processes of the node, at any server."""
        answers: set[str] = set()

        async def ask(port: NodePort) -> None:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    answers.add(await port.agent_process())
            except (YurtError, TimeoutError) as error:
                log.debug("an agent does not name its process: node=%s error=%s", node_id, error)

        ports = await self._node_ports.everywhere(node_id, limit_s=ANSWER_LIMIT_S)
        async with asyncio.TaskGroup() as group:
            for port in ports:
                group.create_task(ask(port), name=f"process of the agent of node {node_id}")
        return answers

    async def _refuse(self, node_id: str, refused: AgentProcess, active: AgentProcess) -> None:
        text = (
            f"{SECOND_AGENT} ({node_id}): the one at {active.address or 'an unknown address'} is active, the one at "
            f"{refused.address or 'an unknown address'} is refused. A data directory was copied: stop one of them, and "
            "remove its client's data (`client` in data_dir) so that it becomes a node of its own"
        )
        now, key = self._replica.env.monotonic(), (node_id, refused.id)
        if now - self._reported_at.get(key, -REPEAT_S) >= REPEAT_S:
            self._reported_at = {each: at for each, at in self._reported_at.items() if now - at < REPEAT_S} | {key: now}
            log.warning("agent refused: %s", text)
            details = {REFUSED_ADDRESS: refused.address, ACTIVE_ADDRESS: active.address}
            event = NodeEvent(
                message="Second agent with this node's id refused",
                subsystem=SUBSYSTEM,
                details=details,
                timestamp=self._replica.env.now(),
            )
            await self._replica.propose(AddNodeEvents(events={node_id: (event,)}))
        raise PermissionDenied(text, reason=Reason.SECOND_AGENT)
