"""`job run` tells what the tasks do, and ends early with the reason when none of a group can start."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.views import task_failures, task_start

EVAL_ID, ALLOC_ID = "aaaaaaaa-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000"
DEPLOYMENT_ID = "dddddddd-0000-0000-0000-000000000000"
EVAL: dict[str, Any] = {
    "ID": EVAL_ID, "JobID": "web", "Namespace": "default", "Status": "complete", "TriggeredBy": "job-register",
    "Type": "batch", "CreateIndex": 5,
}  # fmt: skip
EXITED = {"Type": "Terminated", "ExitCode": 3, "DisplayMessage": "Exit Code: 3", "Time": 30}
STARTED = {"Type": "Started", "DisplayMessage": "Task started by client", "Time": 20}


def alloc(status: str, *events: dict[str, Any], **changed: Any) -> dict[str, Any]:
    states = {"main": {"State": "dead", "Failed": status == "failed", "Events": list(events)}}
    return {
        "ID": ALLOC_ID, "EvalID": EVAL_ID, "NodeID": "cccccccc-0", "Name": "web.g[0]", "JobID": "web", "TaskGroup": "g",
        "DesiredStatus": "run", "ClientStatus": status, "CreateIndex": 6, "ModifyIndex": 7, "TaskStates": states,
        **changed,
    }  # fmt: skip


def frame(text: str) -> bytes:
    return json.dumps({"Data": base64.b64encode(text.encode()).decode()}).encode()


@pytest.fixture
def register(api: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Run a job whose allocation goes through the given states."""
    monkeypatch.setattr(task_start, "SETTLE_S", 0.0)
    path = tmp_path / "web.json"
    path.write_text('{"Job": {"ID": "web"}}')

    def go(*states: list[dict[str, Any]], evaluation: dict[str, Any] | None = None) -> tuple[int, str]:
        left = list(states)
        api.answers |= {
            "/v1/jobs": {"EvalID": EVAL_ID}, f"/v1/evaluation/{EVAL_ID}": {**EVAL, **(evaluation or {})},
            f"/v1/evaluation/{EVAL_ID}/allocations": lambda query: left.pop(0) if len(left) > 1 else left[0],
        }  # fmt: skip
        code, out, _ = run("job", "run", str(path))
        return code, out

    return go


def test_a_failed_batch_job_is_told_with_its_reason_and_the_end_of_its_log(api: Any, register: Any) -> None:
    api.answers |= {
        f"/v1/client/fs/ls/{ALLOC_ID}": [{"Name": "main.stderr.0", "Size": 6}],
        f"/v1/client/fs/logs/{ALLOC_ID}": frame("oh no\n"),
    }  # fmt: skip
    code, out = register([alloc("pending")], [alloc("failed", STARTED, EXITED)])

    assert code == 1
    assert 'Task "main" of allocation "bbbbbbbb" failed: Terminated: Exit Code: 3\n' in out
    assert "stderr: oh no\n" in out
    assert ': Tasks failed:\n    Group "g": task "main": Terminated: Exit Code: 3\n' in out
    assert out.endswith("More about it: yurt alloc status bbbbbbbb\n")


def test_a_batch_job_that_ended_well_is_complete(register: Any) -> None:
    code, out = register([alloc("pending")], [alloc("complete", STARTED, EXITED | {"ExitCode": 0})])

    assert code == 0 and out.endswith(": 1 allocation complete\n")
    assert "failed" not in out


def test_a_job_that_goes_on_says_where_to_look(register: Any) -> None:
    code, out = register([alloc("running", STARTED)])

    assert code == 0 and out.endswith("It goes on. What becomes of it: yurt job status web\n")


def test_progress_of_images_and_restarts_is_told_once(register: Any) -> None:
    pulling = {"Type": "Driver", "DisplayMessage": "pulling: 1 of 3 layers, 12.0 MiB downloaded", "Time": 10}
    again = {"Type": "Restarting", "DisplayMessage": "Task restarting in 15s", "Time": 31}
    code, out = register(
        [alloc("pending", pulling)], [alloc("running", pulling, STARTED, EXITED, again)],
        [alloc("running", pulling, STARTED, EXITED, again, STARTED | {"Time": 40})],
    )  # fmt: skip

    assert code == 0
    for text in ("pulling: 1 of 3 layers, 12.0 MiB downloaded", "Restarting: Task restarting in 15s", "Exit Code: 3"):
        assert out.count(text) == 1


