"""Texts of the smaller commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

JOB = {"ID": "web", "Namespace": "default", "Type": "service", "Priority": 50, "Status": "running", "Version": 4}
EVAL_ID = "aaaaaaaa-0000-0000-0000-000000000000"
POOL = """
node_pool "gpu" {
  description = "GPU nodes"
  meta { owner = "ops" }
  node_identity_ttl = "1h"
  scheduler_config { scheduler_algorithm = "spread" }
}
"""


@pytest.fixture(autouse=True)
def job(api: Any) -> None:
    api.answers |= {"/v1/jobs": [JOB], "/v1/job/web": JOB}


def test_a_version_is_tagged_and_untagged(api: Any, run: Any) -> None:
    api.answers["/v1/job/web/versions/gold/tag"] = {}
    assert run("job", "tag", "apply", "-name", "gold", "-description", "good", "web") == (
        0, 'Job version 4 tagged with name "gold"\n', "",
    )  # fmt: skip
    assert api.asked[-1][3] == {"Version": 4, "Description": "good"}
    assert run("job", "tag", "unset", "-name", "gold", "web")[1] == 'Tag "gold" removed from job "web"\n'
    assert "required" in run("job", "tag", "apply", "web")[2]


def test_scaling_events_are_listed_newest_first(api: Any, run: Any) -> None:
    events = [{"Count": 3, "PreviousCount": 1, "Time": 2_000_000_000}, {"Count": None, "Error": True, "Message": "hot"}]
    api.answers["/v1/job/web/scale"] = {"TaskGroups": {"g": {"Events": events}, "h": {"Events": None}}}
    assert run("job", "scaling-events", "web")[1].splitlines() == [
        "Task Group  Count  PrevCount  Date",
        "g           3      1          1970-01-01T00:00:02Z",
        "g           n/a    0          N/A",
    ]
    assert "hot" in run("job", "scaling-events", "-verbose", "web")[1]


def test_the_newest_deployment_of_a_job_is_promoted(api: Any, run: Any) -> None:
    api.answers["/v1/job/web/deployment"] = {"ID": "d1", "JobID": "web", "Status": "running"}
    api.answers["/v1/deployment/promote/d1"] = {"EvalID": EVAL_ID}
    assert run("job", "promote", "-detach", "web")[:2] == (0, "Evaluation ID: aaaaaaaa\n")
    assert api.asked[-1][3] == {"DeploymentID": "d1", "All": True}


def test_a_stopped_job_is_started_with_its_source(api: Any, run: Any) -> None:
    assert run("job", "start", "web")[2] == 'The job "web" is not stopped; its status is running\n'
    source = {"Source": "job {}", "Format": "hcl2"}

    def jobs(query: str) -> Any:
        return {"EvalID": EVAL_ID} if "prefix" not in query else [JOB]

    api.answers |= {"/v1/jobs": jobs, "/v1/job/web": {**JOB, "Stop": True}, "/v1/job/web/submission": source}
    assert run("job", "start", "-detach", "web") == (0, f"{EVAL_ID}\n", "")
    body = next(asked[3] for asked in api.asked if asked[0] == "PUT")
    assert (body["Job"]["Stop"], body["Submission"]) == (False, source)


def test_evaluations_are_deleted_by_id_or_filter(api: Any, run: Any) -> None:
    api.answers |= {
        "/v1/evaluation/" + EVAL_ID: {"ID": EVAL_ID},
        "/v1/evaluations": lambda query: [{"ID": EVAL_ID}] if "prefix" in query else {"Count": 1},
    }
    assert run("eval", "delete", "aaaaaaaa")[1] == "Successfully deleted 1 evaluation\n"
    assert run("eval", "delete", "-yes", "-filter", "x")[0] == 0
    assert api.asked[-1][3] == {"Filter": "x"}
    assert "one of the two" in run("eval", "delete")[2]


def test_the_agent_s_figures_are_shown(api: Any, run: Any) -> None:
    api.answers["/v1/agent/self"] = {"stats": {"raft": {"b": "2", "a": "1"}, "nomad": {"leader": "true"}}}
    assert run("agent-info")[1] == "nomad\n  leader = true\nraft\n  a = 1\n  b = 2\n"
    assert run("agent-info", "-t", "{{.stats.raft.a}}")[1] == "1\n"


def test_a_namespace_is_printed_as_json(api: Any, run: Any) -> None:
    api.answers["/v1/namespace/ops"] = {"Name": "ops"}
    assert json.loads(run("namespace", "inspect", "ops")[1]) == {"Name": "ops"}
    assert run("namespace", "inspect", "-t", "{{.Name}}", "ops")[1] == "ops\n"


def test_a_node_pool_is_applied_from_hcl_and_json(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/node/pools"] = b""
    file = tmp_path / "pool.hcl"
    file.write_text(POOL)
    assert run("node", "pool", "apply", str(file)) == (0, 'Successfully applied node pool "gpu"!\n', "")
    assert api.asked[-1][3] == {
        "Name": "gpu", "Description": "GPU nodes", "Meta": {"owner": "ops"}, "NodeIdentityTTL": 3_600_000_000_000,
        "SchedulerConfiguration": {"SchedulerAlgorithm": "spread"},
    }  # fmt: skip
    file.write_text('{"Name": "gpu"}')
    assert run("node", "pool", "apply", "-json", str(file))[0] == 0
    assert api.asked[-1][3] == {"Name": "gpu"}


@pytest.mark.parametrize(("ttl", "shown"), [("24h0m0s", "24h0m0s"), (90_000_000_000, "1m30s")])
def test_a_node_pool_is_shown_with_the_text_that_servers_write(api: Any, run: Any, ttl: Any, shown: str) -> None:
    api.answers["/v1/node/pool/gpu"] = {"Name": "gpu", "Description": "GPU nodes", "NodeIdentityTTL": ttl}

    code, out, err = run("node", "pool", "info", "gpu")

    assert (code, err) == (0, "") and f"Node Identity TTL = {shown}\n" in out


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "a file holds one node pool"),
        ('node_pool "a" { descripton = "x" }', 'unknown key "descripton" in the node pool'),
        ('node_pool "a" {\n scheduler_config { x = 1 }\n}', 'unknown key "x" in scheduler_config'),
        ('node_pool "a" { node_identity_ttl = "soon" }', "is not a duration"),
        ("node_pool {", "pool.hcl"),
    ],
)
def test_files_that_are_no_node_pool(run: Any, tmp_path: Path, source: str, complaint: str) -> None:
    file = tmp_path / "pool.hcl"
    file.write_text(source)
    code, _, err = run("node", "pool", "apply", str(file))
    assert code == 1
    assert complaint in err


def test_the_example_of_a_node_pool_can_be_applied(
    api: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api.answers["/v1/node/pools"] = b""
    assert run("node", "pool", "init")[1] == "Example node pool specification written to pool.nomad.hcl\n"
    assert run("node", "pool", "apply", "pool.nomad.hcl")[0] == 0
    assert run("node", "pool", "init")[2] == 'File "pool.nomad.hcl" already exists\n'


def test_nodes_and_jobs_of_a_pool(api: Any, run: Any) -> None:
    node = {
        "ID": "n" * 36, "NodePool": "gpu", "Datacenter": "dc1", "Name": "n1", "SchedulingEligibility": "eligible",
        "Status": "ready",
    }  # fmt: skip
    api.answers |= {"/v1/node/pool/gpu/nodes": [node], "/v1/node/pool/gpu/jobs": [JOB], "/v1/node/pool/gpu": b""}
    assert run("node", "pool", "nodes", "gpu")[1].splitlines()[1].split() == [
        "nnnnnnnn", "gpu", "dc1", "n1", "<none>", "false", "eligible", "ready",
    ]  # fmt: skip
    assert run("node", "pool", "jobs", "gpu")[1].splitlines()[1].split()[0] == "web"
    assert run("node", "pool", "delete", "gpu")[1] == 'Successfully deleted node pool "gpu"!\n'


def test_a_restart_of_an_unknown_group_or_task_restarts_nothing(api: Any, run: Any) -> None:
    api.answers["/v1/job/web"] = {**JOB, "TaskGroups": [{"Name": "front", "Tasks": [{"Name": "nginx"}]}]}
    assert run("job", "restart", "-group", "fron", "web")[2].startswith('The job "web" has no group "fron"')
    assert run("job", "restart", "-task", "ngin", "web")[2].startswith('The job "web" has no task "ngin"')
    assert all(asked[0] == "GET" for asked in api.asked)


def test_how_the_servers_fare(api: Any, run: Any) -> None:
    api.answers |= {
        "/v1/operator/autopilot/configuration": {"CleanupDeadServers": True, "MaxTrailingLogs": 250},
        "/v1/operator/autopilot/health": {"Healthy": True, "Leader": "s1", "Servers": [{"ID": "s1"}], "Voters": ["s1"]},
        "/v1/operator/keyring/keys": [
            {
                "KeyID": "k" * 36,
                "State": "active",
                "CreateTime": 0,
                "PublishTime": 0,
                "Keyring": "transit",
                "KeyringProblem": "no answer",
            },
        ],
    }
    assert run("operator", "autopilot", "get-config")[1].startswith("CleanupDeadServers = true\n")
    assert run("operator", "autopilot", "health")[1].startswith("Healthy: true\nFailureTolerance: 0\nLeader: s1\n")
    _, listed, problem = run("operator", "root", "keyring", "list")[1].splitlines()
    assert listed.split()[:2] == ["kkkkkkkk", "active"] and listed.endswith("transit")
    assert problem == "Key kkkkkkkk cannot be used by this server: no answer"
    assert json.loads(run("operator", "root", "keyring", "list", "-json")[1])[0]["Keyring"] == "transit"


def test_a_forced_launch_that_starts_nothing_says_why(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = [{"ID": "cron", "Namespace": "default"}]
    api.answers["/v1/job/cron/periodic/force"] = {"EvalID": "", "EvalCreateIndex": 0}

    code, out, _ = run("job", "periodic", "force", "cron")

    assert (code, "an instance of this second exists" in out) == (0, True)
    api.answers["/v1/job/cron/periodic/force"] = {"EvalID": "", "Warnings": "another instance runs"}
    assert "nothing was launched: another instance runs\n" in run("job", "periodic", "force", "cron")[1]


@pytest.mark.parametrize(
    ("words", "path", "things"),
    [
        ("namespace status", "/v1/namespaces", "namespaces"),
        ("namespace inspect", "/v1/namespaces", "namespaces"),
        ("quota status", "/v1/quotas", "quotas"),
        ("quota inspect", "/v1/quotas", "quotas"),
        ("node pool info", "/v1/node/pools", "node pools"),
        ("node pool nodes", "/v1/node/pools", "node pools"),
        ("node pool jobs", "/v1/node/pools", "node pools"),
    ],
)
def test_a_name_may_be_given_by_its_beginning(api: Any, run: Any, words: str, path: str, things: str) -> None:
    suffix = {"nodes": "/nodes", "jobs": "/jobs"}.get(words.rsplit(maxsplit=1)[-1], "")
    single = path.removesuffix("s")
    api.answers[path] = [{"Name": "prod"}]
    api.answers[f"{single}/prod{suffix}"] = [] if suffix else {"Name": "prod"}
    api.answers["/v1/quota/usage/prod"] = {"Used": {}}

    unique = run(*words.split(), "pr")
    api.answers[path] = [{"Name": "prod"}, {"Name": "preview", "Description": "soon"}]
    several = run(*words.split(), "pr")
    api.answers[path] = []
    none = run(*words.split(), "pr")
    api.answers[path] = (403, "Permission denied")
    unlisted = run(*words.split(), "pr")

    assert unlisted == none, "a token that may not list gets the name's own answer"
    assert unique[0] == 0 and "prod" in unique[1]
    assert several[0] == 1 and f"Prefix matched multiple {things}" in several[2] and "soon" in several[2]
    assert none[0] == 1 and "not found" in none[2]
