"""Objects of every kind in one namespace, a second namespace, and callers with one right each.

The access matrix asks every route as every caller. All objects lie in the namespace `team`, so that a caller with a
right there, and nowhere else, shows what that right opens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Final

from yurt.access import Capability, Origin
from yurt.access.needs import (
    Area,
    HostVolumeMountCapability,
    Level,
    NodePoolCapability,
    OperatorCapability,
    VariableCapability,
)
from yurt.http.authentication import sealed_origin
from yurt.http.forwarding_headers import ORIGIN
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.server.clients.node_identities import NodeIdentities
from yurt.server.server import Server
from yurt.state import Snapshot
from yurt.structs.acl import ACLAuthMethod, ACLBindingRule, ACLToken, hash_of_secret
from yurt.structs.alloc import Allocation
from yurt.structs.commands import (
    AllocUpdate,
    CreateACLBindingRule,
    CreateACLToken,
    PutHostVolume,
    RegisterNode,
    SetNodeStatus,
    UpdateAllocsFromClient,
    UpsertACLAuthMethod,
    UpsertVolumes,
)
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.node import HostVolumeInfo
from yurt.structs.rpc import HeldIdentity, IdentityQuery, NodeReply
from yurt.structs.status import CLIENT_RUNNING
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume
from yurt.structs.volumes.host import HostVolumeCapability as VolumeMode
from yurt.testing import factories
from yurt.testing.access.callers import Callers
from yurt.testing.http_api import NODE_ID, job_document, ready_node

TEAM: Final = "team"
ELSEWHERE: Final = "elsewhere"
POOL: Final = "pool"
VOLUME_ID: Final = "22222222-2222-4333-8444-555555555555"
QUOTA: Final = {"Name": "stored", "Limits": [{"Region": "global", "RegionLimit": {"CPU": 900}}]}
CLAIMS: Final = 10
ANY_CLAIM: Final = "{claim}"
"""In a path: a claim that is there at the moment of the request."""
RULE_ID: Final = "33333333-2222-4333-8444-555555555555"
EXPIRED: Final = "44444444-2222-4333-8444-555555555555"
REVOKED: Final = "55555555-2222-4333-8444-555555555555"
ACCESSOR: Final = "66666666-2222-4333-8444-555555555555"

COMBINATIONS: Final = (
    "csi-write-volume + plugin:read", "csi-mount-volume + plugin:read", "list-jobs + read-job",
    "node:read + node_pool:read", "node:read + read-job", "node_pool:read + list-jobs",
    "submit-job + host_volume:mount-readonly", "submit-job + host_volume:mount-readwrite",
    "submit-job + csi-mount-volume + plugin:read", "submit-job + csi-register-plugin",
    "submit-job + sentinel-override",
)  # fmt: skip
"""Rights that some routes need together."""
SHORTHANDS: Final = ("namespace:read", "namespace:write", "namespace:scale")


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """The ids of the objects, and the request headers of every caller by name."""

    ids: dict[str, str]
    headers: dict[str, dict[str, str]]


class CommandNode:
    """A node on which every command prints one word and exits."""

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        """Run a command that prints one word and exits."""
        yield ExecFrame()
        yield ExecFrame(stream="stdout", data=b"ready")


def rights() -> tuple[str, ...]:
    """Every right that a policy can grant, under its name in the matrix."""
    levels = {Area.PLUGIN: (Level.LIST, Level.READ, Level.WRITE)}
    return (
        *Capability,
        *(f"variables:{each}" for each in VariableCapability),
        *(f"node_pool:{each}" for each in NodePoolCapability),
        *(f"host_volume:{each}" for each in HostVolumeMountCapability),
        *(f"operator:{each}" for each in OperatorCapability),
        *(f"{area}:{level}" for area in Area for level in levels.get(area, (Level.READ, Level.WRITE))),
    )


def rules_of(right: str, namespace: str = TEAM) -> str:
    """Policy rules that grant one right, or several joined by `+`."""
    if " + " in right:
        return "\n".join(rules_of(each, namespace) for each in right.split(" + "))
    kind, _, name = right.rpartition(":")
    match kind:
        case "":
            return f'namespace "{namespace}" {{ capabilities = ["{name}"] }}'
        case "namespace":
            return f'namespace "{namespace}" {{ policy = "{name}" }}'
        case "variables":
            return f'namespace "{namespace}" {{ variables {{ path "*" {{ capabilities = ["{name}"] }} }} }}'
        case "node_pool" | "host_volume":
            return f'{kind} "*" {{ capabilities = ["{name}"] }}'
        case "operator" if name in list(OperatorCapability):
            return f'operator {{ capabilities = ["{name}"] }}'
    return f'{kind} {{ policy = "{name}" }}'


def everything_in(namespace: str) -> str:
    """Policy rules with every capability in a namespace and on its variables."""
    named = ", ".join(f'"{each}"' for each in Capability)
    paths = ", ".join(f'"{each}"' for each in VariableCapability)
    variables = f'variables {{ path "*" {{ capabilities = [{paths}] }} }}'
    return f'namespace "{namespace}" {{\n capabilities = [{named}]\n {variables}\n}}'


async def make_world(callers: Callers) -> World:
    """Create the objects and callers on a new server."""
    ids = await _make_objects(callers)
    return World(ids, await _caller_headers(callers, ids))


async def _make_objects(callers: Callers) -> dict[str, str]:
    server = callers.api.server
    for path, body in (
        (f"/v1/namespace/{TEAM}", {"Name": TEAM}), (f"/v1/namespace/{ELSEWHERE}", {"Name": ELSEWHERE}),
        (f"/v1/node/pool/{POOL}", {"Name": POOL}), ("/v1/quota", QUOTA),
    ):  # fmt: skip
        await _put(callers, path, body)
    offered = {"data": HostVolumeInfo(path="/x", id=VOLUME_ID)}
    await server.replica.propose(RegisterNode(node=replace(ready_node(), host_volumes=offered)))
    await server.replica.propose(SetNodeStatus(node_id=NODE_ID, status="ready", updated_at=1))
    await server.replica.propose(PutHostVolume(volume=_host_volume(), now=UnixNano(1)))
    for namespace in (TEAM, ELSEWHERE):
        for job in _jobs(namespace):
            await _put(callers, "/v1/jobs", {"Job": job})
    await _put(callers, f"/v1/var/secret?namespace={TEAM}", {"Items": {"user": "anna"}})
    await callers.policy("stored")
    method = ACLAuthMethod(name="stored", type="JWT", token_locality="local", max_token_ttl=seconds(3600))
    await server.replica.propose(UpsertACLAuthMethod(method=method))
    rule = ACLBindingRule(id=RULE_ID, auth_method="stored", bind_type="management")
    await server.replica.propose(CreateACLBindingRule(rule=rule))
    await _put(callers, "/v1/acl/role", {"Name": "stored", "Policies": [{"Name": "stored"}]})
    await _wait_for_allocs(callers)
    alloc = _alloc_of(server, TEAM)
    running = AllocUpdate(id=alloc.id, node_id=NODE_ID, client_status=CLIENT_RUNNING)
    await server.replica.propose(UpdateAllocsFromClient(updates=(running,)))
    volume = CSIVolume(id="csi", namespace=TEAM, external_id="x", plugin_id="ebs")
    await server.replica.propose(UpsertVolumes(volumes=(volume,), now=UnixNano(1)))
    await server.clients.calls.register_services(NODE_ID, (factories.service(alloc, "api"),))
    state = server.state
    scaling = (await callers.get(f"/v1/scaling/policies?namespace={TEAM}")).json
    return {
        "alloc": alloc.id,
        "eval": alloc.eval_id,
        "deployment": alloc.deployment_id,
        "service": next(row.id for row in state.services.values()),
        "scaling": scaling[0]["ID"],
        "role": next(iter(state.acl_roles.values())).id,
        "node": NODE_ID,
        "elsewhere": _alloc_of(server, ELSEWHERE).id,
        "claim": ANY_CLAIM,
    }


def _jobs(namespace: str) -> Iterable[dict[str, object]]:
    web = job_document("web", Namespace=namespace, Type="service")
    web["TaskGroups"][0]["Scaling"] = {"Min": 1, "Max": 3, "Enabled": True}
    web["TaskGroups"][0]["Tasks"][0]["Actions"] = [{"Name": "act", "Command": "true"}]
    if namespace == TEAM:
        yield _sticky()
        yield _csi_plugin()
    yield web
    yield job_document("batch", Namespace=namespace, ParameterizedJob={"Payload": "optional"})


def _sticky() -> dict[str, object]:
    """A job with many claims of a sticky volume: each probe of a deletion uses up one."""
    job = job_document("sticky", Namespace=TEAM, Type="service")
    job["TaskGroups"][0] |= {
        "Count": CLAIMS,
        "Volumes": {"d": {"Name": "d", "Type": "host", "Source": "data", "Sticky": True}},
    }
    return job


def _csi_plugin() -> dict[str, object]:
    job = job_document("plugin", Namespace=TEAM, Type="service")
    job["TaskGroups"][0]["Tasks"][0]["CSIPluginConfig"] = {"ID": "nfs", "Type": "node", "MountDir": "/csi"}
    return job


def _host_volume() -> HostVolume:
    return HostVolume(
        id=VOLUME_ID, name="data", namespace=TEAM, node_id=NODE_ID, node_pool="default", plugin_id="mkdir",
        host_path="/x", state="ready",
        requested_capabilities=(
            VolumeMode(access_mode="single-node-writer", attachment_mode="file-system"),
        ),
    )  # fmt: skip


async def _put(callers: Callers, path: str, body: object) -> None:
    answer = await callers.put(path, body)
    assert answer.status == 200, (path, answer.text)


async def _wait_for_allocs(callers: Callers) -> None:
    """Wait until the service runs in both namespaces and the claims exist."""

    def placed(state: Snapshot) -> int:
        return sum(alloc.job_id in ("web", "sticky") for alloc in state.allocs.values())

    expected = len((TEAM, ELSEWHERE)) + CLAIMS
    await callers.api.server.replica.wait_past([("allocs",)], placed, min_index=expected - 1, timeout_s=300.0)


def _alloc_of(server: Server, namespace: str) -> Allocation:
    return next(row for row in server.state.allocs.values() if row.namespace == namespace and row.job_id == "web")


async def _caller_headers(callers: Callers, ids: dict[str, str]) -> dict[str, dict[str, str]]:
    server = callers.api.server
    await _store_expired(server)
    found: dict[str, dict[str, str]] = {
        "no token": {},
        "expired token": _token_header(EXPIRED),
        "unknown token": _token_header(REVOKED),
        "wrong namespace": _token_header(await callers.secret_for(everything_in(ELSEWHERE))),
    }
    for right in (*rights(), *COMBINATIONS, *SHORTHANDS):
        found[right] = _token_header(await callers.secret_for(rules_of(right)))
    found["management"] = _token_header(callers.root["SecretID"])
    found["workload"] = _token_header(await _workload_identity(server, ids["alloc"]))
    found["workload elsewhere"] = _token_header(await _workload_identity(server, ids["elsewhere"]))
    found["node"] = _token_header(await _node_identity(server))
    origin = Origin(address="192.0.2.1", certificate_name="client.global.nomad")
    found["client certificate"] = {ORIGIN: sealed_origin(origin)}
    return found


def _token_header(secret: str) -> dict[str, str]:
    return {"X-Nomad-Token": secret}


async def _store_expired(server: Server) -> None:
    token = ACLToken(
        accessor_id=ACCESSOR, secret_hash=hash_of_secret(EXPIRED), name="expired", type="management",
        create_time=server.replica.env.now(), expiration_time=UnixNano(1),
    )  # fmt: skip
    await server.replica.propose(CreateACLToken(token=token))


async def _workload_identity(server: Server, alloc_id: str) -> str:
    query = IdentityQuery(node_id=NODE_ID, alloc_id=alloc_id, task="main")
    return (await server.keys.identities.sign(query)).token


async def _node_identity(server: Server) -> str:
    keys = server.keys
    identities = NodeIdentities(server.replica, server.config.region, root_keys=keys.root_keys, keyring=keys.keyring)
    identity = HeldIdentity(must_renew=True)
    return (await identities.with_identity(NodeReply(heartbeat_ttl_s=1.0, index=0), NODE_ID, identity)).identity