def test_a_task_that_fails_again_and_again_is_not_waited_for(register: Any) -> None:
    failed = [EXITED | {"Time": at} for at in (1, 2, 3)]
    code, out = register([alloc("running", *failed)])

    assert code == 1 and "Tasks fail after each start:" in out


def test_one_group_that_cannot_start_is_enough_and_one_good_allocation_of_it_is_not(register: Any) -> None:
    bad = alloc("failed", {"Type": "Driver Failure", "DisplayMessage": "no such image", "Time": 9})
    good = alloc("running", STARTED, ID="bbbbbbbb-1", Name="web.g[1]")
    code, out = register([bad, alloc("running", STARTED, ID="bbbbbbbb-1", Name="web.h[0]", TaskGroup="h")])
    assert code == 1 and 'Group "g": task "main": Driver Failure: no such image' in out

    code, out = register([bad, good])
    assert code == 1 and "1 allocation running, 1 allocation failed" in out


def test_allocations_that_were_changed_in_place_are_not_told_again(register: Any) -> None:
    code, out = register([alloc("running", STARTED, EXITED, CreateIndex=2)])

    assert code == 0 and "failed" not in out and "Nothing was to be done" not in out


def test_an_unchanged_job_says_that_nothing_was_to_be_done_and_how_to_run_it_again(api: Any, register: Any) -> None:
    job = {"ID": "web", "Type": "batch", "Status": "dead", "TaskGroups": [{"Name": "g", "Count": 1}]}
    api.answers |= {"/v1/job/web": job, "/v1/job/web/allocations": [alloc("complete", STARTED, JobVersion=0)]}
    code, out = register([])
    assert code == 0
    assert 'Nothing was to be done: job "web" is unchanged and has run to its end.' in out
    assert "yurt job stop web, then yurt job run" in out

    job |= {"Status": "running", "Type": "service"}
    assert register([])[1].endswith('Nothing was to be done: job "web" is unchanged.\n')
    job["TaskGroups"] = [{"Name": "g", "Count": 0}]
    assert "Nothing" not in register([])[1]


def test_an_unchanged_job_that_failed_is_no_success(api: Any, register: Any) -> None:
    job = {"ID": "web", "Type": "batch", "Status": "dead", "Version": 2, "TaskGroups": [{"Name": "g", "Count": 1}]}
    allocs = [alloc("failed", STARTED, EXITED, JobVersion=2)]
    api.answers |= {"/v1/job/web": job, "/v1/job/web/allocations": allocs}
    code, out = register([])
    assert code == 1
    assert 'job "web" is unchanged and its last run failed.' in out
    assert 'Group "g": task "main": Terminated: Exit Code: 3' in out and "yurt job stop web" in out

    for changed in ({"NextAllocation": "replaced"}, {"JobVersion": 1}):
        api.answers["/v1/job/web/allocations"] = [{**allocs[0], **changed}]
        assert register([])[0] == 0


def test_a_deployment_whose_tasks_cannot_start_is_not_waited_for(api: Any, register: Any) -> None:
    missing = {"Type": "Driver Failure", "DisplayMessage": "no such image", "Time": 9}
    api.answers |= {
        f"/v1/deployment/{DEPLOYMENT_ID}": {
            "ID": DEPLOYMENT_ID, "JobID": "web", "Status": "running", "TaskGroups": {}, "CreateIndex": 5,
        },
        f"/v1/deployment/allocations/{DEPLOYMENT_ID}": [alloc("failed", missing)],
    }  # fmt: skip
    code, out = register([], evaluation={"DeploymentID": DEPLOYMENT_ID, "Type": "service"})

    assert code == 1
    assert 'Tasks cannot start:\n    Group "g": task "main": Driver Failure: no such image\n' in out
    assert out.endswith("yurt deployment fail dddddddd\n")


