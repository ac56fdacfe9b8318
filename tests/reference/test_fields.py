"""Every type of Nomad 2.0's API is compared field by field, or stands in a table with the reason.

`test_names.py` compares what bodies take and what a server without access control answers; here are the domain's
structs, the answers to writes, those about access control, those of clients, and the count of all types.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest
import yurt.structs
from yurt.client.host_usage import core_usage, measured
from yurt.http.resources.acl.login import AuthURLBody, CompleteAuthBody
from yurt.http.resources.jobs import JobPlace
from yurt.http.resources.volumes import HostVolumeAnswer
from yurt.runtime.diagnostics import host_data
from yurt.runtime.env import RealEnv
from yurt.server.config import AclConfig
from yurt.structs.rpc import FileInfo, NodeMeta
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, serving

from tests.reference import test_names

FIELDS = test_names.FIELDS
Types = dict[str, type[msgspec.Struct]]
Places = dict[tuple[str, str], str]

ALIASES: Final[Types] = {
    "ACLOIDCAuthURLRequest": AuthURLBody, "ACLOIDCCompleteAuthRequest": CompleteAuthBody, "AllocFileInfo": FileInfo,
    "HostVolumeCreateResponse": HostVolumeAnswer, "HostVolumeRegisterResponse": HostVolumeAnswer,
    "NamespacedID": JobPlace, "NodeMetaResponse": NodeMeta,
}  # fmt: skip
"""Types that have another name here."""
NOT_STORED: Final[Mapping[str, str]] = {
    "ACLToken": "SecretID", "Allocation": "Resources TaskResources", "CSIPlugin": "Allocations",
    "CSIVolume": "AccessMode Allocations AttachmentMode ControllerRequired ControllersExpected ControllersHealthy "
    "NodesExpected NodesHealthy Provider ProviderVersion ReadAllocs ResourceExhausted Schedulable WriteAllocs",
    "HostVolume": "Allocations", "Node": "Drain Reserved Resources", "OneTimeToken": "OneTimeSecretID",
}  # fmt: skip
"""Fields that are added when the object is written; `test_a_written_object_has_every_field` reads most of them."""
LEFT_OUT: Final[Places] = {
    ("AggregateSample", "Rate"): "a mean over ten seconds; Yurt keeps sums since the agent's start, for Prometheus",
    ("JobStabilityResponse", "JobModifyIndex"): "Nomad's servers do not write it",
    ("MemoryStats", "KernelMaxUsage"): "the kernel counts it under version 1 of cgroups only",
    ("MemoryStats", "KernelUsage"): "the kernel counts it under version 1 of cgroups only",
}
"""Fields that nothing writes, with the reason."""


def structs() -> Types:
    """Each struct of the domain that has the name of a type of the API, and those with another name."""
    found: Types = dict(ALIASES)
    for module in pkgutil.walk_packages(yurt.structs.__path__, "yurt.structs."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ in FIELDS:
                found.setdefault(kind.__name__, kind)
    return found


STRUCTS: Final = structs()


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_a_struct_has_every_field(name: str) -> None:
    ours = {field.lower() for field in STRUCTS[name].__struct_encode_fields__}
    added = NOT_STORED.get(name, "").split()

    missing = {field for field in FIELDS[name] if field.lower() not in ours}

    assert missing == {*added, *(field for kind, field in LEFT_OUT if kind == name)}


def of_a_client() -> dict[str, Any]:
    """The parts of a client's figures."""
    figures: Any = measured("/", RealEnv(), core_usage(psutil.cpu_times(percpu=True), 1000.0))
    gone: Any = measured("/nowhere", RealEnv(), ()).alloc_dir_stats
    host = host_data()
    return {
        "HostCPUStats": figures.cpu[0], "HostDiskStats": dict.fromkeys(figures.alloc_dir_stats.keys() & gone.keys(), 0),
        "HostMemoryStats": figures.memory, "HostData": host, "DiskUsage": next(iter(host["Disk"].values())),
    }  # fmt: skip


CLIENT_TYPES: Final = ("HostCPUStats", "HostDiskStats", "HostMemoryStats", "HostData", "DiskUsage")


@pytest.mark.parametrize("name", CLIENT_TYPES)
def test_the_figures_of_a_client_have_every_field(name: str) -> None:
    assert set(FIELDS[name]) - of_a_client()[name].keys() == set()


