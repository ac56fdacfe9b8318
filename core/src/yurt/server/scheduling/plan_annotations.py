"""Annotates a job difference with the effect on allocations, as `job plan` shows it."""

from __future__ import annotations

from typing import Final

from yurt.sdk.value import replace
from yurt.structs.evaluation import DesiredUpdates, PlanAnnotations
from yurt.structs.explain.diff import FieldDiff, JobDiff, TaskDiff, TaskGroupDiff

CREATE: Final = "forces create"
DESTROY: Final = "forces destroy"
IN_PLACE: Final = "forces in-place update"
DESTRUCTIVE: Final = "forces create/destroy update"
IN_PLACE_FIELDS: Final = frozenset({"KillTimeout"})
IN_PLACE_BLOCKS: Final = frozenset({"LogConfig", "Service", "Constraint"})
UPDATE_NAMES: Final = {
    "ignore": "ignore",
    "place": "create",
    "migrate": "migrate",
    "stop": "destroy",
    "in_place_update": "in-place update",
    "destructive_update": "create/destroy update",
    "canary": "canary",
    "preemptions": "preemption",
    "disconnect": "disconnect",
    "reconnect": "reconnect",
    "reschedule_now": "reschedule now",
    "reschedule_later": "reschedule later",
}


def annotated(diff: JobDiff, annotations: PlanAnnotations | None) -> JobDiff:
    """The difference with the update counts of each group and the effect of each changed task or count."""
    updates = annotations.desired_tg_updates if annotations is not None else {}
    return replace(diff, task_groups=tuple(_group(group, updates.get(group.name)) for group in diff.task_groups))


def _group(group: TaskGroupDiff, desired: DesiredUpdates | None) -> TaskGroupDiff:
    return replace(
        group,
        updates=_updates(desired) if desired is not None else group.updates,
        fields=tuple(_count(field) for field in group.fields),
        tasks=tuple(_task(task, group.type) for task in group.tasks),
    )


def _updates(desired: DesiredUpdates) -> dict[str, int]:
    counts = {word: getattr(desired, field) for field, word in UPDATE_NAMES.items()}
    return {word: count for word, count in counts.items() if count}


def _count(field: FieldDiff) -> FieldDiff:
    if field.name != "Count" or field.type == "None":
        return field
    old, new = int(field.old or 0), int(field.new or 0)
    if old == new:
        return field
    return replace(field, annotations=(CREATE if new > old else DESTROY,))


def _task(task: TaskDiff, group_type: str) -> TaskDiff:
    if task.type == "None":
        return task
    if group_type in ("Added", "Deleted"):
        return replace(task, annotations=(CREATE if group_type == "Added" else DESTROY,))
    changed = [field for field in task.fields if field.type != "None" and field.name not in IN_PLACE_FIELDS]
    blocks = [block for block in task.objects if block.type != "None" and block.name not in IN_PLACE_BLOCKS]
    return replace(task, annotations=(DESTRUCTIVE if changed or blocks else IN_PLACE,))
