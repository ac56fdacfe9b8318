"""Monitors an evaluation and then its deployment until they end; prints each change once.

Blocking queries bring a change the moment it happens; the bound of each wait keeps an interrupted agent from holding
the monitor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.terminal.text import clock, local_time
from yurt.cli.views.allocs import job_version
from yurt.cli.views.deployments import deployment_text, is_active
from yurt.cli.views.metrics import failure_lines
from yurt.cli.views.reasons import blockers_of, explained, hint_of, is_of_every_node, nowhere_text

if TYPE_CHECKING:
    from yurt.cli.api.client import IndexedAnswer

Json = dict[str, Any]

WAIT_S = 2.0
PLACEMENT_FAILED = 2
"""The exit code when something could not be placed."""
EVAL_TERMINAL = frozenset({"complete", "failed", "cancelled", "canceled"})


class _Seen(NamedTuple):
    """An allocation as it was last told."""

    status: str
    desired: str
    description: str


class EvalMonitor:
    """Follows evaluations, one after another when each leads to a next."""

    def __init__(self, call: Invocation) -> None:
        self.call = call
        self.api = call.api
        self.seen: dict[str, _Seen] = {}

    def follow(self, eval_id: str) -> int:
        """The exit code: 0, 1 when the evaluation or its deployment failed, 2 when something could not be placed."""
        say = self.call.screen.line
        say(f'==> {clock()}: Monitoring evaluation "{self.call.short(eval_id)}"')
        evaluation = self._until_ended(eval_id)
        code = self._tell_end(evaluation)
        following = evaluation.get("NextEval")
        if following and evaluation["Status"] == "complete" and not code:
            return self.follow(following)
        deployment = evaluation.get("DeploymentID")
        if deployment and not code:
            say()
            return follow_deployment(self.call, deployment)
        if deployment and code == PLACEMENT_FAILED:
            say("\nThe deployment goes on when there is room. Follow it with:")
            say(f"    yurt deployment status -monitor {self.call.short(deployment)}")
        return code

    def _until_ended(self, eval_id: str) -> Json:
        first: Json = self.api.get(api_path("evaluation", eval_id))
        self._indent(self._trigger(first))
        index, status, told_deployment = 0, "pending", False
        while True:
            answer = self.api.read(api_path("evaluation", eval_id), index=index, wait_s=WAIT_S)
            evaluation: Json = answer.data
            if evaluation.get("DeploymentID") and not told_deployment:
                told_deployment = True
                self._indent(f'Evaluation within deployment: "{self.call.short(evaluation["DeploymentID"])}"')
            self._tell_allocs(eval_id)
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

    def _tell_allocs(self, eval_id: str) -> None:
        allocs: list[Json] = self.api.get(api_path("evaluation", eval_id, "allocations")) or []
        for alloc in sorted(allocs, key=lambda each: each["Name"]):
            now = _Seen(alloc["ClientStatus"], alloc["DesiredStatus"], alloc.get("ClientDescription") or "")
            before = self.seen.get(alloc["ID"])
            self.seen[alloc["ID"]] = now
            name = f'Allocation "{self.call.short(alloc["ID"])}"'
            where = f'node "{self.call.short(alloc["NodeID"])}", group "{alloc["TaskGroup"]}"'
            if before is None:
                is_new = alloc.get("EvalID") == eval_id and alloc.get("CreateIndex") == alloc.get("ModifyIndex")
                self._indent(f"{name} {'created' if is_new else 'modified'}: {where}")
            elif before.status != now.status:
                extra = f" ({now.description})" if now.description else ""
                self._indent(f'{name} status changed: "{before.status}" -> "{now.status}"{extra}')

    def _tell_end(self, evaluation: Json) -> int:
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
                self._tell_why(evaluation, explained(self.call, evaluation))
            return PLACEMENT_FAILED
        if status == "complete" and evaluation.get("JobID") and is_of_every_node(evaluation.get("Type")):
            explanation = explained(self.call, evaluation)
            nowhere = nowhere_text(explanation)
            if nowhere:
                screen.line(f'==> {clock()}: Evaluation "{short}" finished with status "{status}" but {nowhere}:')
                self._tell_why(evaluation, explanation)
                return PLACEMENT_FAILED
        screen.line(f'==> {clock()}: Evaluation "{short}" finished with status "{status}"')
        if status in ("complete", "blocked"):
            return 0
        if evaluation.get("StatusDescription"):
            self._indent(evaluation["StatusDescription"], stamp=False)
        return 1

    def _tell_why(self, evaluation: Json, explanation: Json) -> None:
        for line in [*blockers_of(explanation), hint_of(evaluation)]:
            self._indent(line, stamp=False)

    def _indent(self, text: str, *, stamp: bool = True) -> None:
        self.call.screen.line(f"    {clock()}: {text}" if stamp else f"    {text}")


def follow_deployment(call: Invocation, deployment_id: str, *, with_allocs: bool = False) -> int:
    """Show a deployment until it ends: rewritten in place on a terminal, else once a change. 1 when it failed."""
    call.screen.line(f'==> {clock()}: Monitoring deployment "{call.short(deployment_id)}"')
    block = LiveBlock(call)
    path, index, last = api_path("deployment", deployment_id), 0, ""
    while True:
        answer = _read_or_none(call, path, index)
        if answer is None:
            call.screen.line(f'Deployment "{call.short(deployment_id)}" was removed')
            return 1
        deployment: Json = answer.data
        text = deployment_text(deployment, id_length=call.id_length)
        if with_allocs:
            text += "\n\nAllocations\n" + _alloc_lines(call, deployment_id)
        if text != last:
            block.show(text)
            last = text
        if not is_active(deployment):
            return 0 if deployment["Status"] == "successful" else 1
        index = answer.index


def _read_or_none(call: Invocation, path: str, index: int) -> IndexedAnswer | None:
    try:
        return call.api.read(path, index=index, wait_s=WAIT_S)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _alloc_lines(call: Invocation, deployment_id: str) -> str:
    from yurt.cli.terminal.screen import columns

    allocs: list[Json] = call.api.get(api_path("deployment", "allocations", deployment_id)) or []
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
    """A block of lines that replaces its former self on a terminal, and follows it under a time stamp elsewhere."""

    def __init__(self, call: Invocation) -> None:
        self.screen = call.screen
        self.height = 0

    def show(self, text: str) -> None:
        """The block as it is now."""
        lines = text.splitlines()
        if not self.screen.is_terminal:
            self.screen.line("\n".join([f"    {clock()}", *("    " + line if line else "" for line in lines), ""]))
            return
        if self.height:
            self.screen.stream.write(f"\033[{self.height}A\033[J")
        self.screen.line("\n".join("    " + line if line else "" for line in lines))
        self.height = len(lines)