PUT, GET, DELETE = "PUT", "GET", "DELETE"
JOB: Final[dict[str, Any]] = test_names.JOB
CRON: Final = {"ID": "cron", "Type": "batch", "ParameterizedJob": {}, "TaskGroups": JOB["Job"]["TaskGroups"]}
METHOD: Final = {
    "Name": "ci", "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h",
    "Config": {"OIDCDiscoveryURL": "https://id", "OIDCClientID": "c", "OIDCClientSecret": "s",
               "AllowedRedirectURIs": ["https://yurt/ui"]},
}  # fmt: skip
POLICY: Final = {"Name": "rd", "Rules": 'namespace "default" { policy = "read" }'}
WRITES: Final = [
    ("", PUT, "/v1/jobs", {"Job": CRON}, ""),
    ("JobRegisterResponse", PUT, "/v1/jobs", JOB, ""),
    ("JobPlanResponse", PUT, "/v1/job/web/plan", JOB, ""),
    ("JobValidateResponse", PUT, "/v1/validate/job", JOB, ""),
    ("JobDispatchResponse", PUT, "/v1/job/cron/dispatch", {}, ""),
    ("JobStabilityResponse", PUT, "/v1/job/web/stable", {"JobID": "web", "JobVersion": 0, "Stable": True}, ""),
    ("JobVersionTag", PUT, "/v1/job/web/versions/good/tag", {"Version": 0}, ""),
    ("SearchResponse", PUT, "/v1/search", {"Prefix": "w", "Context": "jobs"}, ""),
    ("FuzzySearchResponse", PUT, "/v1/search/fuzzy", {"Text": "we", "Context": "jobs"}, ""),
    ("FuzzyMatch", PUT, "/v1/search/fuzzy", {"Text": "main", "Context": "jobs"}, "Matches tasks"),
    ("SchedulerConfigurationResponse", GET, "/v1/operator/scheduler/configuration", None, ""),
    ("SchedulerSetConfigurationResponse", PUT, "/v1/operator/scheduler/configuration", {}, ""),
    ("OperatorUtilizationSnapshotResponse", PUT, "/v1/operator/utilization", {}, ""),
    ("MetricsSummary", GET, "/v1/metrics", None, ""),
    ("GaugeValue", GET, "/v1/metrics", None, "Gauges"),
    ("SampledValue", GET, "/v1/metrics", None, "Counters"),
    ("SampledValue", GET, "/v1/metrics", None, "Samples"),
    ("AgentSchedulerWorkersInfo", GET, "/v1/agent/schedulers", None, ""),
    ("AggregateSample", GET, "/v1/metrics", None, "Counters"),
    ("AggregateSample", GET, "/v1/metrics", None, "Samples"),
    ("AgentHealth", GET, "/v1/agent/health", None, "server"),
    ("AgentHealthResponse", GET, "/v1/agent/health", None, ""),
    ("LeadershipTransferResponse", PUT, "/v1/operator/raft/transfer-leadership?id=test.global", {}, ""),
    ("RaftConfiguration", GET, "/v1/operator/raft/configuration", None, ""),
    ("TaskGroupScaleStatus", GET, "/v1/job/web/scale", None, "TaskGroups g"),
    ("VariableMetadata", PUT, "/v1/var/a", {"Path": "a", "Items": {"k": "v"}}, ""),
    ("ACLPolicy", PUT, "/v1/acl/policy/rd", POLICY, "="),
    ("ACLPolicyListStub", GET, "/v1/acl/policies", None, ""),
    ("ACLRole", PUT, "/v1/acl/role", {"Name": "r", "Policies": [{"Name": "rd"}]}, ""),
    ("ACLRoleListStub", GET, "/v1/acl/roles", None, ""),
    ("ACLToken", PUT, "/v1/acl/token", {"Name": "t", "Type": "management", "ExpirationTTL": "1h"}, ""),
    ("ACLTokenListStub", GET, "/v1/acl/tokens", None, ""),
    ("ACLAuthMethod", PUT, "/v1/acl/auth-method", METHOD, ""),
    ("ACLAuthMethodConfig", GET, "/v1/acl/auth-method/ci", None, "Config"),
    ("ACLAuthMethodListStub", GET, "/v1/acl/auth-methods", None, ""),
    ("ACLBindingRule", PUT, "/v1/acl/binding-rule", {"AuthMethod": "ci", "BindType": "policy", "BindName": "rd"}, ""),
    ("ACLBindingRuleListStub", GET, "/v1/acl/binding-rules", None, ""),
    ("OneTimeTokenUpsertResponse", PUT, "/v1/acl/token/onetime", {}, ""),
    ("OneTimeToken", PUT, "/v1/acl/token/onetime", {}, "OneTimeToken"),
    ("ACLIdentityClientIntroductionTokenResponse", PUT, "/v1/acl/identity/client-introduction-token", {}, ""),
    ("Node", GET, f"/v1/node/{NODE_ID}", None, ""),
    ("NodeDrainUpdateResponse", PUT, f"/v1/node/{NODE_ID}/drain", {"DrainSpec": {"Deadline": -1}}, ""),
    ("NodeEligibilityUpdateResponse", PUT, f"/v1/node/{NODE_ID}/eligibility", {"Eligibility": "ineligible"}, ""),
    ("NodePurgeResponse", PUT, f"/v1/node/{NODE_ID}/purge", {}, ""),
    ("JobDeregisterResponse", DELETE, "/v1/job/web", None, ""),
]
"""Type, request and the part of the answer that has it, in this order; "=": the object is read after the request."""


