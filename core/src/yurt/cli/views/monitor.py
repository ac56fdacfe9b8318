"""Monitors an evaluation, then its deployment or the start of its tasks, until they end; prints each change once.

Blocking queries bring a change the moment it happens; the bound of each wait keeps an interrupted agent from holding
the monitor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import clock, local_time
from yurt.cli.views.allocs import job_version
from yurt.cli.views.deployments import deployment_text, is_active
from yurt.cli.views.explanations import blockers_of, explained, hint_of, is_of_every_node, nowhere_text
from yurt.cli.views.placement_metrics import failure_lines
from yurt.cli.views.task_failures import TaskFailure, last_failures
from yurt.cli.views.task_start import StartWatch, outcome_lines

if TYPE_CHECKING:
    from yurt.cli.api.client import IndexedAnswer


WAIT_S = 2.0
HEALTH_WAIT_S = 0.5
"""How often the deployment is read while its allocations change."""
PLACEMENT_FAILED = 2
"""The exit code when something could not be placed."""
EVAL_TERMINAL = frozenset({"complete", "failed", "cancelled", "canceled"})


class _Seen(NamedTuple):
    """An allocation as last shown."""

    status: str
    desired: str
    description: str


class EvalMonitor:
    """Follows evaluations through their successors; with `waits` also until all tasks have ended."""

    def __init__(self, call: Invocation, *, waits: bool = False) -> None:
        self.call = call
        self.api = call.api
        self.waits = waits
        self.seen: dict[str, _Seen] = {}
        self.watch = StartWatch(call, self._indent)

    def follow(self, eval_id: str) -> int:
        """The exit code: 0, 1 when the evaluation or its deployment failed, 2 when something could not be placed."""
        say = self.call.screen.line
        say(f'==> {clock()}: Monitoring evaluation "{self.call.short(eval_id)}"')
        evaluation = self._until_ended(eval_id)
        code = self._print_end(evaluation)
        following = evaluation.get("NextEval")
        if following and evaluation["Status"] == "complete" and not code:
            return self.follow(following)
        deployment = evaluation.get("DeploymentID")
        if deployment and not code:
            say()
            return follow_deployment(self.call, deployment, by=evaluation)
        if deployment and code == PLACEMENT_FAILED:
            say("\nThe deployment goes on when there is room. Follow it with:")
            say(f"    yurt deployment status -monitor {self.call.short(deployment)}")
        return code or self._follow_start(evaluation)

    def _follow_start(self, evaluation: Json) -> int:
        """Follow the tasks of new allocations until they run, with `waits` until they end; 1 when any failed."""
        path, is_first, index = api_path("evaluation", evaluation["ID"], "allocations"), True, 0
        while True:
            answer = self.api.read(path, index=index, wait_s=HEALTH_WAIT_S)
            own_allocs = [each for each in answer.data or () if each.get("EvalID") == evaluation["ID"]]
            if not own_allocs:
                return self._print_nothing_done(evaluation)
            allocs = [each for each in own_allocs if not _is_older(each, evaluation)]
            if not allocs:
                return 0
            if not is_first:
                self._print_allocs(evaluation)
            self.watch.take(allocs)
            stuck = self.watch.stuck_groups(allocs)
            if stuck:
                return self._print_stuck(allocs, stuck)
            ended = all(each["ClientStatus"] in ("complete", "failed", "lost") for each in allocs)
            if ended or (not self.waits and self.watch.are_settled(allocs)):
                return self._print_outcome(evaluation, allocs)
            is_first, index = False, answer.index

    def _print_stuck(self, allocs: list[Json], stuck: list[str]) -> int:
        say = self.call.screen.line
        have_ended = all(each["ClientStatus"] == "failed" for each in allocs)
        say(f"==> {clock()}: {stuck_title(self.watch, stuck, have_ended=have_ended)}:")
        for line in self.watch.reasons(stuck):
            say(f"    {line}")
        say(f"    More about it: yurt alloc status {self.call.short(_example(allocs, stuck)['ID'])}")
        return 1

    def _print_outcome(self, evaluation: Json, allocs: list[Json]) -> int:
        for line in outcome_lines(self.call, allocs):
            self.call.screen.line(line)
        failed = sorted({each["TaskGroup"] for each in allocs if each["ClientStatus"] in ("failed", "lost")})
        if failed:
            return self._print_failed(allocs, failed)
        if evaluation.get("Type") == "batch" and any(each["ClientStatus"] == "running" for each in allocs):
            self._indent(f"It goes on. What becomes of it: yurt job status {evaluation['JobID']}", stamp=False)
        return 0

    def _print_failed(self, allocs: list[Json], failed: list[str]) -> int:
        for line in self.watch.reasons(failed):
            self._indent(line, stamp=False)
        self._indent(f"More about it: yurt alloc status {self.call.short(_example(allocs, failed)['ID'])}", stamp=False)
        return 1

    def _print_nothing_done(self, evaluation: Json) -> int:
        """Say why a registration placed nothing: the job is as it was. 1 where it has failed."""
        if evaluation.get("TriggeredBy") != "job-register" or evaluation["Status"] != "complete":
            return 0
        path, query = api_path("job", evaluation["JobID"]), {"namespace": evaluation.get("Namespace")}
        try:
            job: Json = self.api.get(path, query)
            allocs = self.api.get(f"{path}/allocations", query) or [] if has_ended(job) else []
        except ApiError:
            return 0
        failed = final_failures(job, allocs)
        for line in nothing_done_lines(job, failed):
            self._indent(line, stamp=False)
        return 1 if failed else 0

    def _until_ended(self, eval_id: str) -> Json:
        first: Json = self.api.get(api_path("evaluation", eval_id))
        self._indent(self._trigger(first))
        index, status, shown_deployment = 0, "pending", False
        while True:
            answer = self.api.read(api_path("evaluation", eval_id), index=index, wait_s=WAIT_S)
            evaluation: Json = answer.data
            if evaluation.get("DeploymentID") and not shown_deployment:
                shown_deployment = True
                self._indent(f'Evaluation within deployment: "{self.call.short(evaluation["DeploymentID"])}"')
            self._print_allocs(evaluation)
            if evaluation["Status"] != status:
                self._indent(f'Evaluation status changed: "{status}" -> "{evaluation["Status"]}"')
                status = evaluation["Status"]
            if status in EVAL_TERMINAL or status == "blocked":
                return evaluation
            index = answer.index

    def _trigger(self, evaluation: Json) -> str:
        if evaluation.get("TriggeredBy") == "node-update" or (evaluation.get("NodeID") and not evaluation.get("JobID")):
            return f'Evaluation triggered by node "{self.call.short(evaluation["NodeID"])}"'
        return f'Evaluation triggered by job "{evaluation["JobID"]}"'

    def _print_allocs(self, evaluation: Json) -> None:
        allocs: list[Json] = self.api.get(api_path("evaluation", evaluation["ID"], "allocations")) or []
        for alloc in sorted(allocs, key=lambda each: each["Name"]):
            now = _Seen(alloc["ClientStatus"], alloc["DesiredStatus"], alloc.get("ClientDescription") or "")
            before = self.seen.get(alloc["ID"])
            self.seen[alloc["ID"]] = now
            name = f'Allocation "{self.call.short(alloc["ID"])}"'
            where = f'node "{self.call.short(alloc["NodeID"])}", group "{alloc["TaskGroup"]}"'
            if before is None:
                # Not by its last change: its client may have reported it before it is seen here.
                is_new = alloc.get("CreateIndex", 0) >= evaluation.get("CreateIndex", 0)
                self._indent(f"{name} {'created' if is_new else 'modified'}: {where}")
            elif before.status != now.status:
                extra = f" ({now.description})" if now.description else ""
                self._indent(f'{name} status changed: "{before.status}" -> "{now.status}"{extra}')

    def _print_end(self, evaluation: Json) -> int:
        screen, short = self.call.screen, self.call.short(evaluation["ID"])
        failed = evaluation.get("FailedTGAllocs") or {}
        status = evaluation["Status"]
        if status == "complete" and failed:
            ended = f'Evaluation "{short}" finished with status "{status}" but failed to place all allocations:'
            screen.line(f"==> {clock()}: {ended}")
            lines = failure_lines(failed, screen, verbose=self.call.is_verbose, id_length=self.call.id_length)
            screen.line("\n".join("    " + line for line in lines))
            if evaluation.get("BlockedEval"):
                blocked = self.call.short(evaluation["BlockedEval"])
                self._indent(f'Evaluation "{blocked}" waiting for additional capacity to place remainder', stamp=False)
            if evaluation.get("JobID"):
                self._print_why(evaluation, explained(self.call, evaluation))
            return PLACEMENT_FAILED
        if status == "complete" and evaluation.get("JobID") and is_of_every_node(evaluation.get("Type")):
            explanation = explained(self.call, evaluation)
            nowhere = nowhere_text(explanation)
            if nowhere:
                screen.line(f'==> {clock()}: Evaluation "{short}" finished with status "{status}" but {nowhere}:')
                self._print_why(evaluation, explanation)
                return PLACEMENT_FAILED
        screen.line(f'==> {clock()}: Evaluation "{short}" finished with status "{status}"')
        if status in ("complete", "blocked"):
            return 0
        if evaluation.get("StatusDescription"):
            self._indent(evaluation["StatusDescription"], stamp=False)
        return 1

    def _print_why(self, evaluation: Json, explanation: Json) -> None:
        for line in [*blockers_of(explanation), hint_of(evaluation)]:
            self._indent(line, stamp=False)

    def _indent(self, text: str, *, stamp: bool = True) -> None:
        self.call.screen.line(f"    {clock()}: {text}" if stamp else f"    {text}")


def stuck_title(watch: StartWatch, stuck: list[str], *, have_ended: bool = False) -> str:
    """What became of groups of which no task runs: their last failures were ends of tasks, or failed starts."""
    if not watch.have_run(stuck):
        return "Tasks cannot start"
    return "Tasks failed" if have_ended else "Tasks fail after each start"


def has_ended(job: Json) -> bool:
    """Whether a job has run to its end, well or not."""
    return job.get("Status") == "dead" and job.get("Type") in ("batch", "sysbatch")


def final_failures(job: Json, allocs: list[Json]) -> list[TaskFailure]:
    """The last failure of each group of which an allocation of the present version failed and was not replaced."""
    own = [each for each in allocs if job_version(each) == (job.get("Version") or 0) and not each.get("NextAllocation")]
    return last_failures(each for each in own if each["ClientStatus"] in ("failed", "lost"))


def nothing_done_lines(job: Json, failed: Sequence[TaskFailure] = ()) -> list[str]:
    """The lines about a registered job of which nothing was placed; empty where nothing was to be placed."""
    job_id, groups = job["ID"], job.get("TaskGroups") or ()
    if job.get("Stop") or job.get("Periodic") or not any(group.get("Count") for group in groups):
        return []
    if has_ended(job):
        ended = "its last run failed" if failed else "has run to its end"
        return [
            f'Nothing was to be done: job "{job_id}" is unchanged and {ended}.',
            *(f'Group "{each.group}": task "{each.task}": {each.reason}' for each in failed),
            f"To run it again, stop it and register it once more: yurt job stop {job_id}, then yurt job run",
        ]
    return [f'Nothing was to be done: job "{job_id}" is unchanged.']


def follow_deployment(
    call: Invocation, deployment_id: str, *, with_allocs: bool = False, by: Json | None = None, pause_s: float = 0.0
) -> int:
    """Show a deployment until it ends: rewritten in place on a terminal, else once a change. 1 when it failed.

    Changes within `pause_s` of the one that was shown last are shown together.
    With `by`, the evaluation that made or changed it, the progress of its tasks from then on is shown too, and the wait
    ends when no task of a group can start.
    """
    call.screen.line(f'==> {clock()}: Monitoring deployment "{call.short(deployment_id)}"')
    block = LiveBlock(call)
    watch = StartWatch(call, block.say) if by is not None else None
    path, index, last, shown_s = api_path("deployment", deployment_id), 0, "", 0.0
    while True:
        answer = _read_or_none(call, path, index, HEALTH_WAIT_S if watch else WAIT_S)
        if answer is None:
            call.screen.line(f'Deployment "{call.short(deployment_id)}" was removed')
            return 1
        deployment: Json = answer.data
        allocs = _allocs_of(call, deployment_id) if with_allocs or watch else []
        if watch:
            is_changed_only = by is not None and _is_older(deployment, by)
            is_first = not index
            watch.skip([each for each in allocs if _is_older(each, deployment) or (is_first and is_changed_only)])
            watch.take(allocs)
        text = deployment_text(deployment, id_length=call.id_length)
        if with_allocs:
            text += "\n\nAllocations\n" + _alloc_lines(call, allocs)
        if text != last:
            block.show(text)
            last, shown_s = text, time.monotonic()
        if not is_active(deployment):
            return 0 if deployment["Status"] == "successful" else _print_failed_deployment(call, watch, allocs)
        stuck = watch.stuck_groups(allocs) if watch else []
        if watch and stuck:
            return _print_stuck_deployment(call, deployment_id, watch, stuck)
        index = answer.index
        time.sleep(max(0.0, shown_s + pause_s - time.monotonic()))


def _print_failed_deployment(call: Invocation, watch: StartWatch | None, allocs: list[Json]) -> int:
    for failure in last_failures(allocs) if watch else ():
        call.screen.line(f'    Group "{failure.group}": task "{failure.task}": {failure.reason}')
    return 1


def _print_stuck_deployment(call: Invocation, deployment_id: str, watch: StartWatch, stuck: list[str]) -> int:
    say, short = call.screen.line, call.short(deployment_id)
    say(f"==> {clock()}: {stuck_title(watch, stuck)}:")
    for line in watch.reasons(stuck):
        say(f"    {line}")
    say("    The deployment goes on trying until its progress deadline. Follow it, or end it, with:")
    say(f"        yurt deployment status -monitor {short}")
    say(f"        yurt deployment fail {short}")
    return 1


def _allocs_of(call: Invocation, deployment_id: str) -> list[Json]:
    found: list[Json] = call.api.get(api_path("deployment", "allocations", deployment_id)) or []
    return found


def _is_older(alloc: Json, than: Json) -> bool:
    """Whether an allocation was there before an evaluation or a deployment, which changed it in place."""
    return (alloc.get("CreateIndex") or 0) < (than.get("CreateIndex") or 0)


def _example(allocs: list[Json], groups: list[str]) -> Json:
    """The newest failed allocation of the groups, else the newest."""
    found = [each for each in allocs if each["TaskGroup"] in groups]
    failed = [each for each in found if each["ClientStatus"] in ("failed", "lost")] or found
    return max(failed, key=lambda each: each.get("CreateIndex") or 0)


def _read_or_none(call: Invocation, path: str, index: int, wait_s: float) -> IndexedAnswer | None:
    try:
        return call.api.read(path, index=index, wait_s=wait_s)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _alloc_lines(call: Invocation, allocs: list[Json]) -> str:
    from yurt.cli.terminal.screen import columns

    rows = [["ID", "Task Group", "Version", "Status", "Modified"]]
    for alloc in allocs:
        changed = local_time(alloc.get("ModifyTime") or 0)
        rows.append(
            [
                call.short(alloc["ID"]),
                alloc["TaskGroup"],
                str(job_version(alloc)),
                alloc["ClientStatus"],
                changed,
            ]
        )
    return columns(rows)


class LiveBlock:
    """A block of lines that replaces its earlier version on a terminal, and follows it under a time stamp elsewhere."""

    def __init__(self, call: Invocation) -> None:
        self.screen = call.screen
        self.height = 0
        self.last = ""

    def say(self, text: str) -> None:
        """A line above the block."""
        last = self.last
        self._clear()
        self.screen.line(f"    {clock()}: {text}")
        if self.screen.is_terminal and last:
            self.show(last)

    def _clear(self) -> None:
        if self.height:
            self.screen.stream.write(f"\033[{self.height}A\033[J")
        self.height, self.last = 0, ""

    def show(self, text: str) -> None:
        """The block as it is now."""
        lines = text.splitlines()
        if not self.screen.is_terminal:
            self.screen.line("\n".join([f"    {clock()}", *("    " + line if line else "" for line in lines), ""]))
            return
        self._clear()
        self.screen.line("\n".join("    " + line if line else "" for line in lines))
        self.height, self.last = len(lines), text
