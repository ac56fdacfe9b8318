"""CSI volumes and their plugins: registered, listed and read. How a volume is used follows from the allocations."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.stubs import alloc_stub
from yurt.http.answers import changed_view, kinds_index, list_page, list_rows
from yurt.http.call import Call, empty_answer, json_answer, object_missing, read_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.query import flag
from yurt.sdk.value import Value, replace
from yurt.server.views import Listing, View
from yurt.server.views.cluster import NodeRows
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows
from yurt.server.views.volumes import Claim, CsiVolumeRows
from yurt.structs.volumes.csi import CSIPlugin, CSIVolume, without_secrets

NO_CONTROLLER = (
    "not available in this version: CSI controllers make, delete and list no volumes and snapshots yet; "
    "make the volume with the tools of its storage and register it"
)

NO_TIME = "0001-01-01T00:00:00Z"
PLUGIN_KINDS = (NodeRows, JobRows, AllocationRows)
"""What plugins follow from."""
VOLUME_KINDS = (CsiVolumeRows, *PLUGIN_KINDS)
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

    def listing(view: View) -> Listing[CSIVolume]:
        rows = view.of(CsiVolumeRows)

        def is_selected(volume: CSIVolume) -> bool:
            is_named = volume.id.startswith(prefix) and plugin_id in ("", volume.plugin_id)
            return is_named and (not node_id or any(claim.node_id == node_id for claim in rows.claims(volume)))

        return rows.listed(call.options.namespace).where(is_selected)

    def render(view: View) -> Any:
        rows = view.of(CsiVolumeRows)
        plugins = rows.plugins()
        return lambda volume: _stub(volume, rows.claims(volume), plugins.get(volume.plugin_id))

    return await list_rows(call, VOLUME_KINDS, listing, render=render)


def _use(volume: CSIVolume, used: list[Claim], plugin: CSIPlugin | None) -> dict[str, Any]:
    """A volume with the facts from its plugin and its users."""
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


def _shown(volume: CSIVolume, rows: CsiVolumeRows) -> dict[str, Any]:
    """A volume as a whole; its secrets by their names only."""
    used = rows.claims(volume)
    plugin = rows.plugin(volume.plugin_id)
    wire: dict[str, Any] = to_wire(without_secrets(volume))
    return wire | _use(volume, used, plugin) | {
        "ProviderVersion": plugin.version if plugin is not None else "",
        "ReadAllocs": {claim.alloc_id: None for claim in used if claim.read_only},
        "WriteAllocs": {claim.alloc_id: None for claim in used if not claim.read_only},
        "Allocations": list(map(alloc_stub, rows.allocations(used))),
    }  # fmt: skip


async def read_volume(call: Call) -> web.Response:
    """GET /v1/volume/csi/:id."""
    key = (call.options.namespace, call.part("id"))
    watched = [kind.watched() for kind in VOLUME_KINDS]
    view, index = await changed_view(call, watched, lambda view: kinds_index(view, VOLUME_KINDS))
    rows = view.of(CsiVolumeRows)
    volume = rows.get(key)
    if volume is None:
        return object_missing(call, "volume not found", index)
    return read_answer(call, _shown(volume, rows), index)


async def register(call: Call) -> web.Response:
    """PUT /v1/volumes and PUT /v1/volume/csi/:id."""
    body = await call.body(CSIVolumesBody)
    named = call.request.match_info.get("id", "")
    if named and any(volume.id != named for volume in body.volumes):
        raise Refused(400, f'the volumes of the body must have the id "{named}" of the path')
    volumes = tuple(_placed(call, volume) for volume in body.volumes)
    call.access.name_object("volume", ",".join(volume.id for volume in volumes))
    index = await failed_call(call.operations.csi_volumes.register(volumes, overrides_policies=body.policy_override))
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
    volumes = call.operations.csi_volumes
    index = await failed_call(volumes.deregister(call.options.namespace, call.part("id"), force=force))
    return empty_answer(index=index)


async def detach(call: Call) -> web.Response:
    """DELETE /v1/volume/csi/:id/detach: release the claims of allocations on a node."""
    node_id = call.query.get("node", "")
    if not node_id:
        raise Refused(400, "detach requires node ID")

    index = await failed_call(call.operations.csi_volumes.detach(call.options.namespace, call.part("id"), node_id))
    return empty_answer(index=index)


async def list_csi_plugins(call: Call) -> web.Response:
    """GET /v1/plugins."""
    if call.query.get("type", "csi") not in ("", "csi"):
        raise Refused(404, "resource not found")

    def listing(view: View) -> Listing[CSIPlugin]:
        plugins = view.of(CsiVolumeRows).plugins()
        return Listing(plugins.values(), lambda plugin: plugin.id.startswith(call.options.prefix))

    def stub(plugin: CSIPlugin) -> dict[str, Any]:
        wire = to_wire(plugin)
        return {name: wire[name] for name in _PLUGIN_STUB}

    def index_of(view: View) -> int:
        newest, rows = kinds_index(view, PLUGIN_KINDS), view.of(CsiVolumeRows)
        client_index = call.options.index
        return call.context.derived.index_of(
            "csi plugins", newest, lambda: bool(rows.plugins()), client_index=client_index
        )

    view, index = await changed_view(call, [kind.watched() for kind in PLUGIN_KINDS], index_of)
    return await list_page(call, listing(view), index, render=stub)


async def read_csi_plugin(call: Call) -> web.Response:
    """GET /v1/plugin/csi/:id."""
    watched = [kind.watched() for kind in PLUGIN_KINDS]
    view, index = await changed_view(call, watched, lambda view: kinds_index(view, PLUGIN_KINDS))
    rows = view.of(CsiVolumeRows)
    plugin = rows.plugin(call.part("id"))
    if plugin is None:
        return object_missing(call, "plugin not found", index)
    allocs = list(map(alloc_stub, rows.plugin_allocations(plugin.id)))
    return read_answer(call, to_wire(plugin) | {"Allocations": allocs}, index)


async def not_made_here(call: Call) -> web.Response:
    """Refuse routes that need a controller plugin."""
    raise Refused(501, NO_CONTROLLER)
