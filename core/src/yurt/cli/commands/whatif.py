"""`yurt whatif`: the jobs that would run, wait or be preempted with other nodes, quotas or jobs."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from yurt.api.uuids import uuid_prefix
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, parse_json_job, read_hcl, read_source
from yurt.cli.flags import number, switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import now_ns, printable
from yurt.cli.tree import NOUNS
from yurt.cli.views.queue import when
from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from yurt.cli.api.client import ApiClient
    from yurt.cli.files.tracefile import TraceFile
    from yurt.server.simulation.trace_play import TracePlan
    from yurt.server.simulation.what_if import JobOutlook, Scenario
    from yurt.state import Snapshot
    from yurt.structs.cluster import NodePool
    from yurt.structs.job import Job
    from yurt.structs.quota import QuotaSpec

RATE_LEAST, RATE_MOST = 0.01, 100.0
SPAN_MAX_S = 20 * 366 * 86_400
"""The longest time from the first submission of a trace to the last one, as it is played."""
TRACE_FLAGS = ("rate", "node-pool", "check", "ignore", "forecasts", "skip", "submissions")
SAME, WORSE = 0, 2
SHOWN = "Namespace|Job|Running|Waiting|Preempted|Lost|Expected Start|Reason"


def run(call: Invocation) -> int:
    """Apply the changes to a copy of the state, run the scheduler on it, and show the result."""
    from yurt.sdk.value import UnixNano
    from yurt.server.simulation.what_if import what_if

    is_data = wants_data(call)
    if call.flags.is_given("trace"):
        return _play(call)
    given = [name for name in TRACE_FLAGS if call.flags.is_given(name)]
    if given:
        raise UsageError(f"-{given[0]} has a meaning only with -trace")
    state, warnings = _read_source(call)
    try:
        scenario = _scenario(call, state)
        region = region_of(call, (*state.quotas.values(), *scenario.quotas))
        found = what_if(state, scenario, now=UnixNano(now_ns()), region=region)
    except Invalid as error:
        raise CliError(str(error)) from None
    _show_warnings(call, warnings)
    if is_data:
        show_data(call, {"Jobs": [row_of(one) for one in found], "Warnings": list(warnings)})
    elif not found:
        call.screen.line("No job would run otherwise, and none waits")
    else:
        call.screen.table(SHOWN, [cells_of(one) for one in found])
    return WORSE if any(one.is_worse for one in found) else SAME


def _play(call: Invocation) -> int:
    """Play a trace over the changed cluster, and show its figures."""
    from yurt.cli.files.tracefile import read_trace
    from yurt.cli.views.trace_report import checked, parse_check, report_of, show_report
    from yurt.sdk.value import UnixNano
    from yurt.server.simulation.trace_play import play_trace
    from yurt.server.simulation.what_if import changed_cluster

    is_data = wants_data(call)
    if not call.flags.text("trace"):
        raise UsageError("-trace names no file")
    checks = [parse_check(each) for each in call.flags.texts("check")]
    rate = _rate(call)
    part = (call.flags.number("skip"), call.flags.number("submissions"))
    if min(part) < 0:
        raise UsageError("-skip and -submissions take no negative numbers")
    trace = read_trace(call.flags.text("trace"), ignored=call.flags.texts("ignore"), part=part)
    state, warnings = _read_source(call)
    scenario = _scenario(call, state)
    if scenario.jobs:
        raise UsageError("-job and -trace exclude each other: add the job to the trace")
    try:
        state = changed_cluster(state, scenario)
        plan = plan_of(trace, state, call.flags.text("node-pool"), rate=rate)
        region = region_of(call, state.quotas.values())
        plan = plan._replace(region=region, has_forecasts=call.flags.is_on("forecasts"))
        outcome = play_trace(state, plan, now=UnixNano(now_ns()))
    except Invalid as error:
        raise CliError(str(error)) from None
    report = report_of([one.job for one in plan.submissions], outcome, plan.unit) | {
        "Skipped": trace.skipped,
        "HasForecasts": plan.has_forecasts,
        "Warnings": list(warnings),
    }
    report["Checks"] = checked(report, checks)
    _show_warnings(call, warnings)
    if is_data:
        show_data(call, report)
    else:
        show_report(call.screen, report)
    return SAME if all(one["Holds"] for one in report["Checks"]) else WORSE


def _rate(call: Invocation) -> float:
    """By how much faster than in the trace jobs are submitted."""
    word = call.flags.text("rate") or "1"
    try:
        rate = float(word)
    except ValueError:
        rate = 0.0
    if not RATE_LEAST <= rate <= RATE_MOST:
        raise UsageError(f"-rate {word}: write a number from {RATE_LEAST:g} to {RATE_MOST:g}, for example 1.5")
    return rate


def plan_of(trace: TraceFile, state: Snapshot, pool: str, *, rate: float) -> TracePlan:
    """The submissions of a trace for a pool; by default the only one with a queue, else `default`."""
    from yurt.queue.played_trace import TraceJob
    from yurt.sdk.value import NANOSECONDS
    from yurt.server.simulation.trace_play import Submission, TracePlan

    queued = sorted(name for name, row in state.node_pools.items() if row.batch_queue is not None)
    chosen = pool or (queued[0] if len(queued) == 1 else "default")
    if chosen not in state.node_pools:
        raise CliError(f'there is no node pool "{chosen}"')
    unit = next((unit for unit in ("gpu", "core") if any(getattr(row, f"{unit}s") for row in trace.rows)), "MHz")
    first = trace.rows[0].submit
    span_s = (trace.rows[-1].submit - first) / NANOSECONDS / rate
    if span_s > SPAN_MAX_S:
        raise CliError(
            f"the trace lasts {span_s / 86_400:.0f} days from its first submission to its last one, and may last "
            f"{SPAN_MAX_S // 86_400}: is a time wrong, or -rate too small?"
        )
    return TracePlan(
        submissions=tuple(
            Submission(
                job=TraceJob(
                    id=number,
                    submit=first + round((row.submit - first) / rate),
                    duration=row.duration,
                    limit=row.limit,
                    size={"gpu": row.gpus, "core": row.cores, "MHz": row.cpu}[unit],
                    tenant=row.tenant,
                ),
                gpus=row.gpus,
                cores=row.cores,
                cpu=row.cpu,
                memory_mb=row.memory_mb,
                priority=row.priority,
                user=row.user,
                device=row.device,
            )
            for number, row in enumerate(trace.rows)
        ),
        unit=unit,
        pool=chosen,
        region="",
    )


def _read_source(call: Invocation) -> tuple[Snapshot, tuple[str, ...]]:
    """The state of another cluster and what may be missing in it; else that of `state_from`, which is complete."""
    if not call.flags.is_given("from"):
        return state_from(call), ()
    if call.flags.text("snapshot"):
        raise UsageError("-from and -snapshot exclude each other")
    if not call.flags.text("from"):
        raise UsageError("-from names no address")
    from yurt.cli.other_cluster.read import read_cluster

    with _asked_cluster(call) as api:
        return read_cluster(api)


def _show_warnings(call: Invocation, warnings: Iterable[str]) -> None:
    for warning in warnings:
        call.screen.error(f"Warning: {warning}")


def state_from(call: Invocation) -> Snapshot:
    """The state of a snapshot file, or of the cluster."""
    import tempfile
    from pathlib import Path

    from yurt.cli.api.client import error_of

    if call.flags.text("snapshot"):
        return _read(Path(call.flags.text("snapshot")))
    answer = call.api.raw("GET", "/v1/operator/snapshot")
    if not 200 <= answer.status < 300:
        raise error_of(answer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.snap"
        path.touch(mode=0o600)
        path.write_bytes(answer.body)
        return _read(path)


@contextmanager
def _asked_cluster(call: Invocation) -> Iterator[ApiClient]:
    """The client of the cluster that is asked: that of -from, to which only flags apply, else the one of -address."""
    from yurt.cli.api.connect import connect_elsewhere

    if not _asks_elsewhere(call):
        yield call.api
        return
    with closing(connect_elsewhere(call.flags, call.flags.text("from"))) as client:
        yield client


def _asks_elsewhere(call: Invocation) -> bool:
    """Whether another cluster is asked; `quota plan`, which shares this, has no -from."""
    return call.flags.is_given("from") and bool(call.flags.text("from"))


def region_of(call: Invocation, quotas: Iterable[QuotaSpec]) -> str:
    """The region whose limits hold: the one asked for, else that of the cluster or of the quotas of a snapshot."""
    named = call.flags.text("region")
    if not named and not _asks_elsewhere(call):
        named = call.api.connection.region
    if named:
        return named
    if call.flags.text("snapshot"):
        regions = {limit.region for spec in quotas for limit in spec.limits}
        source = "the quotas of the snapshot have limits for"
    elif _asks_elsewhere(call):
        from yurt.cli.other_cluster.read import read_regions

        with _asked_cluster(call) as api:
            regions, source = set(read_regions(api)), "the cluster has"
    else:
        regions, source = set(call.api.get("/v1/regions")), "the cluster has"
    if len(regions) > 1:
        raise CliError(f"{source} the regions {', '.join(sorted(regions))}: choose one with -region")
    return next(iter(regions), "global")


def _read(path: Path) -> Snapshot:
    import tempfile

    from yurt.storage.archive import state_of
    from yurt.storage.archive_check import check_archive_here

    try:
        with path.open("rb") as file, tempfile.TemporaryFile() as unpacked:
            archive, _ = check_archive_here(file, unpacked)
            return state_of(archive, unpacked)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None


def _scenario(call: Invocation, state: Snapshot) -> Scenario:
    from yurt.server.simulation.what_if import Scenario

    added: list[tuple[str, int]] = []
    for word in call.flags.texts("add"):
        count, _, name = word.partition(":")
        if not (count.isascii() and count.isdigit()) or not name:
            raise CliError(f'-add {word}: write COUNT:NODE, for example "4:7f3a", for 4 nodes like that one')
        added.append((_node(state, name, "add"), int(count)))
    lost = [_node(state, name, "lose") for name in call.flags.texts("lose")]
    lost += [node_id for word in call.flags.texts("fail") for node_id in _nodes_where(state, word)]
    pools = tuple(_pool_of_file(path) for path in call.flags.texts("pool"))
    files = call.flags.texts("job")
    target = _with_pools(state, pools) if files else state
    return Scenario(
        lost=tuple(dict.fromkeys(lost)),
        added=tuple(added),
        jobs=tuple(_job(call, path, target) for path in files),
        quotas=_quotas(state, call.flags.texts("quota")),
        pools=pools,
    )


def _nodes_where(state: Snapshot, word: str) -> list[str]:
    """The nodes of which an attribute has a value, for example those of a rack."""
    from yurt.scheduler.constraints.targets import resolve

    name, separator, value = (part.strip() for part in word.partition("="))
    if not (name and separator and value):
        raise CliError(f'-fail {word}: write ATTRIBUTE=VALUE, for example "meta.rack=r7" or "node.datacenter=dc2"')
    target = "${" + name.removeprefix("${").removesuffix("}") + "}"
    found = [node.id for node in state.nodes.values() if resolve(target, node) == value]
    if not found:
        raise CliError(f'-fail {word}: no node has the value "{value}" of {target}')
    return found


def _node(state: Snapshot, word: str, flag: str) -> str:
    """The id of the node that has this name, or whose id begins so."""
    prefix = uuid_prefix(word)
    found = [node.id for node in state.nodes.values() if node.name == word or node.id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} nodes are called or begin so" if found else "there is no such node"
    raise CliError(f"-{flag} {word}: {many}; name one by its ID")


def _job(call: Invocation, path: str, state: Snapshot) -> Job:
    """The job of a file; the servers must accept it in this state, with the limits that they have unless configured."""
    from yurt.api.decode import decode_job
    from yurt.server.config import ServerConfig
    from yurt.server.resources.admission import admit, with_defaults

    # -json is the form of the answer here; a job in JSON is known by its name.
    source, filename = read_source(path)
    document = parse_json_job(source, filename) if path.endswith(".json") else read_hcl(call, source, filename).job
    try:
        job = with_defaults(state, decode_job(document, node_pool="")[0])
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    _refuse(path, admit(state, job, ServerConfig(name="whatif")).errors)
    return job


def _with_pools(state: Snapshot, pools: Iterable[NodePool]) -> Snapshot:
    """The state with these node pools, and with those of nodes that a token of another cluster does not see."""
    from yurt.state import Tables
    from yurt.structs.cluster import NodePool

    hidden = {node.node_pool for node in state.nodes.values()} - set(state.node_pools.keys())
    edit = state.edit(state.index + 1)
    for pool in (*(NodePool(name=name) for name in sorted(hidden)), *pools):
        edit.put(Tables.node_pools, pool.name, pool)
    return edit.commit()


def _quotas(state: Snapshot, paths: Iterable[str]) -> tuple[QuotaSpec, ...]:
    """The quotas of files; each must fit the tree of the others, as when they are applied one by one."""
    from yurt.rules.validation.quota import quota_problems
    from yurt.rules.validation.quota_tree import tree_problems

    known = {row.name: row for row in state.quotas.values()}
    specs: list[QuotaSpec] = []
    for path in paths:
        spec: QuotaSpec = quota_of_file(path)
        known[spec.name] = spec
        _refuse(path, [*quota_problems(spec)] or [*tree_problems(spec, known)])
        specs.append(spec)
    return tuple(specs)


def _refuse(path: str, problems: Sequence[str]) -> None:
    if problems:
        from yurt.cli.files.finding_positions import one_line

        raise CliError(f"{path}: {'; '.join(map(one_line, problems))}")


def quota_of_file(path: str) -> Any:
    """The quota of a file, HCL or JSON by its name."""
    import json

    from yurt.api.decode import decode_value
    from yurt.cli.files.quotafile import read_quota
    from yurt.cli.files.source import read_text
    from yurt.structs.quota import QuotaSpec, with_hashes

    source = read_text(path)
    try:
        spec = json.loads(source) if path.endswith(".json") else read_quota(path, source)
        return with_hashes(decode_value(spec, QuotaSpec, name="Quota")[0])
    except (ValueError, Invalid) as error:
        raise CliError(f"{path}: {error}") from None


def _pool_of_file(path: str) -> NodePool:
    """The node pool of a file, HCL or JSON by its name; the server must accept it."""
    from yurt.api.node_pools import decode_node_pool, pool_name_problem
    from yurt.cli.commands.node.pool import read_pool

    try:
        pool, problems = decode_node_pool(read_pool(path, is_json=False))
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    problem = pool_name_problem(pool.name)
    _refuse(path, [problem] if problem else problems)
    return pool


def row_of(one: JobOutlook) -> Json:
    """An outlook as data."""
    return {
        "Namespace": one.key[0],
        "JobID": one.key[1],
        "RunningBefore": one.runs_before,
        "Running": one.runs,
        "WaitingBefore": one.waits_before,
        "Waiting": one.waits,
        "Preempted": one.preempted,
        "Lost": one.lost,
        "Submitted": one.is_submitted,
        "Worse": one.is_worse,
        "Reason": one.reason,
        "ExpectedStart": one.expected_start,
    }


def cells_of(one: JobOutlook) -> list[object]:
    """An outlook as the cells of a table headed `SHOWN`."""
    return [
        *map(printable, one.key),
        _change(one.runs_before, one.runs),
        _change(one.waits_before, one.waits),
        one.preempted or "",
        one.lost or "",
        when(one.expected_start) if one.expected_start and one.waits else "",
        printable(one.reason),
    ]


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


COMMANDS = (
    CliCommand(
        "whatif",
        NOUNS["whatif"],
        run,
        (
            text("snapshot", "A snapshot file instead of the cluster's state."),
            texts("lose", "A node that would be down, by its ID's beginning or its name; may be repeated."),
            texts("add", "COUNT:NODE: add this number of nodes like that one; may be repeated."),
            texts("job", "A job file that would be submitted; may be repeated."),
            texts("quota", "A file with a quota specification that would be applied; may be repeated."),
            texts(
                "pool",
                "A file with a node pool that would be applied, as with another queue; may be repeated.",
            ),
            texts("fail", "ATTRIBUTE=VALUE: the nodes that have it would be down, as meta.rack=r7; may be repeated."),
            text("from", "Another cluster's address, also Nomad's: read its objects instead of a snapshot."),
            text("trace", "A file of submissions to play over the cluster in virtual time."),
            text("node-pool", "The pool to which the trace is submitted; the only one with a queue, else default."),
            number("skip", "Leave out this number of the trace's first submissions."),
            number("submissions", "Play at most this number of submissions."),
            text("rate", "The factor by which submissions are faster than in the trace; 1 unless given."),
            texts("ignore", "A column of the trace to leave out; may be repeated."),
            switch("forecasts", "Forecast the starts of waiting jobs, and report the error of the forecasts."),
            texts("check", "A limit on a figure of the trace, as 'p95_wait <= 4h'; may be repeated."),
            *(flag for flag in JOBFILE_FLAGS if flag.name != "json"),
            *JSON_FLAGS,
        ),
        details="""
