"""`yurt quota`: show and change quotas."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from yurt.cli.api.lookup import api_path, read_named
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import go_duration

if TYPE_CHECKING:
    from yurt.state import Snapshot
    from yurt.structs.quota import QuotaSpec


EXAMPLE_HCL = """\
name        = "default-quota"
description = "Limit the shared default namespace"

# Quotas form trees; the use of this one also counts for its parent.
# parent     = "company"
# weight     = 3     # its share of lent capacity, relative to quotas of the same parent; default 1
# protection = "10m" # what it borrows runs so long before it is reclaimed

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

  # Lent to others while it is not used, and reclaimed from them when it is wanted.
  # guaranteed {
  #   cpu = 1000
  #   device "nvidia/gpu" {
  #     count = 1
  #   }
  # }
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
    is_json = call.flags.is_on("json") or path.endswith(".json")
    name = "<stdin>" if path == "-" else path
    if is_json:
        spec = _from_json(path, source)
    else:
        from yurt.cli.files.quotafile import read_quota

        spec = read_quota(name, source)
    try:
        call.api.put("/v1/quota", spec)
    except ApiError as error:
        raise _refusal(error, name, "" if is_json else source) from None
    call.screen.line(f'Successfully applied quota specification "{spec.get("Name")}"!')
    return 0


def plan_quota(call: Invocation) -> int:
    """Show the effects of the quota of a file on jobs; nothing is changed."""
    from yurt.cli.commands import whatif
    from yurt.cli.files.source import read_text
    from yurt.cli.terminal.text import now_ns
    from yurt.rules.problems import multi_error
    from yurt.rules.validation.quota import quota_problems
    from yurt.rules.validation.quota_tree import tree_problems
    from yurt.sdk.errors import Invalid
    from yurt.sdk.value import UnixNano
    from yurt.server.simulation.what_if import Scenario, what_if
    from yurt.state.quota_totals import members_of

    is_data, path = wants_data(call), call.args[0]
    spec, state = whatif.quota_of_file(path), whatif.state_from(call)
    known = {row.name: row for row in state.quotas.values()} | {spec.name: spec}
    problems = [*quota_problems(spec)] or [*tree_problems(spec, known)]
    if problems:
        raise _refusal(ApiError(400, multi_error(problems)), path, "" if path.endswith(".json") else read_text(path))
    region = whatif.region_of(call, known.values())
    try:
        found = what_if(state, Scenario(quotas=(spec,)), now=UnixNano(now_ns()), region=region)
    except Invalid as error:
        raise CliError(str(error)) from None
    facts = {
        "Name": spec.name,
        "IsNew": spec.name not in state.quotas,
        "Namespaces": list(members_of(state, spec.name)),
        "AboveLimit": list(_above_limit(state, spec, region)),
    }
    if is_data:
        show_data(call, {**facts, "Jobs": [whatif.row_of(one) for one in found]})
    else:
        _show_plan(call, facts, [whatif.cells_of(one) for one in found], whatif.SHOWN)
    return whatif.WORSE if any(one.is_worse for one in found) else whatif.SAME


def _above_limit(state: Snapshot, spec: QuotaSpec, region: str) -> Iterator[str]:
    """The dimensions of which more is used than the quota would allow."""
    from yurt.scheduler.capacity.quotas import amount_text, parts_of, scale_of
    from yurt.state.quota_totals import members_of, used_by

    members = members_of(state, spec.name)
    for part in parts_of(spec, region):
        place = f'node pool "{part.pool}": ' if part.pool else ""
        for each in part.dimensions(used_by(state, members, part.pool)):
            if each.used > each.allowed:
                used, allowed = (amount_text(amount, scale_of(each)) for amount in (each.used, each.allowed))
                yield f"{place}{each.name}: {used} used, {allowed} allowed"


def _show_plan(call: Invocation, facts: Json, rows: list[list[object]], header: str) -> None:
    kind = "new" if facts["IsNew"] else "changed"
    pairs = [("Quota", f"{facts['Name']} ({kind})"), ("Namespaces", ", ".join(facts["Namespaces"]) or "none")]
    call.screen.pairs(pairs)
    if facts["AboveLimit"]:
        call.screen.title("Used Above The Limit")
        for line in facts["AboveLimit"]:
            call.screen.line(line)
        call.screen.line("Nothing of it ends; nothing new starts until enough has ended.")
    call.screen.title("Affected Jobs")
    if rows:
        call.screen.table(header, rows)
    else:
        call.screen.line("No job would run otherwise, and none waits")


def _refusal(error: ApiError, name: str, source: str) -> CliError | ApiError:
    """A refusal with the lines of the file that it is about, where it has one."""
    from yurt.cli.commands.acl.answers import listed_mistakes

    if source:
        from yurt.cli.files.quotafile import placed_refusal

        placed = placed_refusal(name, source, str(error))
        if placed is not None:
            return placed
    return listed_mistakes(error, "quota specification")


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
    spec = _quota(call)
    usages, failures = usages_of(call, spec)
    shown = {"Spec": spec, "Usages": usages, "Failures": failures}
    if is_data:
        return show_data(call, shown)
    call.screen.json(shown)
    return 0


def _quota(call: Invocation) -> Json:
    """The quota that the argument names, or the only one that begins with it."""
    return read_named(
        call, call.args[0], lambda name: call.api.get(api_path("quota", name)), listed_at="/v1/quotas", things="quotas"
    )


