"""Explanations: why nodes refuse a group, and which changes would place it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from yurt.sdk.value import Timestamp, Value, no_entries
from yurt.structs.constraint import Constraint
from yurt.structs.explain.metrics import AllocationMetric

AmountKind = Literal["cpu", "memory", "disk"]
ProblemKind = (
    AmountKind
    | Literal[
        "datacenter", "node_pool", "status", "drain", "eligibility", "constraint", "driver", "device", "network",
        "host_network", "volume", "csi", "volume_claim", "claim", "distinct_hosts", "distinct_property", "max_allocs",
        "port", "cores", "numa",
    ]
)  # fmt: skip
"""What a node refuses one more allocation of a group for."""
EditKind = (
    AmountKind
    | Literal[
        "cores", "device", "device_constraint", "device_memory", "constraint", "distinct_hosts", "distinct_property",
        "datacenter", "node_pool", "port", "host_network", "driver", "volume", "network", "eligibility",
    ]
)  # fmt: skip
"""What a change changes. The last four are of nodes, and for their operators."""


class Blocker(Value):
    """One reason for refusal, with the number of nodes; on `alone` of them it is the only reason."""

    kind: ProblemKind | Literal["quota"]
    text: str
    nodes: int = 0
    alone: int = 0


class Shortfall(Value):
    """One shortage of a node for one more allocation; `asked` and `free` are in the unit of the kind."""

    kind: ProblemKind
    text: str
    asked: int = 0
    free: int = 0


class NearMiss(Value):
    """A node with all its shortages."""

    node_id: str
    node_name: str = ""
    datacenter: str = ""
    shortfalls: tuple[Shortfall, ...] = ()


class SuggestedEdit(Value):
    """One change of the job or of a node (`node_id`): a number from `before` to `after`, or a removal."""

    kind: EditKind
    text: str
    task: str = ""
    name: str = ""
    before: int = 0
    after: int = 0
    constraint: Constraint | None = None
    node_id: str = ""


class SmallestChange(Value):
    """The smallest change that places one more allocation, and its node; `places` is how many it would place.

    `is_proved`: without any one of its edits, or with one of its numbers nearer by 1, an attempt places none.
    """

    text: str
    node_id: str
    node_name: str = ""
    edits: tuple[SuggestedEdit, ...] = ()
    places: int = 0
    is_proved: bool = False


class NodeScore(Value):
    """The score of a node with its parts."""

    node_id: str
    node_name: str = ""
    chosen: bool = False
    norm_score: float = 0.0
    scores: Mapping[str, float] = no_entries()


class GroupExplanation(Value):
    """Why a group's allocations are, or are not, placed.

    `desired` of a system job counts the nodes that are to have one; `runs_nowhere`: there is none.
    """

    name: str
    desired: int = 0
    running: int = 0
    placed: int = 0
    unplaced: int = 0
    runs_nowhere: bool = False
    notes: tuple[str, ...] = ()
    nodes_in_pool: int = 0
    nodes_evaluated: int = 0
    nodes_filtered: int = 0
    nodes_exhausted: int = 0
    blockers: tuple[Blocker, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    smallest_change: SmallestChange | None = None
    scores: tuple[NodeScore, ...] = ()
    there: NearMiss | None = None
    """The node that was asked about, with all that it lacks for one more allocation."""


class JobExplanation(Value):
    """Why more allocations of a job are not placed, by group, on the state at `index`."""

    namespace: str
    job_id: str
    index: int = 0
    groups: tuple[GroupExplanation, ...] = ()
    warnings: tuple[str, ...] = ()


class AllocationExplanation(Value):
    """Why an allocation is on its node: the recorded decision, and how the other nodes look now."""

    alloc_id: str
    name: str
    namespace: str
    job_id: str
    task_group: str
    eval_id: str = ""
    node_id: str = ""
    node_name: str = ""
    placed_at: Timestamp = 0
    text: str = ""
    triggered_by: str = ""
    previous_allocation: str = ""
    preempted_allocations: tuple[str, ...] = ()
    metrics: AllocationMetric | None = None
    scores: tuple[NodeScore, ...] = ()
    now: GroupExplanation | None = None
    index: int = 0


class ReplayedAttempt(Value):
    """A repeated attempt: its plan's digest, and a comparison of its rows with the stored ones."""

    number: int
    state_index: int
    seed: str
    now: Timestamp
    laid_over: int = 0
    """Plans that were not stored yet when the attempt was made."""
    placements: int = 0
    stops: int = 0
    updates: int = 0
    digest: str = ""
    stored: int = 0
    """Rows of the plan in the log."""
    refused: int = 0
    """Rows that the plan applier did not accept."""
    different: int = 0
    """Rows in the log that the attempt does not make again: 0 when all is well."""
    stored_digest: str = ""
    """Digest of the rows in the log, and ..."""
    accepted_digest: str = ""
    """... of the same rows of the plan made again."""
    is_identical: bool = True


class Replay(Value):
    """An evaluation repeated from the log; identical when every row equals the stored one byte by byte."""

    eval_id: str
    job_id: str
    namespace: str = "default"
    status: str = ""
    base_index: int = 0
    """The state that the replay began with; what follows was applied anew from the log."""
    attempts: tuple[ReplayedAttempt, ...] = ()
    is_outcome_identical: bool = True
    """Whether the last attempt names the same failed placements, with all their reasons, as the evaluation stores."""
    is_identical: bool = True
