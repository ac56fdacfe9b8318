"""`scaling policy`, `operator metrics` and `system reconcile summaries`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., tuple[int, str, str]]

ID = "aaaaaaaa-0000-0000-0000-000000000000"
TARGET = {"Namespace": "default", "Job": "shop", "Group": "web"}
STUB = {"ID": ID, "Enabled": True, "Type": "horizontal", "Target": TARGET}


def test_policies_are_listed_and_asked_for_by_job_and_type(run: Run, api: Any) -> None:
    api.answers["/v1/scaling/policies"] = [STUB]
    code, out, _ = run("scaling", "policy", "list", "-job=shop", "-type=hor")
    assert code == 0
    assert out.splitlines()[1].split() == ["aaaaaaaa", "true", "horizontal", "Group:web,Job:shop,Namespace:default"]
    assert {"job=shop", "type=hor"} <= set(api.asked[-1][1].partition("?")[2].split("&"))


def test_an_unknown_type_of_policies_is_refused_before_any_request(run: Run, api: Any) -> None:
    code, _, said = run("scaling", "policy", "list", "-type=zz")
    assert (code, api.asked) == (1, [])
    assert said.startswith('-type: "zz" is not a type of scaling policy; use horizontal, vertical_cpu, vertical_mem')


def test_no_policies_are_said_to_be_none(run: Run, api: Any) -> None:
    api.answers["/v1/scaling/policies"] = []
    assert run("scaling", "policy", "list")[:2] == (0, "No policies found\n")


def test_a_policy_is_found_by_the_beginning_of_its_id(run: Run, api: Any) -> None:
    api.answers |= {
        "/v1/scaling/policies": [STUB],
        f"/v1/scaling/policy/{ID}": {**STUB, "Min": 1, "Max": 5, "Policy": {"cooldown": "1m"}},
    }
    code, out, _ = run("scaling", "policy", "info", "aaaa")
    assert code == 0
    assert [line.split("=")[1].strip() for line in out.splitlines()[:5]][3:] == ["1", "5"]
    assert '"cooldown": "1m"' in out
    assert run("scaling", "policy", "info", "bbbb")[0::2] == (
        1,
        'No scaling policies with prefix or id "bbbb" found\n`yurt scaling policy list` lists them.\n',
    )


def test_several_policies_of_one_prefix_are_told(run: Run, api: Any) -> None:
    api.answers["/v1/scaling/policies"] = [STUB, STUB | {"ID": ID[:-1] + "1"}]
    code, _, said = run("scaling", "policy", "info", "aaaa")
    assert (code, said.splitlines()[0]) == (1, "Prefix matched multiple scaling policies")


def test_metrics_are_json_or_what_prometheus_reads(run: Run, api: Any) -> None:
    api.answers["/v1/metrics"] = lambda query: b"# TYPE a gauge\n" if "prometheus" in query else {"Gauges": []}
    assert run("operator", "metrics")[1] == '{"Gauges": []}\n'
    assert json.loads(run("operator", "metrics", "-json")[1]) == {"Gauges": []}
    assert run("operator", "metrics", "-format=prometheus")[1] == "# TYPE a gauge\n"
    assert run("operator", "metrics", "-format=xml")[0] == 1


def test_metrics_that_are_off_say_so(run: Run, api: Any) -> None:
    api.answers["/v1/metrics"] = (415, "Prometheus is not enabled")
    assert run("operator", "metrics", "-format=prometheus")[0::2] == (1, "Prometheus is not enabled\n")


def test_the_utilization_is_written_to_a_new_file(run: Run, api: Any, tmp_path: Path) -> None:
    api.answers["/v1/operator/utilization"] = {"Bundle": "eyJOb2RlcyI6M30=", "LastIndex": 7, "RequestTime": 0}
    path = tmp_path / "now.json"
    written = run("operator", "utilization", "-today-only", "-message", "monthly", "-output", str(path))
    again = run("operator", "utilization", "-output", str(path))
    assert written == (0, f"Success! Utilization reporting bundle written to: {path}\n", "")
    assert json.loads(path.read_text()) == {"Nodes": 3, "Message": "monthly"}
    assert again[0] == 1 and "already exists; name another file with -output" in again[2]


def test_summaries_are_reconciled_without_a_word(run: Run, api: Any) -> None:
    api.answers["/v1/system/reconcile/summaries"] = b""
    assert run("system", "reconcile", "summaries") == (0, "", "")
