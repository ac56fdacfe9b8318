"""`yurt alloc status` and `yurt alloc checks`: an allocation, its tasks, volumes and service checks."""

from __future__ import annotations

import contextlib
import re

from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.declaration import JSON_FLAGS, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError
from yurt.cli.flags import switch
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import (
    SECOND,
    ago,
    bytes_text,
    go_duration,
    local_time,
    mebibytes,
    now_ns,
    parse_time,
    two_units,
)
from yurt.cli.views.allocs import idle_facts

_INDEX = re.compile(r"\[([0-9]+)\]$")
_LIFECYCLE_ORDER = {"prestart": 0, "": 1, "poststart": 2, "poststop": 3}


def show_checks(call: Invocation) -> int:
    """Show the latest results of an allocation's service checks."""
    is_data = wants_data(call)
    alloc = find_alloc(call, call.args[0])
    checks = checks_of(call, alloc["ID"])
    if is_data:
        return show_data(call, checks)
    if not checks:
        call.screen.line("No checks found")
        return 0
    call.screen.line(f"Status of {len(checks)} Nomad Service Checks\n")
    blocks = (key_values(_check_facts(call, check)) for check in ordered(checks))
    call.screen.line("\n\n".join(blocks))
    return 0


def checks_of(call: Invocation, alloc_id: str) -> dict[str, Json]:
    """The checks of an allocation by their ids."""
    return call.api.get(api_path("client", "allocation", alloc_id, "checks")) or {}


def ordered(checks: dict[str, Json]) -> list[Json]:
    """By service, then task, then name."""
    return sorted(checks.values(), key=lambda check: (check["Service"], check.get("Task") or "", check["Check"]))


def _check_facts(call: Invocation, check: Json) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("ID", call.short(check["ID"])),
        ("Name", check["Check"]),
        ("Group", check["Group"]),
        ("Task", check.get("Task") or "(group)"),
        ("Service", check["Service"]),
        ("Status", check["Status"]),
    ]
    if check.get("StatusCode"):
        facts.append(("StatusCode", check["StatusCode"]))
    facts += [("Mode", check["Mode"]), ("Timestamp", local_time((check.get("Timestamp") or 0) * SECOND))]
    return [*facts, ("Output", check.get("Output") or "")]


def show_volumes(call: Invocation, alloc: Json, group: Json) -> None:
    """Tables of host volumes and of CSI volumes that the group requests."""
    from yurt.cli.views.csi import shown_bool

    requests: list[Json] = [each for _, each in sorted((group.get("Volumes") or {}).items())]
    hosts = [[_source(alloc, each), shown_bool(each.get("ReadOnly"))] for each in requests if each["Type"] == "host"]
    if hosts:
        call.screen.title("Host Volumes:")
        call.screen.table("ID|Read Only", hosts)
    rows = [_csi_row(call, alloc, each) for each in requests if each["Type"] == "csi"]
    if rows:
        call.screen.title("CSI Volumes:")
        call.screen.table("Name|ID|Plugin|Provider|Schedulable|Read Only|Mount Options", rows)


def _source(alloc: Json, request: Json) -> str:
    """The id of the volume; with `per_alloc` each allocation has its own."""
    index = _INDEX.search(alloc["Name"])
    return str(request["Source"]) + (index[0] if request.get("PerAlloc") and index is not None else "")


def _csi_row(call: Invocation, alloc: Json, request: Json) -> list[str]:
    """A row of the CSI volume as the servers know it; mostly empty after it was deregistered."""
    from yurt.cli.views.csi import mount_options, shown_bool

    source = _source(alloc, request)
    volume: Json = {}
    with contextlib.suppress(ApiError):
        volume = call.api.get(api_path("volume", "csi", source), {"namespace": alloc["Namespace"]})
    options = mount_options(request.get("MountOptions") or volume.get("MountOptions"))
    return [
        request["Name"], source, volume.get("PluginID") or "", volume.get("Provider") or "",
        shown_bool(volume.get("Schedulable")), shown_bool(request.get("ReadOnly")), options,
    ]  # fmt: skip


def show_alloc(call: Invocation) -> int:
    """Show one allocation; without an id all of them."""
    from yurt.cli.views.allocs import show_allocs
    from yurt.cli.views.browser import offer_page, page

    is_json = wants_data(call)
    if not call.args:
        allocs = call.api.get("/v1/allocations") or []
        if is_json:
            return show_data(call, allocs)
        show_allocs(call, allocs)
        return 0
    alloc = find_alloc(call, call.args[0])
    if is_json:
        return show_data(call, alloc)
    if call.flags.is_on("short"):
        _show_short(call, alloc)
    else:
        _show(call, alloc)
    offer_page(call, page("allocations", alloc["ID"]), "allocations")
    return 0


