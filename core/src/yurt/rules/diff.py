"""The difference between two job versions, in the format of Nomad's plan and version answers.

Jobs, groups and tasks list only the plain fields that changed; blocks inside them that changed list the
unchanged fields too, empty ones included, with type None, so that a reader sees the context. Unchanged blocks are left
out. Maps are flattened to `Meta[key]`, a driver's config to `args[0]`, lists of words become an object with one field
per word. Groups and tasks are matched by name and always listed. Blocks that repeat are matched by name where they have
one, else each different block counts as deleted and added.

Fields are sorted by name, then type and value. The blocks of a job, a group and a task follow Nomad's fixed sequence
(`_SEQUENCE`), those inside other blocks their names; blocks of one name are edited, added, deleted in this order.
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
        "submit_time", "update", "reschedule", "migrate", "nomad_token_id", "version_tag", "task_groups",
        "dispatch_idempotency_token",
    }
)  # fmt: skip
_GROUP_SKIPPED = frozenset({"name", "tasks"})
_TASK_SKIPPED = frozenset({"name", "config"})
_OBJECT_NAMES = {
    "Actions": "Action", "Affinities": "Affinity", "Artifacts": "Artifact", "Checks": "Check",
    "Connect": "ConsulConnect", "Constraints": "Constraint", "Devices": "Device",
    "DynamicPorts": "Dynamic Port", "Identities": "Identity",
    "Links": "Link", "Networks": "Network", "Proxy": "ConsulProxy", "Regions": "Region", "ReservedPorts": "Static Port",
    "ScalingPolicies": "Scaling", "Secrets": "Secret", "Services": "Service", "Spreads": "Spread",
    "Templates": "Template", "Upstreams": "ConsulUpstreams", "VolumeMounts": "VolumeMount", "Volumes": "Volume",
}  # fmt: skip
_SEQUENCE = (
    "Datacenters", "Constraint", "Affinity", "Config", "RestartPolicy", "ReschedulePolicy", "Disconnect",
    "EphemeralDisk", "Migrate", "Update", "Resources", "LogConfig", "DispatchPayload", "Artifact", "Network", "Service",
    "Volume", "Vault", "Consul", "Template", "VolumeMount", "Identity", "Periodic", "ParameterizedJob", "Multiregion",
    "Spread", "Scaling",
)  # fmt: skip
"""The order of the blocks of a job, a group and a task; other blocks follow by name."""
_KINDS = (EDITED, ADDED, DELETED, NONE)
_NEVER_SHOWN = {
    "LogConfig": {"enabled"},
    "ScalingPolicy": {"id", "namespace", "type", "target", "create_index", "modify_index"},
}
_SHOWN_WHEN_SET: Mapping[str, Mapping[str, Any]] = {
    "NetworkResource": {"device": "", "cidr": "", "ip": ""},
    "Port": {"value": 0},
    "UpdateStrategy": {"stagger": 30_000_000_000},
}
"""Fields that Nomad leaves out, by struct, with their default values."""
_TREES = {("Service", "connect")}
"""Fields with a document of blocks without types."""
_FLAT_KEY = "Config"
"""The key of such a document whose map is flattened to fields, because another program reads it."""
_MAPS = {("ScalingPolicy", "policy")}
"""Maps that are shown as one object instead of `Policy[key]` fields."""

Fields = dict[str, str]
S = TypeVar("S", bound=msgspec.Struct)


def job_diff(old: Job | None, new: Job | None) -> JobDiff:
    """The changes from `old` to `new`; None means a missing job."""
    fields = _changed_fields(_plain(old, _JOB_SKIPPED), _plain(new, _JOB_SKIPPED))
    objects = _in_sequence(_blocks(old, new, _JOB_SKIPPED))
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
    objects = _in_sequence(_blocks(old, new, _GROUP_SKIPPED))
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
    objects = _in_sequence(objects)
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
    """The fields of a struct that are not blocks, as texts; maps are flattened."""
    if value is None:
        return {}
    found: Fields = {}
    cls = type(value)
    silent, hidden = _silent(cls), skipped | _hidden(cls)
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if name in hidden or (name in silent and item in silent[name]):
            continue
        if not isinstance(item, Mapping):
            found[wire] = _text(item)
        elif not _holds_structs(item):
            found |= {f"{wire}[{key}]": text for key, text in _flat(item).items()}
    return found


@functools.cache
def _silent(cls: type[msgspec.Struct]) -> Mapping[str, tuple[Any, ...]]:
    """The values at which a field is left out: unset if Nomad does not have the field, else the default."""
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType), cls
    own = {
        field.name: (None, False, 0, "", ())
        for field in info.fields
        if isinstance(field.type, msgspec.inspect.Metadata) and field.type.extra == WHEN_SET.extra
    }
    return {**own, **{name: (usual,) for name, usual in _SHOWN_WHEN_SET.get(cls.__name__, {}).items()}}


@functools.cache
def _hidden(cls: type[msgspec.Struct]) -> frozenset[str]:
    """Fields that are never plain fields of the diff: those left out and all blocks."""
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType), cls
    blocks = (field.name for field in info.fields if _is_block(field.type))
    maps = (field for name, field in _TREES | _MAPS if name == cls.__name__)
    return frozenset(_NEVER_SHOWN.get(cls.__name__, ())).union(blocks, maps)


def _is_block(kind: msgspec.inspect.Type) -> bool:
    """Whether a field of that type holds a block or a list."""
    match kind:
        case msgspec.inspect.Metadata(type=inner):
            return _is_block(inner)
        case msgspec.inspect.UnionType(types=types):
            return any(_is_block(each) for each in types)
        case _:
            return isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.VarTupleType)


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
    """The fields of a config value: `{"args": ["a"], "port_map": [{"db": 1}]}` as `args[0]`, `port_map[0][db]`."""
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
    """The differing fields by name; with `with_context` also the equal ones, empty ones included."""
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name) or "", new.get(name) or ""
        if before == after and not with_context:
            continue
        kind = NONE if before == after else ADDED if not before else DELETED if not after else EDITED
        found.append(FieldDiff(type=kind, name=name, old=before, new=after))
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
    fields, objects = _changed_fields(_plain(old), _plain(new), with_context=True), _blocks(old, new)
    if old is not None and new is not None and not objects and all(field.type == NONE for field in fields):
        return None
    return ObjectDiff(type=_kind(old, new, True), name=name, fields=fields, objects=objects)


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
            name, place = _OBJECT_NAMES.get(wire, wire), (type(like).__name__, field)
            if place in _TREES:
                found.extend(_tree(before, after, name))
            elif place in _MAPS:
                block = _object(_flat(before or {}), _flat(after or {}), (), name)
                found.extend([] if block is None else [block])
            else:
                found.extend(_field_blocks(before, after, name))
    return tuple(sorted(found, key=_object_order))


def _object_order(diff: ObjectDiff) -> tuple[str, int, list[tuple[str, str, str]]]:
    return (diff.name, _KINDS.index(diff.type), [(field.name, field.old, field.new) for field in diff.fields])


def _in_sequence(objects: Iterable[ObjectDiff]) -> tuple[ObjectDiff, ...]:
    """The blocks of a job, a group or a task in Nomad's order."""

    def place(diff: ObjectDiff) -> int:
        return _SEQUENCE.index(diff.name) if diff.name in _SEQUENCE else len(_SEQUENCE)

    return tuple(sorted(objects, key=lambda diff: (place(diff), _object_order(diff))))


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
        if isinstance(after if before is None else before, tuple):
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
        pairs = _unmatched(old, new)
    for before, after in pairs:
        if (block := _block(before, after, name)) is not None:
            yield block


