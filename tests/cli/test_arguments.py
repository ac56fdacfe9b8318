"""A wrong command line has no effect: arguments are checked before the first request that changes something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.cli.tree import command, command_names

COUNTED = [name for name in command_names() if command(name).arguments[1] >= 0]
UNCOUNTED = {
    "acl explain",
    "alloc exec",
    "config validate",
    "fmt",
    "job start",
    "job stop",
    "node config",
    "node meta apply",
    "server join",
    "var lock",
    "var put",
}
"""Commands that take any number of arguments; each decides itself before it sends a request with an effect."""
OTHER_CODES = {"acl lint": 2, "job plan": 255, "job validate": 255, "job why-not": 255}
EVAL_ID, NODE_ID = "aaaaaaaa-0000-0000-0000-000000000000", "cccccccc-0000-0000-0000-000000000000"


def effects(api: Any) -> list[str]:
    sent = [f"{method} {path.partition('?')[0]}" for method, path, _, _ in api.asked if method != "GET"]
    return [each for each in sent if each != "PUT /v1/search"]


def stub(job_id: str, **changed: Any) -> dict[str, Any]:
    return {"ID": job_id, "Namespace": "default", "Type": "service", "Priority": 50, "Status": "running", **changed}


def serve_jobs(api: Any, *jobs: dict[str, Any]) -> None:
    """Answer as a server with these jobs."""

    def matching(query: str) -> list[dict[str, Any]]:
        settings = dict(each.partition("=")[::2] for each in query.split("&"))
        return [job for job in jobs if job["ID"].startswith(settings.get("prefix", ""))]

    api.answers |= {"/v1/jobs": matching} | {f"/v1/job/{job['ID']}": job | {"EvalID": EVAL_ID} for job in jobs}


@pytest.mark.parametrize("name", COUNTED)
def test_one_argument_too_many_sends_nothing(api: Any, run: Any, name: str) -> None:
    words = [f"word{number}" for number in range(command(name).arguments[1] + 1)]
    code, out, err = run(*name.split(), *words)
    assert (code, out, api.asked) == (OTHER_CODES.get(name, 1), "", [])
    assert err.startswith(f"This command takes {command(name).takes} (got {len(words)}: {' '.join(words)})\n")
    assert err.endswith(f"For additional help try: yurt {name} -help\n")


def test_every_command_that_takes_any_number_of_arguments_is_known_here() -> None:
    assert set(command_names()) - set(COUNTED) == UNCOUNTED


def test_an_unknown_job_among_several_stops_none(api: Any, run: Any) -> None:
    serve_jobs(api, stub("web"))
    code, _, err = run("job", "stop", "-detach", "web", "extra")
    assert (code, effects(api)) == (1, [])
    assert err.startswith('No job(s) with prefix or id "extra" found')


def test_a_question_that_nobody_can_answer_stops_no_job(api: Any, run: Any) -> None:
    serve_jobs(api, stub("web"), stub("extra"))
    code, _, err = run("job", "stop", "-detach", "web", "ext")
    assert (code, effects(api)) == (1, [])
    assert "repeat the command with -yes" in err


def test_several_jobs_are_stopped_each_once(api: Any, run: Any) -> None:
    serve_jobs(api, stub("web"), stub("extra"))
    code, out, _ = run("job", "stop", "-detach", "-yes", "web", "extra", "we")
    assert (code, effects(api)) == (0, ["DELETE /v1/job/web", "DELETE /v1/job/extra"])
    assert out == f"{EVAL_ID}\n{EVAL_ID}\n"


def test_a_running_job_among_several_starts_none(api: Any, run: Any) -> None:
    serve_jobs(api, stub("web", Stop=True), stub("extra", Stop=False))
    code, _, err = run("job", "start", "-detach", "web", "extra")
    assert (code, effects(api)) == (1, [])
    assert err == 'The job "extra" is not stopped; its status is running\n'


@pytest.mark.parametrize(
    "words",
    [
        ("node", "drain", "-enable", "-detach"),
        ("node", "drain", "-disable"),
        ("node", "eligibility", "-disable"),
        ("node", "gpu", "-disable=g1"),
    ],
)
def test_self_with_another_node_changes_neither(api: Any, run: Any, words: tuple[str, ...]) -> None:
    api.answers["/v1/agent/self"] = {"stats": {"client": {"node_id": NODE_ID}}}
    api.answers[f"/v1/node/{NODE_ID}"] = {"ID": NODE_ID, "Name": "own"}
    code, _, err = run(*words, "-self", "other")
    assert (code, api.asked) == (1, [])
    assert err.startswith("-self means the agent's own node; leave out -self or the argument other\n")


def test_a_wrong_item_among_several_changes_no_metadata(api: Any, run: Any) -> None:
    code, _, err = run("node", "meta", "apply", "rack=r1", "wrong")
    assert (code, api.asked) == (1, [])
    assert err.startswith("'wrong' is not a key=value pair\n")


def test_addresses_without_update_servers_change_no_servers(api: Any, run: Any) -> None:
    code, _, err = run("node", "config", "-servers", "10.0.0.1:4647")
    assert (code, api.asked) == (1, [])
    assert err.startswith("Addresses go with -update-servers (got: 10.0.0.1:4647)\n")


def test_a_missing_file_among_several_formats_none(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.hcl"
    file.write_text("a=1\n")
    code, _, err = run("fmt", str(file), str(tmp_path / "missing.hcl"))
    assert (code, file.read_text()) == (1, "a=1\n")
    assert err.endswith("missing.hcl: there is no such file\n")
