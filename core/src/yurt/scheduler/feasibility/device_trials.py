"""The trials of a cluster's devices, found once for each change of nodes."""

from __future__ import annotations

import numpy as np

from yurt.scheduler.devices.trials import has_trial, trial_of
from yurt.scheduler.feasibility.node_cache import answers_by_row, cached_answer
from yurt.state.store import Snapshot
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node


def trial_runs_for(snapshot: Snapshot, group: TaskGroup) -> tuple[int, ...]:
    """The runs in nanoseconds that devices on trial permit, in order; empty for a group without devices."""
    if not any(task.resources.devices for task in group.tasks):
        return ()
    runs = cached_answer(snapshot.columns.nodes, "trial runs", lambda: _trial_runs(snapshot))
    assert isinstance(runs, tuple)
    return runs


def _trial_runs(snapshot: Snapshot) -> tuple[int, ...]:
    # Only changed nodes are asked again.
    rows = np.flatnonzero(answers_by_row(snapshot, "trials", _have_trials, without=False)).tolist()
    ids = snapshot.columns.nodes.ids
    nodes = snapshot.nodes.rows([ids[row] for row in rows])
    return tuple(sorted({run for node in nodes for run in _runs(node)}))


def _have_trials(nodes: list[Node]) -> list[bool]:
    return [has_trial(node) for node in nodes]


def _runs(node: Node) -> set[int]:
    devices = (each for kind in node.node_resources.devices for each in kind.instances)
    return {trial.run_max for each in devices if (trial := trial_of(each)) is not None}
