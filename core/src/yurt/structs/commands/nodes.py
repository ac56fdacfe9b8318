"""Commands on nodes.

`apply` makes the evaluations of a node's jobs from `seed`. Entries that were written before it did so carry them in
`evaluations`.
"""

from __future__ import annotations

from collections.abc import Mapping

from yurt.structs.commands.base import Command, EvalSeed, EventType
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import DrainMetadata, DrainStrategy, Node, NodeEvent
from yurt.structs.status import Eligibility, NodeStatus


class RegisterNode(Command, tag=True):
    """Register a node, or update the part of its row that the client owns.

    Evaluations of its jobs commit with it where the change may decide what fits on the node.
    """

    event_type = EventType("NodeRegistration")

    node: Node
    events: tuple[NodeEvent, ...] = ()
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()
    create_node_pool: bool = False


class SetNodeStatus(Command, tag=True):
    """Set a node's status; `updated_at` in unix seconds."""

    event_type = EventType("NodeStreamEvent")

    node_id: str
    status: NodeStatus
    updated_at: int
    event: NodeEvent | None = None
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()


class SetNodeEligibility(Command, tag=True):
    """Set whether new allocations may be placed on a node."""

    event_type = EventType("NodeEligibility")

    node_id: str
    eligibility: Eligibility
    event: NodeEvent | None = None
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()


class SetDeviceEligibility(Command, tag=True):
    """Take a device out, or put it back; `device` is its `vendor/type/name/id`, or its id where that is unique.

    `mark_index` is the index of the device's mark that the operator saw (0: none); None makes no condition.
    """

    event_type = EventType("NodeStreamEvent")

    node_id: str
    device: str
    is_eligible: bool
    reason: str = ""
    mark_index: int | None = None
    seed: EvalSeed | None = None


class SetNodeDrain(Command, tag=True):
    """Start, change or end a node's drain."""

    event_type = EventType("NodeDrain")

    node_id: str
    strategy: DrainStrategy | None
    mark_eligible: bool = False
    last_drain: DrainMetadata | None = None
    event: NodeEvent | None = None
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()


class AddNodeEvents(Command, tag=True):
    """Add events to nodes, by node id."""

    event_type = EventType("NodeStreamEvent")

    events: Mapping[str, tuple[NodeEvent, ...]]


class EvaluateNode(Command, tag=True):
    """Create evaluations for the jobs of a node."""

    event_type = EventType("EvaluationUpdated")

    node_id: str
    seed: EvalSeed


class DeleteNodes(Command, tag=True):
    """Delete nodes."""

    event_type = EventType("NodeDeregistration", publishes_deletion=True)

    node_ids: tuple[str, ...]
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()


NodeCommand = (
    RegisterNode
    | SetNodeStatus
    | SetNodeEligibility
    | SetDeviceEligibility
    | SetNodeDrain
    | AddNodeEvents
    | EvaluateNode
    | DeleteNodes
)