async def test_a_written_object_has_every_field() -> None:
    missing: dict[str, set[str]] = {}
    async with serving(acl=AclConfig(enabled=True)) as api:
        await add_ready_node(api)
        secret = (await api.put("/v1/acl/bootstrap")).json["SecretID"]
        for kind, method, path, body, part in WRITES:
            row = await _answer(api, secret, (method, path, body), part)
            left_out = {field for each, field in LEFT_OUT if each == kind}
            if kind and (lacking := set(FIELDS[kind]) - row.keys() - OPTIONAL.get(kind, set()) - left_out):
                missing[kind] = lacking

    assert missing == {}


async def _answer(api: Api, secret: str, request: tuple[str, str, Any], part: str) -> dict[str, Any]:
    method, path, body = request
    headers = {"X-Nomad-Token": secret}
    answer = await api.call(method, path, body, headers=headers)
    assert answer.status == 200, (path, answer.text)
    found: Any = (await api.get(path, headers=headers)).json if part == "=" else answer.json
    for key in part.strip("=").split():
        found = found[key]
    row: dict[str, Any] = found[0] if isinstance(found, list) else found
    return row


async def test_an_event_has_every_field() -> None:
    async with serving() as api:
        await api.put("/v1/jobs", JOB)
        async with api.client.get("/v1/event/stream?topic=Job") as stream:
            assert await stream.content.readline() == b"{}\n"
            events = json.loads(await stream.content.readline())

    assert set(FIELDS["Events"]) - events.keys() == {"Err"}, "which Nomad's Go client fills in"
    assert set(FIELDS["Event"]) - events["Events"][0].keys() == set()


OPTIONAL: Final = {
    "ACLTokenListStub": {"ExpirationTime"}, "AgentHealthResponse": {"client"}, "VariableMetadata": {"Lock"},
}  # fmt: skip
"""Fields that Nomad omits while they are empty."""


ROOT: Final = Path(__file__).parents[2]
OIDC, SHELL, CSI = "tests/http/login/test_oidc.py", "e2e/test_exec.py", "tests/http/test_csi_volumes.py"
COMPARED_ELSEWHERE: Final[Mapping[str, str]] = {
    "ACLOIDCAuthURLResponse": f"{OIDC}::test_a_login_leads_through_the_browser_to_a_token",
    "AllocGetPauseResponse": "tests/http/test_streams.py::test_a_task_is_paused_and_resumed",
    "AllocStopResponse": "tests/http/test_cluster.py::test_a_stopped_allocation_gets_an_evaluation",
    "CSIPluginListStub": f"{CSI}::test_a_plugin_is_shown_with_those_who_run_it",
    "CSIVolumeListStub": f"{CSI}::test_a_volume_is_registered_listed_read_and_forgotten",
    "DeploymentUpdateResponse": "tests/http/test_answers.py::test_answers_have_the_fields_of_the_api",
    "EvalDeleteResponse": "tests/http/test_more_actions.py::test_ended_evaluations_can_be_deleted_and_others_not",
    "ExecStreamingExitResult": f"{SHELL}::test_frames_are_those_of_nomad",
    "ExecStreamingIOOperation": f"{SHELL}::test_frames_are_those_of_nomad",
    "ExecStreamingInput": f"{SHELL}::test_a_terminal_has_the_size_that_the_client_tells",
    "ExecStreamingOutput": f"{SHELL}::test_frames_are_those_of_nomad",
    "HostDataResponse": "tests/http/test_agent_debug.py::test_the_machine_is_shown_in_nomads_shape_and_without_secrets",
    "NodeIdentityGetResponse": "tests/http/test_introduction.py::test_the_identity_of_a_node_is_shown_and_renewed",
    "OneTimeTokenExchangeResponse": "tests/http/test_acl.py::test_a_one_time_token_gives_the_token_once",
    "ServiceRegistrationListStub": "tests/http/test_services.py::test_services_are_listed_by_namespace_with_their_tags",
    "ServiceRegistrationStub": "tests/http/test_services.py::test_services_are_listed_by_namespace_with_their_tags",
}
"""Types whose fields need more than a request to a server alone, with the test that reads them all."""


