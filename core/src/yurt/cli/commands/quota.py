"""`yurt quota`: show and change quotas."""

from __future__ import annotations

import base64
import json
from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]

EXAMPLE_HCL = """\
name        = "default-quota"
description = "Limit the shared default namespace"

# Limits of a region hold for all namespaces together that name the quota. 0 is no limit, -1 allows nothing.
limit {
  region = "global"

  region_limit {
    cores      = 0    # reserved cores
    cpu        = 2500 # MHz
    memory     = 1000 # MiB, or a text such as "10 GiB"
    memory_max = 1000 # MiB

    device "nvidia/gpu" {
      count = 1
    }

    storage {
      variables    = 1000   # MiB, encrypted
      host_volumes = "1 GiB"
    }

    # Also for the jobs of one node pool.
    # node_pool "gpu" {
    #   cpu = 1000
    # }
  }
}
"""
EXAMPLE_JSON = """\
{
  "Name": "default-quota",
  "Description": "Limit the shared default namespace",
  "Limits": [
    {
      "Region": "global",
      "RegionLimit": {
        "Cores": 0,
        "CPU": 2500,
        "MemoryMB": 1000,
        "MemoryMaxMB": 1000,
        "Devices": [{"Name": "nvidia/gpu", "Count": 1}],
        "Storage": {"VariablesMB": 1000, "HostVolumesMB": 1024},
        "NodePools": []
      }
    }
  ]
}
"""
_COLUMNS = ("CPU", "Cores", "MemoryMB", "MemoryMaxMB", "SecretsMB")
_HEADER = "CPU Usage|Core Usage|Memory Usage|Memory Max Usage|Secrets Usage"


def apply_quota(call: Invocation) -> int:
    """Store the quota of a file."""
    from yurt.cli.files.source import read_text

    path = call.args[0]
    source = read_text(path)
    if call.flags.is_on("json") or path.endswith(".json"):
        spec = _from_json(path, source)
    else:
        from yurt.cli.files.quotafile import read_quota

        spec = read_quota("<stdin>" if path == "-" else path, source)
    try:
        call.api.put("/v1/quota", spec)
    except ApiError as error:
        from yurt.cli.commands.acl.answers import listed_mistakes

        raise listed_mistakes(error, "quota specification") from None
    call.screen.line(f'Successfully applied quota specification "{spec.get("Name")}"!')
    return 0


def _from_json(path: str, source: str) -> Json:
    try:
        spec = json.loads(source)
    except ValueError as error:
        raise CliError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(spec, dict) or not spec.get("Name"):
        raise CliError(f'{path}: a quota is an object with "Name" and "Limits"')
    return spec


def delete_quota(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("quota", call.args[0]))
    call.screen.line(f'Successfully deleted quota "{call.args[0]}"!')
    return 0


def write_example(call: Invocation) -> int:
    """Write an example file."""
    from pathlib import Path

    is_json = call.flags.is_on("json")
    path = Path(call.args[0] if call.args else f"spec.{'json' if is_json else 'hcl'}")
    if path.exists():
        raise CliError(f"File {path} already exists; name another one")
    try:
        path.write_text(EXAMPLE_JSON if is_json else EXAMPLE_HCL, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error}") from None
    call.screen.line(f"Example quota specification written to {path}")
    return 0


def inspect_quota(call: Invocation) -> int:
    """The quota and its usage, as the API gives them."""
    is_data = wants_data(call)
    spec: Json = call.api.get(api_path("quota", call.args[0]))
    usages, failures = usages_of(call, spec)
    shown = {"Spec": spec, "Usages": usages, "Failures": failures}
    if is_data:
        return show_data(call, shown)
    call.screen.json(shown)
    return 0


def list_quotas(call: Invocation) -> int:
    """All quotas."""
    is_data = wants_data(call)
    found: list[Json] = call.api.get("/v1/quotas") or []
    if is_data:
        return show_data(call, found)
    if not found:
        call.screen.line("No quotas found")
        return 0
    call.screen.table("Name|Description", [[spec["Name"], spec.get("Description") or ""] for spec in found])
    return 0


def show_quota(call: Invocation) -> int:
    """One quota with its limits and its usage."""
    is_data = wants_data(call)
    spec: Json = call.api.get(api_path("quota", call.args[0]))
    if is_data:
        return show_data(call, spec)
    limits: list[Json] = spec.get("Limits") or []
    usages, failures = usages_of(call, spec)
    pairs = [("Name", spec["Name"]), ("Description", spec.get("Description") or ""), ("Limits", len(limits))]
    names = sorted({name for usage in usages.values() for name in usage.get("Namespaces") or ()})
    if names:
        pairs.append(("Namespaces", ", ".join(names)))
    call.screen.pairs(pairs)
    show_limits(call, limits, usages)
    if failures:
        call.screen.title("Lookup Failures")
        call.screen.pairs(sorted(failures.items()))
    return 0