def _time(call: Invocation, at_ns: int) -> str:
    return local_time(at_ns) if call.is_verbose else ago(at_ns)


def _show_short(call: Invocation, alloc: Json) -> None:
    screen = call.screen
    times = [
        (name, _time(call, alloc.get(key) or 0))
        for name, key in (("Created", "CreateTime"), ("Modified", "ModifyTime"))
    ]
    screen.pairs([("ID", call.short(alloc["ID"])), ("Name", alloc["Name"]), *times])
    screen.title("Tasks")
    rows = []
    for name in _ordered_tasks(alloc):
        state = (alloc.get("TaskStates") or {}).get(name) or {}
        events = state.get("Events") or []
        last = events[-1] if events else {}
        hook = _lifecycle(alloc, name)
        rows.append(
            [
                name,
                state.get("State") or "pending",
                last.get("Type") or "",
                local_time(last.get("Time") or 0),
                hook or "main",
            ]
        )
    screen.table("Name|State|Last Event|Time|Lifecycle", rows)


def _show(call: Invocation, alloc: Json) -> None:
    from yurt.cli.views.placement_metrics import ruled_out_lines, score_table

    call.screen.pairs(_facts(call, alloc))
    _show_addresses(call, alloc)
    _show_checks(call, alloc)
    show_volumes(call, alloc, _group(alloc))
    stats = _stats(call, alloc)
    _show_account(call, alloc, stats)
    for name in _ordered_tasks(alloc):
        _show_task(call, alloc, name, stats)
    if call.is_verbose:
        call.screen.title("Placement Metrics")
        metric = alloc.get("Metrics") or {}
        lines = ruled_out_lines(metric) + score_table(metric, id_length=call.id_length, prefix="")
        call.screen.line("\n".join(lines).lstrip("\n"))


def _facts(call: Invocation, alloc: Json) -> list[tuple[str, object]]:
    job = alloc.get("Job") or {}
    facts: list[tuple[str, object]] = [
        ("ID", alloc["ID"] if call.is_verbose else call.short(alloc["ID"])),
        ("Eval ID", call.short(alloc.get("EvalID"))),
        ("Name", alloc["Name"]),
        ("Node ID", call.short(alloc["NodeID"])),
        ("Node Name", alloc.get("NodeName") or ""),
        ("Job ID", alloc["JobID"]),
        ("Job Version", job.get("Version") or 0),
        ("Client Status", alloc["ClientStatus"]),
        ("Client Description", alloc.get("ClientDescription") or ""),
        ("Desired Status", alloc["DesiredStatus"]),
        ("Desired Description", alloc.get("DesiredDescription") or ""),
        ("Created", _time(call, alloc.get("CreateTime") or 0)),
        ("Modified", _time(call, alloc.get("ModifyTime") or 0)),
    ]
    if alloc.get("DeploymentID"):
        health = (alloc.get("DeploymentStatus") or {}).get("Healthy")
        facts.append(("Deployment ID", call.short(alloc["DeploymentID"])))
        facts.append(("Deployment Health", "unset" if health is None else "healthy" if health else "unhealthy"))
        if (alloc.get("DeploymentStatus") or {}).get("Canary"):
            facts.append(("Canary", True))
    return (
        facts
        + _reschedule_facts(call, alloc)
        + _requeue_facts(alloc)
        + idle_facts(alloc)
        + (_verbose_facts(alloc) if call.is_verbose else [])
    )


def _reschedule_facts(call: Invocation, alloc: Json) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    attempted = len((alloc.get("RescheduleTracker") or {}).get("Events") or [])
    policy = _group(alloc).get("ReschedulePolicy") or {}
    if attempted or (policy.get("Attempts") and not policy.get("Unlimited")):
        total = "unlimited" if policy.get("Unlimited") else str(policy.get("Attempts") or 0)
        facts.append(("Reschedule Attempts", f"{attempted}/{total}"))
    if alloc.get("NextAllocation"):
        facts.append(("Replacement Alloc ID", call.short(alloc["NextAllocation"])))
    elif alloc.get("FollowupEvalID"):
        try:
            wait = parse_time(call.api.get(api_path("evaluation", alloc["FollowupEvalID"])).get("WaitUntil"))
        except ApiError:
            wait = 0
        if wait > now_ns():
            facts.append(("Reschedule Eligibility", f"{two_units(wait - now_ns())} from now"))
    return facts


