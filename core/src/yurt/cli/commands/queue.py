"""`yurt queue`: jobs that wait in the queues of node pools, why, and until when."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.api.paging import PAGE_FLAGS, show_next_page
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import go_duration, local_time
from yurt.cli.views.queue import ONE_SECOND, place_facts, place_of, queue_jobs, when

PASSTHROUGH = "passthrough"


def list_queues(call: Invocation) -> int:
    """The queues of all node pools, with the jobs at their heads."""
    is_data = wants_data(call)
    found: dict[str, Json] = {}
    for pool in call.api.get("/v1/node/pools") or []:
        if pool.get("BatchQueue"):
            found[pool["Name"]] = queue_jobs(call, pool["Name"], {"sort": "priority"})
    if is_data:
        return show_data(call, found)
    if not found:
        call.screen.line("No node pool has a queue")
        return 0
    rows = [
        [name, queue["Type"], len(queue["Workloads"]), _head(queue["Workloads"]), _start(queue["Workloads"])]
        for name, queue in found.items()
    ]
    call.screen.table("Node Pool|Type|Waiting|First|Expected Start", rows)
    return 0


def list_queue_jobs(call: Invocation) -> int:
    """The jobs of one queue."""
    is_data = wants_data(call)
    pool = _pool(call)
    query = {
        "sort": "priority" if call.flags.is_on("p") else None,
        "per_page": call.flags.number("per-page") or None,
        "next_token": call.flags.text("page-token"),
    }
    queue = queue_jobs(call, pool, query)
    if is_data:
        return show_data(call, queue["Workloads"])
    if queue["Type"] == PASSTHROUGH:
        call.screen.line(f"No batch job queue configured for node pool: {pool}")
        return 0
    call.screen.line("Batch Queue Workloads")
    if queue["Type"] == "dynamic_priority":
        header = "JobID|Tenant|Status|Adjusted Priority|Base Priority|Position|Fairshare|Age|Cpu|Memory|CreatedAt"
    elif queue["Type"] == "fair_share":
        header = "JobID|Tenant|Status|Position|GPUs|CreatedAt|Expected Start|Reason"
    else:
        header = "JobID|Status|Position|CreatedAt|Expected Start|Reason"
    call.screen.table(header, [[_cell(row, title) for title in header.split("|")] for row in queue["Workloads"]])
    show_next_page(call, queue.get("NextToken") or "")
    return 0


def show_tenants(call: Invocation) -> int:
    """The tenants of one queue."""
    is_data = wants_data(call)
    pool = _pool(call)
    answer: Json = call.api.get("/v1/queue/tenants", {"node_pool": pool})
    if is_data:
        return show_data(call, answer.get("Tenants"))
    if answer["Type"] == PASSTHROUGH:
        call.screen.line("No batch job queue configured")
        return 0
    if answer.get("Tenants") is None:
        raise CliError(f'Queue type "{answer["Type"]}" does not implement status')
    call.screen.line("Batch Queue Tenants")
    rows: list[list[object]] = []
    for tenant in answer["Tenants"]:
        own, total = tenant["TenantFairshare"], tenant["TotalFairshare"]
        rows += [
            [
                tenant["TenantID"],
                name,
                f"{own[name]:.2f} / {total[name]:.2f}",
                tenant["PercentageUsed"],
                tenant["Waiting"],
            ]
            for name in ("cpu", "memory", "gpu")
        ]
    unit = "Used (hours)" if answer["Type"] == "fair_share" else "Allocated"
    call.screen.table(f"Tenant|Resource|{unit} / Total|Percentage|Waiting", rows)
    return 0


def explain_place(call: Invocation) -> int:
    """The position of one job, and what it waits for."""
    is_data = wants_data(call)
    stub = find_job(call, call.args[0])
    job: Json = call.api.get(api_path("job", stub["ID"]), {"namespace": stub.get("Namespace")})
    row = place_of(call, job)
    if is_data:
        return show_data(call, row)
    if row is None:
        call.screen.line(f'Job "{job["ID"]}" waits in no queue (it is {job["Status"]})')
        return 0
    call.screen.pairs(place_facts(row))
    return 0


def show_accuracy(call: Invocation) -> int:
    """How far off the expected starts of one queue were."""
    is_data = wants_data(call)
    pool = _pool(call)
    queue = queue_jobs(call, pool, {"per_page": 1})
    found = queue.get("Accuracy")
    if is_data:
        return show_data(call, found)
    if queue["Type"] == PASSTHROUGH:
        call.screen.line(f"No batch job queue configured for node pool: {pool}")
        return 0
    if found is None:
        call.screen.line("No job that waited has started since this leader's term began")
        return 0
    error = go_duration(found["MedianError"] // ONE_SECOND * ONE_SECOND)
    call.screen.pairs(
        [
            ("Starts Measured", str(found["Starts"])),
            (
                "Median Error While Waiting",
                f"{_percent_of_wait(found.get('AnyTimeErrorPercent'))} (the aim is under 20)",
            ),
            ("Median Error On Arrival", f"{error}, {found['MedianErrorPercent']:g} % of the wait"),
            ("Started By Expected Start", f"{found['ByExpectedStartPercent']:g} % (50 is right)"),
            ("Started In 4 Of 5 Cases By", f"{found['ByExpectedByPercent']:g} % (80 is right)"),
            ("Started After The Latest", _after_latest(found)),
        ]
    )
    if found.get("ByWait"):
        call.screen.line("")
        call.screen.line("Errors on arrival, by the length of the wait")
        call.screen.table(
            "Wait|Starts|Median Wait|Median Error|Error of Wait|By Expected Start",
            [_accuracy_row(each) for each in found["ByWait"]],
        )
    return 0


def _accuracy_row(row: Json) -> list[object]:
    wait, error = (go_duration(row[name] // ONE_SECOND * ONE_SECOND) for name in ("MedianWait", "MedianError"))
    name = f"under {go_duration(row['Below'])}" if row["Below"] else "longer"
    return [
        name, row["Starts"], wait, error, f"{row['MedianErrorPercent']:g} %", f"{row['ByExpectedStartPercent']:g} %"
    ]  # fmt: skip


def _after_latest(found: Json) -> str:
    """`0 of 12 with a latest start`; older servers count without those that had none."""
    late, all_of = found["AfterLatestStart"], found.get("WithLatestStart")
    return str(late) if all_of is None else f"{late} of {all_of} with a latest start"


def _percent_of_wait(value: float | None) -> str:
    return "" if value is None else f"{value:g} % of the wait"


def _pool(call: Invocation) -> str:
    pool = call.flags.text("node-pool")
    if not pool:
        raise UsageError("Name the node pool with -node-pool; yurt queue list lists the pools that have a queue")
    return pool


def _head(rows: list[Json]) -> str:
    return f"{rows[0]['Namespace']}/{rows[0]['JobID']}" if rows else ""


def _start(rows: list[Json]) -> str:
    return when(rows[0]["ExpectedStart"]) if rows and rows[0].get("ExpectedStart") else ""


def _cell(row: Json, title: str) -> object:
    keys = {
        "Adjusted Priority": "AdjustedPriority", "Base Priority": "BasePriority", "Fairshare": "FairshareAdjustment",
        "Age": "AgeAdjustment", "Cpu": "CpuAdjustment", "Memory": "MemoryAdjustment",
    }  # fmt: skip
    if title == "CreatedAt":
        return local_time(row["CreatedAt"])
    if title == "Expected Start":
        return when(row["ExpectedStart"]) if row.get("ExpectedStart") else ""
    if title == "GPUs":
        return f"{row['GPUs']:g}"
    return row.get(keys.get(title, title))


POOL = text("node-pool", "The node pool; needed.")

COMMANDS = (
    CliCommand(
        "queue list",
        "List the node pools with a queue and the job at its head",
        list_queues,
        JSON_FLAGS,
    ),
    CliCommand(
        "queue jobs",
        "List the jobs that wait for a node pool",
        list_queue_jobs,
        (POOL, switch("p", "In the order of the queue, not of the ids."), *PAGE_FLAGS, *JSON_FLAGS),
        details="The job at position 0 is the one that is scheduled next.",
    ),
    CliCommand(
        "queue status",
        "Show what the tenants of a queue have used",
        show_tenants,
        (POOL, *JSON_FLAGS),
        details="Of a fair_share queue decayed usage in hours, of a dynamic_priority queue the present allocations.",
    ),
    CliCommand(
        "queue tenants",
        "Show what the tenants of a queue have used, as `queue status`",
        show_tenants,
        (POOL, *JSON_FLAGS),
    ),
    CliCommand(
        "queue accuracy",
        "Show how far off the expected starts of a queue were",
        show_accuracy,
        (POOL, *JSON_FLAGS),
        details="Measured by the leader on what it said when a job came, of the last 1,000 starts of its term.",
    ),
    CliCommand(
        "queue why",
        "Show where a job stands in its queue and what it waits for",
        explain_place,
        JSON_FLAGS,
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
)
