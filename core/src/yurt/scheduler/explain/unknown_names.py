"""Hints for unknown names in an explanation, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from yurt.scheduler.constraints.targets import FIELDS
from yurt.scheduler.feasibility.masks import property_codes
from yurt.state.store import Snapshot
from yurt.structs.job import Job, TaskGroup

ALIKE = 0.8
"""The similarity (1 is equal) from which a name is taken for a misspelling of an existing one."""
OF_MISSING = "is_not_set"


def unknown_names(snapshot: Snapshot, job: Job, group: TaskGroup, *, reads_nodes: bool) -> Iterator[str]:
    """Names in the group's constraints that no node has, each with the most similar existing one.

    A caller who may not read nodes learns none of their names: for that caller only fields of all nodes are known.
    """
    rules = [*job.constraints, *group.constraints, *(rule for task in group.tasks for rule in task.constraints)]
    targets = [rule.l_target for rule in rules if rule.l_target.startswith("${") and rule.operand != OF_MISSING]
    names: list[str] | None = None
    for target in dict.fromkeys(targets):
        if property_codes(snapshot, target)[1]:
            continue
        if names is None:
            names = _names(snapshot if reads_nodes else None)
        close = get_close_matches(target, names, n=1, cutoff=ALIKE)
        yield f"no node has {target}" + (f"; {close[0]} may be meant" if close else "")


def _names(snapshot: Snapshot | None) -> list[str]:
    """All names that the nodes of a state provide; without a state those of every node."""
    names = set(FIELDS)
    for node in () if snapshot is None else snapshot.nodes.values():
        names.update(f"attr.{name}" for name in node.attributes)
        names.update(f"meta.{name}" for name in node.meta)
    return [f"${{{name}}}" for name in sorted(names)]