def _requeue_facts(alloc: Json) -> list[tuple[str, object]]:
    """What preemption has cost the allocations before this one, and when its tasks saved their work last."""
    facts: list[tuple[str, object]] = []
    tracker, policy = alloc.get("RescheduleTracker") or {}, _group(alloc).get("Requeue")
    if policy is not None:
        attempts = policy.get("Attempts", -1)
        facts.append(("Requeues", f"{tracker.get('Requeues') or 0}/{'unlimited' if attempts < 0 else attempts}"))
    if tracker.get("Requeues"):
        facts.append(("Lost Run Time", go_duration(tracker.get("Lost") or 0)))
    states = (alloc.get("TaskStates") or {}).values()
    saved = max((parse_time(state.get("CheckpointedAt")) for state in states), default=0)
    if saved:
        facts.append(("Last Checkpoint", f"{two_units(max(0, now_ns() - saved))} ago"))
    return facts


def _verbose_facts(alloc: Json) -> list[tuple[str, object]]:
    metric = alloc.get("Metrics") or {}
    return [
        ("Evaluated Nodes", metric.get("NodesEvaluated") or 0),
        ("Filtered Nodes", metric.get("NodesFiltered") or 0),
        ("Exhausted Nodes", metric.get("NodesExhausted") or 0),
        ("Allocation Time", go_duration(metric.get("AllocationTime") or 0)),
        ("Failures", metric.get("CoalescedFailures") or 0),
    ]


def _group(alloc: Json) -> Json:
    groups: list[Json] = (alloc.get("Job") or {}).get("TaskGroups") or []
    return next((group for group in groups if group["Name"] == alloc["TaskGroup"]), {})


def _task(alloc: Json, name: str) -> Json:
    tasks: list[Json] = _group(alloc).get("Tasks") or []
    return next((task for task in tasks if task["Name"] == name), {})


def _lifecycle(alloc: Json, name: str) -> str:
    return str((_task(alloc, name).get("Lifecycle") or {}).get("Hook") or "")


def _ordered_tasks(alloc: Json) -> list[str]:
    names = {task["Name"] for task in _group(alloc).get("Tasks") or ()} | set(alloc.get("TaskStates") or {})
    return sorted(names, key=lambda name: (_LIFECYCLE_ORDER.get(_lifecycle(alloc, name), 1), name))


def _show_addresses(call: Invocation, alloc: Json) -> None:
    shared = (alloc.get("AllocatedResources") or {}).get("Shared") or {}
    ports = shared.get("Ports") or []
    if not ports:
        return
    networks = shared.get("Networks") or [{}]
    mode = (networks[0] or {}).get("Mode") or ""
    dynamic = {port["Label"] for network in networks for port in (network or {}).get("DynamicPorts") or ()}
    call.screen.title(f'Allocation Addresses (mode = "{mode}"):' if mode else "Allocation Addresses:")
    rows = []
    for port in ports:
        to = f" -> {port['To']}" if port.get("To") else ""
        is_dynamic = "yes" if port["Label"] in dynamic else ""
        rows.append([f"*{port['Label']}", is_dynamic or "no", f"{port.get('HostIP') or ''}:{port['Value']}{to}"])
    call.screen.table("Label|Dynamic|Address", rows)


def _show_checks(call: Invocation, alloc: Json) -> None:
    """The check results of a running allocation; nothing when its node does not answer."""
    group = _group(alloc)
    services = [*(group.get("Services") or ()), *(s for t in group.get("Tasks") or () for s in t.get("Services") or ())]
    if alloc["ClientStatus"] != "running" or not any(service.get("Checks") for service in services):
        return
    try:
        checks = ordered(checks_of(call, alloc["ID"]))
    except ApiError:
        return
    if checks:
        call.screen.title("Nomad Service Checks:")
        rows = [[c["Service"], c.get("Task") or "(group)", c["Check"], c["Mode"], c["Status"]] for c in checks]
        call.screen.table("Service|Task|Name|Mode|Status", rows)


def _show_account(call: Invocation, alloc: Json, stats: Json) -> None:
    """What an allocation with devices used of them."""
    tasks = ((alloc.get("AllocatedResources") or {}).get("Tasks") or {}).values()
    if any(task.get("Devices") for task in tasks):
        from yurt.cli.views.accounting import show_alloc_account

        show_alloc_account(call, alloc, stats)


def _stats(call: Invocation, alloc: Json) -> Json:
    """Resource usage of a running allocation; nothing when its node does not answer."""
    if alloc["ClientStatus"] != "running":
        return {}
    try:
        return call.api.get(api_path("client", "allocation", alloc["ID"], "stats")) or {}
    except ApiError:
        return {}


