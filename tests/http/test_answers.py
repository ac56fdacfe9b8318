"""Answers that are no single struct have the fields of Nomad's API too; what they add is named here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.http_api import NODE_ID, Api, job_document

FIELDS: dict[str, list[str]] = json.loads((Path(__file__).parent.parent / "api" / "api_fields.json").read_text())
META = {"Index", "KnownLeader", "LastContact", "NextToken"}
"""Nomad's servers write the meta data of a query into some bodies as well as into headers."""


async def answers(api: Api) -> dict[str, Any]:
    """One answer of each kind."""
    await api.register("batch", ParameterizedJob={"Payload": "optional"})
    registered = (await api.register(Type="service")).json
    deployment = await api.wait_until("/v1/job/web/deployment", lambda found: found is not None)
    scale = (await api.get("/v1/job/web/scale")).json
    raft = (await api.get("/v1/operator/raft/configuration")).json
    return {
        "AgentMember": (await api.get("/v1/agent/members")).json["Members"][0],
        "AllocationListStub": (await api.get("/v1/allocations")).json[0],
        "DeploymentUpdateResponse": (await api.put(f"/v1/deployment/fail/{deployment['ID']}")).json,
        "JobDispatchResponse": (await api.put("/v1/job/batch/dispatch", {})).json,
        "JobListStub": (await api.get("/v1/jobs")).json[0],
        "JobPlanResponse": (await api.put("/v1/job/web/plan", {"Job": job_document(), "Diff": True})).json,
        "JobRegisterResponse": registered,
        "JobScaleStatusResponse": scale,
        "JobValidateResponse": (await api.put("/v1/validate/job", {"Job": job_document()})).json,
        "NodeDrainUpdateResponse": (await api.put(f"/v1/node/{NODE_ID}/drain", {"DrainSpec": {"Deadline": -1}})).json,
        "NodeListStub": (await api.get("/v1/nodes")).json[0],
        "RaftConfiguration": raft,
        "RaftServer": raft["Servers"][0],
        "SchedulerConfigurationResponse": (await api.get("/v1/operator/scheduler/configuration")).json,
        "TaskGroupScaleStatus": scale["TaskGroups"]["group"],
    }


@pytest.mark.timeout(60)
async def test_answers_have_the_fields_of_the_api(api_with_node: Api) -> None:
    added = {
        "JobListStub": {"Multiregion", "NodePool", "Version"},
        "NodeDrainUpdateResponse": {"HeartbeatTTL"},
    }
    for name, answer in (await answers(api_with_node)).items():
        assert set(FIELDS[name]) - answer.keys() == set(), name
        assert answer.keys() - set(FIELDS[name]) - META == added.get(name, set()), name


async def test_objects_are_written_whole(api_with_node: Api) -> None:
    api = api_with_node
    await api.register()
    (stub,) = await api.wait_until("/v1/job/web/allocations", len)
    for name, path in (
        ("Allocation", f"/v1/allocation/{stub['ID']}"),
        ("Evaluation", f"/v1/evaluation/{stub['EvalID']}"),
        ("Job", "/v1/job/web"),
        ("JobSummary", "/v1/job/web/summary"),
        ("Node", f"/v1/node/{NODE_ID}"),
        ("NodePool", "/v1/node/pool/default"),
        ("Namespace", "/v1/namespace/default"),
    ):
        missing = set(FIELDS[name]) - (await api.get(path)).json.keys()
        assert missing - {"Resources", "TaskResources", "Reserved"} == set(), name
