"""The structured difference of two job versions."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class FieldDiff(Value):
    """One changed field."""

    type: str = ""
    name: str = ""
    old: str = ""
    new: str = ""
    annotations: tuple[str, ...] = ()


class ObjectDiff(Value):
    """One changed block."""

    type: str = ""
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()


class TaskDiff(Value):
    """The change of one task."""

    type: str = ""
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    annotations: tuple[str, ...] = ()


class TaskGroupDiff(Value):
    """The change of one group."""

    type: str = ""
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    tasks: tuple[TaskDiff, ...] = ()
    updates: Mapping[str, int] = no_entries()


class JobDiff(Value):
    """The change between two versions of a job."""

    type: str = ""
    id: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    task_groups: tuple[TaskGroupDiff, ...] = ()
