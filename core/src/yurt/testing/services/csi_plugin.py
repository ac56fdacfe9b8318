"""A CSI plugin for tests: a real gRPC server on a Unix socket whose volumes are folders.

`python -m yurt.testing.services.csi_plugin FOLDER` serves at `$CSI_ENDPOINT` with bind mounts, as a task does; in a
test without root a volume is shown by a symbolic link instead. It answers as CSI demands: each call may come again.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from yurt.client.csi.messages import Message, message_class, methods
from yurt.client.csi.mounts import is_mounted, unmount

NAME, VERSION = "folders.csi.example", "1.0.0"
MS_BIND, MS_REMOUNT, MS_RDONLY = 4096, 32, 1


class FakeCsiPlugin:
    """Serves the services Identity, Node and Controller; `calls` lists the calls of Node in order."""

    def __init__(self, storage: Path, *, mounts: bool = False, stages: bool = True, attaches: bool = False) -> None:
        self.storage = storage
        self.calls: list[tuple[str, Message]] = []
        self.is_ready = True
        self.failures: dict[str, grpc.StatusCode] = {}
        """The calls that fail, and how."""
        self._mounts, self._stages, self._attaches = mounts, stages, attaches
        self._server: grpc.aio.Server | None = None

    async def start(self, socket: Path) -> None:
        """Start serving."""
        server = self._server = grpc.aio.server()
        for service in ("Identity", "Node", "Controller"):
            server.add_generic_rpc_handlers((self._handlers(service),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()

    async def stop(self) -> None:
        """Stop serving at once."""
        if self._server is not None:
            await self._server.stop(None)

    def named(self, name: str) -> list[Message]:
        """The recorded calls of one name."""
        return [request for called, request in self.calls if called == name]

    def _handlers(self, service: str) -> grpc.GenericRpcHandler:
        made = {}
        for name, method in methods(service).items():

            async def answer(request: Message, context: Any, name: str = name, method: Any = method) -> Message:
                if name in self.failures:
                    await context.abort(self.failures[name], f"{name} is told to fail")
                if name.startswith("Node") and "Get" not in name:
                    self.calls.append((name, request))
                fields: dict[str, Any] = getattr(self, f"_{name}", lambda _: {})(request)
                return method.response(**fields)

            made[name] = grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(f"csi.v1.{service}", made)

    # The answers, by the names that CSI gives the calls.

    def _GetPluginInfo(self, request: Message) -> dict[str, Any]:  # noqa: N802
        return {"name": NAME, "vendor_version": VERSION}

    def _GetPluginCapabilities(self, request: Message) -> dict[str, Any]:  # noqa: N802
        return {"capabilities": [{"service": {"type": "CONTROLLER_SERVICE"}}] if self._attaches else []}

    def _Probe(self, request: Message) -> dict[str, Any]:  # noqa: N802
        return {"ready": {"value": self.is_ready}}

    def _ControllerGetCapabilities(self, request: Message) -> dict[str, Any]:  # noqa: N802
        return {"capabilities": [{"rpc": {"type": "PUBLISH_UNPUBLISH_VOLUME"}}]}

    def _NodeGetInfo(self, request: Message) -> dict[str, Any]:  # noqa: N802
        topology = message_class("Topology")(segments={"rack": "R1"})
        return {"node_id": "here", "max_volumes_per_node": 8, "accessible_topology": topology}

    def _NodeGetCapabilities(self, request: Message) -> dict[str, Any]:  # noqa: N802
        return {"capabilities": [{"rpc": {"type": "STAGE_UNSTAGE_VOLUME"}}] if self._stages else []}

    def _NodeStageVolume(self, request: Message) -> dict[str, Any]:  # noqa: N802
        assert Path(request.staging_target_path).is_dir()
        if self._mounts:
            bind(self._folder(request), Path(request.staging_target_path))
        return {}

    def _NodeUnstageVolume(self, request: Message) -> dict[str, Any]:  # noqa: N802
        if self._mounts:
            unmount(Path(request.staging_target_path))
        return {}

    def _NodePublishVolume(self, request: Message) -> dict[str, Any]:  # noqa: N802
        target = Path(request.target_path)
        source = Path(request.staging_target_path) if self._stages and self._mounts else self._folder(request)
        if self._mounts:
            target.mkdir(exist_ok=True)
            bind(source, target, is_read_only=request.readonly)
        elif not target.is_symlink():
            target.symlink_to(source)
        return {}

    def _NodeUnpublishVolume(self, request: Message) -> dict[str, Any]:  # noqa: N802
        target = Path(request.target_path)
        if self._mounts:
            unmount(target)
            if target.is_dir():
                target.rmdir()
        else:
            target.unlink(missing_ok=True)
        return {}

    def _folder(self, request: Message) -> Path:
        folder = self.storage / str(request.volume_id)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # tasks of any user write there
        return folder


def bind(source: Path, target: Path, *, is_read_only: bool = False) -> None:
    """Bind-mount a folder over another, unless something is mounted there."""
    if is_mounted(target):
        return
    _mount(source, target, MS_BIND)
    if is_read_only:
        _mount(source, target, MS_BIND | MS_REMOUNT | MS_RDONLY)


def _mount(source: Path, target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {source} at {target}")


async def main() -> None:
    """Run the plugin until killed."""
    plugin = FakeCsiPlugin(Path(sys.argv[1]), mounts=True)
    await plugin.start(Path(os.environ["CSI_ENDPOINT"].removeprefix("unix://")))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
