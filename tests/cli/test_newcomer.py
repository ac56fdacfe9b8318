"""What a newcomer stumbles over: versions, groups, words that Yurt lacks, tasks that never wrote."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.tree import ALIASES, command_names, group_names
from yurt.cli.unsupported import absent_command

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


def serve_alloc(api: Any, events: list[dict[str, Any]]) -> None:
    job = {"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "main"}]}]}
    alloc = {**ALLOC, "Job": job, "TaskStates": {"main": {"State": "dead", "Failed": True, "Events": events}}}
    api.answers |= {"/v1/allocations": [alloc], f"/v1/allocation/{ALLOC_ID}": alloc}


@pytest.mark.parametrize("prefix", ["bbbbbbbb00000000", "bbbbbbbb0", "BBBBBBBB-00", ALLOC_ID.replace("-", "")])
@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("alloc status", "/v1/allocation"), ("deployment status", "/v1/deployment"), ("eval status", "/v1/evaluation"),
        ("node status", "/v1/node"), ("scaling policy info", "/v1/scaling/policy"),
    ],
)  # fmt: skip
def test_an_id_is_found_without_its_hyphens_and_in_upper_case(
    api: Any, run: Any, command: str, path: str, prefix: str
) -> None:
    found = {"ID": ALLOC_ID, "Type": "horizontal"}
    listed = path.replace("policy", "policies") if "policy" in path else f"{path}s"
    api.answers |= {listed: [found], f"{path}/{ALLOC_ID}": found}
    run(*command.split(" "), "-json", prefix)
    assert any(asked == f"{path}/{ALLOC_ID}" for _, asked, _, _ in api.asked)


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


def test_a_job_that_waits_names_the_command_that_tells_more(api: Any, run: Any) -> None:
    serve_job(api)
    metric = {"NodesEvaluated": 1, "ConstraintFiltered": {"missing drivers": 1}}
    waiting: dict[str, Any] = {"ID": EVAL_ID, "JobID": "web", "Status": "blocked", "FailedTGAllocs": {"g": metric}}
    api.answers |= {
        "/v1/job/web/summary": {}, "/v1/job/web/evaluations": [waiting], "/v1/job/web/allocations": [],
        "/v1/job/web/deployment": lambda query: None,
    }  # fmt: skip
    shown = run("job", "status", "web")[1]
    assert 'Constraint "missing drivers": 1 nodes excluded by filter' in shown
    assert "`yurt job why-not web` names the nearest nodes and the smallest change." in shown
    waiting["Namespace"] = "ops"
    assert "`yurt job why-not -namespace ops web` names" in run("job", "status", "web")[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_dev_passes_flags_on() -> None:
    command = ["make", "-n", "dev", "ARGS=-config x.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert "agent -dev -config x.json" in done.stdout


@pytest.mark.parametrize(
    "words",
    ["setup consul", "sentinel list", "windows service install"],
)  # fmt: skip
def test_what_yurt_lacks_is_no_typing_mistake(run: Any, words: str) -> None:
    code, _, said = run(*words.split())
    assert code == 1
    assert "is not in this version of Yurt" in said and "did you mean" not in said


def test_what_yurt_lacks_for_good_names_what_serves_instead(run: Any) -> None:
    code, _, said = run("operator", "snapshot", "agent")
    assert code == 1 and said.endswith("yurt operator snapshot save FILE\n")


def test_no_command_is_both_there_and_absent() -> None:
    names = {name for name in (*command_names(), *group_names(), *ALIASES) if absent_command(name.split())}
    assert names == set()


def test_a_stopped_job_is_not_scaled(api: Any, run: Any) -> None:
    serve_job(api, Stop=True)
    code, _, said = run("job", "scale", "web", "3")
    assert (code, said) == (1, 'The job "web" is stopped; start it before it is scaled: yurt job start web\n')


@pytest.mark.parametrize("flags", [(), ("-n", "5")])
def test_the_empty_log_of_a_task_that_never_started_leads_to_the_reason(
    api: Any, run: Any, flags: tuple[str, ...]
) -> None:
    serve_alloc(api, [{"Type": "Driver Failure"}])
    api.answers[f"/v1/client/fs/logs/{ALLOC_ID}"] = b"{}"
    assert run("alloc", "logs", *flags, ALLOC_ID) == (
        0, "", "The task never started; why, shows: yurt alloc status bbbbbbbb\n",
    )  # fmt: skip
    serve_alloc(api, [{"Type": "Started"}, {"Type": "Terminated"}])
    assert run("alloc", "logs", *flags, ALLOC_ID) == (0, "", "")


def test_an_unknown_signal_is_refused_before_it_is_sent(api: Any, run: Any) -> None:
    serve_alloc(api, [])
    code, _, said = run("alloc", "signal", "-s", "SIGFOO", ALLOC_ID)
    assert code == 1 and '"SIGFOO" is not a signal; use a name such as SIGHUP' in said
    assert not [asked for asked in api.asked if asked[0] == "PUT"]
    api.answers[f"/v1/client/allocation/{ALLOC_ID}/signal"] = {}
    assert run("alloc", "signal", "-s", "SIGHUP", ALLOC_ID) == (0, "", "")


def test_a_job_name_serves_where_an_allocation_is_asked_for(api: Any, run: Any) -> None:
    serve_job(api)
    serve_alloc(api, [{"Type": "Started"}])
    api.answers |= {"/v1/job/web/allocations": [ALLOC], f"/v1/client/fs/logs/{ALLOC_ID}": b"{}"}
    assert run("alloc", "logs", "web") == (0, "", "")
    assert any(path.startswith(f"/v1/client/fs/logs/{ALLOC_ID}") for _, path, _, _ in api.asked)
    api.answers["/v1/search"] = {"Matches": {"jobs": ["web"]}}
    code, _, said = run("alloc", "status", "web")
    assert code == 1 and said.endswith('"web" is a job; its allocations are listed by: yurt job allocs web\n')


@pytest.mark.parametrize(
    ("words", "matches", "told"),
    [
        (("job", "status", ALLOC_ID), {"allocs": [ALLOC_ID]}, f"is shown by: yurt alloc status {ALLOC_ID}"),
        (("node", "status", "bbbb"), {"evals": ["bbbb-1"]}, 'is an evaluation; it is shown by: yurt eval status bbbb'),
        (("node", "status", "n-1"), {}, 'The node named "n-1" has the id cccccccc; nodes are given by id'),
        (("eval", "status", "web"), {"jobs": ["web"]}, '"web" is a job; it is shown by: yurt job status web'),
        (("job", "status", "wbe"), {}, 'Did you mean "web"?'),
        (("deployment", "status", "ffff"), {}, 'No deployment(s) with prefix or id "ffff" found'),
    ],
)  # fmt: skip
def test_what_was_not_found_leads_to_what_it_is(
    api: Any, run: Any, words: tuple[str, ...], matches: dict[str, Any], told: str
) -> None:
    node = {"ID": NODE_ID, "Name": "n-1", "Datacenter": "dc1", "Status": "ready"}
    api.answers |= {
        "/v1/search": {"Matches": matches}, "/v1/allocations": [], "/v1/evaluations": [], "/v1/deployments": [],
        "/v1/jobs": lambda query: [] if "prefix" in query else [JOB],
        "/v1/nodes": lambda query: [] if "prefix" in query else [node],
    }  # fmt: skip
    code, _, said = run(*words)
    assert code == 1 and told in said


def test_a_job_of_another_namespace_is_found_there(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = lambda query: [{**JOB, "Namespace": "prod"}] if "namespace=%2A" in query else []
    code, _, said = run("job", "stop", "web")
    assert code == 1 and said.endswith("is in namespace prod: repeat the command with -namespace prod\n")
