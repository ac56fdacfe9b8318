"""Lists that come a page at a time say how to get the next page: as this one was asked for."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

NODE = {
    "ID": "n" * 36, "NodePool": "default", "Datacenter": "dc1", "Name": "one", "SchedulingEligibility": "eligible",
    "Status": "ready",
}  # fmt: skip
JOB = {"ID": "web", "Type": "service", "Priority": 50, "Status": "running", "SubmitTime": 0}
EVALUATION = {"ID": "e" * 36, "Priority": 50, "TriggeredBy": "job-register", "Status": "complete"}
SERVICE = {
    "NodeID": "n" * 36, "JobID": "web", "AllocID": "a" * 36, "Address": "10.0.0.1", "Port": 8080,
}  # fmt: skip
LISTS: dict[str, tuple[str, Any, list[str]]] = {
    "node status": ("/v1/nodes", NODE, []),
    "node pool list": ("/v1/node/pools", {"Name": "default"}, []),
    "node pool nodes": ("/v1/node/pool/default/nodes", NODE, ["default"]),
    "node pool jobs": ("/v1/node/pool/default/jobs", JOB, ["default"]),
    "eval list": ("/v1/evaluations", EVALUATION, []),
    "service info": ("/v1/service/api", SERVICE, ["api"]),
    "var list": ("/v1/vars", {"Namespace": "default", "Path": "app/a"}, ["app"]),
}


def next_words(run: Any, api: Any, command: str, *words: str) -> list[str]:
    """What the hint of the next page says behind `yurt`, as a shell splits it."""
    path, row, arguments = LISTS[command]
    api.answers[path], api.next_token = [row], "t 2"
    code, out, err = run(*command.split(), *words, *arguments)
    shown = err if command == "var list" else out
    assert code == 0 and "Results have been paginated. To get the next page run:\n\nyurt " in shown
    return shlex.split(shown.splitlines()[-1])[1:]


@pytest.mark.parametrize("command", LISTS)
def test_every_list_repeats_the_flags_it_was_given(run: Any, api: Any, command: str) -> None:
    given = ["-filter", 'Name != "it\'s"', "-per-page", "1", "-namespace", "apps", "-insecure"]
    words = next_words(run, api, command, *given, "-page-token=t1")
    end = ["-page-token", "t 2", *LISTS[command][2]]
    assert sorted(words[: -len(end)]) == sorted([*command.split(), *given])
    assert words[-len(end) :] == end


@pytest.mark.parametrize("command", LISTS)
def test_the_hint_leads_to_the_next_page(run: Any, api: Any, command: str) -> None:
    words = next_words(run, api, command, "-per-page", "1")
    api.asked.clear()
    api.next_token = ""
    code, out, err = run(*words)
    assert (code, "paginated" in out + err) == (0, False)
    assert "per_page=1" in api.asked[0][1] and "next_token=t%202" in api.asked[0][1].replace("+", "%20")


def test_switches_that_were_turned_off_stay_off(run: Any, api: Any) -> None:
    words = next_words(run, api, "node status", "-os", "-verbose=false")
    assert words == ["node", "status", "-os", "-verbose=false", "-page-token", "t 2"]


def test_a_token_of_the_acl_is_not_printed(run: Any, api: Any) -> None:
    assert next_words(run, api, "eval list", "-token", "s3cret", "-job", "web") == [
        "eval", "list", "-job", "web", "-page-token", "t 2",
    ]  # fmt: skip


def test_an_argument_that_looks_like_a_flag_stays_an_argument(run: Any, api: Any) -> None:
    api.answers["/v1/vars"], api.next_token = [{"Namespace": "default", "Path": "-a"}], "t2"
    _, _, err = run("var", "list", "--", "-a")
    assert err.splitlines()[-1] == "yurt var list -page-token t2 -- -a"


@pytest.mark.parametrize("command", LISTS)
def test_the_last_page_says_nothing_of_a_next_one(run: Any, api: Any, command: str) -> None:
    path, row, arguments = LISTS[command]
    api.answers[path] = [row]
    _, out, err = run(*command.split(), *arguments)
    assert "paginated" not in out + err
