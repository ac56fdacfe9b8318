"""Writes a job in the API's JSON shape as a job file, by the tables of `schema`.

Every field goes back to the argument or block that it comes from, in the order of the tables, and the layout is
that of `yurt fmt`. What the reader fills in by itself (zero values, the defaults of templates) is left out. A job
can have fields that no file can express, such as the status that a server stores with it; those fields are left out as
well and reported, except for bookkeeping fields that are irrelevant in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from . import literals
from .block_rules import TEMPLATE_DEFAULTS
from .format import format_source
from .schema import BlockSchema, ChildBlock, Field, schema_of

Json = Mapping[str, Any]

BOOKKEEPING = frozenset(
    (
        *("ConsulNamespace", "ConsulToken", "CreateIndex", "DispatchIdempotencyToken", "Dispatched", "JobModifyIndex"),
        *("ModifyIndex", "NomadTokenID", "ParentID", "Payload", "Stable", "Status", "StatusDescription", "Stop"),
        *("SubmitTime", "VaultNamespace", "VaultToken", "Version", "VersionTag"),
    )
)
"""Fields of a job that belong to the server, not to its author."""

_SPACED = ("Job", "TaskGroup", "Task")
"""Before each block in these stands an empty line."""
_SCALING_LABELS = {"vertical_cpu": "cpu", "vertical_mem": "mem"}
_IMPLIED: dict[str, dict[str, Any]] = {
    "Constraint": {"Operand": "="},
    "Affinity": {"Operand": "="},
    "Template": TEMPLATE_DEFAULTS,
    "PeriodicConfig": {"SpecType": "cron"},
}
"""Values that `finish` fills in where the file says nothing."""


class WrittenJob(NamedTuple):
    """A job file, and the paths of the fields that it cannot express."""

    text: str
    lost: tuple[str, ...]


def write_job(job: Json) -> WrittenJob:
    """The job file of a job; raises JobspecError when the job is nested too deeply for a file."""
    writer = _Writer()
    rows = list(writer.block("job", "Job", {key: value for key, value in job.items() if key not in BOOKKEEPING}, "Job"))
    return WrittenJob(format_source("\n".join(rows) + "\n"), tuple(writer.lost))


class _Writer:
    def __init__(self) -> None:
        self.lost: list[str] = []

    def block(self, name: str, table: str, value: Json, path: str) -> Iterator[str]:
        """The lines of a block with a table."""
        schema = schema_of(table)
        value = _REWRITES.get(table, _as_is)(value)
        labels = "".join(f" {literals.label(str(value.get(field) or ''))}" for field in schema.labels)
        body = list(self.body(schema, value, path))
        yield from _wrapped(name + labels, body)

    def body(self, schema: BlockSchema, value: Json, path: str) -> Iterator[str]:
        implied = _IMPLIED.get(schema.name, {})
        handled = {*schema.labels, *schema.zeros}
        for name, field in schema.attributes.items():
            item = value.get(field.field) if field.field not in schema.labels else None
            handled.add(field.field)
            if item is None or (field.field in implied and implied[field.field] == item):
                continue
            if not (field.field in schema.zeros and item == schema.zeros[field.field]) or field.required:
                yield from self.argument(name, field, item, f"{path}.{field.field}")
        for name, child in schema.blocks.items():
            handled.add(child.field)
            for rows in self.child(name, child, value.get(child.field), f"{path}.{child.field}"):
                if schema.name in _SPACED:
                    yield ""
                yield from rows
        for key, item in value.items():
            if key not in handled and item and implied.get(key) != item:
                self.lost.append(f"{path}.{key}")

    def argument(self, name: str, field: Field, value: Any, path: str) -> Iterator[str]:
        if field.kind == "duration" and type(value) is int:
            yield f"{name} = {literals.duration(value)}"
            return
        if field.kind == "durations" and isinstance(value, list) and all(type(item) is int for item in value):
            yield f"{name} = [{', '.join(literals.duration(item) for item in value)}]"
            return
        yield from self.value(name, value, path)

    def value(self, name: str, value: Any, path: str) -> Iterator[str]:
        """`name = value`, if the value can be expressed."""
        try:
            text = literals.heredoc(value) if isinstance(value, str) else None
            yield f"{name} = {literals.expression(value) if text is None else text}"
        except literals.Inexpressible:
            self.lost.append(path)

    # Nested blocks.

    def child(self, name: str, child: ChildBlock, value: Any, path: str) -> Iterator[Iterator[str]]:
        """The blocks of a schema field."""
        if value is None:
            return
        if child.kind in ("blocks", "keyed") and isinstance(value, (Mapping, list)):
            yield from self.blocks(name, child, value, path)
        elif not isinstance(value, Mapping):
            self.lost.append(path)
        elif child.kind in ("map", "multimap"):
            yield self.map(name, value, path)
        elif child.kind == "free":
            yield self.free(name, value, path)
        else:
            yield self.block(name, child.block, value, path)

    def blocks(self, name: str, child: ChildBlock, value: Json | list[Any], path: str) -> Iterator[Iterator[str]]:
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(item, Mapping):
                yield self.block(name, child.block, item, f"{path}[{key}]")
            else:
                self.lost.append(f"{path}[{key}]")

    def map(self, name: str, value: Any, path: str) -> Iterator[str]:
        """A map of strings: a block, or an argument when a key is not an identifier."""
        present = {str(key): item for key, item in value.items() if item is not None}
        self.lost.extend(f"{path}.{key}" for key in value if value[key] is None)
        if not all(literals.is_identifier(key) for key in present):
            yield from self.value(name, present, path)
            return
        rows = [row for key, item in present.items() for row in self.value(key, item, f"{path}.{key}")]
        yield from _wrapped(name, rows)

    def free(self, name: str, value: Any, path: str) -> Iterator[str]:
        """A free-form block of a driver, whose objects are lists of one."""
        present = {str(key): item for key, item in value.items() if item is not None}
        if not all(literals.is_identifier(key) for key in present):
            yield from self.value(name, {key: _unlisted(item) for key, item in present.items()}, path)
            return
        rows = [row for key, item in present.items() for row in self.free_entry(key, item, f"{path}.{key}")]
        yield from _wrapped(name, rows)

    def free_entry(self, name: str, value: Any, path: str) -> Iterator[str]:
        if isinstance(value, list) and value and all(_is_block(item) for item in value):
            for index, item in enumerate(value):
                yield from self.free(name, item, f"{path}[{index}]")
        else:
            yield from self.value(name, _unlisted(value), path)


def _wrapped(head: str, rows: list[str]) -> Iterator[str]:
    if not rows:
        yield head + " {}"
        return
    yield head + " {"
    yield from rows
    yield "}"


def _unlisted(value: Any) -> Any:
    """The object in a list of one."""
    is_single = isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping)
    return value[0] if is_single else value


def _is_block(value: Any) -> bool:
    """Whether the object can be written as a block, which would read back as a list of one."""
    return isinstance(value, Mapping) and all(
        literals.is_identifier(str(key)) and item is not None and not isinstance(item, Mapping)
        for key, item in value.items()
    )


# Fields that a file says in other words.


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _as_is(value: Json) -> Json:
    return value


def _job(value: Json) -> Json:
    return {key: item for key, item in value.items() if key != "Name" or item != value.get("ID")}


def _constraint(value: Json) -> Json:
    if value.get("Operand") == "distinct_hosts" and value.get("RTarget") == "true":
        return {**value, "Operand": None, "RTarget": "", "-distinct_hosts": True}
    return value


def _network(value: Json) -> Json:
    """A network's reserved and dynamic ports as `port` blocks; reserved ones have a number."""
    reserved, dynamic = _objects(value.get("ReservedPorts")), _objects(value.get("DynamicPorts"))
    if reserved and all(port.get("Value") for port in reserved):
        return {**value, "ReservedPorts": None, "DynamicPorts": [*reserved, *dynamic]}
    return value


def _device(value: Json) -> Json:
    return {**value, "Count": "all", "AllOfNode": None} if value.get("AllOfNode") else value


def _group(value: Json) -> Json:
    scaling = value.get("Scaling")
    if isinstance(scaling, Mapping) and scaling.get("Type") == "horizontal":
        return {**value, "Scaling": {**scaling, "Type": "", "Target": None}}
    return value


def _task(value: Json) -> Json:
    identity = value.get("Identity")
    if not isinstance(identity, Mapping):
        return value
    return {**value, "Identity": None, "Identities": [identity, *_objects(value.get("Identities"))]}


def _task_scaling(value: Json) -> Json:
    label = _SCALING_LABELS.get(value.get("Type") or "")
    return {**value, "-name": label, "Type": "", "Target": None} if label else value


_REWRITES = {
    "Job": _job,
    "Constraint": _constraint,
    "NetworkResource": _network,
    "RequestedDevice": _device,
    "TaskGroup": _group,
    "Task": _task,
    "TaskScalingPolicy": _task_scaling,
}
