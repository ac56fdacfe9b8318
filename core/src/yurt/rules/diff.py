"""The difference between two job versions, in the format of Nomad's plan and version answers.

Jobs, groups and tasks list only the plain fields that changed; blocks inside them that changed list the
unchanged fields too, with type None, so that a reader sees the context. Maps are flattened to `Meta[key]`, a
driver's config to `args[0]`, lists of words become an object with one field per word. Groups and tasks are
matched by name and always listed. Blocks that repeat are matched by name where they have one, else each
different block counts as deleted and added. Everything is sorted by name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from yurt.sdk.value import WHEN_SET
from yurt.structs.explain.diff import FieldDiff, JobDiff, ObjectDiff, TaskDiff, TaskGroupDiff
from yurt.structs.job import Job, TaskGroup
from yurt.structs.task import Task

ADDED, DELETED, EDITED, NONE = "Added", "Deleted", "Edited", "None"

_JOB_SKIPPED = frozenset(
    {
        "id", "status", "status_description", "stable", "version", "create_index", "modify_index", "job_modify_index",
        "submit_time", "update", "reschedule", "migrate", "nomad_token_id", "version_tag", "task_groups", "dispatched",
        "dispatch_idempotency_token",
    }
)  # fmt: skip
_GROUP_SKIPPED = frozenset({"name", "tasks"})
_TASK_SKIPPED = frozenset({"name", "config"})
_OBJECT_NAMES = {
    "Actions": "Action", "Affinities": "Affinity", "Artifacts": "Artifact", "Checks": "Check",
    "Constraints": "Constraint",
    "Devices": "Device", "DynamicPorts": "Dynamic Port", "Identities": "Identity", "Networks": "Network",
    "ReservedPorts": "Static Port", "ScalingPolicies": "Scaling", "Secrets": "Secret", "Services": "Service",
    "Spreads": "Spread", "Templates": "Template", "VolumeMounts": "VolumeMount", "Volumes": "Volume",
}  # fmt: skip

Fields = dict[str, str]
S = TypeVar("S", bound=msgspec.Struct)


def job_diff(old: Job | None, new: Job | None) -> JobDiff:
    """The changes from `old` to `new`; None means a missing job."""
    fields = _changed_fields(_plain(old, _JOB_SKIPPED), _plain(new, _JOB_SKIPPED))
    objects = _blocks(old, new, _JOB_SKIPPED)
    groups = tuple(
        _group_diff(before, after)
        for before, after in _by_name(old.task_groups if old else (), new.task_groups if new else ())
    )
    kind = _kind(old, new, any((fields, objects, any(group.type != NONE for group in groups))))
    named = new or old
    return JobDiff(
        type=kind, id=named.id if named is not None else "", fields=fields, objects=objects, task_groups=groups
    )


def _group_diff(old: TaskGroup | None, new: TaskGroup | None) -> TaskGroupDiff:
    fields = _changed_fields(_plain(old, _GROUP_SKIPPED), _plain(new, _GROUP_SKIPPED))
    objects = _blocks(old, new, _GROUP_SKIPPED)
    tasks = tuple(
        _task_diff(before, after) for before, after in _by_name(old.tasks if old else (), new.tasks if new else ())
    )
    kind = _kind(old, new, any((fields, objects, any(task.type != NONE for task in tasks))))
    named = new or old
    assert named is not None
    return TaskGroupDiff(type=kind, name=named.name, fields=fields, objects=objects, tasks=tasks)


def _task_diff(old: Task | None, new: Task | None) -> TaskDiff:
    fields = _changed_fields(_plain(old, _TASK_SKIPPED), _plain(new, _TASK_SKIPPED))
    config = _object(_flat(old.config if old else {}), _flat(new.config if new else {}), (), "Config")
    objects = (*([config] if config is not None else []), *_blocks(old, new, _TASK_SKIPPED))
    objects = tuple(sorted(objects, key=_object_order))
    named = new or old
    assert named is not None
    kind = _kind(old, new, bool(fields or objects))
    return TaskDiff(type=kind, name=named.name, fields=fields, objects=objects)


def _kind(old: Any, new: Any, is_changed: bool) -> str:
    if old is None:
        return ADDED if new is not None else NONE
    if new is None:
        return DELETED
    return EDITED if is_changed else NONE


def _by_name(old: Iterable[S], new: Iterable[S], label: str = "name") -> Iterator[tuple[S | None, S | None]]:
    before = {getattr(item, label): item for item in old}
    after = {getattr(item, label): item for item in new}
    for name in sorted(before.keys() | after.keys()):
        yield before.get(name), after.get(name)


def _plain(value: msgspec.Struct | None, skipped: frozenset[str] = frozenset()) -> Fields:
    """The fields of a struct that are not blocks, as texts; maps flattened."""
    if value is None:
        return {}
    found: Fields = {}
    silent = _silent(type(value))
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if name in skipped or isinstance(item, msgspec.Struct | tuple) or (name in silent and not item):
            continue
        if not isinstance(item, Mapping):
            found[wire] = _text(item)
        elif not _holds_structs(item):
            found |= {f"{wire}[{key}]": text for key, text in _flat(item).items()}
    return found


@functools.cache
def _silent(cls: type[msgspec.Struct]) -> frozenset[str]:
    """Fields unknown to Nomad's API, which are written only when set."""
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType), cls
    return frozenset(
        field.name
        for field in info.fields
        if isinstance(field.type, msgspec.inspect.Metadata) and field.type.extra == WHEN_SET.extra
    )


