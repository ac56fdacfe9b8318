"""`yurt whatif`: the jobs that would run, wait or be preempted with other nodes, quotas or jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yurt.api.uuids import uuid_prefix
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, parse_json_job, read_hcl, read_source
from yurt.cli.flags import text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import now_ns
from yurt.cli.tree import NOUNS
from yurt.cli.views.queue import when
from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from yurt.server.queueing.what_if import JobOutlook, Scenario
    from yurt.state import Snapshot
    from yurt.structs.quota import QuotaSpec


SAME, WORSE = 0, 2
SHOWN = "Namespace|Job|Running|Waiting|Preempted|Lost|Expected Start|Reason"


def run(call: Invocation) -> int:
    """Apply the changes to a copy of the state, run the scheduler on it, and show the result."""
    from yurt.sdk.value import UnixNano
    from yurt.server.queueing.what_if import what_if

    is_data = wants_data(call)
    state = state_from(call)
    try:
        scenario = _scenario(call, state)
        region = region_of(call, (*state.quotas.values(), *scenario.quotas))
        found = what_if(state, scenario, now=UnixNano(now_ns()), region=region)
    except Invalid as error:
        raise CliError(str(error)) from None
    if is_data:
        show_data(call, [row_of(one) for one in found])
    elif not found:
        call.screen.line("No job would run otherwise, and none waits")
    else:
        call.screen.table(SHOWN, [cells_of(one) for one in found])
    return WORSE if any(one.is_worse for one in found) else SAME


def state_from(call: Invocation) -> Snapshot:
    """The state of a snapshot file, or of the cluster."""
    import tempfile
    from pathlib import Path

    from yurt.cli.api.client import error_of

    if call.flags.text("snapshot"):
        return _read(Path(call.flags.text("snapshot")))
    answer = call.api.raw("GET", "/v1/operator/snapshot")
    if answer.status >= 400:
        raise error_of(answer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.snap"
        path.touch(mode=0o600)
        path.write_bytes(answer.body)
        return _read(path)


def region_of(call: Invocation, quotas: Iterable[QuotaSpec]) -> str:
    """The region whose limits hold: the one asked for, else that of the cluster or of the quotas of a snapshot."""
    named = call.flags.text("region") or call.api.connection.region
    if named:
        return named
    if call.flags.text("snapshot"):
        regions = {limit.region for spec in quotas for limit in spec.limits}
        source = "the quotas of the snapshot have limits for"
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
    from yurt.server.queueing.what_if import Scenario

    added: list[tuple[str, int]] = []
    for word in call.flags.texts("add"):
        count, _, name = word.partition(":")
        if not (count.isascii() and count.isdigit()) or not name:
            raise CliError(f'-add {word}: write COUNT:NODE, for example "4:7f3a", for 4 nodes like that one')
        added.append((_node(state, name, "add"), int(count)))
    return Scenario(
        lost=tuple(_node(state, name, "lose") for name in call.flags.texts("lose")),
        added=tuple(added),
        jobs=tuple(_job(call, path) for path in call.flags.texts("job")),
        quotas=tuple(quota_of_file(path) for path in call.flags.texts("quota")),
    )


def _node(state: Snapshot, word: str, flag: str) -> str:
    """The id of the node that has this name, or whose id begins so."""
    prefix = uuid_prefix(word)
    found = [node.id for node in state.nodes.values() if node.name == word or node.id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} nodes are called or begin so" if found else "there is no such node"
    raise CliError(f"-{flag} {word}: {many}; name one by its ID")


def _job(call: Invocation, path: str) -> Any:
    from yurt.api.decode import decode_job

    # -json is the form of the answer here; a job in JSON is known by its name.
    source, filename = read_source(path)
    job = parse_json_job(source, filename) if path.endswith(".json") else read_hcl(call, source, filename).job
    try:
        return decode_job(job)[0]
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None


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
        *one.key,
        _change(one.runs_before, one.runs),
        _change(one.waits_before, one.waits),
        one.preempted or "",
        one.lost or "",
        when(one.expected_start) if one.expected_start and one.waits else "",
        one.reason,
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
            *(flag for flag in JOBFILE_FLAGS if flag.name != "json"),
            *JSON_FLAGS,
        ),
        details="""
Nothing is changed. The scheduler acts on a copy of the state: on the jobs that the changes concern and on all that
waits, in the order of the queues. The answer is that of the next moment; when jobs that wait in a queue would start is
forecast. Without -snapshot the state is read from the cluster, which needs the right to save snapshots.

The exit code is 0 when nothing gets worse, and 2 when a submitted job would wait, or a job would be preempted or run
less than before.
""",
    ),
)