@pytest.mark.parametrize("test", sorted(set(COMPARED_ELSEWHERE.values())))
def test_what_is_compared_elsewhere_has_its_test(test: str) -> None:
    path, _, name = test.partition("::")

    assert f"def {name}(" in (ROOT / path).read_text()


ENTERPRISE = "belongs to Nomad's Enterprise edition"
MESH = "Consul's service mesh, which Yurt has not got; a job that asks for it is told so"
OPTIONS = "the arguments of a function of Nomad's Go client, which sends them in a path, a query or a header"
OF_THE_CLIENT = "made by Nomad's Go client for its callers; no request and no answer holds it"
IN_THE_PATH = "a body that repeats the id of the path; Nomad's servers do not read it either"
CONTROLLER = "needs a CSI controller, which Yurt does not run"
GOSSIP_KEYS = "there is no gossip key to change: mutual TLS protects the cluster, and the refusal says how"
POINTS = "values that Nomad's agents do not record either: the list that would hold them is empty"
NOT_HERE: Final[Mapping[str, str]] = {
    ENTERPRISE:
        "ApplyLicenseOptions AutopilotUpgrade AutopilotZone AutopilotZoneUpgradeVersions DeploymentUnblockRequest "
        "License LicenseReply NamespaceConsulConfiguration NamespaceVaultConfiguration Recommendation "
        "RecommendationApplyRequest RecommendationApplyResponse SentinelPolicy SentinelPolicyListStub "
        "SingleRecommendationApplyError SingleRecommendationApplyResult VaultAccessor",
    MESH:
        "ConsulConnect ConsulExposeConfig ConsulExposePath ConsulGateway ConsulGatewayBindAddress ConsulGatewayProxy "
        "ConsulGatewayTLSConfig ConsulGatewayTLSSDSConfig ConsulHTTPHeaderModifiers ConsulIngressConfigEntry "
        "ConsulIngressListener ConsulIngressService ConsulLinkedService ConsulMeshGateway ConsulProxy "
        "ConsulSidecarService ConsulTerminatingConfigEntry ConsulTransparentProxy ConsulUpstream SidecarTask",
    OPTIONS:
        "CSISnapshotListRequest CSIVolumeDeleteRequest CSIVolumeDeregisterRequest DeregisterOptions DispatchOptions "
        "DrainOptions ForceLeaveOpts HostVolumeDeleteRequest HostVolumeListRequest JobListFields JobListOptions "
        "KeyringDeleteOptions KeyringRotateOptions NodeIdentityGetRequest OperatorUtilizationOptions PlanOptions "
        "PprofOptions QueryOptions RegisterOptions SchedulerWorkerPoolArgs TaskGroupHostVolumeClaimsListRequest "
        "VersionsOptions WriteOptions WriteRequest",
    CONTROLLER:
        "CSISnapshot CSISnapshotCreateRequest CSISnapshotCreateResponse CSISnapshotListResponse CSIVolumeExternalStub "
        "CSIVolumeCreateResponse CSIVolumeListExternalResponse",
    OF_THE_CLIENT:
        "CSIVolumeRegisterResponse Config ErrCASConflict HttpBasicAuth JobSubmissionResponse Label LockLeaser "
        "MonitorMessage QueryMeta SingleDeploymentResponse TLSConfig WriteMeta",
    IN_THE_PATH:
        "DeploymentFailRequest DeploymentSpecificRequest",
    GOSSIP_KEYS:
        "KeyringRequest",
    POINTS:
        "PointValue",
}  # fmt: skip
"""Types that are not compared here, by the reason."""


def test_every_type_is_compared_or_says_why_not() -> None:
    """A type that Nomad adds must be compared or listed."""
    compared = {*STRUCTS, *CLIENT_TYPES, *test_names.BODIES, *(kind for kind, _, _ in test_names.ANSWERS)}
    compared |= {kind for kind, *_ in WRITES if kind} | COMPARED_ELSEWHERE.keys() | {"Event", "Events"}
    listed = [name for names in NOT_HERE.values() for name in names.split()]

    assert len(listed) == len(set(listed))
    assert set(listed) & compared == set()
    assert FIELDS.keys() - compared - set(listed) == set()
    assert set(listed) - FIELDS.keys() == set()
