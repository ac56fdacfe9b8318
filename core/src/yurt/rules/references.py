"""References such as `${node.class}` and `${NOMAD_PORT_http}` in a job that will stay unresolved.

A constraint on a name that no node has is never met; in `config` and `env` a node leaves such a reference unchanged, so
that the program reads the dollar sign. Neither is an error, because `${HOME}` may be meant for a shell and an attribute
may come with a later node; so these are warnings, each with its place. `NameLookup` answers for the names that the
nodes of a cluster have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, Protocol

import msgspec

from yurt.rules.bounds import CONFIG_DEPTH
from yurt.rules.likeness import nearest
from yurt.scheduler.constraints.targets import FIELDS
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.task import Task

_REFERENCE: Final = re.compile(r"\$\{ *([A-Za-z][\w.:-]{0,255}) *\}")
_PLAIN_ATTRIBUTE: Final = re.compile(r"(attr|meta|node)\.[\w.-]+|[a-z]+(\.[\w-]+)+")
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9_]")
_VARIABLE: Final = re.compile(r"NOMAD_[A-Za-z0-9_]+")
_PORT: Final = re.compile(r"NOMAD_(?:(?:HOST_|ALLOC_)?(?:PORT|IP|ADDR)|ALLOC_INTERFACE)_(?P<label>\w+)")
_OPEN_NAMES: Final = ("NOMAD_META_", "NOMAD_TOKEN_", "NOMAD_UPSTREAM_")
"""Variables with these prefixes may have any name: a dispatch or a parent job may define them."""
NODE_NAMES: Final = (*FIELDS, "node.region")
"""Names of node values in `config` and `env`; constraints accept FIELDS."""
TASK_NAMES: Final = (
    "NOMAD_ALLOC_DIR", "NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR", "NOMAD_UNIX_ADDR", "NOMAD_ALLOC_ID",
    "NOMAD_SHORT_ALLOC_ID", "NOMAD_ALLOC_NAME", "NOMAD_ALLOC_INDEX", "NOMAD_TASK_NAME", "NOMAD_GROUP_NAME",
    "NOMAD_JOB_ID", "NOMAD_JOB_NAME", "NOMAD_JOB_PARENT_ID", "NOMAD_DC", "NOMAD_REGION", "NOMAD_NAMESPACE",
    "NOMAD_PARENT_CGROUP", "NOMAD_MEMORY_LIMIT", "NOMAD_MEMORY_MAX_LIMIT", "NOMAD_CPU_LIMIT", "NOMAD_CPU_CORES",
    "NOMAD_TOKEN",
)  # fmt: skip
"""Variables that tasks may have; some only with a cgroup, reserved cores, a parent job or an identity. The names of
those for ports, metadata and identities also contain names from the job."""
LIKE: Final = 0.75
DOUBTS_MAX: Final = 20
"""The maximum number of references of a job that are reported."""
COMPARED_MAX: Final = 100
"""The maximum number of unknown names of a job for which similar ones are searched, which costs most."""
LABELS_COMPARED: Final = 3
"""The maximum number of unknown port labels of a task for which similar ones are searched, on the event loop too."""
_LITERALS_COMPARED: Final = frozenset({"=", "==", "is", "regexp", "version", "semver", "set_contains"})


class NodeReference(msgspec.Struct, frozen=True):
    """A name that a job reads from its nodes, such as `attr.kernel.name`, and the place, as worded in a warning.

    `is_required`: without the value no node is feasible for the group.
    """

    place: str
    name: str
    is_required: bool


class NameLookup(Protocol):
    """The names of attributes and metadata that nodes have, written `attr.NAME` and `meta.NAME`."""

    def has(self, name: str) -> bool | None:
        """Whether some node has the name; None if that is unknown."""

    def nearest(self, name: str) -> str | None:
        """The most similar name of the same kind."""


class _Search(msgspec.Struct, frozen=True):
    """The lookup of names on nodes; `unknown` lists the names for which similar ones were requested."""

    nodes: NameLookup
    unknown: list[str]
    compared_max: int = COMPARED_MAX

    def near(self, name: str, names: Iterable[str], cutoff: float = LIKE) -> str | None:
        """The most similar of the names; None also after `compared_max` searches."""
        self.unknown.append(name)
        return None if len(self.unknown) > self.compared_max else nearest(name, names, cutoff=cutoff)

    def meant(self, name: str, names: Iterable[str]) -> str:
        """The question whether a similar name was meant; "" without one."""
        return _question(self.near(name, names))


def may_have_doubts(job: Job, nodes: NameLookup) -> bool:
    """Whether `reference_doubts` would compare some name with others, or warn; compares none itself.

    This costs little and so may run on the event loop. Names that `nodes` answers with None count as known.
    """
    search = _Search(nodes, [], compared_max=0)
    return next(_doubts(job, search), None) is not None or bool(search.unknown)


def reference_doubts(job: Job, nodes: NameLookup) -> Iterator[str]:
    """One line for each reference of the job that has no value on any node, at most DOUBTS_MAX."""
    found = _doubts(job, _Search(nodes, []))
    yield from islice(found, DOUBTS_MAX)
    if next(found, None) is not None:
        yield f"more references have no value; the first {DOUBTS_MAX} are named"


def _doubts(job: Job, search: _Search) -> Iterator[str]:
    # Every registration passes here, and most jobs refer to nothing: a generator for each owner costs more than this.
    if job.constraints or job.affinities or job.spreads:
        yield from _rules_doubts(_rule_references("", job.constraints, job.affinities, job.spreads), search)
    for group in job.task_groups:
        place = f'Group "{group.name}" has warnings: '
        if group.constraints or group.affinities or group.spreads:
            rules = _rule_references(place, group.constraints, group.affinities, group.spreads)
            yield from _rules_doubts(rules, search)
        for task in group.tasks:
            if task.constraints or task.affinities:
                rules = _rule_references(_inner(place, task), task.constraints, task.affinities, ())
                yield from _rules_doubts(rules, search)
            if _has_reference(task.config, 0) or _has_reference(task.env, 0):
                yield from _text_doubts(_inner(place, task), group, task, search)


def _inner(place: str, task: Task) -> str:
    """The place of a task, as worded in a warning."""
    return f'{place}Task "{task.name}" has warnings: '


# Constraints, affinities and spreads.


def _rule_references(
    place: str, constraints: Iterable[Constraint], affinities: Iterable[Affinity], spreads: Iterable[Spread]
) -> Iterator[tuple[str, str, bool]]:
    """The references of rules as (place, target, whether a missing value makes every node infeasible)."""
    for number, rule in enumerate(constraints, start=1):
        if rule.operand not in ("is_set", "is_not_set", "distinct_hosts") and rule.l_target:
            yield f"{place}Constraint {number}", rule.l_target, rule.operand in _LITERALS_COMPARED
    for number, affinity in enumerate(affinities, start=1):
        if affinity.l_target:
            yield f"{place}Affinity {number}", affinity.l_target, False
    for number, spread in enumerate(spreads, start=1):
        if spread.attribute:
            yield f"{place}Spread {number}", spread.attribute, False


def _rules_doubts(rules: Iterable[tuple[str, str, bool]], search: _Search) -> Iterator[str]:
    for rule in rules:
        yield from _rule_doubts(rule, search)


def _rule_doubts(rule: tuple[str, str, bool], search: _Search) -> Iterator[str]:
    place, target, is_required = rule
    match = _REFERENCE.fullmatch(target)
    if match is None:
        if _PLAIN_ATTRIBUTE.fullmatch(target) and (name := _name_of_plain(target, search.nodes)):
            yield f'{place}: "{target[:64]}" is plain text, the same for every node (did you mean "${{{name[:64]}}}"?)'
        return
    name = match[1]
    if target != f"${{{name}}}":
        yield f'{place}: "{target[:64]}" has blanks inside of its braces, so no node has it (write "${{{name[:64]}}}")'
    elif name.startswith(("attr.", "meta.")):
        yield from _node_doubts(NodeReference(place, name, is_required), search)
    elif name not in FIELDS and not name.startswith("device."):
        attribute = f"attr.{name}"
        names = (*FIELDS, attribute) if search.nodes.has(attribute) else tuple(FIELDS)
        yield f"{place}: no node has ${{{name[:64]}}}{search.meant(name, names)}"


def _name_of_plain(target: str, nodes: NameLookup) -> str | None:
    """The node name that a text without `${}` spells; other such texts may be compared on purpose, as variables are."""
    if target in FIELDS:
        return target
    name = target if target.startswith(("attr.", "meta.")) else f"attr.{target}"
    return name if nodes.has(name) else None


def _node_doubts(reference: NodeReference, search: _Search) -> Iterator[str]:
    if search.nodes.has(reference.name) is not False:
        return
    kind, name = reference.name.split(".", 1)
    near = _question(search.nodes.nearest(reference.name))
    if near or reference.is_required:
        noun = "attribute" if kind == "attr" else "metadata"
        yield f'{reference.place}: no node has the {noun} "{name[:64]}"{near}'


def _question(near: str | None) -> str:
    return "" if near is None else f' (did you mean "${{{near[:128]}}}"?)'


# The texts of tasks.


class _Owner:
    """The task whose texts are read, and the names of ports in its variables."""

    def __init__(self, group: TaskGroup, task: Task) -> None:
        self._group = group
        self.task = task

    @cached_property
    def ports(self) -> frozenset[str]:
        """The port labels as variables spell them, made once for all references of the task."""
        labels = chain(port_labels(self._group, self.task), _labels_of_others(self._group, self.task))
        return frozenset(_UNCLEAN.sub("_", label) for label in labels)

    @cached_property
    def sorted_ports(self) -> list[str]:
        """The same in order, for the search of a similar one."""
        return sorted(self.ports)


def _text_doubts(place: str, group: TaskGroup, task: Task, search: _Search) -> Iterator[str]:
    reported, owner = set[str](), _Owner(group, task)
    for where, text in _texts("config", task.config or {}, 0):
        yield from _doubts_of_text(f"{place}{where}", text, owner, search, reported)
    for where, text in _texts("env", task.env, 0):
        yield from _doubts_of_text(f"{place}{where}", text, owner, search, reported)


def _has_reference(value: Any, depth: int) -> bool:
    """Whether `_texts` finds a text inside a value."""
    if isinstance(value, str):
        return "${" in value
    if depth > CONFIG_DEPTH or not value:
        return False
    items: Iterable[Any] = value if isinstance(value, list | tuple) else ()
    if type(value) is dict or isinstance(value, Mapping):
        items = value.values()
    for item in items:
        if type(item) is not str:
            if _has_reference(item, depth + 1):
                return True
        elif "${" in item:
            return True
    return False


def _texts(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """The texts with a reference inside a value, each with the path of its option."""
    if isinstance(value, str):
        if "${" in value:
            yield path, value
    elif depth > CONFIG_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(f"{path}.{key}" if depth == 0 else path, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(path, item, depth + 1)


def _doubts_of_text(place: str, text: str, owner: _Owner, search: _Search, reported: set[str]) -> Iterator[str]:
    for match in _REFERENCE.finditer(text):
        name = match[1]
        if name in reported or ":" in name:  # a shell has ${NAME:-default} and ${NAME:0:8}
            continue
        reported.add(name)
        if name.startswith(("attr.", "meta.")):
            yield from _node_doubts(NodeReference(place, name, is_required=False), search)
        elif name.startswith("node.") and name not in NODE_NAMES:
            near = search.meant(name, NODE_NAMES)
            yield f"{place}: no node has ${{{name[:64]}}}, so the text stays as it is{near}"
        elif _VARIABLE.fullmatch(name):
            yield from _variable_doubts(place, name, owner, search)


def _variable_doubts(place: str, name: str, owner: _Owner, search: _Search) -> Iterator[str]:
    """A warning for a name similar to a variable of the task, unless a template may define it."""
    task = owner.task
    if name in task.env or name in TASK_NAMES or name.startswith(_OPEN_NAMES):
        return
    if any(template.envvars for template in task.templates):
        return
    match = _PORT.fullmatch(name)
    if match is None:
        if near := search.meant(name, TASK_NAMES):
            yield f"{place}: variable {name[:64]} does not exist, so the text stays as it is{near}"
        return
    if match["label"] not in owner.ports:
        head = name.removesuffix(match["label"])
        other = search.near(match["label"], owner.sorted_ports, cutoff=0.5)
        fix = f'did you mean "${{{head}{other}}}"?' if other else "add the port to its network block"
        yield f'{place}: the group has no port "{match["label"][:64]}", so {name[:64]} is not set ({fix})'


def port_labels(group: TaskGroup, task: Task) -> frozenset[str]:
    """The labels of the ports of a group and of one of its tasks."""
    return _labels((*group.networks, *task.resources.networks))


def _labels_of_others(group: TaskGroup, task: Task) -> Iterator[str]:
    """The port labels of the group's other tasks as variables spell them: TASK_LABEL."""
    for other in group.tasks:
        if other.name != task.name:
            yield from (f"{other.name}_{label}" for label in _labels(other.resources.networks))


def _labels(networks: Sequence[NetworkResource]) -> frozenset[str]:
    return frozenset(port.label for each in networks for port in (*each.reserved_ports, *each.dynamic_ports))


def label_problems(option: Any, group: TaskGroup, task: Task) -> Iterator[str]:
    """Labels in a driver's option `ports` that no network block of the group declares, at most DOUBTS_MAX."""
    declared = port_labels(group, task)
    names = sorted(declared)
    labels = option if isinstance(option, list | tuple) else ()
    unknown = (each for each in labels if isinstance(each, str) and "${" not in each and each not in declared)
    for number, label in enumerate(islice(unknown, DOUBTS_MAX)):
        near = nearest(label, names, cutoff=0.5) if number < LABELS_COMPARED else None
        fix = f'did you mean "{near}"?' if near else f'add port "{label[:64]}" to its network block'
        yield f'config.ports: the group has no port "{label[:64]}" ({fix})'
