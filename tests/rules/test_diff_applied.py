"""A difference is complete: applied to the old job it gives the new one, for jobs of every kind of block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from yurt.rules.diff import job_diff
from yurt.structs.explain.diff import FieldDiff, ObjectDiff
from yurt.structs.job import Job, TaskGroup
from yurt.structs.task import Task

TEXTS = st.sampled_from(["", "a", "b"])
MOST_FIELDS, DEEPEST = 4, 4


class Block(NamedTuple):
    """A job or a part of it as a difference shows it: fields that are not empty, and the blocks inside."""

    name: str
    fields: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...] = ()


class Misfit(Exception):
    """The difference speaks of something that the old job has not got."""


def values(kind: inspect.Type, depth: int) -> st.SearchStrategy[Any]:
    """Values of a field of a struct, from a domain so small that two draws are often alike."""
    match kind:
        case inspect.Metadata(type=inner):
            return values(inner, depth)
        case inspect.UnionType(types=types):
            return st.one_of([values(each, depth) for each in types])
        case inspect.StructType(cls=cls):
            return structs(cls, depth + 1) if depth < DEEPEST else st.nothing()
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item, depth), max_size=2).map(tuple) if depth < DEEPEST else st.just(())
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.sampled_from(["k", "Config", "SidecarService"]), values(value, depth), max_size=2)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType() | inspect.FloatType():
            return st.integers(0, 2)
        case inspect.StrType():
            return TEXTS
        case inspect.BytesType():
            return TEXTS.map(str.encode)
        case _:
            return TEXTS


@st.composite
def structs(draw: st.DrawFn, cls: type[msgspec.Struct], depth: int = 0) -> Any:
    """A struct of which a few fields are set."""
    fields = fields_of(cls)
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=MOST_FIELDS, unique=True))
    return cls(**{name: draw(values(fields[name], depth)) for name in chosen})


@functools.cache
def fields_of(cls: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    """The types of the fields, but for the groups of a job and the tasks of a group."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.name: field.type for field in info.fields if field.name not in ("tasks", "task_groups")}


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job with up to two groups of up to two tasks."""
    groups = []
    for name in draw(st.sets(st.sampled_from(["g", "h"]))):
        tasks = [
            msgspec.structs.replace(draw(structs(Task)), name=task)
            for task in draw(st.sets(st.sampled_from(["t", "u"])))
        ]
        groups.append(msgspec.structs.replace(draw(structs(TaskGroup)), name=name, tasks=tuple(tasks)))
    job: Job = msgspec.structs.replace(draw(structs(Job)), id="job", task_groups=tuple(groups))
    return job


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Job, Job]:
    """Two jobs of which the second has much of the first."""
    old = draw(jobs())
    return old, draw(mixtures(old, draw(jobs())))


@st.composite
def mixtures(draw: st.DrawFn, first: Any, second: Any) -> Any:
    """The first value with parts of the second."""
    if type(first) is not type(second) or not isinstance(first, msgspec.Struct | tuple) or draw(st.booleans()):
        return draw(st.sampled_from([first, second, first]))
    if isinstance(first, msgspec.Struct):
        pairs = {name: (getattr(first, name), getattr(second, name)) for name in first.__struct_fields__}
        return type(first)(**{name: draw(mixtures(*pair)) for name, pair in pairs.items()})
    if any(isinstance(item, Task | TaskGroup) for item in (*first, *second)):
        both = [{item.name: item for item in items} for items in (first, second)]
        names = draw(st.lists(st.sampled_from(sorted(both[0].keys() | both[1].keys())), unique=True))
        ends = [[items.get(name) for items in both] for name in names]
        return tuple(draw(mixtures(a or b, b or a)) for a, b in ends)
    return tuple(draw(st.lists(st.sampled_from([*first, *second]), max_size=3))) if first or second else ()


def parts(diff: Any) -> Iterable[Any]:
    """The blocks, groups and tasks of a difference."""
    return [each for kind in ("objects", "task_groups", "tasks") for each in getattr(diff, kind, ())]


def side(diff: Any, read: Callable[[FieldDiff], str]) -> Block:
    """The whole old or new block of a difference that shows all of it."""
    fields = tuple(sorted((field.name, read(field)) for field in diff.fields if read(field)))
    return Block(label(diff), fields, tuple(sorted(side(each, read) for each in parts(diff))))


def label(diff: Any) -> str:
    """Names of groups and tasks tell them apart, those of blocks their kind."""
    return diff.name if isinstance(diff, ObjectDiff) else f"{type(diff).__name__} {getattr(diff, 'name', '')}"


def applied(block: Block, diff: Any) -> Block:
    """What the difference makes of a block."""
    fields = list(block.fields)
    for field in diff.fields:
        if field.old:
            if (field.name, field.old) not in fields:
                raise Misfit(field)
            fields.remove((field.name, field.old))
        if field.new:
            fields.append((field.name, field.new))
    blocks = list(block.blocks)
    for each in parts(diff):
        match each.type:
            case "Added":
                blocks.append(side(each, lambda field: field.new))
            case "Deleted":
                blocks.remove(side(each, lambda field: field.old))
            case "Edited":
                replace_one(blocks, each)
    return Block(block.name, tuple(sorted(fields)), tuple(sorted(blocks)))


def replace_one(blocks: list[Block], diff: Any) -> None:
    """Change the one block to which the difference applies."""
    for block in [block for block in blocks if block.name == label(diff)]:
        if isinstance(diff, ObjectDiff) and block.fields != side(diff, lambda field: field.old).fields:
            continue
        try:
            changed = applied(block, diff)
        except (Misfit, ValueError):
            continue
        blocks[blocks.index(block)] = changed
        return
    raise Misfit(diff)


def whole(job: Job) -> Block:
    """All that differences show of a job."""
    return side(job_diff(None, job), lambda field: field.new)


@given(pairs())
@settings(max_examples=40, deadline=None)
def test_a_difference_applied_to_the_old_job_gives_the_new_one(pair: tuple[Job, Job]) -> None:
    old, new = pair
    diff = job_diff(old, new)

    assert applied(whole(old), diff) == whole(new)
    assert (diff.type == "None") == (whole(old) == whole(new))


@given(pairs())
@settings(max_examples=15, deadline=None)
def test_the_reverse_difference_swaps_old_and_new(pair: tuple[Job, Job]) -> None:
    old, new = pair
    assert applied(whole(new), job_diff(new, old)) == whole(old)
    assert side(job_diff(old, None), lambda field: field.old) == whole(old)
