"""`check`, the health of an agent in one line, and `ui`, its pages in a browser."""

from __future__ import annotations

import json
import webbrowser
from typing import Any

import pytest

WELL = {"ok": True, "message": "ok"}
MEMBERS = {
    "ServerName": "a",
    "ServerRegion": "global",
    "Members": [
        {"Name": "a.global", "Status": "alive", "Tags": {"region": "global"}},
        {"Name": "b.global", "Status": "alive", "Tags": {"region": "global"}},
        {"Name": "c.global", "Status": "failed", "Tags": {"region": "global"}},
        {"Name": "d.west", "Status": "alive", "Tags": {"region": "west"}},
    ],
}
JOB = "/ui/jobs/shop/web"
ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def agent(api: Any) -> Any:
    """An agent with a server, one of two, and a client, which are well."""
    api.answers["/v1/agent/health"] = {"server": WELL, "client": WELL}
    api.answers["/v1/agent/members"] = MEMBERS
    api.answers["/v1/agent/servers"] = ["10.0.0.1:4647"]
    return api


def test_an_agent_that_is_well_says_so(agent: Any, run: Any) -> None:
    assert run("check", "-min-peers=1") == (0, "OK - server: ok; 1 peer; client: ok; 1 known server\n", "")


def test_too_few_others_are_critical(agent: Any, run: Any) -> None:
    code, out, _ = run("check", "-min-peers=2", "-min-servers=3")
    assert code == 1
    assert out == "CRITICAL - server: ok; 1 peer, fewer than 2; client: ok; 1 known server, fewer than 3\n"


def test_a_part_that_is_not_well_is_critical(agent: Any, run: Any) -> None:
    health = {"server": {"ok": False, "message": "no leader"}, "client": WELL}
    agent.answers["/v1/agent/health"] = (500, json.dumps(health))
    code, out, _ = run("check")
    assert code == 1 and out.startswith("CRITICAL - server: no leader; 1 peer; client: ok")


def test_only_the_parts_that_run_are_looked_at(agent: Any, run: Any) -> None:
    agent.answers["/v1/agent/health"] = {"client": WELL}
    assert run("check")[:2] == (0, "OK - client: ok; 1 known server\n")
    agent.answers["/v1/agent/health"] = {}
    assert run("check")[:2] == (1, "CRITICAL - nothing runs\n")


def test_an_agent_that_does_not_answer_is_critical_and_a_wrong_command_line_unknown(agent: Any, run: Any) -> None:
    agent.answers["/v1/agent/health"] = (502, "bad gateway")
    assert run("check")[:2] == (1, "CRITICAL - the agent does not tell its health: status 502\n")
    code, out, _ = run("check", "-address", "http://127.0.0.1:9")
    assert code == 1 and out.startswith("CRITICAL - ") and out.count("\n") == 1
    assert run("check", "-min-peers=-1")[0] == run("check", "-min-peers=x")[0] == run("check", "a")[0] == 1


@pytest.fixture
def pages(api: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was asked for."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    api.answers["/ui/"] = api.answers[JOB] = b"<html>"
    return opened


def test_the_pages_of_an_agent_are_opened(api: Any, run: Any, pages: list[str]) -> None:
    url = f"{api.address}/ui/"
    assert run("ui") == (0, f'Opening URL "{url}"\n', "")
    assert pages == [url]
    assert run("ui", "-show-url") == (0, f"URL for web UI: {url}\n", "")
    assert pages == [url]


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("jobs", "shop/web", f"{JOB}?namespace=default"),
        ("allocs", ID, f"/ui/allocations/{ID}"),
        ("nodes", ID, f"/ui/nodes/{ID}"),
    ],
)
def test_what_an_identifier_means_is_shown(
    api: Any, run: Any, pages: list[str], kind: str, name: str, path: str
) -> None:
    api.answers["/v1/search"] = {"Matches": {kind: [name], "evals": ["x"]}}
    api.answers[path.partition("?")[0]] = b"<html>"
    assert run("ui", "-show-url", name) == (0, f"URL for web UI: {api.address}{path}\n", "")


def test_a_browser_is_signed_in_by_a_token_that_is_not_printed(api: Any, run: Any, pages: list[str]) -> None:
    api.answers["/ui/sign-in"] = b"<html>"
    api.answers["/v1/acl/token/onetime"] = {"OneTimeToken": {"OneTimeSecretID": "once/1"}}
    url = f"{api.address}/ui/sign-in"
    assert run("ui", "-authenticate", "-token", ID) == (0, f'Opening URL "{url}" with a one-time token\n', "")
    assert pages == [f"{url}#ott=once%2F1"]
    assert run("ui", "-authenticate", "-show-url", "-token", ID)[1] == f"URL for web UI: {url}#ott=once%2F1\n"
    api.answers["/v1/search"] = {"Matches": {"nodes": [ID]}}
    shown = run("ui", "-authenticate", "-show-url", "-token", ID, ID)[1]
    assert shown == f"URL for web UI: {url}?back=%2Fui%2Fnodes%2F{ID}#ott=once%2F1\n"
    api.answers["/v1/acl/token/onetime"] = (400, "ACL support disabled")
    assert "ACL support disabled" in run("ui", "-authenticate", "-token", ID)[2]


def test_what_cannot_be_shown_is_told(api: Any, run: Any, pages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers["/v1/search"] = {"Matches": {"evals": ["x"]}}
    assert run("ui", "x")[2].startswith('No job, allocation or node has the id "x"\n')
    api.answers["/v1/search"] = {"Matches": {"jobs": ["xa", "xb"]}}
    assert 'begins with "x": xa, xb' in run("ui", "x")[2]
    assert "give one with -token or NOMAD_TOKEN" in run("ui", "-authenticate")[2]
    api.answers["/ui/"] = (404, "The pages are off")
    assert "The pages are off" in run("ui")[2]
    api.answers["/ui/"] = b"<html>"
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    code, out, err = run("ui")
    assert code == 1 and api.address in out and "No browser could be started" in err
