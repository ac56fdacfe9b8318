"""Operations on nodes: eligibility, evaluation, purge, drain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from yurt.duties.drain import drain_strategy
from yurt.duties.nodes import cluster_event
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, triggered_ids
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import UnixNano, replace
from yurt.server.log.log_writer import Committed
from yurt.server.results import NodeUpdated
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import DeleteNodes, EvalSeed, EvaluateNode, SetNodeDrain, SetNodeEligibility
from yurt.structs.node import DrainMetadata, DrainSpec, DrainStrategy, Node, NodeEvent

if TYPE_CHECKING:
    from yurt.server.server import Server


class Nodes:
    """Operations on nodes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def set_eligibility(self, node_id: str, eligibility: str) -> NodeUpdated:
        """Allow or forbid new allocations on a node; what becomes eligible is looked at by the jobs that it is for."""
        known = status.ELIGIBILITIES.get(eligibility)
        if known is None:
            raise Invalid(f'invalid scheduling eligibility "{eligibility}"')
        mint = self._mint()
        seed = mint.seed()
        command = SetNodeEligibility(
            node_id=node_id,
            eligibility=known,
            event=cluster_event(f"Node marked as {eligibility} for scheduling", mint.now),
            seed=seed,
        )
        return _updated(await self._server.propose(command), seed, node_id)

    async def evaluate(self, node_id: str) -> NodeUpdated:
        """Have the jobs of a node scheduled again."""
        seed = self._mint().seed()
        return _updated(await self._server.propose(EvaluateNode(node_id=node_id, seed=seed)), seed, node_id)

    async def purge(self, node_id: str) -> NodeUpdated:
        """Forget a node; its jobs are scheduled again."""
        seed = self._mint().seed()
        return _updated(await self._server.propose(DeleteNodes(node_ids=(node_id,), seed=seed)), seed, node_id)

    async def drain(
        self, node_id: str, spec: DrainSpec | None, *, mark_eligible: bool, meta: Mapping[str, str] | None = None
    ) -> NodeUpdated:
        """Start or change a node's drain, or end it when `spec` is None."""
        mint = self._mint()
        seed = mint.seed()

        async def decision(state: Snapshot) -> SetNodeDrain:
            node = state.nodes.get(node_id)
            if node is None:
                raise NotFound("node not found")
            strategy = drain_strategy(spec, node.drain_strategy, now=mint.now) if spec is not None else None
            return SetNodeDrain(
                node_id=node_id,
                strategy=strategy,
                mark_eligible=mark_eligible,
                last_drain=_last_drain(node, strategy, mint.now, meta or {}),
                event=_drain_event(strategy is not None, mint),
                seed=seed,
                based_on=(expectation(state, "nodes", node_id),),
            )

        return _updated(await self._server.decide(decision), seed, node_id)

    def _mint(self) -> Mint:
        return Mint(self._server.env.now(), self._server.env.uuid)


def _last_drain(
    node: Node, strategy: DrainStrategy | None, now: UnixNano, meta: Mapping[str, str]
) -> DrainMetadata | None:
    """What the node will tell of its last drain."""
    last = node.last_drain
    if strategy is not None:
        started = last.started_at if last is not None and node.drain_strategy is not None else now
        return DrainMetadata(started_at=started, updated_at=now, status="draining", meta=meta)
    if node.drain_strategy is not None and last is not None:
        return replace(last, updated_at=now, status="canceled")
    return last


def _drain_event(is_draining: bool, mint: Mint) -> NodeEvent:
    message = "Node drain strategy set" if is_draining else "Node drain canceled"
    return NodeEvent(message=message, subsystem="Drain", timestamp=mint.now)


def _updated(committed: Committed, seed: EvalSeed, node_id: str) -> NodeUpdated:
    """What `apply` made of a command on a node, in the words of the API."""
    node, eval_ids = committed.state.nodes.get(node_id), triggered_ids(committed.state, seed)
    return NodeUpdated(
        node_modify_index=node.modify_index if node is not None else committed.index,
        eval_ids=eval_ids,
        eval_create_index=committed.index if eval_ids else 0,
        index=committed.index,
    )
