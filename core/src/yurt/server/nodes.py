"""Operations on nodes: eligibility, evaluation, purge, drain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from yurt.duties.drain import drain_strategy
from yurt.duties.evals import Mint, evals_for_node
from yurt.duties.nodes import cluster_event
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import replace
from yurt.server.results import NodeUpdated
from yurt.structs import status
from yurt.structs.commands import DeleteNodes, SetNodeDrain, SetNodeEligibility, UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import DrainMetadata, DrainSpec, Node, NodeEvent

if TYPE_CHECKING:
    from yurt.server.server import Server


class Nodes:
    """Operations on nodes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def set_eligibility(self, node_id: str, eligibility: str) -> NodeUpdated:
        """Allow or forbid new allocations on a node; what becomes eligible is looked at by the jobs that it is for."""
        node = self._find(node_id)
        if eligibility not in (status.ELIGIBLE, status.INELIGIBLE):
            raise Invalid(f'invalid scheduling eligibility "{eligibility}"')
        if node.drain_strategy is not None and eligibility == status.ELIGIBLE:
            raise Invalid("can not set node's scheduling eligibility to eligible while it is draining")
        mint = self._mint()
        evaluations: tuple[Evaluation, ...] = ()
        if eligibility == status.ELIGIBLE and node.scheduling_eligibility != status.ELIGIBLE:
            evaluations = self._evaluations(node, mint, status.TRIGGER_NODE_UPDATE)
        applied = await self._server.propose(
            SetNodeEligibility(
                node_id=node_id,
                eligibility=eligibility,
                event=cluster_event(f"Node marked as {eligibility} for scheduling", mint.now),
                evaluations=evaluations,
            )
        )
        return _updated(applied.index, evaluations)

    async def evaluate(self, node_id: str) -> NodeUpdated:
        """Have the jobs of a node scheduled again."""
        node = self._find(node_id)
        evaluations = self._evaluations(node, self._mint(), status.TRIGGER_NODE_UPDATE)
        if not evaluations:
            return NodeUpdated(node_modify_index=node.modify_index, index=self._server.state.index)
        applied = await self._server.propose(UpsertEvaluations(evaluations=evaluations))
        return replace(_updated(applied.index, evaluations), node_modify_index=node.modify_index)

    async def purge(self, node_id: str) -> NodeUpdated:
        """Forget a node; its jobs are scheduled again."""
        node = self._find(node_id)
        evaluations = self._evaluations(node, self._mint(), status.TRIGGER_NODE_UPDATE)
        applied = await self._server.propose(DeleteNodes(node_ids=(node_id,), evaluations=evaluations))
        return _updated(applied.index, evaluations)

    async def drain(
        self, node_id: str, spec: DrainSpec | None, *, mark_eligible: bool, meta: Mapping[str, str] | None = None
    ) -> NodeUpdated:
        """Start or change a node's drain, or end it when `spec` is None."""
        node = self._find(node_id)
        mint = self._mint()
        strategy = drain_strategy(spec, node.drain_strategy, now=mint.now) if spec is not None else None
        evaluations: tuple[Evaluation, ...] = ()
        if strategy is None and mark_eligible:
            evaluations = self._evaluations(node, mint, status.TRIGGER_NODE_UPDATE)
        last = node.last_drain
        if strategy is not None:
            started = last.started_at if last is not None and node.drain_strategy is not None else mint.now
            last = DrainMetadata(started_at=started, updated_at=mint.now, status="draining", meta=meta or {})
        elif node.drain_strategy is not None and last is not None:
            last = replace(last, updated_at=mint.now, status="canceled")
        applied = await self._server.propose(
            SetNodeDrain(
                node_id=node_id,
                strategy=strategy,
                mark_eligible=mark_eligible,
                last_drain=last,
                event=_drain_event(strategy is not None, mint),
                evaluations=evaluations,
            )
        )
        return _updated(applied.index, evaluations)

    def _evaluations(self, node: Node, mint: Mint, trigger: str) -> tuple[Evaluation, ...]:
        return evals_for_node(self._server.state, node, mint, trigger=trigger)

    def _find(self, node_id: str) -> Node:
        node = self._server.state.nodes.get(node_id)
        if node is None:
            raise NotFound("node not found")
        return node

    def _mint(self) -> Mint:
        return Mint(self._server.env.now(), self._server.env.uuid)


def _drain_event(is_draining: bool, mint: Mint) -> NodeEvent:
    message = "Node drain strategy set" if is_draining else "Node drain canceled"
    return NodeEvent(message=message, subsystem="Drain", timestamp=mint.now)


def _updated(index: int, evaluations: tuple[Evaluation, ...]) -> NodeUpdated:
    return NodeUpdated(
        node_modify_index=index,
        eval_ids=tuple(evaluation.id for evaluation in evaluations),
        eval_create_index=index if evaluations else 0,
        index=index,
    )