def test_a_failed_deployment_ends_with_the_reason(api: Any, register: Any) -> None:
    allocs = [alloc("failed", STARTED, EXITED), alloc("running", STARTED, ID="bbbbbbbb-1", Name="web.g[1]")]
    api.answers |= {
        f"/v1/deployment/{DEPLOYMENT_ID}": {
            "ID": DEPLOYMENT_ID, "JobID": "web", "Status": "failed", "TaskGroups": {}, "CreateIndex": 5,
        },
        f"/v1/deployment/allocations/{DEPLOYMENT_ID}": allocs,
    }  # fmt: skip
    code, out = register([], evaluation={"DeploymentID": DEPLOYMENT_ID, "Type": "service"})

    assert code == 1 and out.endswith('Group "g": task "main": Terminated: Exit Code: 3\n')


def test_the_past_of_a_deployment_that_an_evaluation_changed_is_not_shown_again(api: Any, register: Any) -> None:
    deployment = {"ID": DEPLOYMENT_ID, "JobID": "web", "Status": "failed", "TaskGroups": {}, "CreateIndex": 4}
    restarting = {"Type": "Restarting", "DisplayMessage": "Task restarting in 1s", "Time": 31}
    api.answers |= {
        f"/v1/deployment/{DEPLOYMENT_ID}": deployment,
        f"/v1/deployment/allocations/{DEPLOYMENT_ID}": [alloc("running", STARTED, EXITED, restarting)],
    }
    changed = {"DeploymentID": DEPLOYMENT_ID, "Type": "service"}

    assert "Restarting" not in register([], evaluation=changed)[1]
    deployment["CreateIndex"] = EVAL["CreateIndex"] + 1
    assert "Restarting" in register([], evaluation=changed)[1]


def test_job_status_and_why_not_name_the_last_failure_of_each_group(api: Any, run: Any) -> None:
    job = {
        "ID": "web", "Name": "web", "Namespace": "default", "Type": "service", "Priority": 50, "Status": "running",
        "TaskGroups": [{"Name": "g"}],
    }  # fmt: skip
    earlier = alloc("failed", EXITED | {"Time": 1, "ExitCode": 1, "DisplayMessage": "Exit Code: 1"}, ID="bbbbbbbb-1")
    api.answers |= {
        "/v1/jobs": [job], "/v1/job/web": job, "/v1/job/web/summary": {}, "/v1/job/web/evaluations": [],
        "/v1/job/web/deployment": b"null",
        "/v1/job/web/allocations": [alloc("failed", STARTED, EXITED), earlier],
        "/v1/yurt/job/why-not": {"JobID": "web", "Groups": [{"Name": "g", "Desired": 1, "Running": 1}]},
    }  # fmt: skip
    for words in (("job", "status", "web"), ("job", "why-not", "web")):
        _, out, err = run(*words)
        assert err == ""
        at = out.splitlines().index("Last Failures")
        row = out.splitlines()[at + 2]
        assert row.split()[:3] == ["g", "main", "bbbbbbbb"] and row.endswith("Terminated: Exit Code: 3")
        assert "yurt alloc logs -stderr bbbbbbbb main" in out
        assert "Exit Code: 1" not in out


CHECK_FAILED = {"Type": "Restart Signaled", "DisplayMessage": 'healthcheck: check "up" unhealthy', "Time": 25}


def test_a_failing_health_check_is_named_and_not_the_end_of_the_tasks_that_it_restarts() -> None:
    (failure,) = task_failures.last_failures([alloc("running", STARTED, CHECK_FAILED, EXITED | {"ExitCode": 137})])

    assert failure.reason == 'Restart Signaled: healthcheck: check "up" unhealthy' and failure.has_run


def test_a_task_that_ends_with_a_failed_sibling_is_no_failure() -> None:
    failed = alloc("failed", STARTED, EXITED)
    siblings = {"Type": "Sibling Task Failed", "Time": 31}
    failed["TaskStates"]["sidecar"] = {"Failed": False, "Events": [STARTED, siblings, EXITED | {"Time": 40}]}

    (failure,) = task_failures.last_failures([failed])

    assert (failure.task, failure.at_ns) == ("main", 30)


def test_a_task_that_uses_too_much_memory_while_it_is_stopped_has_failed() -> None:
    stopped = {"Type": "Killing", "Time": 25}
    killed = EXITED | {"Details": {"oom_killed": "true"}}

    assert task_failures.failure_events({"Events": [STARTED, stopped, killed]}) == [killed]
    assert task_failures.failure_events({"Events": [STARTED, stopped, EXITED]}) == []
    assert task_failures.failure_events({"Events": [stopped, EXITED, STARTED, EXITED]}) == [EXITED]