def list_quotas(call: Invocation) -> int:
    """All quotas."""
    is_data = wants_data(call)
    found: list[Json] = call.api.get("/v1/quotas") or []
    if is_data:
        return show_data(call, found)
    if not found:
        call.screen.line("No quotas found")
        return 0
    if any(spec.get("Parent") for spec in found):
        rows = [[spec["Name"], spec.get("Parent") or "", spec.get("Description") or ""] for spec in found]
        call.screen.table("Name|Parent|Description", rows)
        return 0
    call.screen.table("Name|Description", [[spec["Name"], spec.get("Description") or ""] for spec in found])
    return 0


def show_quota(call: Invocation) -> int:
    """One quota with its limits and its usage."""
    is_data = wants_data(call)
    spec = _quota(call)
    if is_data:
        return show_data(call, spec)
    limits: list[Json] = spec.get("Limits") or []
    usages, failures = usages_of(call, spec)
    pairs = [("Name", spec["Name"]), ("Description", spec.get("Description") or ""), ("Limits", len(limits))]
    pairs += _tree_pairs(spec)
    names = sorted({name for usage in usages.values() for name in usage.get("Namespaces") or ()})
    if names:
        pairs.append(("Namespaces", ", ".join(names)))
    call.screen.pairs(pairs)
    show_limits(call, limits, usages)
    if failures:
        call.screen.title("Lookup Failures")
        call.screen.pairs(sorted(failures.items()))
    return 0


def _tree_pairs(spec: Json) -> list[tuple[str, object]]:
    """Its place among other quotas, as far as it is set."""
    pairs: list[tuple[str, object]] = [("Parent", spec["Parent"])] if spec.get("Parent") else []
    if spec.get("Weight") is not None:
        pairs.append(("Weight", f"{spec['Weight']:g}"))
    if spec.get("Protection") is not None:
        pairs.append(("Protection", go_duration(spec["Protection"])))
    return pairs


def _guarantees(region: str, limit: Json, usage: Json | None) -> list[list[str]]:
    """The rows of guarantees: the amount, its use, and the lent or borrowed part."""
    guaranteed, used = limit.get("Guaranteed") or {}, _used_guarantee(limit, usage)
    pools = {pool["NodePool"]: pool for pool in (used or {}).get("NodePools") or ()}
    rows = _guaranteed_rows(region, guaranteed, used)
    for pool in guaranteed.get("NodePools") or ():
        of_pool = None if used is None else pools.get(pool["NodePool"], {})
        rows += _guaranteed_rows(f"{region}, pool {pool['NodePool']}", pool, of_pool)
    return rows


def _guaranteed_rows(place: str, guaranteed: Json, used: Json | None) -> list[list[str]]:
    devices = {device["Name"]: device.get("Count") or 0 for device in (used or {}).get("Devices") or ()}
    amounts = [(key, guaranteed[key], (used or {}).get(key) or 0) for key in _COLUMNS if guaranteed.get(key)]
    amounts += [
        (f"device {device['Name']}", device.get("Count") or 0, devices.get(device["Name"], 0))
        for device in guaranteed.get("Devices") or ()
    ]
    return [
        [place, name, str(amount), *(("-", "-") if used is None else (str(taken), _loan(taken, amount)))]
        for name, amount, taken in amounts
    ]


def _loan(used: int, guaranteed: int) -> str:
    if used == guaranteed:
        return "-"
    return f"borrows {used - guaranteed}" if used > guaranteed else f"lends {guaranteed - used}"


def _used_guarantee(limit: Json, usage: Json | None) -> Json | None:
    found = ((usage or {}).get("Used") or {}).get(_key(limit))
    return None if found is None else found.get("Guaranteed") or {}


def show_limits(call: Invocation, limits: list[Json], usages: dict[str, Json]) -> None:
    """The tables of limits, "used / limit" by region, device and node pool."""
    call.screen.title("Quota Limits")
    if not limits:
        call.screen.line("No quota limits defined")
        return
    rows, devices, pools, guarantees = [], [], [], []
    for limit in sorted(limits, key=lambda each: str(each.get("Region"))):
        region, allowed = limit["Region"], limit.get("RegionLimit") or {}
        used = _used(limit, usages.get(region))
        guarantees += _guarantees(region, limit, usages.get(region))
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
    if guarantees:
        call.screen.title("Quota Guarantees")
        call.screen.table("Region|Dimension|Guaranteed|Used|Loan", guarantees)


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
        "quota plan",
        "Show whom a quota would affect, without applying it",
        plan_quota,
        (text("snapshot", "A snapshot file instead of the cluster's state."), *JSON_FLAGS),
        (1, 1),
        "<input>",
        "one argument: <input>",
        details="""
The scheduler acts on a copy of the state, as for `yurt whatif -quota`: jobs that would run more or less, wait, or be
preempted are shown. The file is HCL, or JSON where its name ends in .json. A quota that `quota apply` would refuse is
refused in the same words. Without -snapshot the state is read from the cluster, which needs the right to save
snapshots.

The exit code is 0 when nothing gets worse, and 2 when a job would be preempted or run less than before.
""",
    ),
    CliCommand(
        "quota status",
        "Show a quota, its limits and their use",
        show_quota,
        JSON_FLAGS,
        (1, 1),
        "<quota>",
        "one argument: <quota>",
    ),
)  # fmt: skip