def _unmatched(old: Iterable[Any], new: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The items of `old` without an equal one in `new`, as pairs with None, then the reverse; duplicates count each."""
    before, after = list(old), list(new)
    for item in list(before):
        if item in after:
            before.remove(item)
            after.remove(item)
    return [*((item, None) for item in before), *((None, item) for item in after)]


def _are_unique(items: tuple[Any, ...], label: str) -> bool:
    names = [getattr(item, label) for item in items]
    return len(set(names)) == len(names)


def _tree(old: Any, new: Any, name: str) -> Iterator[ObjectDiff]:
    """A document of blocks: scalars become fields, inner documents become blocks, a map `Config` is flattened."""
    if old == new:
        return
    before, after = old or {}, new or {}
    inner: list[ObjectDiff] = []
    for key in before.keys() | after.keys():
        sample = before.get(key) if before.get(key) is not None else after.get(key)
        label = _OBJECT_NAMES.get(key, key)
        if isinstance(sample, Mapping) and key != _FLAT_KEY:
            inner.extend(_tree(before.get(key), after.get(key), label))
        elif isinstance(sample, list | tuple):
            inner.extend(_listed(before.get(key) or (), after.get(key) or (), label))
    yield ObjectDiff(
        type=_kind(old, new, True),
        name=name,
        fields=_changed_fields(_scalars(before), _scalars(after), with_context=True),
        objects=tuple(sorted(inner, key=_object_order)),
    )


def _scalars(document: Mapping[str, Any]) -> Fields:
    """The fields of a document of blocks."""
    found: Fields = {}
    for key, value in document.items():
        if key == _FLAT_KEY or not isinstance(value, Mapping | list | tuple):
            found |= _flat(value, key)
    return found


def _listed(old: Any, new: Any, name: str) -> Iterator[ObjectDiff]:
    """The diff of a list in a document of blocks: a list of blocks or of words."""
    if not any(isinstance(item, Mapping) for item in (*old, *new)):
        yield from _words(tuple(old), tuple(new), name)
        return
    for before, after in _unmatched(old, new):
        yield from _tree(before, after, name)


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
    yield ObjectDiff(type=kind, name=name, fields=tuple(sorted(fields, key=lambda field: field.type)))
