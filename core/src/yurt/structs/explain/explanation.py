"""Explanations: the reasons why nodes refuse a group, and the changes that would place it."""

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
"""The kind of a node's reason to refuse one more allocation of a group."""
EditKind = (
    AmountKind
    | Literal[
        "cores", "device", "device_constraint", "device_memory", "constraint", "distinct_hosts", "distinct_property",
        "datacenter", "node_pool", "port", "host_network", "driver", "volume", "network", "eligibility",
    ]
)  # fmt: skip
"""The kind of a suggested change. The last four change nodes, which is up to their operators."""


class Blocker(Value):
    """One reason for refusal, with the number of nodes that have it; on `alone` of them it is the only one."""

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
    """The smallest change that places one more allocation, its node, and the number of allocations that it would place.

    `is_proved`: without any one of its edits, or with one of its numbers nearer by 1, an attempt places none.
    """

    text: str
    node_id: str
    node_name: str = ""
    edits: tuple[SuggestedEdit, ...] = ()
    places: int = 0
    is_proved: bool = False


class NodeScore(Value):
    """The score of a node, with its parts."""

    node_id: str
    node_name: str = ""
    chosen: bool = False
    norm_score: float = 0.0
    scores: Mapping[str, float] = no_entries()


class GroupExplanation(Value):
    """The reasons why a group's allocations are, or are not, placed.

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
    """The node in question, with all its shortages for one more allocation."""


class JobExplanation(Value):
    """The reasons why more allocations of a job are not placed, by group, on the state at `index`."""

    namespace: str
    job_id: str
    index: int = 0
    groups: tuple[GroupExplanation, ...] = ()
    warnings: tuple[str, ...] = ()


class AllocationExplanation(Value):
    """The reasons why an allocation is on its node: the recorded decision, and the other nodes as they are now."""

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
    """Plans in flight at the time of the attempt."""
    placements: int = 0
    stops: int = 0
    updates: int = 0
    digest: str = ""
    stored: int = 0
    """The number of rows of the plan in the log."""
    refused: int = 0
    """The number of rows that the plan applier did not accept."""
    different: int = 0
    """The number of rows in the log that the repeated attempt does not produce; 0 for an identical one."""
    stored_digest: str = ""
    """The digest of the rows in the log."""
    accepted_digest: str = ""
    """The digest of the same rows of the repeated plan."""
    is_identical: bool = True


class Replay(Value):
    """An evaluation repeated from the log; it is identical if every row equals the stored one byte by byte."""

    eval_id: str
    job_id: str
    namespace: str = "default"
    status: str = ""
    base_index: int = 0
    """The index of the state from which the replay started; later entries were applied again from the log."""
    attempts: tuple[ReplayedAttempt, ...] = ()
    is_outcome_identical: bool = True
    """Whether the last attempt has the same failed placements, with all their reasons, as the stored evaluation."""
    is_identical: bool = True
