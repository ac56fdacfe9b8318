"""Lists of jobs, and everything that `job status` shows of one."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import ago, local_time, now_ns, parse_time, two_units
from yurt.cli.views.allocs import show_allocs, show_idle
from yurt.cli.views.deployments import summary_text
from yurt.cli.views.explanations import hint_of
from yurt.cli.views.placement_metrics import failure_lines
from yurt.cli.views.task_failures import show_last_failures

SUMMARY = ("Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown")


def job_type(job: Json) -> str:
    """The type with its kind: `batch/periodic`."""
    kinds = [("/periodic", job.get("Periodic")), ("/parameterized", job.get("ParameterizedJob"))]
    return str(job["Type"]) + "".join(word for word, block in kinds if block)


def job_status(job: Json) -> str:
    """The status, with a word when the job was stopped."""
    return f"{job['Status']} (stopped)" if job.get("Stop") else str(job["Status"])


def show_jobs(call: Invocation, jobs: Iterable[Json], *, with_namespace: bool) -> None:
    """A table of jobs by id."""
    header = (
        "ID|Namespace|Type|Priority|Status|Submit Date" if with_namespace else "ID|Type|Priority|Status|Submit Date"
    )
    rows = []
    for job in sorted(jobs, key=lambda each: (each.get("Namespace") or "", each["ID"])):
        space = [job.get("Namespace") or "default"] if with_namespace else []
        submitted = local_time(job.get("SubmitTime") or 0)
        rows.append([job["ID"], *space, job_type(job), str(job["Priority"]), job_status(job), submitted])
    call.screen.table(header, rows)


def show_job(call: Invocation, job: Json, *, is_short: bool, with_evals: bool, all_allocs: bool) -> None:
    """The facts of a job and, unless a short form is requested, its parts."""
    call.screen.pairs(_facts(call, job))
    if is_short:
        return
    if job.get("Status") == "pending":
        from yurt.cli.views.queue import show_place

        show_place(call, job)
    summary: Json = call.api.get(api_path("job", job["ID"], "summary"), _query(job)) or {}
    if job.get("Periodic") or (job.get("ParameterizedJob") and not job.get("Dispatched")):
        _show_parent(call, job, summary)
        return
    _show_summary(call, summary)
    evaluations: list[Json] = call.api.get(api_path("job", job["ID"], "evaluations"), _query(job)) or []
    if with_evals or call.is_verbose:
        _show_evaluations(call, evaluations)
    path = api_path("job", job["ID"], "allocations")
    allocs: list[Json] = call.api.get(path, {**_query(job), "all": all_allocs}) or []
    _show_rescheduling(call, evaluations, allocs)
    _show_gpus(call, job, evaluations, allocs)
    _show_failure(call, evaluations)
    deployment = call.api.get(api_path("job", job["ID"], "deployment"), _query(job))
    if deployment:
        call.screen.title("Latest Deployment")
        call.screen.line(summary_text(deployment, id_length=call.id_length))
    _show_actions(call, job)
    show_last_failures(call, allocs)
    call.screen.title("Allocations")
    show_allocs(call, allocs)
    show_idle(call, allocs)


def _show_gpus(call: Invocation, job: Json, evaluations: list[Json], allocs: list[Json]) -> None:
    """Show preempted allocations that wait, and the device usage of groups."""
    groups = job.get("TaskGroups") or ()
    if any(group.get("Requeue") for group in groups):
        from yurt.cli.views.requeues import show_requeues

        show_requeues(call, job, evaluations, allocs)
    tasks = (task for group in groups for task in group.get("Tasks") or ())
    if allocs and any((task.get("Resources") or {}).get("Devices") for task in tasks):
        from yurt.cli.views.accounting import show_job_account

        show_job_account(call, job)


def _query(job: Json) -> dict[str, str | int | bool | None]:
    return {"namespace": job.get("Namespace")}


def _facts(call: Invocation, job: Json) -> list[tuple[str, object]]:
    dispatched = bool(job.get("ParameterizedJob")) and not job.get("Dispatched")
    facts: list[tuple[str, object]] = [
        ("ID", job["ID"]),
        ("Name", job["Name"]),
        ("Submit Date", local_time(job.get("SubmitTime") or 0)),
        ("Type", job["Type"]),
        ("Priority", job["Priority"]),
        ("Datacenters", ",".join(job.get("Datacenters") or ())),
        ("Namespace", job.get("Namespace") or "default"),
        ("Node Pool", job.get("NodePool") or "default"),
        ("Status", job_status(job)),
        ("Periodic", bool(job.get("Periodic"))),
        ("Parameterized", dispatched),
    ]
    if job.get("DispatchIdempotencyToken"):
        facts.append(("Idempotency Token", job["DispatchIdempotencyToken"]))
    if job.get("Periodic"):
        facts.append(("Next Periodic Launch", _launch_text(call, job)))
    return facts


def _launch_text(call: Invocation, job: Json) -> str:
    if job.get("Stop"):
        return "none (job stopped)"
    at = next_launch(call, job["ID"], job.get("Namespace"))
    return f"{local_time(at)} ({two_units(max(0, at - now_ns()))} from now)" if at else "none"


def next_launch(call: Invocation, job_id: str, namespace: str | None) -> int:
    """The next start of a periodic job according to a dry run; 0 when unknown."""
    query = {"namespace": namespace}
    try:
        job = call.api.get(api_path("job", job_id), query)
        plan = call.api.put(api_path("job", job_id, "plan"), {"Job": job, "Diff": False}, query)
    except ApiError:
        return 0
    return parse_time((plan or {}).get("NextPeriodicLaunch"))


def _show_parent(call: Invocation, job: Json, summary: Json) -> None:
    """A periodic or parameterized job: what its children do."""
    is_periodic = bool(job.get("Periodic"))
    children = summary.get("Children") or {}
    if not is_periodic:
        config = job["ParameterizedJob"]
        call.screen.title("Parameterized Job")
        call.screen.pairs(
            [
                ("Payload", config.get("Payload") or "optional"),
                ("Required Metadata", ", ".join(config.get("MetaRequired") or ()) or "<none>"),
                ("Optional Metadata", ", ".join(config.get("MetaOptional") or ()) or "<none>"),
            ]
        )
    call.screen.title("Children Job Summary" if is_periodic else "Parameterized Job Summary")
    call.screen.table("Pending|Running|Dead", [[str(children.get(key) or 0) for key in ("Pending", "Running", "Dead")]])
    prefix = f"{job['ID']}/{'periodic' if is_periodic else 'dispatch'}-"
    started = call.api.get("/v1/jobs", {"prefix": prefix, **_query(job)}) or []
    what = "Previously Launched Jobs" if is_periodic else "Dispatched Jobs"
    if not started:
        call.screen.line(
            f"\nNo {'instances of periodic job' if is_periodic else 'dispatched instances of parameterized job'} found"
        )
        return
    call.screen.title(what)
    call.screen.table("ID|Status", [[child["ID"], child["Status"]] for child in started])


def _show_summary(call: Invocation, summary: Json) -> None:
    groups = summary.get("Summary") or {}
    if not groups:
        return
    call.screen.title("Summary")
    rows = [[name, *(str(groups[name].get(key) or 0) for key in SUMMARY)] for name in sorted(groups)]
    call.screen.table("|".join(["Task Group", *SUMMARY]), rows)


def _show_actions(call: Invocation, job: Json) -> None:
    """With -verbose: the commands that tasks declare."""
    rows = [
        [action["Name"], group["Name"], task["Name"]]
        for group in job.get("TaskGroups") or ()
        for task in group.get("Tasks") or ()
        for action in task.get("Actions") or ()
    ]
    if rows and call.is_verbose:
        call.screen.title("Actions")
        call.screen.table("Action Name|Task Group|Task", rows)


def _show_evaluations(call: Invocation, evaluations: list[Json]) -> None:
    if not evaluations:
        return
    call.screen.title("Evaluations")
    ordered = sorted(evaluations, key=lambda each: -(each.get("CreateIndex") or 0))
    rows = [
        [call.short(e["ID"]), str(e["Priority"]), e["TriggeredBy"], e["Status"], placement_failures(e)] for e in ordered
    ]
    call.screen.table("ID|Priority|Triggered By|Status|Placement Failures", rows)


def placement_failures(evaluation: Json) -> str:
    """Whether the evaluation could place everything."""
    if evaluation["Status"] == "blocked":
        return "N/A - In Progress"
    return str(bool(evaluation.get("FailedTGAllocs"))).lower()


def _show_rescheduling(call: Invocation, evaluations: list[Json], allocs: list[Json]) -> None:
    """Replacements of failed allocations that wait for their time."""
    waiting = [(e, parse_time(e.get("WaitUntil"))) for e in evaluations if e["Status"] == "pending"]
    groups = {alloc["FollowupEvalID"]: alloc["TaskGroup"] for alloc in allocs if alloc.get("FollowupEvalID")}
    rows = [
        [groups.get(e["ID"], "N/A"), call.short(e["ID"]), f"{two_units(at - now_ns())} from now"]
        for e, at in waiting
        if at > now_ns()
    ]
    if rows:
        call.screen.title("Future Rescheduling Attempts")
        call.screen.table("Task Group|Eval ID|Eval Time", rows)


def _show_failure(call: Invocation, evaluations: list[Json]) -> None:
    """Why the newest blocked evaluation could not place everything."""
    blocked = [e for e in evaluations if e["Status"] == "blocked"]
    if not blocked:
        return
    newest = max(blocked, key=lambda each: each.get("CreateIndex") or 0)
    failed = newest.get("FailedTGAllocs") or {}
    if not failed:
        before = next((e for e in evaluations if e["ID"] == newest.get("PreviousEval")), {})
        failed = before.get("FailedTGAllocs") or {}
    if failed:
        call.screen.title("Placement Failure")
        lines = failure_lines(failed, call.screen, verbose=call.is_verbose, id_length=call.id_length)
        call.screen.line("\n".join(lines))
        call.screen.line(f"\n{hint_of(newest)}")


def show_task_states(call: Invocation, alloc: Json) -> None:
    """The last event of every task."""
    rows = []
    for name, state in sorted((alloc.get("TaskStates") or {}).items()):
        events = state.get("Events") or []
        last = events[-1] if events else {}
        rows.append([name, state["State"], last.get("Type") or "", ago(last.get("Time") or 0)])
    call.screen.table("Name|State|Last Event|Time", rows)
