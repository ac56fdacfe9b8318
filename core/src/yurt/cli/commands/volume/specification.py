"""Files that describe a volume, in HCL or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from yurt.cli.api.lookup import find_node
from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError
from yurt.cli.files.source import read_text
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean

HOST, CSI = "host", "csi"
NO_CONTROLLER = (
    'not available: CSI plugins (type "csi") make and delete no volumes in this version; '
    "make the volume with the tools of its storage and use `yurt volume register`"
)
_SHARED = {
    "id": "ID", "namespace": "Namespace", "name": "Name", "type": "Type", "plugin_id": "PluginID",
    "capability": "RequestedCapabilities", "parameters": "Parameters",
}  # fmt: skip
_FIELDS = {
    HOST: {
        **_SHARED, "node_pool": "NodePool", "node_id": "NodeID", "capacity_min": "RequestedCapacityMinBytes",
        "capacity_max": "RequestedCapacityMaxBytes", "capacity": "CapacityBytes", "host_path": "HostPath",
        "constraint": "Constraints",
    },
    CSI: {
        **_SHARED, "external_id": "ExternalID", "capacity_min": "RequestedCapacityMin",
        "capacity_max": "RequestedCapacityMax", "mount_options": "MountOptions", "secrets": "Secrets",
        "context": "Context", "topology_request": "RequestedTopologies", "clone_id": "CloneID",
        "snapshot_id": "SnapshotID",
    },
}  # fmt: skip
"""By type of volume: the names in a file and those of the API."""
_MOUNT_OPTIONS = {"fs_type": "FSType", "mount_flags": "MountFlags"}
_TOPOLOGIES = {"required": "Required", "preferred": "Preferred"}
_MAPS = ("Parameters", "Secrets", "Context")
_CAPABILITY = {"access_mode": "AccessMode", "attachment_mode": "AttachmentMode"}
_CONSTRAINT = {"attribute": "LTarget", "operator": "Operand", "value": "RTarget"}
_SIZES = (
    "RequestedCapacityMinBytes", "RequestedCapacityMaxBytes", "CapacityBytes", "RequestedCapacityMin",
    "RequestedCapacityMax",
)  # fmt: skip
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": step ** (at + 1)
    for at, letter in enumerate("kmgtp")
    for rest, step in (("", 1000), ("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


class VolumeSpec(NamedTuple):
    """A volume of a file: its type, and its fields as the API names them."""

    kind: str
    fields: Json


def requested_volume(call: Invocation) -> VolumeSpec:
    """The volume of the file that the call names, its node by a prefix."""
    spec = read_spec(call.args[0])
    fields = spec.fields
    if call.flags.text("id"):
        fields["ID"] = call.flags.text("id")
    if call.flags.is_given("namespace"):
        fields["Namespace"] = call.flags.text("namespace")
    if fields.get("NodeID"):
        fields["NodeID"] = find_node(call, fields["NodeID"])["ID"]
    return spec


def read_spec(name: str) -> VolumeSpec:
    """A volume from a file, or from standard input for `-`; one without a type is a CSI volume."""
    source = read_text(name)
    shown = "standard input" if name == "-" else name
    is_json = name.endswith(".json") or source.lstrip().startswith("{")
    data = _from_json(shown, source) if is_json else _from_hcl(shown, source)
    kind = str(data.get("type") or data.get("Type") or CSI).lower()
    if kind not in _FIELDS:
        raise CliError(f'{shown}: unknown volume type "{kind}"; it is "host" or "csi"')
    fields = _of_api(shown, data, _FIELDS[kind]) if is_json else _named(shown, data, _FIELDS[kind])
    fields.pop("Type", None)
    for field in _SIZES:
        if field in fields:
            fields[field] = parse_size(shown, field, fields[field])
    return VolumeSpec(kind, fields)


def _from_json(name: str, source: str) -> Json:
    try:
        data = json.loads(source)
    except ValueError as error:
        raise CliError(f"{name}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise CliError(f"{name}: a volume is an object")
    return data


def _of_api(name: str, data: Json, names: Mapping[str, str]) -> Json:
    """A JSON file has the names of the API, or those of HCL files."""
    fields = {field.lower(): field for field in names.values()}
    if any(key.lower() not in fields for key in data) and all(key in names for key in data):
        return _named(name, data, names)
    strange = next((key for key in data if key.lower() not in fields), None)
    if strange is not None:
        raise CliError(f'{name}: unknown key "{strange}"{did_you_mean(strange, names.values())}')
    return {fields[key.lower()]: value for key, value in data.items()}


def _from_hcl(name: str, source: str) -> Json:
    from yurt_jobspec import JobspecError, parse_body

    from yurt.cli.files.jobfile import rendered

    try:
        return parse_body(source, filename=name)
    except JobspecError as error:
        raise CliError(rendered(error, {name: source})) from None


def _named(name: str, body: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    spec: Json = {}
    for key, value in body.items():
        if key not in names:
            raise CliError(f'{name}: unknown key "{key}"{did_you_mean(key, names)}')
        spec[names[key]] = value
    if "Constraints" in spec:
        spec["Constraints"] = [_renamed(name, each, _CONSTRAINT) for each in _blocks(spec["Constraints"])]
        for rule in spec["Constraints"]:
            rule.setdefault("Operand", "=")
    if "RequestedCapabilities" in spec:
        spec["RequestedCapabilities"] = [
            _renamed(name, each, _CAPABILITY) for each in _blocks(spec["RequestedCapabilities"])
        ]
    for field in _MAPS:
        if field in spec:
            spec[field] = _entries(spec[field])
    for each in _blocks(spec.pop("MountOptions", ())):
        spec["MountOptions"] = _renamed(name, each, _MOUNT_OPTIONS)
    for each in _blocks(spec.pop("RequestedTopologies", ())):
        requirements = _renamed(name, each, _TOPOLOGIES)
        spec["RequestedTopologies"] = {when: _topologies(name, blocks) for when, blocks in requirements.items()}
    return spec


def _topologies(name: str, value: Any) -> list[Json]:
    """`topology { segments { zone = "a" } }`, any number of times."""
    found = []
    for block in _blocks(value):
        for topology in _blocks(_renamed(name, block, {"topology": "Topology"}).get("Topology", ())):
            segments = _renamed(name, topology, {"segments": "Segments"}).get("Segments", ())
            found.append({"Segments": _entries(segments)})
    return found


def _entries(value: Any) -> dict[str, str]:
    """A map of texts, given as a block or as an argument."""
    return {key: _text(each) for block in _blocks(value) for key, each in block.items()}


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


def parse_size(name: str, field: str, size: Any) -> int:
    """Bytes from a number or a text such as "10GiB"; raises CliError."""
    if isinstance(size, int | float) and not isinstance(size, bool) and size >= 0:
        return int(size)
    match = _SIZE.fullmatch(str(size).strip())
    if match is None or match[2].lower() not in _UNITS:
        raise CliError(f'{name}: {field}: "{size}" is not a valid size; write a number and a unit, such as "10GiB"')
    return int(float(match[1]) * _UNITS[match[2].lower()])
