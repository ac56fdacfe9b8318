"""Files that describe a variable, in HCL or JSON, and the same as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from yurt.cli.errors import CliError
from yurt.cli.files.source import read_text
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean

_FIELDS = {
    "namespace": "Namespace",
    "path": "Path",
    "create_index": "CreateIndex",
    "modify_index": "ModifyIndex",
    "create_time": "CreateTime",
    "modify_time": "ModifyTime",
    "items": "Items",
    "lock": "Lock",
}
_LOCK_FIELDS = {"id": "ID", "ttl": "TTL", "lock_delay": "LockDelay"}


def read_spec(name: str, *, form: str) -> Json:
    """A variable from a file or standard input; the format must be given unless the file's name implies it."""
    if name.endswith((".hcl", ".json")):
        form = "json" if name.endswith(".json") else "hcl"
    source = read_text(name)
    shown = "standard input" if name == "-" else name
    return _from_json(shown, source) if form == "json" else _from_hcl(shown, source)


def _from_json(name: str, source: str) -> Json:
    try:
        data = json.loads(source)
    except ValueError as error:
        raise CliError(f"{name}: not valid JSON: {error}; is it HCL? Then say -in=hcl") from None
    if not isinstance(data, dict):
        raise CliError(f'{name}: a variable is an object with "Path" and "Items"')
    fields = {field.lower(): field for field in _FIELDS.values()}
    spec = {fields[key.lower()]: value for key, value in data.items() if key.lower() in fields}
    strange = next((key for key in data if key.lower() not in fields), None)
    if strange is not None:
        raise CliError(f'{name}: unknown key "{strange}"{did_you_mean(strange, _FIELDS.values())}')
    return _checked(name, spec)


def _from_hcl(name: str, source: str) -> Json:
    from yurt_jobspec import JobspecError, parse_body

    from yurt.cli.files.jobfile import rendered

    try:
        body = parse_body(source, filename=name)
    except JobspecError as error:
        raise CliError(rendered(error, {name: source})) from None
    spec: Json = {}
    for key, value in body.items():
        if key not in _FIELDS:
            raise CliError(f'{name}: unknown key "{key}"{did_you_mean(key, _FIELDS)}')
        spec[_FIELDS[key]] = _block(value) if key in ("items", "lock") else value
    if "Lock" in spec:
        spec["Lock"] = {_LOCK_FIELDS.get(key, key): value for key, value in spec["Lock"].items()}
    return _checked(name, spec)


def _block(value: Any) -> Json:
    parts = value if isinstance(value, list | tuple) else [value]
    return {key: item for part in parts if isinstance(part, Mapping) for key, item in part.items()}


def _checked(name: str, spec: Json) -> Json:
    items = spec.get("Items") or {}
    if not isinstance(items, Mapping):
        raise CliError(f"{name}: items are a map of names to texts")
    strange = next((key for key, value in items.items() if isinstance(value, list | dict)), None)
    if strange is not None:
        raise CliError(f'{name}: item "{strange}" is not a text; encode it, for example with jsonencode')
    spec["Items"] = {key: _text(value) for key, value in items.items()}
    return spec


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def as_hcl(variable: Json) -> str:
    """A variable as a file that `var put` reads again."""
    lines = [
        f"namespace    = {_quoted(variable['Namespace'])}",
        f"path         = {_quoted(variable['Path'])}",
        f"create_index = {variable.get('CreateIndex', 0)}  # Set by server",
        f"modify_index = {variable.get('ModifyIndex', 0)}  # Set by server; consulted for check-and-set",
        f"create_time  = {variable.get('CreateTime', 0)}  # Set by server",
        f"modify_time  = {variable.get('ModifyTime', 0)}  # Set by server",
        "",
        "items = {",
    ]
    items = variable.get("Items") or {}
    lines += [f"  {_quoted(key)} = {_quoted(items[key])}" for key in sorted(items)]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    body = json.dumps(text, ensure_ascii=False)
    return body.replace("${", "$${").replace("%{", "%%{")
