"""Checks configuration data against the table of keys and brings it to one shape; reports every mistake, not
only the first.

In: what a file held, where a block may be an object or a list of objects and a labelled block a map from label to
either. Out: plain dictionaries, each single block one dictionary, each labelled block a dictionary by label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from yurt.agent.config_keys import ABSENT, ConfigBlock, Entry, Key
from yurt.sdk.value import duration_text, parse_duration

NOT_AVAILABLE = "not available in this version"

REASONS = {
    "server.encrypt": "servers do not gossip, so there is nothing that a gossip key would encrypt. "
    "Mutual TLS protects their connections instead: make certificates (`yurt tls ca create`, `yurt tls cert create "
    "-server`), set tls { rpc = true }, and remove encrypt",
}
"""Why keys are not available, and what to do instead, where it is more than to remove them."""

Path: TypeAlias = tuple[str | int, ...]


class ConfigFinding(msgspec.Struct, frozen=True):
    """A problem, and the path to it in the data as given."""

    path: Path
    text: str


def check(
    data: Mapping[str, Any], table: ConfigBlock, *, path: Path = ()
) -> tuple[dict[str, Any], list[ConfigFinding]]:
    """The data in one shape, and its problems."""
    checked: dict[str, Any] = {}
    problems: list[ConfigFinding] = []
    for name, value in data.items():
        where = (*path, name)
        entry = table.entries.get(name)
        if entry is None:
            problems.append(ConfigFinding(where, f'unknown key "{dotted(where)}"{_hint(name, table.entries)}'))
            continue
        if value is None:
            continue
        shaped, found = _check_entry(value, entry, where)
        checked[name] = shaped
        problems += found
    return checked, problems


def dotted(path: Path) -> str:
    """The path as a reader writes it: `client.meta`."""
    return ".".join(step for step in path if isinstance(step, str))


def _check_entry(value: Any, entry: Entry, where: Path) -> tuple[Any, list[ConfigFinding]]:
    if isinstance(entry, Key):
        shaped, problem = _check_value(value, entry, where)
        return shaped, [ConfigFinding(where, problem)] if problem else []
    if entry.is_labelled:
        return _check_labelled(value, entry, where)
    return _check_block(value, entry, where)


def _check_block(value: Any, entry: ConfigBlock, where: Path) -> tuple[dict[str, Any], list[ConfigFinding]]:
    merged: dict[str, Any] = {}
    problems: list[ConfigFinding] = []
    for place, part in _objects(value, where):
        if not isinstance(part, Mapping):
            name = dotted(where)
            return {}, [ConfigFinding(where, f'"{name}" must be a block: {name} {{ ... }}')]
        shaped, found = check(part, entry, path=place)
        merged = merge(merged, shaped)
        problems += found
    return merged, problems


def _check_labelled(value: Any, entry: ConfigBlock, where: Path) -> tuple[dict[str, Any], list[ConfigFinding]]:
    labelled: dict[str, Any] = {}
    problems: list[ConfigFinding] = []
    for place, part in _objects(value, where):
        if not isinstance(part, Mapping):
            name = dotted(where)
            return {}, [ConfigFinding(where, f'"{name}" must be a block with a label: {name} "x" {{ ... }}')]
        for label, body in part.items():
            for at, one in _objects(body, (*place, label)) if entry.named_by else [((*place, label), body)]:
                shaped, found = _check_block(one, ConfigBlock(entry.entries), at)
                own = f"{label}.{shaped[entry.named_by]}" if shaped.get(entry.named_by) else label
                labelled[own] = merge(labelled.get(own, {}), shaped)
                problems += found
    return labelled, problems


def _objects(value: Any, where: Path) -> Iterable[tuple[Path, Any]]:
    if isinstance(value, list | tuple):
        return [((*where, at), part) for at, part in enumerate(value)]
    return [(where, value)]


def _check_value(value: Any, entry: Key, path: Path) -> tuple[Any, str]:
    where = dotted(path)
    if entry.type == "map" and isinstance(value, list | tuple) and all(isinstance(part, Mapping) for part in value):
        value = {name: item for part in value for name, item in part.items()}
    problem = _type_problem(value, entry.type) or _range_problem(value, entry)
    if problem:
        return value, f'"{where}" {problem}, not {_shown(value)}'
    if entry.support == ABSENT and value and _plain(value) not in entry.allowed:
        why = REASONS.get(where, "remove it from the configuration")
        return value, f'"{where}" is {NOT_AVAILABLE}; {why}'
    if entry.type == "map":
        return {name: _plain(item) for name, item in value.items()}, ""
    return value, ""


def _type_problem(value: Any, type_: str) -> str:
    match type_:
        case "string":
            return "" if isinstance(value, str) else "must be a text"
        case "url":
            is_url = isinstance(value, str) and (not value or value.startswith(("http://", "https://")))
            return "" if is_url else 'must be a URL such as "https://consul.example"'
        case "bool":
            return "" if isinstance(value, bool) else "must be true or false"
        case "int":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return _negative_problem(value) if is_number else "must be a whole number"
        case "float":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return _negative_problem(value) if is_number else "must be a number"
        case "list":
            is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
            return "" if is_list else "must be a list of texts"
        case "map":
            is_map = isinstance(value, Mapping) and all(not isinstance(item, Mapping | list) for item in value.values())
            return "" if is_map else "must be a map of texts"
        case "duration":
            return _duration_problem(value)
        case _:
            return ""


def _range_problem(value: Any, entry: Key) -> str:
    if entry.type == "duration" and parse_duration(value) < entry.minimum:
        return f"must be {duration_text(entry.minimum)} or more"
    if entry.type != "int" or entry.minimum <= value <= (value if entry.maximum is None else entry.maximum):
        return ""
    if entry.maximum is None:
        return f"must be {entry.minimum} or more"
    return f"must be a number from {entry.minimum} to {entry.maximum}"


def _duration_problem(value: Any) -> str:
    if isinstance(value, str):
        try:
            return _negative_problem(parse_duration(value))
        except ValueError:
            return 'must be a duration such as "30s" or "1h30m"'
    return 'must be a duration in quotes, such as "30s"'


def _negative_problem(value: float) -> str:
    return "must be 0 or more" if value < 0 else ""


def merge(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Two checked configurations as one: the newer wins, blocks and maps are merged key by key."""
    merged = dict(older)
    for name, value in newer.items():
        before = merged.get(name)
        merged[name] = merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    return f'"{value[:40]}"' if isinstance(value, str) else _plain(value)[:40]


def _hint(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{found[0]}"?)' if found else ""
