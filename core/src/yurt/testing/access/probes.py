"""The requests that the access matrix sends: most are derived from the route's path, the others are listed here.

A probe must tell the allowed from the refused without changing what later probes need. So changes name an object that
does not exist, or a body that is refused after the rights are decided. Only where the row itself decides about the
rights (an allocation, a deployment) it must exist, and what is done to it leaves it where it is.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from yurt.http.routes import ROW, Route
from yurt.rules.scaling_policies import policy_id
from yurt.server.views.events import NEEDS as TOPICS
from yurt.server.views.search import CONTEXTS, SCALING_POLICIES
from yurt.testing.access.world import POOL, TEAM, VOLUME_ID
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, job_document

ABSENT: Final = "absent"
LAST: Final = ("/v1/operator/raft/transfer-leadership", "/v1/system/gc")
"""What may change the state as a whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One request; `name` identifies its row in the matrix."""

    name: str
    method: str
    path: str
    body: bytes | None = None
    marker: str = ""
    """What an answer with status 200 holds where it shows the object; "": any answer but an empty one does."""
    hidden: tuple[str, bytes | None] | None = None
    """Path and body of the same request about an object that does not exist; None: the rows do not decide."""
    is_websocket: bool = False
    """Whether the request asks for an upgrade, and a command answers over it."""


def probes_of(routes: tuple[Route, ...], ids: Mapping[str, str]) -> tuple[Probe, ...]:
    """One probe for each route, method and variant; probes that change many objects come last."""
    found = [
        probe
        for route in routes
        for method in route.methods
        for probe in _with_variants(_probe(route, method, ids), route, method, ids)
    ]
    return tuple(sorted(found, key=lambda probe: _path_of(probe).startswith(LAST)))


def _path_of(probe: Probe) -> str:
    return probe.path.partition("?")[0]


def _probe(route: Route, method: str, ids: Mapping[str, str]) -> Probe:
    is_change = method != "GET" or route.has_effect_on_get
    names = _PARTS | {"id": _id_of(route.path, ids)}
    if is_change and not _is_found_by_row(route):
        names |= {"job_id": ABSENT, "name": ABSENT, "id": UNKNOWN_ID}
    query = f"?namespace={TEAM}{_QUERIES.get(route.path, '')}"
    unknown = names | {"id": UNKNOWN_ID}
    hidden = (_filled(route.path, unknown) + query, _body(method, route.path, unknown))
    return Probe(
        f"{method} {route.path}", method, _filled(route.path, names) + query, _body(method, route.path, names),
        marker=_MARKERS.get((method, route.path), ""), hidden=hidden if _is_found_by_row(route) else None,
        is_websocket=route.is_socket,
    )  # fmt: skip


def _is_found_by_row(route: Route) -> bool:
    return route.scope is ROW and "{id" in route.path


_PARTS: Final = {
    "job_id": "web", "tag": "v1", "name": ABSENT, "path": ABSENT, "id": UNKNOWN_ID, "table": "acl_policies",
    "hash": "0" * 16,
}  # fmt: skip
_IDS: Final = (
    ("/v1/allocation/", "alloc"), ("/v1/client/allocation/", "alloc"), ("/v1/client/fs/", "alloc"),
    ("/v1/evaluation/", "eval"), ("/v1/deployment/", "deployment"), ("/v1/scaling/policy/", "scaling"),
    ("/v1/node/", "node"), ("/v1/yurt/allocation/", "alloc"), ("/v1/yurt/evaluation/", "eval"),
    ("/v1/acl/role/", "role"), ("/v1/volumes/claim/", "claim"),
)  # fmt: skip
_FIXED_IDS: Final = (("/v1/volume/host/", VOLUME_ID), ("/v1/volume/csi/", "csi"), ("/v1/plugin/csi/", "nfs"))
_NAMES: Final = {
    "/v1/quota/{name}": "stored", "/v1/quota/usage/{name}": "stored",
    "/v1/acl/policy/{name}": "stored", "/v1/acl/role/name/{name}": "stored", "/v1/namespace/{name}": TEAM,
    "/v1/node/pool/{name}": POOL, "/v1/node/pool/{name}/nodes": "default", "/v1/node/pool/{name}/jobs": "default",
    "/v1/service/{name}": "api", "/v1/agent/pprof/{name:.*}": "cmdline",
}  # fmt: skip
"""Names in paths, where a name is looked at and not only refused."""
_QUERIES: Final = {
    "/v1/client/fs/logs": "&task=main&type=stdout", "/v1/client/fs/logs/{id:[^/]*}": "&task=main&type=stdout",
    "/v1/volume/csi/{id}/detach": f"&node={NODE_ID}", "/v1/job/{job_id}/action": "&action=act&group=group&task=main",
    "/v1/client/allocation/{id}/exec": "&task=main&command=%5B%22true%22%5D", "/v1/operator/raft/peer": "&id=absent",
    "/v1/node/pool/{name}/jobs": "&reverse=false",
    "/v1/yurt/watch": f"&view=%7B%22ID%22:%22a%22,%22Kind%22:%22jobs%22,%22Namespace%22:%22{TEAM}%22%7D",
}  # fmt: skip
_MARKERS: Final = {
    ("GET", "/v1/namespaces"): f'"{TEAM}"', ("GET", "/v1/namespace/{name}"): f'"{TEAM}"',
    ("GET", "/v1/acl/token/self"): '"AccessorID"', ("GET", "/v1/acl/policies"): '"stored"',
    ("GET", "/v1/acl/roles"): '"stored"',
    ("GET", "/ui/plain/"): f"namespace={TEAM}", ("GET", "/v1/yurt/overview"): '"Jobs":{',
    ("PUT", "/v1/jobs/statuses"): '"web"', ("POST", "/v1/jobs/statuses"): '"web"',
    ("PUT", "/v1/yurt/job/why-not"): '"web"', ("POST", "/v1/yurt/job/why-not"): '"web"',
}  # fmt: skip


def _id_of(path: str, ids: Mapping[str, str]) -> str:
    for beginning, kind in _IDS:
        if path.startswith(beginning):
            return ids[kind]
    return next((found for beginning, found in _FIXED_IDS if path.startswith(beginning)), UNKNOWN_ID)


def _filled(path: str, names: Mapping[str, str]) -> str:
    fixed = _NAMES.get(path) if names["job_id"] != ABSENT else None

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return fixed if fixed is not None and name == "name" else names[name]

    return re.sub(r"\{(\w+)(?::[^}]*(?:\{[^}]*\})?[^}]*)?\}", value, path)


def bad_job(**changes: Any) -> dict[str, Any]:
    """A job that is refused for its priority, once the rights are decided."""
    return job_document(ABSENT, Namespace=TEAM, Priority=999) | changes


def _mounting(volume: Mapping[str, Any]) -> dict[str, Any]:
    job = bad_job()
    job["TaskGroups"][0]["Volumes"] = {"d": {"Name": "d", "Source": "data", **volume}}
    return job


def _serving_volumes() -> dict[str, Any]:
    job = bad_job(Type="service")
    job["TaskGroups"][0]["Tasks"][0]["CSIPluginConfig"] = {"ID": "nfs", "Type": "node", "MountDir": "/csi"}
    return job


_BODIES: Final[Mapping[str, Any]] = {
    "/v1/jobs": {"Job": bad_job()},
    "/v1/job/{job_id}": {"Job": bad_job()},
    "/v1/job/{job_id}/plan": {"Job": bad_job()},
    "/v1/job/{job_id}/revert": {"JobID": ABSENT, "JobVersion": 0},
    "/v1/job/{job_id}/stable": {"JobID": ABSENT, "JobVersion": 0},
    "/v1/job/{job_id}/scale": {"Target": {"Group": "group"}, "Count": 1},
    "/v1/validate/job": {"Job": bad_job()},
    "/v1/jobs/parse": {"JobHCL": ""},
    "/v1/jobs/statuses": {"Jobs": [{"Namespace": TEAM, "ID": "web"}]},
    "/v1/yurt/job/why-not": {"JobID": "web", "Namespace": TEAM},
    "/v1/evaluations": {"Filter": 'ID == "absent"'},
    "/v1/volumes": {"Volumes": [{"ID": "new", "Namespace": TEAM}]},
    "/v1/volume/csi/{id}": {"Volumes": [{"ID": UNKNOWN_ID, "Namespace": TEAM}]},
    "/v1/volume/csi/{id}/create": {"Volumes": [{"ID": UNKNOWN_ID, "Namespace": TEAM}]},
    "/v1/volumes/snapshot": {"Snapshots": [{"SourceVolumeID": ABSENT, "PluginID": "ebs"}]},
    "/v1/volume/host/create": {"Volume": {"Name": "new", "Namespace": TEAM}},
    "/v1/volume/host/register": {"Volume": {"Name": "new", "Namespace": TEAM}},
    "/v1/var/{path:.*}": {"Namespace": TEAM, "Path": ABSENT, "Items": {"a": "b"}},
    "/v1/namespace": {"Name": "Not a name"},
    "/v1/namespace/{name}": {"Name": "Not a name"},
    "/v1/node/pools": {"Name": POOL},
    "/v1/node/pool/{name}": {"Name": ABSENT},
    "/v1/deployment/pause/{id}": {"Pause": True},
    "/v1/deployment/promote/{id}": {"All": True},
    "/v1/deployment/allocation-health/{id}": {"HealthyAllocationIDs": [UNKNOWN_ID]},
    "/v1/node/{id}/eligibility": {"Eligibility": "eligible"},
    "/v1/yurt/node/{id}/device": {"Device": "gpu-0", "Eligibility": "ineligible"},
    "/v1/node/{id}/drain": {"NodeID": ABSENT},
}
_NAMED_IN_BODY: Final = ("/v1/deployment/",)


def _body(method: str, path: str, names: Mapping[str, str]) -> bytes | None:
    """The body of a write request; {} for a route that takes no body or refuses it."""
    if method == "GET":
        return None
    named = {"DeploymentID": names["id"]} if path.startswith(_NAMED_IN_BODY) else {}
    return json.dumps(_BODIES.get(path, {}) | named).encode()


def _with_variants(probe: Probe, route: Route, method: str, ids: Mapping[str, str]) -> Iterator[Probe]:
    """The probe itself, or its variants where one request does not cover the route."""
    if method == "GET" and route.path in _OF_ALL_NAMESPACES:
        everywhere = probe.path.replace(f"namespace={TEAM}", "namespace=*")
        kind = "&type=csi" if route.path == "/v1/volumes" else ""
        yield _variant(probe, "all namespaces", path=everywhere + kind, marker=f'"{TEAM}"')
    match method, route.path:
        case _, "/v1/event/stream":
            for topic in sorted(TOPICS):
                yield _variant(probe, f"topic {topic}", path=f"{probe.path}&topic={topic}")
        case "GET", "/v1/volumes":
            for kind in ("csi", "host"):
                yield _variant(probe, kind, path=f"{probe.path}&type={kind}")
        case _, "/v1/search":
            for context in sorted(CONTEXTS) if method == "PUT" else ("all",):
                body = json.dumps({"Prefix": "", "Context": context}).encode()
                yield _variant(probe, f"context {context}", body=body, marker=_found(context, '["'))
        case _, "/v1/search/fuzzy":
            for context in sorted(CONTEXTS) if method == "PUT" else ("all",):
                body = json.dumps({"Text": _fuzzy_text(context, ids), "Context": context}).encode()
                yield _variant(probe, f"context {context}", body=body, marker=_found(context, "[{"))
        case "PUT", "/v1/jobs":
            yield probe
            for what, changed in _CONTENTS.items():
                yield _variant(probe, what, body=json.dumps(changed).encode())
        case _:
            yield probe


_OF_ALL_NAMESPACES: Final = (
    "/v1/jobs", "/v1/jobs/statuses", "/v1/allocations", "/v1/evaluations", "/v1/deployments", "/v1/services",
    "/v1/vars", "/v1/volumes", "/v1/volumes/claims", "/v1/scaling/policies", "/v1/service/{name}",
    "/v1/yurt/jobs", "/v1/yurt/allocations",
)  # fmt: skip
"""Lists that may be asked for in all namespaces together; each row is decided about by its own."""
_TEXTS: Final = {
    "namespaces": TEAM, "node_pools": POOL, "nodes": "worker", "plugins": "nfs", "vars": "secret", "volumes": "csi",
    "quotas": "stored", "host_volumes": "data",
}  # fmt: skip
"""What a fuzzy search looks for, where it is not the job."""
_BY_ID: Final = {"evals": "eval", "deployment": "deployment"}


def _fuzzy_text(context: str, ids: Mapping[str, str]) -> str:
    if context == SCALING_POLICIES:
        return policy_id(TEAM, "web", job_document()["TaskGroups"][0]["Name"])[:8]
    return ids[_BY_ID[context]][:8] if context in _BY_ID else _TEXTS.get(context, "web")


def _found(context: str, beginning: str) -> str:
    """The text by which an answer to a search shows a match; `beginning` starts the list of matches."""
    match context:
        case "namespaces":
            return f'"{TEAM}"'
        case "all":
            return '"web"'
    return f'"{context}":{beginning}'


_CONTENTS: Final[Mapping[str, Any]] = {
    "host volume, read-only": {"Job": _mounting({"Type": "host", "ReadOnly": True})},
    "host volume, writable": {"Job": _mounting({"Type": "host"})},
    "CSI volume": {"Job": _mounting({"Type": "csi"})},
    "CSI plugin": {"Job": _serving_volumes()},
    "policy override": {"Job": bad_job(), "PolicyOverride": True},
}


def _variant(probe: Probe, what: str, **changes: Any) -> Probe:
    return dataclasses.replace(probe, name=f"{probe.name} ({what})", **changes)
