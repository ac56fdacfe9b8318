"""The page about job files: blocks from the parser's table, defaults from what the API makes of empty ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from yurt.api.decode import decode_job
from yurt.api.encode import to_wire
from yurt.structs.status import JOB_TYPES
from yurt_jobspec.schema import BlockSchema, ChildBlock, schema_of

from docs.generator import functions, job_bounds, job_unavailable, job_values
from docs.generator.job_notes import NOTES
from docs.generator.markdown import code, duration, page, require, table

WITHOUT_WORDS = ("Consul", "Multiregion", "Sidecar")
"""Blocks of these families are listed and not explained."""
NAMES = {"Job": "job", "TaskGroup": "group"}
UNUSUAL = ("reserved_ports",)
"""Words that another word is better for."""
REQUIRED = {
    "Task": ("driver",),
    "VolumeRequest": ("source",),
    "PeriodicConfig": ("cron",),
    "SpreadTarget": ("percent",),
}
OWN_DEFAULTS = {
    ("Constraint", "operator"): '`"="`',
    ("Job", "id"): "the label",
    ("Job", "name"): "the id",
    ("Service", "name"): "made from job, group and task",
}
"""Defaults that the file format has, or that are made from something else."""


class Place(NamedTuple):
    """A block in the tree: its table, the path of words to it, and how it is kept."""

    block: str
    path: tuple[str, ...]
    kind: str


def places() -> dict[str, list[Place]]:
    """Every block and where it may stand, outside before inside."""
    found: dict[str, list[Place]] = {"Job": [Place("Job", ("job",), "block")]}
    waiting = list(found["Job"])
    while waiting:
        place = waiting.pop(0)
        for name, child in schema_of(place.block).blocks.items():
            if not child.block:
                continue
            here = Place(child.block, (*place.path, name), child.kind)
            is_new = child.block not in found
            found.setdefault(child.block, []).append(here)
            if is_new:
                waiting.append(here)
    return found


def sample(block: str, stack: tuple[str, ...] = ()) -> dict[str, Any]:
    """An API object with one empty block of each kind inside; what is required is 1 or a text."""
    schema = schema_of(block)
    made: dict[str, Any] = dict.fromkeys(schema.labels, "x")
    for name in schema.required:
        made[schema.attributes[name].field] = 1 if schema.attributes[name].kind == "int" else "x"
    for child in schema.blocks.values():
        if child.block and not child.field.startswith("-") and child.block not in stack:
            inner = sample(child.block, (*stack, block))
            made[child.field] = {"block": inner, "blocks": [inner], "keyed": {"x": inner}}[child.kind]
    return made


def collect(block: str, data: Any, found: dict[str, Any]) -> None:
    """The object of each block; one inside a group wins over the same one in the job."""
    if not isinstance(data, dict):
        return
    found[block] = data
    for child in sorted(schema_of(block).blocks.values(), key=lambda each: each.block in ("TaskGroup", "Task")):
        if child.block:
            collect(child.block, first(data.get(child.field), child), found)


def first(value: Any, child: ChildBlock) -> Any:
    """The one object that `sample` made."""
    if child.kind == "blocks":
        return value[0] if value else None
    return next(iter(value.values()), None) if child.kind == "keyed" and value else value


def defaults() -> dict[str, dict[str, Any]]:
    """The blocks with their defaults by job type."""
    by_type: dict[str, dict[str, Any]] = {}
    for job_type in JOB_TYPES:
        job, _ = decode_job({**sample("Job"), "ID": "x", "Name": "x", "Type": job_type})
        found: dict[str, Any] = {}
        collect("Job", to_wire(job), found)
        found["Job"]["Type"] = "service"
        by_type[job_type] = found
    return by_type


def default_of(schema: BlockSchema, name: str, known: dict[str, dict[str, Any]]) -> str:
    """The default of an attribute, with the job types where they differ."""
    field = schema.attributes[name]
    if field.required or name in REQUIRED.get(schema.name, ()):
        return "required"
    if (schema.name, name) in OWN_DEFAULTS:
        return OWN_DEFAULTS[schema.name, name]
    shown = {
        job_type: shown_value(found.get(schema.name, {}).get(field.field), field.kind)
        for job_type, found in known.items()
    }
    if len(set(shown.values())) == 1:
        return shown[JOB_TYPES[0]]
    parts = []
    for value in dict.fromkeys(shown.values()):
        parts.append(f"{value or 'none'} ({', '.join(kind for kind, each in shown.items() if each == value)})")
    return "; ".join(parts)


def shown_value(value: Any, kind: str) -> str:
    """A value as a job file writes it."""
    if value in (None, "", [], {}):
        return ""
    if kind == "duration":
        return code(f'"{duration(value)}"')
    if kind == "durations":
        return code(json.dumps([duration(each) for each in value]))
    return code(json.dumps(value))


def heading(block: str, where: list[Place]) -> str:
    """`### restart`, and where it stands."""
    where = sorted(where, key=lambda place: place.path[-1] in UNUSUAL)
    first_place = where[0]
    schema = schema_of(block)
    has_label = bool(schema.labels) or first_place.kind == "keyed"
    written = f"{first_place.path[-1]}{' ' + chr(34) + 'name' + chr(34) if has_label else ''} {{ }}"
    lines = [f"### {NAMES.get(block, title_of(where))}"]
    if len(first_place.path) > 1:
        owners = ", ".join(dict.fromkeys(code(place.path[-2]) for place in where))
        number = "at most one" if first_place.kind == "block" else "any number"
        lines.append(f"{code(written)} in {owners}; {number}.")
    return "\n\n".join(lines)


def title_of(where: list[Place]) -> str:
    """The path without the outer words: `task > template`, or the block alone where several may hold it."""
    path = where[0].path
    return path[-1] if len(where) > 1 or len(path) < 3 else " > ".join(path[-2:])


def rows(block: str, known: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Attributes, then blocks."""
    schema, words = schema_of(block), NOTES[block]
    for name, field in schema.attributes.items():
        yield code(name), kind_word(field.kind), default_of(schema, name, known), words[name]
    for name, child in schema.blocks.items():
        word = {"block": "block", "blocks": "blocks", "keyed": "blocks with a label", "free": "block"}
        yield code(name), word.get(child.kind, "map"), "", words[name]


