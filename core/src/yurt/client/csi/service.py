"""The gRPC client of one CSI plugin. Every call has a time limit; every failure is a YurtError."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from yurt.client.csi.messages import Message, enum_name, message_class, methods
from yurt.sdk.errors import DriverError, RecoverableError, Unavailable
from yurt.sdk.value import Value
from yurt.structs.node import CSIControllerInfo, CSINodeInfo, CSITopology
from yurt.structs.volumes.csi import CSIClaimed

PROBE_LIMIT_S: Final = 10.0
MOUNT_LIMIT_S: Final = 120.0
"""The time limit for mounts: staging may format a disk."""
SOCKET_PATH_MAX: Final = 107
"""The longest socket path that Linux accepts, in bytes."""
OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.OUT_OF_RANGE,
    }
)  # fmt: skip
"""Status codes after which a retry is useless."""
_CONTROLLER_FIELDS: Final = {
    "CREATE_DELETE_VOLUME": "supports_create_delete",
    "PUBLISH_UNPUBLISH_VOLUME": "supports_attach_detach",
    "LIST_VOLUMES": "supports_list_volumes",
    "GET_CAPACITY": "supports_get_capacity",
    "CREATE_DELETE_SNAPSHOT": "supports_create_delete_snapshot",
    "LIST_SNAPSHOTS": "supports_list_snapshots",
    "CLONE_VOLUME": "supports_clone",
    "PUBLISH_READONLY": "supports_read_only_attach",
    "EXPAND_VOLUME": "supports_expand",
    "LIST_VOLUMES_PUBLISHED_NODES": "supports_list_volumes_attached_nodes",
    "VOLUME_CONDITION": "supports_condition",
    "GET_VOLUME": "supports_get",
}
_NODE_FIELDS: Final = {
    "STAGE_UNSTAGE_VOLUME": "requires_node_stage_volume",
    "GET_VOLUME_STATS": "supports_stats",
    "EXPAND_VOLUME": "supports_expand",
    "VOLUME_CONDITION": "supports_condition",
}


class PluginIdentity(Value):
    """The name, version and capabilities of a plugin."""

    name: str
    version: str
    has_controller: bool
    has_topologies: bool


class CsiService:
    """One plugin at a socket, which may not exist yet."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel: grpc.aio.Channel | None = None

    async def close(self) -> None:
        """Close the connection and cancel its calls."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def probe(self) -> bool:
        """Whether the plugin is ready; raises YurtError when it does not answer."""
        answer = await self._call("Identity", "Probe", limit_s=PROBE_LIMIT_S)
        return bool(answer.ready.value) if answer.HasField("ready") else True

    async def identity(self) -> PluginIdentity:
        """The plugin's identity."""
        info = await self._call("Identity", "GetPluginInfo", limit_s=PROBE_LIMIT_S)
        able = await self._call("Identity", "GetPluginCapabilities", limit_s=PROBE_LIMIT_S)
        kinds = {enum_name("PluginCapability.Service", "Type", each.service.type) for each in able.capabilities}
        return PluginIdentity(
            name=info.name,
            version=info.vendor_version,
            has_controller="CONTROLLER_SERVICE" in kinds,
            has_topologies="VOLUME_ACCESSIBILITY_CONSTRAINTS" in kinds,
        )

    async def node_info(self) -> CSINodeInfo:
        """The plugin's node information and capabilities."""
        info = await self._call("Node", "NodeGetInfo", limit_s=PROBE_LIMIT_S)
        able = await self._call("Node", "NodeGetCapabilities", limit_s=PROBE_LIMIT_S)
        has_topology = info.HasField("accessible_topology")
        return CSINodeInfo(
            id=info.node_id,
            max_volumes=info.max_volumes_per_node,
            accessible_topology=CSITopology(segments=dict(info.accessible_topology.segments)) if has_topology else None,
            **_flags(able, "NodeServiceCapability.RPC", _NODE_FIELDS),
        )

    async def controller_info(self) -> CSIControllerInfo:
        """The plugin's controller capabilities."""
        able = await self._call("Controller", "ControllerGetCapabilities", limit_s=PROBE_LIMIT_S)
        return CSIControllerInfo(**_flags(able, "ControllerServiceCapability.RPC", _CONTROLLER_FIELDS))

    async def stage(self, volume: CSIClaimed, staging: str) -> None:
        """Mount a volume once for all its users on this node, at a folder as the plugin sees it."""
        await self._call(
            "Node", "NodeStageVolume", limit_s=MOUNT_LIMIT_S, volume_id=volume.external_id,
            staging_target_path=staging, volume_capability=_capability(volume), secrets=dict(volume.secrets),
            volume_context=dict(volume.context),
        )  # fmt: skip

    async def publish(self, volume: CSIClaimed, *, staging: str, target: str) -> None:
        """Mount a volume for one allocation, at a path as the plugin sees it; `staging` is empty when not used."""
        await self._call(
            "Node", "NodePublishVolume", limit_s=MOUNT_LIMIT_S, volume_id=volume.external_id,
            staging_target_path=staging, target_path=target, volume_capability=_capability(volume),
            readonly=volume.read_only, secrets=dict(volume.secrets), volume_context=dict(volume.context),
        )  # fmt: skip

    async def unpublish(self, external_id: str, target: str) -> None:
        """Undo `publish`; not an error when nothing is published."""
        await self._undo("NodeUnpublishVolume", volume_id=external_id, target_path=target)

    async def unstage(self, external_id: str, staging: str) -> None:
        """Undo `stage`; not an error when nothing is staged."""
        await self._undo("NodeUnstageVolume", volume_id=external_id, staging_target_path=staging)

    async def _undo(self, name: str, **fields: Any) -> None:
        try:
            await self._call("Node", name, limit_s=MOUNT_LIMIT_S, **fields)
        except _UnknownVolume:
            return

    async def _call(self, service: str, name: str, *, limit_s: float, **fields: Any) -> Message:
        method = methods(service)[name]
        call = self._connected().unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            return await call(method.request(**fields), timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            raise _error_of(name, error) from None

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            if len(os.fsencode(self.socket)) > SOCKET_PATH_MAX:
                raise DriverError(f"the socket's path {self.socket} is too long; give the client a shorter state_dir")
            self._channel = grpc.aio.insecure_channel(f"unix:{self.socket}", options=OPTIONS)
        return self._channel


class _UnknownVolume(DriverError):
    """The plugin does not know the volume."""


def _error_of(name: str, error: grpc.aio.AioRpcError) -> DriverError | Unavailable:
    code, text = error.code(), error.details() or ""
    shown = f"{name}: {text[:500] or code.name}"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Unavailable(f"the CSI plugin does not answer: {shown}")
    if code is grpc.StatusCode.NOT_FOUND:
        return _UnknownVolume(f"the CSI plugin refuses: {shown}")
    return (DriverError if code in _FINAL else RecoverableError)(f"the CSI plugin refuses: {shown}")


def _flags(able: Message, message: str, fields: Mapping[str, str]) -> dict[str, bool]:
    names = {enum_name(message, "Type", each.rpc.type) for each in able.capabilities}
    return {field: name in names for name, field in fields.items()}


def _capability(volume: CSIClaimed) -> Message:
    mode = volume.access_mode.replace("-", "_").upper()
    options = volume.mount_options
    mount = message_class("VolumeCapability.MountVolume")(
        fs_type=options.fs_type if options is not None else "",
        mount_flags=list(options.mount_flags) if options is not None else [],
    )
    access = message_class("VolumeCapability.AccessMode")
    return message_class("VolumeCapability")(mount=mount, access_mode=access(mode=access.Mode.Value(mode)))
