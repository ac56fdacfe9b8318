"""Operations on nodes: eligibility, evaluation, purge, drain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from yurt.duties.drain import drain_strategy
from yurt.duties.nodes import cluster_event
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, triggered_ids
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import UnixNano, replace
from yurt.server.log.log_writer import Committed
from yurt.server.log.replica import Replica
from yurt.server.results import NodeUpdated
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.commands import (
    DeleteNodes,
    EvalSeed,
    EvaluateNode,
    Expectation,
    SetDeviceEligibility,
    SetNodeDrain,
    SetNodeEligibility,
)
from yurt.structs.node import SHUTDOWN_META, DrainMetadata, DrainSpec, DrainStrategy, Node, NodeEvent

Check = Callable[[Snapshot], None]
"""Raises NotFound where the caller may not change the node, as a state has it."""


def _anybody(state: Snapshot) -> None:
    """The actor for requests of the servers themselves."""


class Nodes:
    """Operations on nodes.

    What `check` decides depends on the node, for example on its pool. Each command is therefore based on the node's
    row: `apply` rejects the command when the row has changed, and the decision is made again.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def set_eligibility(self, node_id: str, eligibility: str, *, check: Check = _anybody) -> NodeUpdated:
        """Allow or forbid new allocations on a node; making it eligible evaluates the jobs that it may run."""
        requested = status.ELIGIBILITIES.get(eligibility)
        if requested is None:
            raise Invalid(f'invalid scheduling eligibility "{eligibility}"')
        mint = self._replica.mint()
        seed = mint.seed()
        event = cluster_event(f"Node marked as {eligibility} for scheduling", mint.now)

        async def decision(state: Snapshot) -> SetNodeEligibility:
            check(state)
            return SetNodeEligibility(
                node_id=node_id, eligibility=requested, event=event, seed=seed, based_on=_basis(state, node_id)
            )

        return _updated(await self._replica.decide(decision), seed, node_id)

    async def set_device_eligibility(
        self,
        node_id: str,
        device: str,
        *,
        is_eligible: bool,
        reason: str = "",
        mark_index: int | None = None,
        check: Check = _anybody,
    ) -> NodeUpdated:
        """Take a device out or put it back.

        Raises NotFound for one that the node has not, Conflict for no change and where the device's mark has another
        index than `mark_index`.
        """
        seed = self._replica.mint().seed()

        async def decision(state: Snapshot) -> SetDeviceEligibility:
            check(state)
            return SetDeviceEligibility(
                node_id=node_id,
                device=device,
                is_eligible=is_eligible,
                reason=reason,
                mark_index=mark_index,
                seed=seed,
                based_on=_basis(state, node_id),
            )

        return _updated(await self._replica.decide(decision), seed, node_id)

    async def evaluate(self, node_id: str, *, check: Check = _anybody) -> NodeUpdated:
        """Evaluate the jobs of a node."""
        seed = self._replica.mint().seed()

        async def decision(state: Snapshot) -> EvaluateNode:
            check(state)
            return EvaluateNode(node_id=node_id, seed=seed, based_on=_basis(state, node_id))

        return _updated(await self._replica.decide(decision), seed, node_id)

    async def purge(self, node_id: str, *, check: Check = _anybody) -> NodeUpdated:
        """Delete a node and evaluate its jobs."""
        seed = self._replica.mint().seed()

        async def decision(state: Snapshot) -> DeleteNodes:
            check(state)
            return DeleteNodes(node_ids=(node_id,), seed=seed, based_on=_basis(state, node_id))

        return _updated(await self._replica.decide(decision), seed, node_id)

    async def drain(
        self,
        node_id: str,
        spec: DrainSpec | None,
        *,
        mark_eligible: bool,
        meta: Mapping[str, str] | None = None,
        accessor_id: str = "",
        check: Check = _anybody,
    ) -> NodeUpdated:
        """Start or change a node's drain, or end it when `spec` is None; `accessor_id` is the caller's."""
        mint = self._replica.mint()
        seed = mint.seed()

        async def decision(state: Snapshot) -> SetNodeDrain:
            check(state)
            node = state.nodes.get(node_id)
            if node is None:
                raise NotFound("node not found")
            strategy = drain_strategy(spec, node.drain_strategy, now=mint.now) if spec is not None else None
            return SetNodeDrain(
                node_id=node_id,
                strategy=strategy,
                mark_eligible=mark_eligible,
                last_drain=_last_drain(node, strategy, now=mint.now, meta=meta or {}, accessor_id=accessor_id),
                event=_drain_event(strategy is not None, mint),
                seed=seed,
                based_on=_basis(state, node_id),
            )

        return _updated(await self._replica.decide(decision), seed, node_id)

    async def begin_shutdown_drain(self, node_id: str, spec: DrainSpec) -> None:
        """Drain a node whose agent shuts down; a drain or ineligibility that somebody else set outlives the restart."""
        node = self._replica.state.nodes.get(node_id)
        if node is not None and node.drain_strategy is not None:
            return
        is_own = node is not None and node.scheduling_eligibility == status.ELIGIBLE
        meta = {"message": "shutting down", **({SHUTDOWN_META: "true"} if is_own else {})}

        def check(state: Snapshot) -> None:
            now = state.nodes.get(node_id)
            if node is None or now is None:
                raise NotFound("node not found")
            if (now.drain_strategy, now.scheduling_eligibility) != (None, node.scheduling_eligibility):
                raise Conflict("the node was changed at the same time")

        await self.drain(node_id, spec, mark_eligible=False, meta=meta, check=check)

    async def end_shutdown_drain(self, node_id: str) -> None:
        """Make a node eligible again whose agent is back; nothing when the last drain was somebody else's."""
        if not _is_shutdown_drained(self._replica.state.nodes.get(node_id)):
            return
        mint = self._replica.mint()
        seed = mint.seed()

        async def decision(state: Snapshot) -> SetNodeDrain:
            node = state.nodes.get(node_id)
            last = node.last_drain if node is not None else None
            if node is None or last is None or not _is_shutdown_drained(node):
                raise Conflict("the node's drain was changed at the same time")
            ended = last if node.drain_strategy is None else replace(last, updated_at=mint.now, status="canceled")
            return SetNodeDrain(
                node_id=node_id,
                strategy=None,
                mark_eligible=True,
                last_drain=replace(
                    ended, meta={name: text for name, text in last.meta.items() if name != SHUTDOWN_META}
                ),
                event=NodeEvent(message="Node drain of the shutdown ended", subsystem="Drain", timestamp=mint.now),
                seed=seed,
                based_on=_basis(state, node_id),
            )

        await self._replica.decide(decision)


