"""Suggestions for values of the wrong type and for undeclared names."""

from __future__ import annotations

import re
from decimal import Decimal

from .diagnostics import Near
from .values import Value

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_MIB_OF_UNIT = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_MIB_ARGUMENTS = frozenset({"memory", "memory_max", "size", "disk", "max_file_size", "secrets", "memory_hard_limit"})
_EXAMPLES = {"memory": 256, "memory_max": 512, "cpu": 500}
_UNITS = {
    "cpu": "a number of MHz; whole cores are asked for by cores = 1",
    "memory": "a number of MiB",
    "memory_max": "a number of MiB",
}
_NUMBER_KINDS = ("int", "uint", "number", "float", "count")
HOMES_MAX = 3
"""A name that stands in more kinds of blocks has no certain place."""
CONSTRUCTORS = "string, number, bool, any, list(TYPE), set(TYPE), map(TYPE), object({...}) or tuple([...])"


def value_hint(name: str, kind: str, value: Value) -> str | None:
    """How to write an argument of that kind; None when the message already says it."""
    if kind in ("strings", "ints"):
        return _list_hint(name, value)
    if name == "weight" and kind.startswith("int8"):
        return "Write a whole number from -100 to 100, but not 0; a negative one keeps allocations away."
    if kind == "bool":
        return f"Write {name} = true or {name} = false, without quotes."
    if kind.startswith(_NUMBER_KINDS) and isinstance(value, str):
        example = _EXAMPLES.get(name, 3)
        return _amount_hint(name, value) or f"Write a number without quotes, for example {name} = {example}."
    if isinstance(value, Decimal):
        unit = _UNITS.get(name)
        whole = f"Write a whole number, for example {name} = {_EXAMPLES.get(name, 3)}."
        return f"{name} is {unit}. {whole}" if unit else whole
    if kind == "string":
        return f'Write one text between double quotes: {name} = "...".'
    return None


def unknown_hint(name: str, names: tuple[str, ...], homes: tuple[str, ...]) -> Near:
    """A known name that looks alike, else the blocks in which this one may stand: `resources` belongs in a task."""
    if not homes or len(homes) > HOMES_MAX:
        return Near(name, names)
    words = f"{', '.join(homes[:-1])} or {homes[-1]}" if len(homes) > 1 else homes[0]
    return Near(name, names, f"It belongs in a {words} block.")


def unit_hint(name: str, text: str) -> str:
    """How to write an unquoted number with a unit, such as `256M` or `30s`."""
    return _amount_hint(name, text) or f'Write a value with a unit between double quotes: {name} = "{text}".'


def map_hint(name: str) -> str:
    """How to write a block of names and values."""
    return f'Write names and values: {name} {{ NAME = "value" }}.'


def entry_hint(key: str) -> str:
    """How to write one value of such a block."""
    return f'Write one text: {key} = "value"; jsonencode([...]) turns lists and objects into text.'


def undeclared_hint(scope: str, name: str, names: tuple[str, ...]) -> str | Near | None:
    """How to declare the name in `var.NAME` or `local.NAME`, or a similar declared name."""
    blocks = {
        "var": f'variable "{name}" {{ type = string }}',
        "local": f'locals {{ {name} = "..." }}',
    }
    if scope not in blocks:
        return Near(name, names)
    return Near(name, names, f"Declare it outside of the job block: {blocks[scope]}")


def yaml_hint(text: str) -> str:
    """How to write `name: value` in this language; a file that is YAML throughout gets a hint of its own."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    is_yaml = len(lines) > 1 and sum(line.rstrip().endswith(":") or ": " in line for line in lines) > len(lines) / 2
    if is_yaml and "job " not in text:
        return "This looks like YAML, but job files are HCL: `yurt job init` writes an example to begin with."
    return "Write '=' instead of ':'."


def _amount_hint(name: str, text: str) -> str | None:
    """The number meant by `memory = "32 GB"`, in the argument's unit."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2].lower()
    if name in _MIB_ARGUMENTS and unit[0] in _MIB_OF_UNIT and unit.rstrip("b").rstrip("i") in _MIB_OF_UNIT:
        mib = max(1, round(number * _MIB_OF_UNIT[unit[0]]))
        return f"{name} is a number of MiB without a unit: write {name} = {mib}."
    if name == "cpu":
        cores = f"cores = {max(1, round(number))}" if unit.startswith("c") else "cores = 1"
        return f"cpu is a number of MHz without a unit: write cpu = 500, or {cores} for whole cores."
    return None


def _list_hint(name: str, value: Value) -> str | None:
    if isinstance(value, str):
        return f'Write a list: {name} = ["{value}"].'
    return f'Write a list: {name} = ["...", "..."].'