def show_limits(call: Invocation, limits: list[Json], usages: dict[str, Json]) -> None:
    """The tables of limits, "used / limit" by region, device and node pool."""
    call.screen.title("Quota Limits")
    if not limits:
        call.screen.line("No quota limits defined")
        return
    rows, devices, pools = [], [], []
    for limit in sorted(limits, key=lambda each: str(each.get("Region"))):
        region, allowed = limit["Region"], limit.get("RegionLimit") or {}
        used = _used(limit, usages.get(region))
        rows.append([region, *_amounts(allowed, used), *_storage(limit, allowed, used)])
        devices += [[region, *row] for row in _devices(allowed, used)]
        by_pool = {pool.get("NodePool"): pool for pool in (used or {}).get("NodePools") or ()}
        for pool in allowed.get("NodePools") or ():
            of_pool = by_pool.get(pool["NodePool"])
            pools.append([region, pool["NodePool"], *_amounts(pool, of_pool)])
            devices += [[f"{region}, pool {pool['NodePool']}", *row] for row in _devices(pool, of_pool)]
    call.screen.table(f"Region|{_HEADER}|Variables Usage|Host Volumes Usage", rows)
    if devices:
        call.screen.title("Quota Device Limits")
        call.screen.table("Region|Device Name|Device Usage", devices)
    if pools:
        call.screen.title("Quota Node Pool Limits")
        call.screen.table(f"Region|Node Pool|{_HEADER}", pools)


def usages_of(call: Invocation, spec: Json) -> tuple[dict[str, Json], dict[str, str]]:
    """The usage of a quota in each region, and the errors of regions without an answer."""
    usages: dict[str, Json] = {}
    failures: dict[str, str] = {}
    for limit in spec.get("Limits") or ():
        try:
            usages[limit["Region"]] = call.api.get(
                api_path("quota", "usage", spec["Name"]), {"region": limit["Region"]}
            )
        except ApiError as error:
            failures[limit["Region"]] = str(error)
    return usages, failures


def _used(limit: Json, usage: Json | None) -> Json | None:
    """The usage of a limit identified by its hash; None when unknown."""
    found = ((usage or {}).get("Used") or {}).get(_key(limit))
    return None if found is None else found.get("RegionLimit") or {}


def _key(limit: Json) -> str:
    return base64.b64encode(base64.b64decode(limit.get("Hash") or "")).decode()


def _amounts(allowed: Json, used: Json | None) -> list[str]:
    return [_share(None if used is None else used.get(key) or 0, allowed.get(key)) for key in _COLUMNS]


def _storage(limit: Json, allowed: Json, used: Json | None) -> list[str]:
    limits = allowed.get("Storage") or {}
    taken = None if used is None else used.get("Storage") or {}
    variables = limits.get("VariablesMB") or limit.get("VariablesLimit")
    return [
        _share(None if taken is None else taken.get("VariablesMB") or 0, variables),
        _share(None if taken is None else taken.get("HostVolumesMB") or 0, limits.get("HostVolumesMB")),
    ]


def _devices(allowed: Json, used: Json | None) -> list[list[str]]:
    counts = {device["Name"]: device.get("Count") for device in (used or {}).get("Devices") or ()}
    return [
        [device["Name"], _share(None if used is None else counts.get(device["Name"], 0), device.get("Count"))]
        for device in allowed.get("Devices") or ()
    ]


def _share(used: int | None, allowed: int | None) -> str:
    """`500 / 2500`; "inf" means no limit, 0 that nothing is allowed, "-" that a region does not answer."""
    limit = "inf" if not allowed else str(max(0, allowed))
    return f"{'-' if used is None else used} / {limit}"


COMMANDS = (
    CliCommand(
        "quota apply",
        "Create or update a quota",
        apply_quota,
        (switch("json", "The file is JSON."),),
        (1, 1),
        "<input>",
        "one argument: <input>",
        details="The file is HCL or JSON; - reads it from standard input.",
    ),
    CliCommand(
        "quota delete", "Delete a quota that no namespace names", delete_quota, (), (1, 1), "<quota>",
        "one argument: <quota>",
    ),
    CliCommand(
        "quota init",
        "Write an example file of a quota",
        write_example,
        (switch("json", "A file in JSON."),),
        (0, 1),
        "<filename>",
        "at most one argument: <filename>",
        is_client=False,
    ),
    CliCommand(
        "quota inspect",
        "Print a quota and its usage as JSON",
        inspect_quota,
        (switch("json", "Print JSON, as without the flag."), text("t", "Format the answer with a Go template.")),
        (1, 1),
        "<quota>",
        "one argument: <quota>",
    ),
    CliCommand("quota list", "List quotas", list_quotas, JSON_FLAGS),
    CliCommand(
        "quota status",
        "Show a quota, its limits and what is used of them",
        show_quota,
        JSON_FLAGS,
        (1, 1),
        "<quota>",
        "one argument: <quota>",
    ),
)  # fmt: skip