def _is_shutdown_drained(node: Node | None) -> bool:
    return node is not None and node.last_drain is not None and SHUTDOWN_META in node.last_drain.meta


def _basis(state: Snapshot, node_id: str) -> tuple[Expectation, ...]:
    """A node's row in the state that a command was decided on."""
    return (expectation(state, "nodes", node_id),)


def _last_drain(
    node: Node, strategy: DrainStrategy | None, *, now: UnixNano, meta: Mapping[str, str], accessor_id: str
) -> DrainMetadata | None:
    """The node's record of its last drain, with the token that changed it last."""
    last = node.last_drain if node.drain_strategy is not None else None
    by = accessor_id or (last.accessor_id if last is not None else "")
    if strategy is not None:
        started = now if last is None else last.started_at
        return DrainMetadata(started_at=started, updated_at=now, status="draining", accessor_id=by, meta=meta)
    return node.last_drain if last is None else replace(last, updated_at=now, status="canceled", accessor_id=by)


def _drain_event(is_draining: bool, mint: Mint) -> NodeEvent:
    message = "Node drain strategy set" if is_draining else "Node drain canceled"
    return NodeEvent(message=message, subsystem="Drain", timestamp=mint.now)


def _updated(committed: Committed, seed: EvalSeed, node_id: str) -> NodeUpdated:
    """The result of a node command in the API's form."""
    node, eval_ids = committed.state.nodes.get(node_id), triggered_ids(committed.state, seed)
    return NodeUpdated(
        node_modify_index=node.modify_index if node is not None else committed.index,
        eval_ids=eval_ids,
        eval_create_index=committed.index if eval_ids else 0,
        index=committed.index,
    )
