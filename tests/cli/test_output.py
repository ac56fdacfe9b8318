"""Texts of commands, from fixed answers of the API."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

JOB_STUB = {
    "ID": "web",
    "Namespace": "default",
    "Type": "service",
    "Priority": 50,
    "Status": "running",
    "SubmitTime": 0,
}
ALLOC = {
    "ID": "11111111-2222-3333-4444-555555555555", "EvalID": "e" * 8, "NodeID": "n" * 12, "NodeName": "n1",
    "Name": "web.g[0]",
    "TaskGroup": "g", "JobID": "web", "JobVersion": 3, "DesiredStatus": "run", "ClientStatus": "running",
    "CreateTime": 0,
    "ModifyTime": 0, "CreateIndex": 5, "ModifyIndex": 5,
}  # fmt: skip
FOLLOWED = 4
EVAL = {
    "ID": "aaaaaaaa-0000-0000-0000-000000000000", "JobID": "web", "Type": "service", "TriggeredBy": "job-register",
    "Status": "complete", "Priority": 50, "FailedTGAllocs": None, "DeploymentID": "",
}  # fmt: skip


def test_no_jobs_are_told_and_jobs_are_listed(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = []
    assert run("job", "status") == (0, "No running jobs\n", "")

    api.answers["/v1/jobs"] = [JOB_STUB, {**JOB_STUB, "ID": "cron", "Type": "batch", "Periodic": True, "Stop": True}]
    code, out, _ = run("job", "status")

    assert code == 0
    assert out.splitlines() == [
        "ID    Type            Priority  Status             Submit Date",
        "cron  batch/periodic  50        running (stopped)  N/A",
        "web   service         50        running            N/A",
    ]


def test_an_unknown_job_and_an_ambiguous_prefix_are_errors(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = []
    assert run("job", "stop", "m") == (
        1,
        "",
        'No job(s) with prefix or id "m" found\nList them with: yurt job status\n',
    )

    api.answers["/v1/jobs"] = [{**JOB_STUB, "ID": "web1"}, {**JOB_STUB, "ID": "web2"}]
    code, _, err = run("job", "stop", "web")

    assert code == 1
    assert err.startswith("Prefix matched multiple jobs\n\nID    Namespace")


def test_allocations_are_found_by_prefix_and_short_prefixes_refused(api: Any, run: Any) -> None:
    api.answers["/v1/allocations"] = [ALLOC]
    api.answers[f"/v1/allocation/{ALLOC['ID']}"] = {**ALLOC, "TaskStates": {}, "Job": None, "AllocatedResources": None}

    assert run("alloc", "status", "1")[2].startswith("Identifier must contain at least two characters.\n")
    code, out, _ = run("alloc", "status", "11111")

    assert code == 0
    assert any(asked[1].endswith("prefix=1111") for asked in api.asked)
    assert "ID                  = 11111111\n" in out
    assert "Client Status       = running\n" in out


def test_allocations_of_a_job_come_as_a_table_or_as_json(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = [JOB_STUB]
    api.answers["/v1/job/web/allocations"] = [ALLOC]

    _, table, _ = run("job", "allocs", "web")
    _, data, _ = run("job", "allocs", "-json", "web")

    assert table.splitlines()[0].split() == [
        "ID",
        "Node",
        "ID",
        "Task",
        "Group",
        "Version",
        "Desired",
        "Status",
        "Created",
        "Modified",
    ]
    assert table.splitlines()[1].split() == ["11111111", "nnnnnnnn", "g", "3", "run", "running", "N/A", "N/A"]
    assert json.loads(data) == [ALLOC]


def test_job_run_sends_the_source_and_follows_the_evaluation(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "web.nomad.hcl"
    task = 'task "t" {\n      driver = var.c\n    }'
    source = f'variable "c" {{ default = "x" }}\njob "web" {{\n  group "g" {{\n    {task}\n  }}\n}}\n'
    path.write_text(source)
    api.answers |= {
        "/v1/jobs": {"EvalID": EVAL["ID"], "Warnings": ""},
        f"/v1/evaluation/{EVAL['ID']}": EVAL,
        f"/v1/evaluation/{EVAL['ID']}/allocations": [{**ALLOC, "EvalID": EVAL["ID"]}],
    }

    code, out, err = run("job", "run", "-var", "c=mock", "-check-index", "9", str(path))

    body = api.asked[0][3]
    assert (code, err) == (0, "")
    assert body["Job"]["TaskGroups"][0]["Tasks"][0]["Driver"] == "mock"
    assert body["Submission"] == {"Source": source, "Format": "hcl2", "VariableFlags": {"c": "mock"}, "Variables": ""}
    assert (body["EnforceIndex"], body["JobModifyIndex"]) == (True, 9)
    texts = [line.partition("Z: ")[2] or line for line in out.splitlines()]
    assert texts == [
        'Monitoring evaluation "aaaaaaaa"',
        'Evaluation triggered by job "web"',
        'Allocation "11111111" created: node "nnnnnnnn", group "g"',
        'Evaluation status changed: "pending" -> "complete"',
        'Evaluation "aaaaaaaa" finished with status "complete"',
        "1 allocation running",
    ]


@pytest.mark.parametrize(("create_index", "word"), [(6, "created"), (5, "created"), (4, "modified")])
def test_an_allocation_is_new_by_its_creation_not_by_its_last_change(
    api: Any, run: Any, tmp_path: Path, create_index: int, word: str
) -> None:
    path = tmp_path / "web.json"
    path.write_text('{"Job": {"ID": "web"}}')
    api.answers |= {
        "/v1/jobs": {"EvalID": EVAL["ID"]},
        f"/v1/evaluation/{EVAL['ID']}": {**EVAL, "CreateIndex": 5},
        f"/v1/evaluation/{EVAL['ID']}/allocations": [{**ALLOC, "CreateIndex": create_index, "ModifyIndex": 9}],
    }

    _, out, _ = run("job", "run", str(path))

    assert f'Allocation "11111111" {word}: node "nnnnnnnn", group "g"' in out


def test_a_placement_failure_says_why_and_exits_with_two(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text('{"Job": {"ID": "web"}}')
    metric = {"NodesEvaluated": 3, "NodesExhausted": 3, "DimensionExhausted": {"memory": 3}, "CoalescedFailures": 1}
    failed = {**EVAL, "FailedTGAllocs": {"g": metric}, "BlockedEval": "bbbbbbbb-1"}
    api.answers |= {
        "/v1/jobs": {"EvalID": EVAL["ID"]},
        f"/v1/evaluation/{EVAL['ID']}": failed,
        f"/v1/evaluation/{EVAL['ID']}/allocations": [],
    }

    code, out, _ = run("job", "run", str(path))

    assert code == 2
    assert 'Task Group "g" (failed to place 2 allocations):' in out
    assert '* Dimension "memory" exhausted on 3 nodes' in out


def test_job_run_tells_what_is_in_the_way_also_where_no_node_was_eligible(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text('{"Job": {"ID": "web"}}')
    failed = {**EVAL, "FailedTGAllocs": {"g": {"NodesEvaluated": 0}}, "BlockedEval": "bbbbbbbb-1"}
    blockers = [
        {"Kind": "datacenter", "Text": "not in datacenter dc9", "Nodes": 3, "Alone": 2},
        {"Kind": "memory", "Text": "memory", "Nodes": 1},
    ]
    api.answers |= {
        "/v1/jobs": {"EvalID": EVAL["ID"]},
        f"/v1/evaluation/{EVAL['ID']}": failed,
        f"/v1/evaluation/{EVAL['ID']}/allocations": [],
        "/v1/yurt/job/why-not": {"Groups": [{"Name": "g", "Unplaced": 1, "Blockers": blockers}, {"Name": "h"}]},
    }

    code, out, _ = run("job", "run", str(path))

    text = 'Group "g" is blocked by: not in datacenter dc9 (3 nodes, nothing else on 2), not enough memory (1 node)'
    assert code == 2 and "No nodes were eligible for evaluation" in out
    assert [line.strip() for line in out.splitlines()[-2:]] == [
        text, "`yurt job why-not web` names the nearest nodes and the smallest change.",
    ]  # fmt: skip
    assert api.asked[-1][3] == {"JobID": "web", "Namespace": "default"}
    assert 'Evaluation "bbbbbbbb" waiting for additional capacity to place remainder' in out
    assert "`yurt job why-not web` names the nearest nodes and the smallest change." in out


def test_an_error_of_the_server_is_shown_at_its_place_in_the_file(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "web.nomad.hcl"
    path.write_text(
        'job "web" {\n  group "g" {\n    task "t" {\n      driver = "x"\n'
        '      config {\n        comand = "y"\n      }\n    }\n  }\n}\n'
    )
    for text in (
        "Job.TaskGroups[0].Tasks[0].Config.comand: unknown option",
        '1 error occurred:\n\t* Task group g Task "t" validation failed: config.comand: unknown option',
    ):
        api.answers["/v1/jobs"] = (500, text)
        code, _, err = run("job", "run", str(path))

        assert code == 1
        assert f"{path}:6:9" in err
        assert 'comand = "y"' in err
        assert "unknown option" in err


def test_a_mistake_in_the_file_registers_nothing_and_is_told_whatever_the_agent_answers(
    api: Any, run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "web.nomad.hcl"
    path.write_text('job "web" {\n  group "g" {\n    coun = 1\n  }\n}\n')

    plan, run_ = run("job", "plan", str(path)), run("job", "run", str(path))

    assert (plan[0], run_[0]) == (255, 1)
    assert f"{path}:3:5" in run_[2] and '"count"' in run_[2]
    assert {asked[1] for asked in api.asked} == {"/v1/validate/job"}, "it asks what else is wrong, and no more"


def test_job_plan_exits_with_one_when_allocations_come_or_go(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"ID": "m"}')
    task = {"Type": "Edited", "Name": "t", "Annotations": ["forces create/destroy update"], "Objects": [
        {"Type": "Edited", "Name": "Config", "Fields": [
            {"Type": "Edited", "Name": "args[0]", "Old": "300", "New": "301"},
            {"Type": "None", "Name": "command", "Old": "/bin/sleep", "New": "/bin/sleep"}]}]}  # fmt: skip
    group = {"Type": "Edited", "Name": "g", "Updates": {"create/destroy update": 1}, "Tasks": [task]}
    api.answers["/v1/job/m/plan"] = {
        "Diff": {"Type": "Edited", "ID": "m", "TaskGroups": [group]},
        "Annotations": {"DesiredTGUpdates": {"g": {"DestructiveUpdate": 1}}},
        "JobModifyIndex": 12,
    }

    code, out, _ = run("job", "plan", str(path))

    assert code == 1
    assert out.splitlines()[:9] == [
        '+/- Job: "m"',
        '+/- Task Group: "g" (1 create/destroy update)',
        '  +/- Task: "t" (forces create/destroy update)',
        "    +/- Config {",
        '      +/- args[0]: "300" => "301"',
        '          command: "/bin/sleep"',
        "        }",
        "",
        "Scheduler dry-run:",
    ]
    assert "Job Modify Index: 12" in out and f"yurt job run -check-index 12 {path}" in out
    api.answers["/v1/job/m/plan"] = {"Annotations": {"DesiredTGUpdates": {"g": {"Ignore": 1}}}, "JobModifyIndex": 12}
    assert run("job", "plan", str(path))[0] == 0


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ({"Periodic": {"Spec": "@daily"}}, "launched at its time or by `yurt job periodic force`"),
        ({"ParameterizedJob": {}}, "dispatched"),
    ],
)
def test_job_plan_of_what_only_launches_others_says_so_and_how_an_instance_would_fare(
    api: Any, run: Any, tmp_path: Path, kind: dict[str, Any], how: str
) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"ID": "m", "Type": "batch", **kind}))
    api.answers["/v1/job/m/plan"] = {"JobModifyIndex": 3}
    code, out, _ = run("job", "plan", str(path))
    assert code == 0
    assert f"- Nothing is placed until the job is {how}.\n- An instance launched now would be placed.\n" in out
    api.answers["/v1/job/m/plan"] = {"FailedTGAllocs": {"g": {"NodesEvaluated": 2}}, "JobModifyIndex": 3}
    code, out, _ = run("job", "plan", str(path))
    assert code == 0
    assert "- WARNING: Failed to place all allocations of an instance launched now.\n" in out
    assert "All tasks successfully allocated" not in out and 'Task Group "g" (failed to place 1' in out


def test_a_deployment_shows_only_the_columns_that_are_used(api: Any, run: Any) -> None:
    deployment = {
        "ID": "dddddddd-1111", "JobID": "web", "JobVersion": 1, "Status": "running",
        "StatusDescription": "Deployment is running",
        "TaskGroups": {"g": {"DesiredTotal": 3, "PlacedAllocs": 2, "HealthyAllocs": 1, "DesiredCanaries": 1,
        "Promoted": False}},
    }  # fmt: skip
    api.answers |= {"/v1/deployments": [deployment], "/v1/deployment/dddddddd-1111": deployment}

    _, out, _ = run("deployment", "status", "dddd")

    assert out.splitlines()[-2:] == [
        "Task Group  Promoted  Desired  Canaries  Placed  Healthy  Unhealthy",
        "g           false     3        1         2       1        0",
    ]


def test_a_followed_deployment_is_shown_at_most_once_in_the_time_of_wait(api: Any, run: Any) -> None:
    began: list[float] = []

    def deployment(query: str) -> Any:
        began.append(time.monotonic())
        done = len(began) > FOLLOWED
        group = {"DesiredTotal": FOLLOWED, "PlacedAllocs": len(began)}
        return {
            "ID": "dddddddd-1111", "JobID": "web", "JobVersion": 1, "TaskGroups": {"g": group},
            "Status": "successful" if done else "running",
        }  # fmt: skip

    api.answers |= {"/v1/deployments": [{"ID": "dddddddd-1111"}], "/v1/deployment/dddddddd-1111": deployment}

    code, out, _ = run("deployment", "status", "-monitor", "-wait=200ms", "dddd")

    assert (code, out.count("Status      = running"), out.count("Status      = successful")) == (0, FOLLOWED - 1, 1)
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(began[1:]))


@pytest.mark.parametrize("given", ["24h1s", "2562047h"])
def test_a_wait_of_more_than_a_day_is_refused(run: Any, given: str) -> None:
    code, _, err = run("deployment", "status", "-monitor", f"-wait={given}", "dddd")
    assert code == 1 and err.startswith(f'-wait: "{given}" is longer than 24 hours; use a shorter time')


@pytest.mark.parametrize("given", ["2", "-1s", "soon", "99999999999h", "9" * 400 + "h"])
def test_a_wait_that_is_not_a_duration_is_refused(run: Any, given: str) -> None:
    assert run("deployment", "status", "-monitor", f"-wait={given}", "dddd")[2].startswith(
        f'-wait: "{given}" is not a duration of up to 24 hours; use a number and a unit, for example 2s'
    )


def test_the_example_is_written_once_and_is_a_valid_job(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from yurt_jobspec import parse_job

    monkeypatch.chdir(tmp_path)
    first, second = run("job", "init"), run("init")

    assert first == (0, "Example job file written to example.nomad.hcl\n", "")
    assert second[0] == 1 and "already exists" in second[2]
    source = (tmp_path / "example.nomad.hcl").read_text()
    assert parse_job(source, filename="example.nomad.hcl")["TaskGroups"][0]["Tasks"][0]["Driver"] == "raw_exec"


def test_log_frames_are_decoded_and_the_last_lines_kept(api: Any, run: Any) -> None:
    import base64

    job = {"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t"}]}]}
    frames = [{"Data": base64.b64encode(part).decode()} for part in (b"one\ntw", b"o\nthree\n")]
    stream = "".join(json.dumps(frame) for frame in [*frames, {}]).encode()
    api.answers |= {
        "/v1/allocations": [ALLOC],
        f"/v1/allocation/{ALLOC['ID']}": {**ALLOC, "Job": job},
        f"/v1/client/fs/logs/{ALLOC['ID']}": stream,
    }

    whole, last = run("alloc", "logs", "1111"), run("alloc", "logs", "-n", "1", "1111")

    asked = api.asked[-1][1]
    assert (whole[1], last[1]) == ("one\ntwo\nthree\n", "three\n")
    assert "task=t" in asked and "type=stdout" in asked and "origin=start" in asked


def test_several_tasks_ask_for_a_choice(api: Any, run: Any) -> None:
    job = {"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "a"}, {"Name": "b"}]}]}
    api.answers |= {"/v1/allocations": [ALLOC], f"/v1/allocation/{ALLOC['ID']}": {**ALLOC, "Job": job}}

    code, _, err = run("alloc", "logs", "1111")

    assert code == 1
    assert "* a\n  * b" in err


def test_what_can_be_no_id_is_not_found_without_asking(api: Any, run: Any) -> None:
    assert run("node", "status", "zz") == (
        1,
        "",
        'No node(s) with prefix or id "zz" found\nList them with: yurt node status\n',
    )
    assert not [path for _, path, _, _ in api.asked if "prefix=" in path]


@pytest.mark.parametrize(("reason", "says"), [("job-changed", "Job not updated"), ("conflict", "Error submitting job")])
def test_a_job_that_changed_meanwhile_is_told_by_the_reason_of_the_refusal(
    api: Any, run: Any, tmp_path: Path, reason: str, says: str
) -> None:
    path = tmp_path / "web.nomad.hcl"
    path.write_text('job "web" {\n  group "g" {\n    task "t" {\n      driver = "mock"\n    }\n  }\n}\n')
    api.answers["/v1/jobs"] = (500, "the words are of no account", reason)
    code, _, error = run("job", "run", "-check-index", "9", str(path))
    assert code == 1 and says in error and "the words are of no account" in error