def _show_task(call: Invocation, alloc: Json, name: str, stats: Json) -> None:
    from yurt.cli.views.devices import show_allocated, show_use

    state = (alloc.get("TaskStates") or {}).get(name) or {}
    hook = _lifecycle(alloc, name)
    kind = (
        f" ({hook}{' sidecar' if (_task(alloc, name).get('Lifecycle') or {}).get('Sidecar') else ''})" if hook else ""
    )
    screen = call.screen
    screen.title(f'Task "{name}"{kind} is "{state.get("State") or "pending"}"')
    _show_resources(call, alloc, name, stats)
    if call.flags.is_on("stats"):
        _show_stats(call, name, stats)
    show_allocated(call, alloc, name)
    usage = ((stats.get("Tasks") or {}).get(name) or {}).get("ResourceUsage") or {}
    show_use(call, "Device Stats", usage.get("DeviceStats"), is_whole=call.flags.is_on("stats"))
    screen.title("Task Events:")
    started, finished = parse_time(state.get("StartedAt")), parse_time(state.get("FinishedAt"))
    screen.pairs(
        [
            ("Started At", local_time(started)),
            ("Finished At", local_time(finished)),
            ("Total Restarts", state.get("Restarts") or 0),
            ("Last Restart", local_time(parse_time(state.get("LastRestart")))),
        ]
    )
    screen.title("Recent Events:")
    events = reversed(state.get("Events") or [])
    rows = [
        [local_time(e.get("Time") or 0), e["Type"], e.get("DisplayMessage") or e.get("Message") or ""] for e in events
    ]
    screen.table("Time|Type|Description", rows)


def _show_resources(call: Invocation, alloc: Json, name: str, stats: Json) -> None:
    allocated = (((alloc.get("AllocatedResources") or {}).get("Tasks")) or {}).get(name) or {}
    if not allocated:
        return
    usage = ((stats.get("Tasks") or {}).get(name) or {}).get("ResourceUsage") or {}
    cpu, memory = allocated.get("Cpu") or {}, allocated.get("Memory") or {}
    used_cpu = round((usage.get("CpuStats") or {}).get("TotalTicks") or 0)
    memory_stats = usage.get("MemoryStats") or {}
    used_memory = bytes_text(memory_stats.get("Usage") or memory_stats.get("RSS") or 0)
    disk = ((alloc.get("AllocatedResources") or {}).get("Shared") or {}).get("DiskMB") or 0
    cores = cpu.get("ReservedCores") or []
    call.screen.line(call.screen.style("Task Resources:", "bold"))
    is_running = bool(usage)
    cpu_text = f"{used_cpu}/{cpu.get('CpuShares') or 0} MHz" if is_running else f"{cpu.get('CpuShares') or 0} MHz"
    limit = mebibytes(memory.get("MemoryMB") or 0)
    rows = [[cpu_text, f"{used_memory}/{limit}" if is_running else limit, mebibytes(disk), " "]]
    if memory.get("MemoryMaxMB"):
        rows.append([" ", f"Max: {mebibytes(memory['MemoryMaxMB'])}", " ", " "])
    call.screen.table(f"CPU ({len(cores)} cores)|Memory|Disk|Addresses" if cores else "CPU|Memory|Disk|Addresses", rows)


def _show_stats(call: Invocation, name: str, stats: Json) -> None:
    usage = ((stats.get("Tasks") or {}).get(name) or {}).get("ResourceUsage") or {}
    memory, cpu = usage.get("MemoryStats") or {}, usage.get("CpuStats") or {}
    if memory:
        titles = {"RSS": "RSS", "Cache": "Cache", "Swap": "Swap", "Usage": "Usage", "MaxUsage": "Max Usage"}
        measured = [key for key in titles if key in (memory.get("Measured") or [])] or ["RSS"]
        call.screen.title("Memory Stats")
        call.screen.table(
            "|".join(titles[key] for key in measured), [[bytes_text(memory.get(key) or 0) for key in measured]]
        )
    if cpu:
        call.screen.title("CPU Stats")
        call.screen.table(
            "Percent|User Mode|System Mode",
            [[f"{cpu.get(key) or 0:.2f}%" for key in ("Percent", "UserMode", "SystemMode")]],
        )


COMMANDS = (
    CliCommand(
        "alloc checks",
        "Show the latest results of an allocation's service checks",
        show_checks,
        (VERBOSE, *JSON_FLAGS),
        (1, 1),
        "<allocation>",
        "one argument: <allocation>",
    ),
    CliCommand(
        "alloc status",
        "Show an allocation: its node, tasks, resource use and events",
        show_alloc,
        (
            switch("short", "Print the tasks and their last events alone."),
            switch("stats", "Print what the tasks use in detail."),
            UI,
            VERBOSE,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<allocation>]",
        "at most one argument: <allocation>",
    ),
)