def _holds_structs(items: Mapping[str, Any]) -> bool:
    return any(isinstance(item, msgspec.Struct | tuple) for item in items.values())


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _flat(value: Any, prefix: str = "") -> Fields:
    """`{"args": ["a"], "port_map": [{"db": 1}]}` as `args[0]`, `port_map[0][db]`."""
    found: Fields = {}
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return {prefix: _text(value)}
    for key, item in items:
        found |= _flat(item, f"{prefix}[{key}]" if prefix else str(key))
    return found


def _changed_fields(old: Fields, new: Fields, *, with_context: bool = False) -> tuple[FieldDiff, ...]:
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if (before or "") == (after or ""):
            if with_context and before is not None:
                found.append(FieldDiff(type=NONE, name=name, old=before, new=before))
            continue
        kind = ADDED if not before else DELETED if not after else EDITED
        found.append(FieldDiff(type=kind, name=name, old=before or "", new=after or ""))
    return tuple(found)


def _object(old: Fields, new: Fields, inner: tuple[ObjectDiff, ...], name: str) -> ObjectDiff | None:
    """An object diff from flattened fields; None when nothing differs."""
    if old == new and not inner:
        return None
    kind = ADDED if not old else DELETED if not new else EDITED
    return ObjectDiff(type=kind, name=name, fields=_changed_fields(old, new, with_context=True), objects=inner)


def _block(old: msgspec.Struct | None, new: msgspec.Struct | None, name: str) -> ObjectDiff | None:
    if old == new:
        return None
    fields = _changed_fields(_plain(old), _plain(new), with_context=True)
    return ObjectDiff(type=_kind(old, new, True), name=name, fields=fields, objects=_blocks(old, new))


def _blocks(
    old: msgspec.Struct | None, new: msgspec.Struct | None, skipped: frozenset[str] = frozenset()
) -> tuple[ObjectDiff, ...]:
    """The differing blocks inside a struct."""
    like = new if new is not None else old
    if like is None:
        return ()
    found: list[ObjectDiff] = []
    for field, wire in zip(like.__struct_fields__, like.__struct_encode_fields__, strict=True):
        if field not in skipped:
            before = None if old is None else getattr(old, field)
            after = None if new is None else getattr(new, field)
            found.extend(_field_blocks(before, after, _OBJECT_NAMES.get(wire, wire)))
    return tuple(sorted(found, key=_object_order))


def _object_order(diff: ObjectDiff) -> tuple[str, str, str]:
    return (diff.name, diff.type, diff.fields[0].new if diff.fields else "")


def _field_blocks(old: Any, new: Any, name: str) -> Iterator[ObjectDiff]:
    if old == new:
        return
    if isinstance(old, msgspec.Struct) or isinstance(new, msgspec.Struct):
        block = _block(old, new, name)
        if block is not None:
            yield block
    elif isinstance(old, tuple) or isinstance(new, tuple):
        yield from _repeated(old or (), new or (), name)
    elif isinstance(old, Mapping) or isinstance(new, Mapping):
        yield from _mapped(old or {}, new or {}, name)


def _mapped(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Iterator[ObjectDiff]:
    """A map of blocks, matched by key; maps of plain values are fields, not blocks."""
    if not (_holds_structs(old) or _holds_structs(new)):
        return
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before or after, tuple):
            yield from _words(before or (), after or (), f"{name}[{key}]")
        elif (block := _block(before, after, name)) is not None:
            yield block


def _repeated(old: tuple[Any, ...], new: tuple[Any, ...], name: str) -> Iterator[ObjectDiff]:
    sample = (*old, *new)[0] if (*old, *new) else None
    if not isinstance(sample, msgspec.Struct):
        yield from _words(old, new, name)
        return
    label = next((label for label in ("name", "label") if hasattr(sample, label)), None)
    if label is not None and _are_unique(old, label) and _are_unique(new, label):
        pairs: Iterable[tuple[Any, Any]] = _by_name(old, new, label)
    else:
        pairs = [
            *((item, None) for item in old if item not in new),
            *((None, item) for item in new if item not in old),
        ]
    for before, after in pairs:
        if (block := _block(before, after, name)) is not None:
            yield block


def _are_unique(items: tuple[Any, ...], label: str) -> bool:
    names = [getattr(item, label) for item in items]
    return len(set(names)) == len(names)


def _words(old: tuple[Any, ...], new: tuple[Any, ...], name: str) -> Iterator[ObjectDiff]:
    before, after = {_text(word) for word in old}, {_text(word) for word in new}
    if before == after:
        return
    fields = [
        FieldDiff(
            type=NONE if word in before & after else ADDED if word in after else DELETED,
            name=name,
            old=word if word in before else "",
            new=word if word in after else "",
        )
        for word in sorted(before | after)
    ]
    kind = ADDED if not before else DELETED if not after else EDITED
    yield ObjectDiff(type=kind, name=name, fields=tuple(fields))
