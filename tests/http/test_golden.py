"""What the event stream and the search say of the rows of each table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from yurt.structs.commands import RegisterJob
from yurt.testing.events import events_of
from yurt.testing.factories import number_id
from yurt.testing.http_api import Api
from yurt.testing.rows.every_table import DEPLOYMENT, every_table

SERVICE = f"_nomad-task-{number_id(2)}-group-web"
NODE, FIRST, SECOND, EVALUATION, VOLUME = map(number_id, (1, 2, 3, 6, 9))
TOLD: list[tuple[str, str, str, str, list[str], list[str]]] = [
    ("allocs", "Allocation", FIRST, "default", ["web"], ["Allocation"]),
    ("allocs", "Allocation", SECOND, "default", ["web", DEPLOYMENT], ["Allocation"]),
    ("csi_volumes", "CSIVolume", "db", "default", ["db", "Data", "ebs"], ["Volume"]),
    ("deployments", "Deployment", DEPLOYMENT, "default", ["web"], ["Deployment"]),
    ("evals", "Evaluation", EVALUATION, "default", ["web", DEPLOYMENT], ["Evaluation"]),
    ("host_volumes", "HostVolume", VOLUME, "default", [VOLUME, "data", "mkdir"], ["Volume"]),
    ("jobs", "Job", "web", "default", [], ["Job"]),
    ("node_pools", "NodePool", "gpu", "", [], ["NodePool"]),
    ("nodes", "Node", NODE, "", [], ["Node"]),
    ("services", "Service", SERVICE, "default", ["web", "web"], ["Service"]),
    ("variables", "Variable", "a/b", "default", [], ["Deleted", "Metadata"]),
]
"""Table, topic, key, namespace, filter keys and parts of the payload of the events; other tables have none."""


def _told() -> Iterator[tuple[str, dict[str, Any]]]:
    for change in every_table().changes:
        if change.after is not None:
            yield from ((change.table, event) for event in events_of(7, (change,), RegisterJob.event_type))


def test_each_table_with_a_topic_has_its_events_and_the_others_none() -> None:
    found = [
        (table, e["Topic"], e["Key"], e["Namespace"], e["FilterKeys"], list(e["Payload"]))
        for table, e in _told()
        if e["Key"] != number_id(4)
    ]
    assert sorted(found) == TOLD


def test_events_hide_what_only_few_may_see() -> None:
    rows = {event["Topic"]: event["Payload"] for _, event in _told()}
    assert rows["Node"]["Node"]["SecretID"] == "" and rows["Node"]["Node"]["Drain"] is False
    assert rows["CSIVolume"]["Volume"]["Secrets"] == {"password": "[REDACTED]"}
    assert rows["Allocation"]["Allocation"]["Job"] is None
    assert rows["Variable"]["Deleted"] is False and "Data" not in rows["Variable"]["Metadata"]
    assert rows["Variable"]["Metadata"]["Lock"]["ID"] == ""


MATCHES: dict[str, list[str]] = {
    "allocs": [FIRST, SECOND, number_id(4)], "deployment": [DEPLOYMENT], "evals": [EVALUATION], "jobs": ["web"],
    "nodes": [NODE], "node_pools": ["gpu"], "namespaces": ["ops"], "volumes": ["db"], "vars": ["a/b"],
    "host_volumes": [number_id(9)],
}  # fmt: skip
CONTEXTS = (
    "allocs", "deployment", "evals", "jobs", "nodes", "node_pools", "namespaces", "quotas", "recommendations",
    "scaling_policy", "plugins", "volumes", "host_volumes", "vars",
)  # fmt: skip


async def test_a_search_of_everything_finds_the_rows_of_each_context(api: Api) -> None:
    api.server.log.writer.state = every_table().commit()
    found = (await api.put("/v1/search", {"Prefix": "", "Context": "all"})).json
    assert found["Matches"] == MATCHES
    assert set(found["Truncations"]) >= set(CONTEXTS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "web",
            {
                "jobs": ["web"],
                "allocs": ["web.web[0]", "web.web[1]", "web.web[2]"],
                "groups": ["web"],
                "tasks": ["web"],
            },
        ),
        ("0000-4000", {}),
        ("n1", {"nodes": ["n1"]}),
        ("gpu", {"node_pools": ["gpu"]}),
        ("dat", {"volumes": ["db"], "host_volumes": ["data"]}),
        ("/b", {"vars": ["a/b"]}),
        ("ops", {"namespaces": ["ops"]}),
        (DEPLOYMENT[:8], {"deployment": [DEPLOYMENT], "evals": [EVALUATION]}),
    ],
)
async def test_a_fuzzy_search_looks_at_names(api: Api, text: str, found: dict[str, list[str]]) -> None:
    api.server.log.writer.state = every_table().commit()
    matches = (await api.put("/v1/search/fuzzy", {"Text": text, "Context": "all"})).json["Matches"]
    assert {context: [one["ID"] for one in hits] for context, hits in matches.items()} == found


async def test_fuzzy_hits_come_closest_first_and_then_by_name(api: Api) -> None:
    for id, name in (("ashop", "ashop"), ("shop-2", "shop-2"), ("shop-1", "My Shop"), ("shop", "shop"), ("x", "SHOP")):
        await api.register(id, Name=name)
    matches = (await api.put("/v1/search/fuzzy", {"Text": "shop", "Context": "jobs"})).json["Matches"]["jobs"]
    assert [each["Scope"][1] for each in matches] == ["x", "shop", "shop-1", "shop-2", "ashop"]


async def test_a_job_is_found_by_its_id_too_and_before_many_others(api: Api) -> None:
    for number in range(101):
        await api.register(f"a-web-{number:03}")
    await api.register("web", Name="The Shop")
    found = (await api.put("/v1/search/fuzzy", {"Text": "web", "Context": "jobs"})).json
    assert found["Matches"]["jobs"][0] == {"ID": "The Shop", "Scope": ["default", "web"]}
    assert len(found["Matches"]["jobs"]) == 100 and found["Truncations"]["jobs"]


async def test_an_unknown_context_is_refused_with_the_known_ones(api: Api) -> None:
    refused = await api.put("/v1/search", {"Prefix": "", "Context": "moods"})
    assert f"it must be one of {', '.join(CONTEXTS)}" in refused.text and refused.text.endswith(
        ' or all (did you mean "nodes"?)'
    )
