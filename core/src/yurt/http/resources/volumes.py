"""Volumes: lists of either type, dynamic host volumes, and the claims of sticky ones."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.row_texts import row_form
from yurt.api.stubs import alloc_stub
from yurt.api.uuids import uuid_prefix
from yurt.http.answers import list_rows, one_row
from yurt.http.call import Call, empty_answer, json_answer, read_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.query import flag
from yurt.http.resources import csi_volumes
from yurt.sdk.value import Value, replace
from yurt.server.views import Listing, View
from yurt.server.views.volumes import HostVolumeClaimRows, HostVolumeRows
from yurt.structs.volumes.host import HostVolume, HostVolumeStub, TaskGroupHostVolumeClaim


class HostVolumeBody(Value):
    """What creates or registers a volume."""

    volume: HostVolume | None = None
    policy_override: bool = False


class HostVolumeAnswer(Value):
    """The volume as it is stored."""

    volume: HostVolume
    warnings: str = ""


async def list_volumes(call: Call) -> web.Response:
    """GET /v1/volumes: of the requested type."""
    kind = call.query.get("type", "")
    if kind == "csi":
        return await csi_volumes.list_volumes(call)
    if not kind:
        return read_answer(call, [], 0)
    if kind != "host":
        raise Refused(404, "resource not found")
    criteria = {"node_id": call.query.get("node_id", ""), "node_pool": call.query.get("node_pool", ""),
             "plugin_id": call.query.get("plugin_id", "")}  # fmt: skip
    prefix = call.options.prefix
    id_prefix = uuid_prefix(prefix)

    def is_selected(volume: HostVolume) -> bool:
        is_named = volume.id.startswith(id_prefix) or volume.name.startswith(prefix)
        return is_named and all(value in ("", getattr(volume, name)) for name, value in criteria.items())

    def listing(view: View) -> Listing[HostVolume]:
        return view.of(HostVolumeRows).listed(call.options.namespace).where(is_selected)

    return await list_rows(call, (HostVolumeRows,), listing, render=row_form(_stub))


def _stub(volume: HostVolume) -> dict[str, Any]:
    stub = HostVolumeStub(**{name: getattr(volume, name) for name in HostVolumeStub.__struct_fields__})
    wire: dict[str, Any] = to_wire(stub)
    return wire


async def read(call: Call) -> web.Response:
    """GET /v1/volume/host/:id."""

    def shown(volume: HostVolume, view: View) -> dict[str, Any]:
        wire: dict[str, Any] = to_wire(volume)
        return wire | {"Allocations": list(map(alloc_stub, view.of(HostVolumeRows).allocations(volume)))}

    return await one_row(call, HostVolumeRows, call.part("id"), render=shown, missing="volume not found")


async def create(call: Call) -> web.Response:
    """PUT /v1/volume/host/create."""
    requested, overrides = await _body_volume(call)
    done = call.operations.host_volumes.create(requested, overrides_policies=overrides)
    stored, index = await failed_call(done)
    call.access.name_object("volume", stored.id)
    return json_answer(call, HostVolumeAnswer(volume=stored), index=index)


async def register(call: Call) -> web.Response:
    """PUT /v1/volume/host/register."""
    requested, overrides = await _body_volume(call)
    done = call.operations.host_volumes.register(requested, overrides_policies=overrides)
    stored, index = await failed_call(done)
    call.access.name_object("volume", stored.id)
    return json_answer(call, HostVolumeAnswer(volume=stored), index=index)


async def _body_volume(call: Call) -> tuple[HostVolume, bool]:
    """The volume of the body, and whether it is to override policies."""
    body = await call.body(HostVolumeBody)
    if body.volume is None:
        raise Refused(400, "volume definition is required")
    call.access.name_object("volume", body.volume.name)
    namespace = body.volume.namespace
    if call.query.get("namespace") and not call.options.is_all_namespaces and namespace == "default":
        namespace = call.options.namespace
    return replace(body.volume, namespace=namespace or "default"), body.policy_override


async def delete(call: Call) -> web.Response:
    """DELETE /v1/volume/host/:id and /v1/volume/host/:id/delete: Nomad's Go package sends the first."""
    force = flag(call.query, "force")
    volume_id = call.part("id")
    volume = call.view().of(HostVolumeRows).get(volume_id)
    if volume is None:
        raise Refused(404, "volume not found")
    index = await failed_call(call.operations.host_volumes.delete(volume.namespace, volume_id, force=force))
    return json_answer(call, {}, index=index)


async def list_claims(call: Call) -> web.Response:
    """GET /v1/volumes/claims."""
    names = {"job_id": "job_id", "task_group": "task_group_name", "volume_name": "volume_name"}
    criteria = {field: call.query.get(name, "") for name, field in names.items()}
    prefix = uuid_prefix(call.options.prefix)

    def is_selected(claim: TaskGroupHostVolumeClaim) -> bool:
        is_named = claim.id.startswith(prefix)
        return is_named and all(value in ("", getattr(claim, field)) for field, value in criteria.items())

    def listing(view: View) -> Listing[TaskGroupHostVolumeClaim]:
        return view.of(HostVolumeClaimRows).of_namespace(call.options.namespace).where(is_selected)

    return await list_rows(call, (HostVolumeClaimRows,), listing, render=row_form(to_wire))


async def delete_claim(call: Call) -> web.Response:
    """DELETE /v1/volumes/claim/:id."""
    claim = call.view().of(HostVolumeClaimRows).get(call.part("id"))
    if claim is None:
        raise Refused(404, "host volume claim not found")
    return empty_answer(index=await failed_call(call.operations.host_volumes.delete_claim(claim.namespace, claim.id)))