Nothing is changed. The scheduler acts on a copy of the state: on the jobs that the changes concern and on all that
waits, in the order of the queues. The answer is that of the next moment; when jobs that wait in a queue would start is
forecast. Without -snapshot the state is read from the cluster, which needs the right to save snapshots.

The exit code is 0 when nothing gets worse, and 2 when a submitted job would wait, or a job would be preempted or run
less than before. -json prints an object: "Jobs" has a row for each job, "Warnings" the texts on what may be missing.
With -trace it is the report, which has "Warnings" too.

Files of -job, -quota and -pool are refused as servers refuse them, with the limits that these have unless configured.

With -from the nodes, jobs, allocations, namespaces, quotas and node pools of another cluster are read, also of Nomad.
Only GET requests are sent. -token, -region, -namespace and the TLS flags apply to that cluster; the environment
(NOMAD_TOKEN, NOMAD_HTTP_AUTH, NOMAD_CLIENT_CERT and others) does not, since it describes this one. What the token may
not see is missing in its answers: warnings name the namespaces, node pools and quotas that are.

With -trace the trace replaces the cluster's batch work, and is played over it in virtual time; the answer is its
waits, slowdown, utilization and fairness. Services keep what they have. The exit code is 2 when a -check does not hold.
""",
    ),
)
