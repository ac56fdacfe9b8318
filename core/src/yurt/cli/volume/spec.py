"""Files that describe a volume, in HCL or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError
from yurt.cli.lookup import find_node
from yurt.cli.suggest import did_you_mean
from yurt.cli.var.spec import read_source

Json = dict[str, Any]

NO_CSI = 'not available: CSI volumes (type "csi") are not in this version; use type "host"'
_FIELDS = {
    "id": "ID", "namespace": "Namespace", "name": "Name", "type": "Type", "plugin_id": "PluginID",
    "node_pool": "NodePool", "node_id": "NodeID", "capacity_min": "RequestedCapacityMinBytes",
    "capacity_max": "RequestedCapacityMaxBytes", "capacity": "CapacityBytes", "host_path": "HostPath",
    "constraint": "Constraints", "capability": "RequestedCapabilities", "parameters": "Parameters",
}  # fmt: skip
_CAPABILITY = {"access_mode": "AccessMode", "attachment_mode": "AttachmentMode"}
_CONSTRAINT = {"attribute": "LTarget", "operator": "Operand", "value": "RTarget"}
_SIZES = ("RequestedCapacityMinBytes", "RequestedCapacityMaxBytes", "CapacityBytes")
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": step ** (at + 1)
    for at, letter in enumerate("kmgtp")
    for rest, step in (("", 1000), ("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def asked_volume(call: Invocation) -> Json:
    """The volume of the file that the call names, its node by a prefix; raises CliError for a CSI volume."""
    spec = read_spec(call.args[0])
    if call.flags.text("id"):
        spec["ID"] = call.flags.text("id")
    if call.flags.is_given("namespace"):
        spec["Namespace"] = call.flags.text("namespace")
    if spec.get("NodeID"):
        spec["NodeID"] = find_node(call, spec["NodeID"])["ID"]
    return spec


def read_spec(name: str) -> Json:
    """A volume from a file, or from standard input for `-`."""
    source = read_source(name)
    shown = "standard input" if name == "-" else name
    is_json = name.endswith(".json") or source.lstrip().startswith("{")
    spec = _from_json(shown, source) if is_json else _from_hcl(shown, source)
    kind = str(spec.pop("Type", "") or "csi").lower()
    if kind == "csi":
        raise CliError(NO_CSI)
    if kind != "host":
        raise CliError(f'{shown}: unknown volume type "{kind}"; it is "host"')
    for field in _SIZES:
        if field in spec:
            spec[field] = parse_size(shown, field, spec[field])
    return spec


def _from_json(name: str, source: str) -> Json:
    try:
        data = json.loads(source)
    except ValueError as error:
        raise CliError(f"{name}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise CliError(f"{name}: a volume is an object")
    known = {field.lower(): field for field in _FIELDS.values()}
    if any(key.lower() not in known for key in data) and all(key in _FIELDS for key in data):
        return _named(name, data)
    strange = next((key for key in data if key.lower() not in known), None)
    if strange is not None:
        raise CliError(f'{name}: unknown key "{strange}"{did_you_mean(strange, _FIELDS.values())}')
    return {known[key.lower()]: value for key, value in data.items()}


def _from_hcl(name: str, source: str) -> Json:
    from yurt_jobspec import JobspecError, parse_body

    from yurt.cli.jobfile import rendered

    try:
        body = parse_body(source, filename=name)
    except JobspecError as error:
        raise CliError(rendered(error, {name: source})) from None
    return _named(name, body)


def _named(name: str, body: Mapping[str, Any]) -> Json:
    spec: Json = {}
    for key, value in body.items():
        if key not in _FIELDS:
            raise CliError(f'{name}: unknown key "{key}"{did_you_mean(key, _FIELDS)}')
        spec[_FIELDS[key]] = value
    if "Constraints" in spec:
        spec["Constraints"] = [_renamed(name, each, _CONSTRAINT) for each in _blocks(spec["Constraints"])]
        for rule in spec["Constraints"]:
            rule.setdefault("Operand", "=")
    if "RequestedCapabilities" in spec:
        spec["RequestedCapabilities"] = [
            _renamed(name, each, _CAPABILITY) for each in _blocks(spec["RequestedCapabilities"])
        ]
    if "Parameters" in spec:
        spec["Parameters"] = {key: _text(value) for each in _blocks(spec["Parameters"]) for key, value in each.items()}
    return spec


def _blocks(value: Any) -> list[Mapping[str, Any]]:
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [part for part in parts if isinstance(part, Mapping)]


def _renamed(name: str, block: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    strange = next((key for key in block if key not in names), None)
    if strange is not None:
        raise CliError(f'{name}: unknown key "{strange}"{did_you_mean(strange, names)}')
    return {names[key]: value for key, value in block.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_size(name: str, field: str, given: Any) -> int:
    """Bytes from a number or a text such as "10GiB"; raises CliError."""
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return int(given)
    match = _SIZE.fullmatch(str(given).strip())
    if match is None or match[2].lower() not in _UNITS:
        raise CliError(f'{name}: {field}: "{given}" is no size; write a number and a unit, such as "10GiB"')
    return int(float(match[1]) * _UNITS[match[2].lower()])
