"""What a newcomer stumbles over: versions, groups, words that Yurt lacks, tasks that never wrote."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

ALLOC_ID = "bbbbbbbb-0000-0000-0000-000000000000"
EVAL_ID = "aaaaaaaa-0000-0000-0000-000000000000"
NODE_ID = "cccccccc-0000-0000-0000-000000000000"
JOB = {
    "ID": "web", "Name": "web", "Namespace": "default", "Type": "service", "Priority": 50, "Status": "running",
    "Version": 4, "TaskGroups": [{"Name": "g"}],
}  # fmt: skip
ALLOC = {
    "ID": ALLOC_ID, "EvalID": EVAL_ID, "NodeID": NODE_ID, "NodeName": "n", "JobID": "web", "TaskGroup": "g",
    "DesiredStatus": "run", "ClientStatus": "failed", "CreateIndex": 5, "FollowupEvalID": EVAL_ID,
    "Namespace": "default",
}  # fmt: skip


def serve_job(api: Any, **changed: Any) -> None:
    job = {**JOB, **changed}
    api.answers |= {"/v1/jobs": [job], "/v1/job/web": job}


def test_whole_allocations_show_the_version_of_their_job(api: Any, run: Any) -> None:
    serve_job(api)
    for served, version in (({"Job": {"Version": 7}}, "7"), ({"JobVersion": 8}, "8")):
        api.answers["/v1/job/web/allocations"] = [{**ALLOC, **served}]
        shown = run("job", "allocs", "web")[1]
        (row,) = [line for line in shown.splitlines() if line.startswith("bbbbbbbb")]
        assert row.split()[:4] == ["bbbbbbbb", "cccccccc", "g", version]


def test_a_replacement_that_waits_names_its_group(api: Any, run: Any) -> None:
    serve_job(api)
    later = (time.time_ns() // 10**9) + 600
    waiting = {
        "ID": EVAL_ID, "Status": "pending",
        "WaitUntil": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(later)),
    }  # fmt: skip
    api.answers |= {
        "/v1/job/web/summary": {}, "/v1/job/web/evaluations": [waiting], "/v1/job/web/allocations": [ALLOC],
        "/v1/job/web/deployment": lambda query: None,
    }  # fmt: skip
    shown = run("job", "status", "web")[1]
    at = shown.splitlines().index("Future Rescheduling Attempts")
    assert shown.splitlines()[at + 2].split()[:2] == ["g", "aaaaaaaa"]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_dev_passes_flags_on() -> None:
    command = ["make", "-n", "dev", "ARGS=-config x.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert "agent -dev -config x.json" in done.stdout
