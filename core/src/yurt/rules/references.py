"""References such as `${node.class}` and `${NOMAD_PORT_http}` in a job that nothing will replace.

A node leaves a reference that it does not know as it is written: a constraint is then never met, and a program reads
the dollar sign. Neither is an error, because `${HOME}` may be meant for a shell and an attribute may come with a later
node; so these are warnings, each with its place. What only the nodes of a cluster can tell is asked with `lacks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from yurt.scheduler.constraints.targets import FIELDS
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.job import Job, TaskGroup
from yurt.structs.task import Task

_REFERENCE: Final = re.compile(r"\$\{ *([A-Za-z][\w.:-]{0,255}) *\}")
_PLAIN_ATTRIBUTE: Final = re.compile(r"(attr|meta|node)\.[\w.-]+|[a-z]+(\.[\w-]+)+")
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9_]")
_PORT: Final = re.compile(r"NOMAD_(?:(?:HOST_|ALLOC_)?(?:PORT|IP|ADDR)|ALLOC_INTERFACE)_(?P<label>\w+)")
NODE_NAMES: Final = (*FIELDS, "node.region")
TASK_NAMES: Final = (
    "NOMAD_ALLOC_DIR", "NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR", "NOMAD_UNIX_ADDR", "NOMAD_ALLOC_ID",
    "NOMAD_SHORT_ALLOC_ID", "NOMAD_ALLOC_NAME", "NOMAD_ALLOC_INDEX", "NOMAD_TASK_NAME", "NOMAD_GROUP_NAME",
    "NOMAD_JOB_ID", "NOMAD_JOB_NAME", "NOMAD_JOB_PARENT_ID", "NOMAD_DC", "NOMAD_REGION", "NOMAD_NAMESPACE",
    "NOMAD_PARENT_CGROUP", "NOMAD_MEMORY_LIMIT", "NOMAD_MEMORY_MAX_LIMIT", "NOMAD_CPU_LIMIT", "NOMAD_CPU_CORES",
    "NOMAD_TOKEN",
)  # fmt: skip
"""Variables of every task; those of ports, metadata and identities carry names of the job."""
LIKE: Final = 0.75
DEPTH_MAX: Final = 8
_LITERALS_COMPARED: Final = frozenset({"=", "==", "is", "regexp", "version", "semver", "set_contains"})


class NodeReference(NamedTuple):
    """A name that a job reads from its nodes, such as `attr.kernel.name`, and the place, as worded in a warning.

    `is_required`: without a value the group finds no node.
    """

    place: str
    name: str
    is_required: bool


Lacks = Callable[[str], Iterable[str] | None]
"""Tells of `attr.NAME` or `meta.NAME` the names that nodes have instead; None where some node has the name itself."""


def reference_doubts(job: Job, lacks: Lacks) -> Iterator[str]:
    """One line for each reference of the job that has no value on any node."""
    for each in _rule_references("", job.constraints, job.affinities, job.spreads):
        yield from _rule_doubts(each, lacks)
    for group in job.task_groups:
        place = f'Group "{group.name}" has warnings: '
        for each in _rule_references(place, group.constraints, group.affinities, group.spreads):
            yield from _rule_doubts(each, lacks)
        for task in group.tasks:
            inner = f'{place}Task "{task.name}" has warnings: '
            for each in _rule_references(inner, task.constraints, task.affinities, ()):
                yield from _rule_doubts(each, lacks)
            yield from _text_doubts(inner, group, task, lacks)


# Constraints, affinities and spreads.


def _rule_references(
    place: str, constraints: Iterable[Constraint], affinities: Iterable[Affinity], spreads: Iterable[Spread]
) -> Iterator[tuple[str, str, bool]]:
    """(place, target, whether a missing value keeps the group from every node)."""
    for number, rule in enumerate(constraints, start=1):
        if rule.operand not in ("is_set", "is_not_set", "distinct_hosts") and rule.l_target:
            yield f"{place}Constraint {number}", rule.l_target, rule.operand in _LITERALS_COMPARED
    for number, affinity in enumerate(affinities, start=1):
        if affinity.l_target:
            yield f"{place}Affinity {number}", affinity.l_target, False
    for number, spread in enumerate(spreads, start=1):
        if spread.attribute:
            yield f"{place}Spread {number}", spread.attribute, False


def _rule_doubts(rule: tuple[str, str, bool], lacks: Lacks) -> Iterator[str]:
    place, target, is_required = rule
    match = _REFERENCE.fullmatch(target)
    if match is None:
        if _PLAIN_ATTRIBUTE.fullmatch(target):
            name = target if target.startswith(("attr.", "meta.", "node.")) else f"attr.{target}"
            yield f'{place}: "{target[:64]}" is plain text, the same for every node (did you mean "${{{name[:64]}}}"?)'
        return
    name = match[1]
    if name.startswith(("attr.", "meta.")):
        yield from _node_doubts(NodeReference(place, name, is_required), lacks)
    elif name not in NODE_NAMES and not name.startswith("device."):
        yield f"{place}: no node has ${{{name[:64]}}}{_meant(name, (*NODE_NAMES, f'attr.{name}'))}"


def _node_doubts(reference: NodeReference, lacks: Lacks) -> Iterator[str]:
    instead = lacks(reference.name)
    if instead is None:
        return
    kind, name = reference.name.split(".", 1)
    near = _meant(reference.name, [f"{kind}.{other}" for other in instead])
    if near or reference.is_required:
        noun = "attribute" if kind == "attr" else "metadata"
        yield f'{reference.place}: no node has the {noun} "{name[:64]}"{near}'


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=LIKE)
    return f' (did you mean "${{{near[0]}}}"?)' if near else ""


# The texts of tasks.


def _text_doubts(place: str, group: TaskGroup, task: Task, lacks: Lacks) -> Iterator[str]:
    told: set[str] = set()
    for where, text in _texts("config", task.config or {}, 0):
        yield from _doubts_of_text(f"{place}{where}", text, (group, task), lacks, told)
    for where, text in _texts("env", task.env, 0):
        yield from _doubts_of_text(f"{place}{where}", text, (group, task), lacks, told)


def _texts(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Each text below a value that holds a reference, with the option that it belongs to."""
    if isinstance(value, str):
        if "${" in value:
            yield path, value
    elif depth > DEPTH_MAX:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(f"{path}.{key}" if depth == 0 else path, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(path, item, depth + 1)


def _doubts_of_text(
    place: str, text: str, owner: tuple[TaskGroup, Task], lacks: Lacks, told: set[str]
) -> Iterator[str]:
    for match in _REFERENCE.finditer(text):
        name = match[1]
        if name in told:
            continue
        told.add(name)
        if name.startswith(("attr.", "meta.")):
            yield from _node_doubts(NodeReference(place, name, is_required=False), lacks)
        elif name.startswith("node.") and name not in NODE_NAMES:
            yield f"{place}: no node has ${{{name[:64]}}}, so the text stays as it is{_meant(name, NODE_NAMES)}"
        elif name.startswith("NOMAD_"):
            yield from _variable_doubts(place, name, *owner)


def _variable_doubts(place: str, name: str, group: TaskGroup, task: Task) -> Iterator[str]:
    """A variable that looks like one of the task's and is none; its templates may define others."""
    if name in task.env or name in TASK_NAMES or any(template.envvars for template in task.templates):
        return
    match = _PORT.fullmatch(name)
    labels = sorted({_UNCLEAN.sub("_", label) for label in port_labels(group)})
    if match is None:
        near = _meant(name, TASK_NAMES)
        if near and not name.startswith("NOMAD_TOKEN_"):
            yield f"{place}: there is no variable {name[:64]}, so the text stays as it is{near}"
    elif not any(match["label"] == label or match["label"].endswith(f"_{label}") for label in labels):
        head = name.removesuffix(match["label"])
        other = get_close_matches(match["label"], labels, n=1, cutoff=0.5)
        fix = f'did you mean "${{{head}{other[0]}}}"?' if other else "add the port to its network block"
        yield f'{place}: the group has no port "{match["label"][:64]}", so {name[:64]} is not set ({fix})'


def port_labels(group: TaskGroup) -> frozenset[str]:
    """The labels of all ports of a group and of its tasks."""
    networks = [*group.networks, *(network for task in group.tasks for network in task.resources.networks)]
    return frozenset(port.label for each in networks for port in (*each.reserved_ports, *each.dynamic_ports))


def label_problems(option: Any, group: TaskGroup) -> Iterator[str]:
    """Labels in a driver's option `ports` that no network block of the group declares."""
    known = sorted(port_labels(group))
    for label in option if isinstance(option, list | tuple) else ():
        if isinstance(label, str) and "${" not in label and label not in known:
            near = get_close_matches(label, known, n=1, cutoff=0.5)
            fix = f'did you mean "{near[0]}"?' if near else f'add port "{label[:64]}" to its network block'
            yield f'config.ports: the group has no port "{label[:64]}" ({fix})'
