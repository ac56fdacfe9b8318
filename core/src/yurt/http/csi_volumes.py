"""CSI volumes and their plugins: registered, listed and read. How a volume is used follows from the allocations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.api.encode import to_wire
from yurt.api.stubs import alloc_stub
from yurt.http import routes
from yurt.http.call import Call, changed_state, empty_answer, json_answer, object_missing, read_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.lists import list_answer, tables_index
from yurt.http.query import flag
from yurt.http.routes import BODY, QUERY
from yurt.sdk.value import Value, replace
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.state.claims import Claim, claims
from yurt.state.csi_plugins import TABLES, csi_plugin, csi_plugins, plugin_allocs
from yurt.state.store import Snapshot
from yurt.structs.csi_volume import CSIPlugin, CSIVolume, without_secrets

NO_TIME = "0001-01-01T00:00:00Z"
VOLUME_TABLES = ("csi_volumes", *TABLES)
_STUB = ("ID", "Namespace", "Name", "ExternalID", "Topologies", "PluginID", "CreateIndex", "ModifyIndex", "CreateTime",
         "ModifyTime")  # fmt: skip
_COUNTS = ("ControllerRequired", "ControllersHealthy", "ControllersExpected", "NodesHealthy", "NodesExpected")
_PLUGIN_STUB = ("ID", "Provider", *_COUNTS, "CreateIndex", "ModifyIndex")


class CSIVolumesBody(Value):
    """What registers volumes."""

    volumes: tuple[CSIVolume, ...] = ()
    policy_override: bool = False


async def list_volumes(call: Call) -> web.Response:
    """GET /v1/volumes?type=csi."""
    plugin_id, node_id, prefix = (call.query.get(name, "") for name in ("plugin_id", "node_id", "prefix"))

    def rows(state: Snapshot) -> Iterable[CSIVolume]:
        used = _Used(state)
        return (
            volume
            for volume in state.csi_volumes.values()
            if call.options.sees(volume.namespace)
            and volume.id.startswith(prefix)
            and plugin_id in ("", volume.plugin_id)
            and (not node_id or any(claim.node_id == node_id for claim in used.of(volume)))
        )

    def render(state: Snapshot) -> Any:
        used, plugins = _Used(state), csi_plugins(state)
        return lambda volume: _stub(volume, used.of(volume), plugins.get(volume.plugin_id))

    return await list_answer(call, VOLUME_TABLES, rows, render=render)


class _Used:
    """The claims of a state, worked out once a namespace."""

    def __init__(self, state: Snapshot) -> None:
        self._state = state
        self._known: dict[str, dict[str, list[Claim]]] = {}

    def of(self, volume: CSIVolume) -> list[Claim]:
        namespace = volume.namespace
        if namespace not in self._known:
            self._known[namespace] = claims(self._state, namespace)
        return self._known[namespace].get(volume.id, [])


def _use(volume: CSIVolume, used: list[Claim], plugin: CSIPlugin | None) -> dict[str, Any]:
    """What a volume has from its plugin and from those who use it."""
    shown = to_wire(plugin or CSIPlugin(id=volume.plugin_id))
    return {name: shown[name] for name in ("Provider", *_COUNTS)} | {
        "AccessMode": used[0].access_mode if used else "",
        "AttachmentMode": used[0].attachment_mode if used else "",
        "Schedulable": plugin is not None and plugin.is_schedulable,
        "ResourceExhausted": NO_TIME,
    }


def _stub(volume: CSIVolume, used: list[Claim], plugin: CSIPlugin | None) -> dict[str, Any]:
    wire = to_wire(volume)
    writers = sum(not claim.read_only for claim in used)
    counts = {"CurrentReaders": len(used) - writers, "CurrentWriters": writers}
    return {name: wire[name] for name in _STUB} | _use(volume, used, plugin) | counts


def _shown(volume: CSIVolume, state: Snapshot) -> dict[str, Any]:
    """A volume as a whole; its secrets by their names only."""
    used = claims(state, volume.namespace).get(volume.id, [])
    plugin = csi_plugin(state, volume.plugin_id)
    allocs = {claim.alloc_id: state.allocs[claim.alloc_id] for claim in used}
    wire: dict[str, Any] = to_wire(without_secrets(volume))
    return wire | _use(volume, used, plugin) | {
        "ProviderVersion": plugin.version if plugin is not None else "",
        "ReadAllocs": {claim.alloc_id: None for claim in used if claim.read_only},
        "WriteAllocs": {claim.alloc_id: None for claim in used if not claim.read_only},
        "Allocations": [alloc_stub(alloc) for alloc in allocs.values()],
    }  # fmt: skip


async def read_volume(call: Call) -> web.Response:
    """GET /v1/volume/csi/:id."""
    key = (call.options.namespace, call.part("id"))

    def index_of(state: Snapshot) -> int:
        return tables_index(state, VOLUME_TABLES)

    state, index = await changed_state(call, [(table,) for table in VOLUME_TABLES], index_of)
    volume: CSIVolume | None = state.csi_volumes.get(key)
    if volume is None:
        return object_missing(call, "volume not found", index)
    return read_answer(call, _shown(volume, state), index)


async def register(call: Call) -> web.Response:
    """PUT /v1/volumes and PUT /v1/volume/csi/:id."""
    body = await call.body(CSIVolumesBody)
    named = call.request.match_info.get("id", "")
    if named and any(volume.id != named for volume in body.volumes):
        raise Refused(400, f'the volumes of the body must have the id "{named}" of the path')
    wanted = tuple(_placed(call, volume) for volume in body.volumes)
    index = await failed_call(CsiVolumes(call.server).register(wanted))
    return json_answer(call, {}, index=index)


def _placed(call: Call, volume: CSIVolume) -> CSIVolume:
    """The volume in the namespace that it names, or that of the request."""
    namespace = volume.namespace
    if call.query.get("namespace") and not call.options.is_all_namespaces and namespace in ("", "default"):
        namespace = call.options.namespace
    return replace(volume, namespace=namespace or "default", name=volume.name or volume.id)


async def deregister(call: Call) -> web.Response:
    """DELETE /v1/volume/csi/:id."""
    force = flag(call.query, "force")
    volumes = CsiVolumes(call.server)
    index = await failed_call(volumes.deregister(call.options.namespace, call.part("id"), force=force))
    return empty_answer(index=index)


async def detach(call: Call) -> web.Response:
    """DELETE /v1/volume/csi/:id/detach: that no allocation on a node has the volume any more."""
    node_id = call.query.get("node", "")
    if not node_id:
        raise Refused(400, "detach requires node ID")

    async def check() -> None:
        CsiVolumes(call.server).detach(call.options.namespace, call.part("id"), node_id)

    await failed_call(check())
    return empty_answer(index=call.read_state().index)


async def list_csi_plugins(call: Call) -> web.Response:
    """GET /v1/plugins."""
    if call.query.get("type", "csi") not in ("", "csi"):
        raise Refused(404, "resource not found")

    def rows(state: Snapshot) -> Iterable[CSIPlugin]:
        return (plugin for plugin in csi_plugins(state).values() if plugin.id.startswith(call.options.prefix))

    def stub(plugin: CSIPlugin) -> dict[str, Any]:
        wire = to_wire(plugin)
        return {name: wire[name] for name in _PLUGIN_STUB}

    return await list_answer(call, TABLES, rows, render=lambda _: stub)


async def read_csi_plugin(call: Call) -> web.Response:
    """GET /v1/plugin/csi/:id."""

    def index_of(state: Snapshot) -> int:
        return tables_index(state, TABLES)

    state, index = await changed_state(call, [(table,) for table in TABLES], index_of)
    plugin = csi_plugin(state, call.part("id"))
    if plugin is None:
        return object_missing(call, "plugin not found", index)
    visible = (alloc for alloc in plugin_allocs(state, plugin.id))
    return read_answer(call, to_wire(plugin) | {"Allocations": [alloc_stub(alloc) for alloc in visible]}, index)


async def not_made_here(call: Call) -> web.Response:
    """Volumes and snapshots that a controller plugin would have to make."""
    raise Refused(501, NO_CONTROLLER)


NO_CONTROLLER = (
    "not available in this version: CSI controllers make, delete and list no volumes and snapshots yet; "
    "make the volume with the tools of its storage and register it"
)
LIST_CSI_VOLUMES = needs.namespace(
    Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.LIST_JOBS
)
WRITE_CSI_VOLUME = needs.all_of(needs.namespace(Capability.CSI_WRITE_VOLUME), needs.PLUGIN_READ)
READ_CSI_VOLUME = needs.namespace(Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.READ_JOB)
CSI_WRITE_VOLUME = needs.namespace(Capability.CSI_WRITE_VOLUME)
DETACH_CSI_VOLUME = needs.all_of(needs.namespace(Capability.CSI_MOUNT_VOLUME), needs.PLUGIN_READ)

ROUTES = (
    routes.get("/v1/volumes/external", not_made_here, needs=LIST_CSI_VOLUMES, scope=QUERY, from_nodes=True),
    routes.get("/v1/volumes/snapshot", not_made_here, needs=LIST_CSI_VOLUMES, scope=QUERY, from_nodes=True),
    routes.write("/v1/volumes/snapshot", not_made_here, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True),
    routes.delete("/v1/volumes/snapshot", not_made_here, needs=WRITE_CSI_VOLUME, scope=QUERY, from_nodes=True),
    routes.get("/v1/volume/csi/{id}", read_volume, needs=READ_CSI_VOLUME, scope=QUERY, from_nodes=True),
    routes.write("/v1/volume/csi/{id}", register, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True),
    routes.delete("/v1/volume/csi/{id}", deregister, needs=CSI_WRITE_VOLUME, scope=QUERY, from_nodes=True),
    routes.delete("/v1/volume/csi/{id}/detach", detach, needs=DETACH_CSI_VOLUME, scope=QUERY, from_nodes=True),
    routes.write("/v1/volume/csi/{id}/create", not_made_here, needs=WRITE_CSI_VOLUME, scope=BODY, from_nodes=True),
    routes.delete("/v1/volume/csi/{id}/delete", not_made_here, needs=WRITE_CSI_VOLUME, scope=QUERY, from_nodes=True),
    routes.get("/v1/plugins", list_csi_plugins, needs=needs.PLUGIN_LIST, from_nodes=True),
    routes.get("/v1/plugin/csi/{id}", read_csi_plugin, needs=needs.PLUGIN_READ, from_nodes=True),
)
