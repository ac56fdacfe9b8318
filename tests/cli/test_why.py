"""Explanations as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NODE = "11111111-2222-4333-8444-555555555555"
ALLOC = "22222222-2222-4333-8444-555555555555"
SCORES = [
    {"NodeID": NODE, "NodeName": "n1", "Chosen": True, "NormScore": 0.5, "Scores": {"binpack": 0.5}},
    {"NodeID": NODE, "NodeName": "n2", "Chosen": False, "NormScore": 0.25, "Scores": {"binpack": 0.25}},
]
GROUP = {
    "Name": "web", "Desired": 5, "Running": 1, "Placed": 2, "Unplaced": 2, "Notes": None,
    "Blockers": [
        {"Kind": "memory", "Text": "memory", "Nodes": 3, "Alone": 2}, {"Kind": "cpu", "Text": "cpu", "Nodes": 1},
    ],
    "NearMisses": [
        {"NodeID": NODE, "NodeName": "node-7", "Shortfalls": [
            {"Text": "512 MB memory short"}, {"Text": "1 core short"},
        ]},
    ],
    "SmallestChange": {"Text": "lower it", "NodeID": NODE, "NodeName": "node-7", "Places": 1, "IsProved": True},
    "Scores": SCORES,
}  # fmt: skip
ANSWER = {"JobID": "web", "Namespace": "default", "Index": 9, "Groups": [GROUP], "Warnings": None}


def test_why_not_tells_blockers_near_misses_and_the_least_change(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/yurt/job/why-not"] = ANSWER
    file = tmp_path / "web.json"
    file.write_text(json.dumps({"ID": "web", "TaskGroups": []}))

    code, out, _ = run("job", "why-not", str(file))

    assert code == 1
    assert out.splitlines() == [
        'Job "web" on the state at index 9', "", 'Task Group "web"',
        "5 wanted, 1 there already, 2 can be placed, 2 cannot be placed", "", "Blocked by:",
        "  3 nodes  not enough memory  (nothing else on 2)", "  1 node   not enough cpu", "", "Nearest nodes:",
        "  node-7: 512 MB memory short; 1 core short", "Smallest change: lower it",
        "  (on node-7; places 1 more allocation, 1 still finds no room)", "", "Scores of the first placement:",
        "     Node  binpack  Final", "  *  n1    0.5      0.5", "     n2    0.25     0.25",
    ]  # fmt: skip
    assert api.asked[-1][3] == {"Job": {"ID": "web", "TaskGroups": []}}


def _with_group(api: Any, **changes: Any) -> None:
    group = {"Name": "web", "Desired": 1, "Unplaced": 1, "Blockers": GROUP["Blockers"]} | changes
    api.answers["/v1/yurt/job/why-not"] = {**ANSWER, "Groups": [group]}
    api.answers["/v1/jobs"] = [{"ID": "web", "Namespace": "default"}]


def test_a_change_of_which_not_all_that_is_smaller_was_tried_is_said_to_be_perhaps_not_the_smallest(
    api: Any, run: Any
) -> None:
    _with_group(api, SmallestChange={**GROUP["SmallestChange"], "IsProved": False})
    out = run("job", "why-not", "web")[1]
    assert "(on node-7; places 1 more allocation; perhaps not the smallest, for not all that is smaller" in out


def test_why_not_says_what_else_helps_when_no_change_of_the_job_does(api: Any, run: Any) -> None:
    _with_group(api, Notes=["no node has ${attr.x}"])
    out = run("job", "why-not", "web")[1]
    assert "1 cannot be placed\n  * no node has ${attr.x}\n" in out and "Nearest nodes" not in out
    assert "No change of the job would place one more: what it lacks has to be added, freed or repaired." in out

    _with_group(api, Blockers=[{"Kind": "quota", "Text": "quota team: memory exhausted", "Nodes": 3, "Alone": 3}])
    assert "The quota has to be raised, or some of it freed." in run("job", "why-not", "web")[1]

    _with_group(api, SmallestChange={"Text": "lower it", "NodeID": NODE, "Places": 0})
    assert "(on 11111111; makes room for one more, with which none is placed yet)" in run("job", "why-not", "web")[1]

    _with_group(api, Desired=0, Unplaced=0, RunsNowhere=True)
    code, out, _ = run("job", "why-not", "web")
    assert code == 1 and "There is no node that it may run on\n\nBlocked by:\n  3 nodes" in out


def test_why_not_takes_a_known_job_and_prints_json(api: Any, run: Any) -> None:
    api.answers["/v1/yurt/job/why-not"] = ANSWER
    api.answers["/v1/jobs"] = [
        {"ID": "web", "Namespace": "ops", "Type": "service", "Priority": 50, "Status": "running"}
    ]

    code, out, _ = run("job", "why-not", "-json", "web")

    assert (code, json.loads(out)) == (1, ANSWER)
    assert api.asked[-1][3] == {"JobID": "web", "Namespace": "ops"}


def test_alloc_why_tells_the_scores_then_and_what_rules_out_others_now(api: Any, run: Any) -> None:
    api.answers["/v1/allocations"] = [{"ID": ALLOC}]
    api.answers[f"/v1/allocation/{ALLOC}"] = {"ID": ALLOC}
    api.answers[f"/v1/yurt/allocation/{ALLOC}/why"] = {
        "AllocID": ALLOC, "Name": "web.web[0]", "JobID": "web", "TaskGroup": "web", "NodeID": NODE, "NodeName": "n1",
        "EvalID": NODE, "TriggeredBy": "job-register", "Text": "node n1 was chosen of 4 that were looked at",
        "Metrics": {"NodesEvaluated": 4, "NodesFiltered": 2, "ConstraintFiltered": {"a = b": 2}},
        "Scores": SCORES, "Now": GROUP,
    }  # fmt: skip

    code, out, _ = run("alloc", "why", "222")

    assert code == 0
    assert "\nNode n1 was chosen of 4 that were looked at.\n" in out
    assert '* Constraint "a = b": 2 nodes excluded by filter' in out
    assert "  node-7: 512 MB memory short; 1 core short" in out
    assert out.count("  *  n1    0.5      0.5") == 2
    assert "not enough cpu\n\nNearest of them\n  node-7:" in out


def test_the_status_of_an_evaluation_shows_the_nearest_nodes_where_the_agent_knows_them(api: Any, run: Any) -> None:
    failed = {"ID": NODE, "JobID": "web", "Type": "service", "TriggeredBy": "job-register", "Status": "complete",
              "Priority": 50, "FailedTGAllocs": {"web": {"NodesEvaluated": 3}}}  # fmt: skip
    api.answers |= {"/v1/evaluations": [failed], f"/v1/evaluation/{NODE}": failed}
    api.answers[f"/v1/evaluation/{NODE}/allocations"] = []
    assert "Nearest nodes" not in run("eval", "status", "1111")[1]

    api.answers["/v1/yurt/job/why-not"] = ANSWER
    noted = {**GROUP, "Notes": ["gang: too few"]}
    api.answers["/v1/yurt/job/why-not"] = {**ANSWER, "Groups": [noted]}
    out = run("eval", "status", "1111")[1]
    assert 'Group "web":\n  * gang: too few\n\nGroup "web" is now blocked by:\n  3 nodes  not enough memory' in out
    assert "1 node   not enough cpu\n\nNearest nodes for" in out
    assert (
        'Nearest nodes for group "web" now:\n  node-7: 512 MB memory short; 1 core short\n'
        in run("eval", "status", "1111")[1]
    )


NOWHERE = {
    "Name": "web", "RunsNowhere": True, "Notes": None,
    "Blockers": [{"Kind": "driver", "Text": 'driver "docker" missing', "Nodes": 2, "Alone": 1}],
    "NearMisses": [{"NodeID": NODE, "NodeName": "n1", "Shortfalls": [{"Text": 'driver "docker" is missing'}]}],
    "SmallestChange": {"Text": 'install driver "docker" on node n1', "NodeID": NODE, "NodeName": "n1", "Places": 1,
                       "IsProved": True},
}  # fmt: skip
"""A group of a system job that no node can have: its evaluation names nothing that failed."""
NEAREST = [
    'Group "web" is now blocked by:', '  2 nodes  driver "docker" missing  (nothing else on 1)', "",
    'Nearest nodes for group "web" now:', '  n1: driver "docker" is missing',
    'Smallest change: install driver "docker" on node n1', "  (on n1; places 1 more allocation)",
]  # fmt: skip


def test_plan_and_run_and_the_evaluation_of_a_system_job_say_that_it_runs_nowhere(
    api: Any, run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"Job": {"ID": "web", "Type": "system"}}))
    done = {"ID": NODE, "JobID": "web", "Type": "system", "TriggeredBy": "job-register", "Status": "complete",
            "Priority": 50}  # fmt: skip
    api.answers |= {
        "/v1/job/web/plan": {"JobModifyIndex": 3}, "/v1/jobs": {"EvalID": NODE}, f"/v1/evaluation/{NODE}": done,
        f"/v1/evaluation/{NODE}/allocations": [], "/v1/yurt/job/why-not": {**ANSWER, "Groups": [NOWHERE]},
    }  # fmt: skip

    code, out, _ = run("job", "plan", str(path))
    lines = out.splitlines()
    assert code == 0 and "All tasks successfully allocated" not in out
    at = lines.index('- WARNING: There is no node that group "web" may run on.')
    assert lines[at + 2 : at + 9] == NEAREST

    code, out, _ = run("job", "run", str(path))
    assert code == 2
    assert 'finished with status "complete" but there is no node that group "web" may run on:' in out
    assert [line.strip() for line in out.splitlines()[-2:]] == [
        'Group "web" is blocked by: driver "docker" missing (2 nodes, nothing else on 1)',
        "`yurt job why-not web` names the nearest nodes and the smallest change.",
    ]

    api.answers["/v1/evaluations"] = [done]
    lines = run("eval", "status", "1111")[1].splitlines()
    at = lines.index('There is no node that group "web" may run on.')
    assert lines[at + 2 : at + 9] == NEAREST


def test_a_system_job_that_runs_somewhere_is_not_said_to_run_nowhere(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"Job": {"ID": "web", "Type": "system"}}))
    api.answers |= {"/v1/job/web/plan": {"JobModifyIndex": 3}, "/v1/yurt/job/why-not": {"Groups": [{"Name": "web"}]}}
    assert "- All tasks successfully allocated.\n" in run("job", "plan", str(path))[1]


METRICS = {"NodesEvaluated": 4, "NodesExhausted": 2, "ClassExhausted": {"a": 2}, "DimensionExhausted": {"cpu": 2}}
RULED_OUT = ["  * Resources exhausted on 2 nodes", '  * Class "a" exhausted on 2 nodes',
             '  * Dimension "cpu" exhausted on 2 nodes']  # fmt: skip


def test_the_status_of_an_evaluation_tells_what_was_ruled_out_for_the_last_that_each_group_placed(
    api: Any, run: Any
) -> None:
    done = {"ID": NODE, "JobID": "web", "Type": "service", "TriggeredBy": "job-register", "Status": "complete",
            "Priority": 50}  # fmt: skip
    stub = {"EvalID": NODE, "JobID": "web", "NodeID": NODE, "TaskGroup": "g", "DesiredStatus": "run",
            "ClientStatus": "running"}  # fmt: skip
    names = ("web.g[9]", "web.g[10]", "web.g[8]")
    placed = [{**stub, "ID": f"{at}{ALLOC[1:]}", "Name": name} for at, name in enumerate(names)]
    api.answers |= {"/v1/evaluations": [done], f"/v1/evaluation/{NODE}": done}
    api.answers[f"/v1/evaluation/{NODE}/allocations"] = placed
    assert "Ruled Out Nodes" not in run("eval", "status", "1111")[1]

    api.answers[f"/v1/allocation/{placed[1]['ID']}"] = {"ID": placed[1]["ID"], "Metrics": METRICS}
    lines = run("eval", "status", "1111")[1].splitlines()
    at = lines.index("Ruled Out Nodes")
    assert lines[at + 1 : at + 5] == ['Task Group "g" (the last of 3 allocations):', *RULED_OUT]


def test_the_status_of_an_allocation_tells_what_was_exhausted_for_it(api: Any, run: Any) -> None:
    alloc = {"ID": ALLOC, "Name": "web.g[0]", "NodeID": NODE, "JobID": "web", "TaskGroup": "g", "EvalID": NODE,
             "ClientStatus": "running", "DesiredStatus": "run", "Metrics": METRICS}  # fmt: skip
    api.answers |= {"/v1/allocations": [alloc], f"/v1/allocation/{ALLOC}": alloc}
    lines = run("alloc", "status", "-verbose", ALLOC)[1].splitlines()
    at = lines.index("Placement Metrics")
    assert lines[at + 1 :] == RULED_OUT


def test_eval_replay_tells_the_digest_and_fails_when_the_plan_differs(api: Any, run: Any) -> None:
    attempt = {"StateIndex": 7, "Seed": "ab", "Digest": "d1", "Placements": 2, "Stored": 2, "IsIdentical": True,
               "StoredDigest": "s1", "AcceptedDigest": "s1"}  # fmt: skip
    found = {"EvalID": NODE, "JobID": "web", "Status": "complete", "BaseIndex": 3, "Attempts": [attempt],
             "IsOutcomeIdentical": True, "IsIdentical": True}  # fmt: skip
    api.answers |= {"/v1/evaluations": [{"ID": NODE}], f"/v1/evaluation/{NODE}": {"ID": NODE}}
    api.answers[f"/v1/yurt/evaluation/{NODE}/replay"] = found

    code, out, _ = run("eval", "replay", "1111")
    assert code == 0 and "the state at index 3" in out and "identical" in out and "same plan, to the byte" in out

    attempt |= {"IsIdentical": False, "Different": 1}
    found["IsIdentical"] = False
    code, out, _ = run("eval", "replay", "1111")
    assert code == 1 and "1 rows differ" in out and "The plan differs" in out
