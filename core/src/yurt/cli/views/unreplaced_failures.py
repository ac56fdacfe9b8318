"""Explains why an evaluation did not replace failed allocations, and prints the command that does."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json


def print_unplaced(call: Invocation, job: Json, eval_id: str, *, is_forced: bool = False) -> None:
    """Where the evaluation placed nothing although allocations have failed, print what to do about it."""
    job_id, namespace = job["ID"], job.get("Namespace") or "default"
    query = {"namespace": namespace}
    allocs: list[Json] = call.api.get(api_path("job", job_id, "allocations"), query) or []
    stuck = [alloc for alloc in allocs if _is_stuck(alloc)]
    if not stuck or any(alloc.get("EvalID") == eval_id for alloc in allocs):
        return
    deployment: Json = call.api.get(api_path("job", job_id, "deployment"), query) or {}
    names = ", ".join(sorted({alloc["Name"] for alloc in stuck})[:3])
    call.screen.line(f"\nNothing was placed for failed allocations ({len(stuck)}: {names}).")
    of_failed = deployment.get("Status") == "failed" and any(
        alloc.get("JobVersion") == deployment.get("JobVersion") for alloc in stuck
    )
    flag = f" -namespace={namespace}" if namespace != "default" else ""
    if of_failed:
        call.screen.line(
            f"The deployment of version {deployment.get('JobVersion')} has failed, and nothing is placed for a failed "
            f"version.\nRegister a version that differs: yurt job run FILE\n"
            f"or return to an earlier one: yurt job history{flag} {job_id}; yurt job revert{flag} {job_id} VERSION"
        )
    elif not is_forced:
        call.screen.line(
            "Their group's reschedule policy allows no further attempt.\n"
            f"Replace them anyway: yurt job eval{flag} -force-reschedule {job_id}"
        )


def _is_stuck(alloc: Json) -> bool:
    """Whether the allocation has failed and will not be replaced."""
    is_replaced = alloc.get("NextAllocation") or alloc.get("FollowupEvalID")
    return alloc["ClientStatus"] == "failed" and alloc["DesiredStatus"] == "run" and not is_replaced
