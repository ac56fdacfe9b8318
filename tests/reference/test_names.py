"""Every route and field of Nomad 2.0's API is there, or stands in a table of exceptions with the reason.

`routes.txt` and `fields.json` hold names only; where the reference lies beside the checkout they are compared with it.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from aiohttp import web
from yurt.http.cluster_routes.unavailable import acl_disabled, enterprise
from yurt.http.dispatcher import find_need
from yurt.http.route_table import add_all_routes
from yurt.http.routes import function_of
from yurt.testing.http_api import NODE_ID, add_ready_node, serving

HERE = Path(__file__).parent
REFERENCE = HERE.parents[2] / "shared" / "reference"
FIELDS: Final[dict[str, list[str]]] = json.loads((HERE / "fields.json").read_text())
ROUTES = (HERE / "routes.txt").read_text().splitlines()

REGIONS_AT_ONCE = "deployments over several regions belong to Nomad's Enterprise edition"
SENTINEL = "Sentinel is a product of its own that belongs to Nomad's Enterprise edition"
SIZING = "recommendations come from the autoscaler of Nomad's Enterprise edition"
ROUTE_EXCEPTIONS: Final = {
    "GET /v1/operator/license": "Yurt has no licence to install or to expire",
    "GET /v1/recommendations": SIZING,
    "GET /v1/sentinel/policies": SENTINEL,
    "GET /v1/sentinel/policy/:name": SENTINEL,
    "POST /v1/deployment/unblock/:id": REGIONS_AT_ONCE,
    "POST /v1/recommendations/apply": SIZING,
}
"""Routes that answer 404, 405 or 501, with the reason."""


@pytest.mark.parametrize("line", ROUTES)
async def test_every_route_is_served(line: str) -> None:
    method, path = line.split()
    app = web.Application()
    add_all_routes(app)
    asked = re.sub(r":\w+", "x", path)

    try:
        route, _ = await find_need(cast(web.Request, SimpleNamespace(app=app)), method, asked)
        is_served = function_of(route.handler) not in (acl_disabled, enterprise)
    except web.HTTPException:
        is_served = False
    except Exception as error:  # what is refused has a status of its own
        assert getattr(error, "status", None) in (404, 405), error
        is_served = False

    assert is_served == (line not in ROUTE_EXCEPTIONS)


BODIES: Final = {
    "AgentSchedulerWorkerConfigRequest": "agent_routes.agent.SchedulersBody",
    "ACLIdentityClientIntroductionTokenRequest": "cluster_routes.introduction.IntroductionBody",
    "ACLLoginRequest": "resources.acl.login.LoginBody",
    "AllocPauseRequest": "agent_routes.alloc_disk.AllocPauseBody",
    "AllocSignalRequest": "resources.allocations.AllocSignalBody",
    "AllocationRestartRequest": "resources.allocations.AllocRestartBody",
    "BootstrapRequest": "resources.acl.tokens.BootstrapBody",
    "CSIVolumeCreateRequest": "resources.csi_volumes.CSIVolumesBody",
    "CSIVolumeRegisterRequest": "resources.csi_volumes.CSIVolumesBody",
    "DeploymentAllocHealthRequest": "resources.deployments.DeploymentHealthBody",
    "DeploymentPauseRequest": "resources.deployments.DeploymentPauseBody",
    "DeploymentPromoteRequest": "resources.deployments.DeploymentPromoteBody",
    "EvalDeleteRequest": "resources.evaluations.EvaluationsDeleteBody",
    "EvalOptions": "resources.job_actions.EvalOptionsBody",
    "FuzzySearchRequest": "resources.search.FuzzySearchBody",
    "HostVolumeCreateRequest": "resources.volumes.HostVolumeBody",
    "HostVolumeRegisterRequest": "resources.volumes.HostVolumeBody",
    "JobDispatchRequest": "resources.job_actions.JobDispatchBody",
    "JobEvaluateRequest": "resources.job_actions.JobEvaluateBody",
    "JobPlanRequest": "resources.job_actions.JobPlanBody",
    "JobRegisterRequest": "resources.jobs.JobRegisterBody",
    "JobRevertRequest": "resources.job_actions.JobRevertBody",
    "JobStabilityRequest": "resources.job_actions.JobStabilityBody",
    "JobStatusesRequest": "resources.jobs.JobStatusesBody",
    "JobValidateRequest": "resources.jobs.JobValidateBody",
    "JobsParseRequest": "resources.jobs.JobsParseBody",
    "NodeIdentityRenewRequest": "agent_routes.client_node.RenewBody",
    "NodeMetaApplyRequest": "agent_routes.client_node.NodeMetaBody",
    "NodeUpdateDrainRequest": "resources.nodes.NodeDrainBody",
    "NodeUpdateEligibilityRequest": "resources.nodes.NodeEligibilityBody",
    "OneTimeTokenExchangeRequest": "resources.acl.tokens.ExchangeBody",
    "ScalingRequest": "resources.job_actions.JobScaleBody",
    "SearchRequest": "resources.search.SearchBody",
    "TagVersionRequest": "resources.job_tags.TagVersionBody",
}
"""The body that takes a request of the API."""
BODY_EXCEPTIONS: Final = {
    ("DeploymentPromoteRequest", "PromotedAt"): "the server says when it promotes",
    ("JobStatusesRequest", "IncludeChildren"): "the parameter `include_children` says it",
}
"""Fields that no body takes, with the reason."""


@pytest.mark.parametrize(("request_type", "body"), BODIES.items())
def test_every_field_of_a_request_is_taken(request_type: str, body: str) -> None:
    module, _, name = body.rpartition(".")
    taken = getattr(importlib.import_module(f"yurt.http.{module}"), name).__struct_encode_fields__

    missing = {field.lower() for field in FIELDS[request_type]} - {field.lower() for field in taken}

    assert missing == {field.lower() for kind, field in BODY_EXCEPTIONS if kind == request_type}


GROUP: Final = {"Name": "g", "Scaling": {"Max": 3}, "Tasks": [{"Name": "main", "Driver": "mock_driver"}]}
JOB: Final = {
    "Job": {"ID": "web", "Type": "service", "TaskGroups": [GROUP]},
    "Submission": {"Source": "job", "Format": "hcl2"},
}
ANSWERS: Final = [
    ("AgentMember", "/v1/agent/members", "Members"),
    ("AgentSchedulerWorkerConfigResponse", "/v1/agent/schedulers/config", ""),
    ("AgentSchedulerWorkerInfo", "/v1/agent/schedulers", "schedulers"),
    ("AgentSelf", "/v1/agent/self", ""),
    ("AllocationListStub", "/v1/allocations", ""),
    ("AutopilotConfiguration", "/v1/operator/autopilot/configuration", ""),
    ("Deployment", "/v1/deployments", ""),
    ("EvalCountResponse", "/v1/evaluations/count", ""),
    ("Evaluation", "/v1/evaluations", ""),
    ("Job", "/v1/job/web", ""),
    ("JobListStub", "/v1/jobs", ""),
    ("JobScaleStatusResponse", "/v1/job/web/scale", ""),
    ("JobSubmission", "/v1/job/web/submission?version=0", ""),
    ("JobSummary", "/v1/job/web/summary", ""),
    ("JobVersionsResponse", "/v1/job/web/versions", ""),
    ("KeyringResponse", "/v1/agent/keyring/list", ""),
    ("Namespace", "/v1/namespaces", ""),
    ("Node", f"/v1/node/{NODE_ID}", ""),
    ("NodeListStub", "/v1/nodes", ""),
    ("NodePool", "/v1/node/pools", ""),
    ("OperatorHealthReply", "/v1/operator/autopilot/health", ""),
    ("RaftServer", "/v1/operator/raft/configuration", "Servers"),
    ("ScalingPolicyListStub", "/v1/scaling/policies", ""),
    ("SchedulerConfiguration", "/v1/operator/scheduler/configuration", "SchedulerConfig"),
    ("ServerHealth", "/v1/operator/autopilot/health", "Servers"),
    ("ServerMembers", "/v1/agent/members", ""),
    ("VaultWorkloadIdentityUpgradeCheck", "/v1/operator/upgrade-check/vault-workload-identity", ""),
]
"""Type, path and part of the answers that a server without a client gives."""


async def test_every_field_of_an_answer_is_written() -> None:
    missing: dict[str, set[str]] = {}
    async with serving() as api:
        await add_ready_node(api)
        await api.put("/v1/jobs", JOB)
        await api.wait_until("/v1/job/web/allocations", len)
        for kind, path, part in ANSWERS:
            answer: Any = (await api.get(path)).json
            found = answer[part] if part else answer
            row = found[0] if isinstance(found, list) else found
            if lacking := set(FIELDS[kind]) - row.keys():
                missing[kind] = lacking

    assert missing == {}


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference in ../shared beside the checkout")
def test_the_names_are_those_of_the_reference() -> None:
    types = json.loads((REFERENCE / "api-types.json").read_text())
    listed = {kind["type"]: _field_names(kind) for kind in types if kind["kind"] == "struct"}

    assert {name: set(fields) for name, fields in FIELDS.items()} == {k: v for k, v in listed.items() if v}


def _field_names(kind: dict[str, Any]) -> set[str]:
    carried = ("QueryMeta", "WriteMeta", "QueryOptions", "WriteRequest")
    fields = [field for field in kind.get("fields", ()) if not field.get("embedded") and field["f"] not in carried]
    return {field.get("j") or field["f"] for field in fields} - {"-"}