def kind_word(kind: str) -> str:
    """The type as a reader knows it."""
    words = {"strings": "list of strings", "ints": "list of numbers", "bool": "bool", "duration": "duration"}
    words["durations"] = "list of durations"
    return words.get(kind, "number" if "int" in kind else kind)


def listed(block: str, where: list[Place]) -> str:
    """A block without explanations on one line."""
    schema = schema_of(block)
    names = [code(name) for name in (*schema.attributes, *schema.blocks)]
    return f"- {' > '.join(where[0].path[-2:])}: {', '.join(names) or 'nothing'}"


def blocks_section() -> str:
    """Every block."""
    where, known = places(), defaults()
    told = [block for block in where if block in NOTES]
    plain = [block for block in where if block not in NOTES]
    unexplained = [block for block in plain if not block.startswith(WITHOUT_WORDS)]
    if unexplained:
        raise ValueError(f"blocks without words: {unexplained}")
    parts = []
    for block in told:
        schema = schema_of(block)
        require(f"block {block}", (*schema.attributes, *schema.blocks), NOTES[block])
        parts.append(heading(block, where[block]) + "\n\n" + table(("Name", "Type", "Default", ""), rows(block, known)))
    parts.append(
        "### connect and multiregion\n\nThese are read and stored with all that they may hold; see "
        "[what is not available](#what-is-not-available).\n\n" + "\n".join(listed(b, where[b]) for b in plain)
    )
    return "\n\n".join(parts)


def page_text() -> str:
    """What stands before the tables."""
    return """
# Job files

Generated by `make docs` from the tables that read job files; a test compares.

A job file is HCL: one `job` block, with `variable` blocks and `locals` next to it. The same job may be JSON in the
shape of the API, or HCL in its JSON form. A misspelt block or attribute is an error that names the line and the word
that was probably meant.

```hcl
variable "image" {
  type    = string
  default = "web"

  validation {
    condition     = length(split("/", var.image)) < 3
    error_message = "An image has at most one slash."
  }
}

locals {
  ports = ["http", "admin"]
}

job "web" {
  group "web" {
    count = 2

    network {
      dynamic "port" {
        for_each = local.ports
        labels   = [port.value]
        content {}
      }
    }

    task "serve" {
      driver = "raw_exec"

      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_http}"]
      }

      env {
        IMAGE = upper(var.image)
      }
    }
  }
}
```
"""


def page_() -> str:
    """The whole page."""
    contents = (
        "[Variables and expressions](#variables-and-expressions), [blocks](#blocks), [operators](#operators), "
        "[interpolation](#interpolation), [functions](#functions), "
        "[how large a job may be](#how-large-a-job-may-be), [what is not available](#what-is-not-available)"
    )
    return page(
        page_text(),
        contents,
        job_values.variables_section(),
        "## Blocks\n\nDefaults are what the API fills in; an empty cell means none. Durations are texts such as "
        '`"90s"` or `"1h30m"`.',
        blocks_section(),
        job_values.operators_section(),
        job_values.interpolation_section(),
        "## Functions\n\nEvery example is evaluated when this page is made.",
        functions.section(),
        job_bounds.section(),
        job_unavailable.section(),
    )
