"""A device plugin as a process of its own, as a Go program would be: one group, whose second device comes and goes.

Started by a test's script: `python device_plugin.py SOCKET SWITCH`; the second device is there while SWITCH is a file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from yurt.goplugin.handshake import Handshake, handshake_line
from yurt.goplugin.hclspec import spec_from_schema
from yurt.goplugin.messages import BASE_SERVICE, DEVICE_SERVICE, base_message, device_message, methods
from yurt.goplugin.serve import handler_of
from yurt.sdk.schema import AttributeSpec, Schema

SWITCH = sys.argv[2]
POLL_S = 0.02


def group(*, has_second: bool) -> Any:
    """What is shown."""
    devices = [{"ID": "one", "healthy": True, "hw_locality": {"pci_bus_id": "0000:01:00.0"}}]
    found = device_message("DeviceGroup", vendor="acme", device_type="gpu", device_name="Z1")
    for device in [*devices, {"ID": "two", "healthy": True}][: 2 if has_second else 1]:
        found.devices.add(**device)
    found.attributes["memory"].int_val = 80
    found.attributes["memory"].unit = "GiB"
    found.attributes["fast"].bool_val = True
    return found


async def fingerprint(_request: Any) -> AsyncIterator[Any]:
    before = None
    while True:
        now = await asyncio.to_thread(os.path.exists, SWITCH)
        if now != before:
            yield device_message("FingerprintResponse", device_group=[group(has_second=now)])
        before = now
        await asyncio.sleep(POLL_S)


async def reserve(request: Any) -> Any:
    answer = device_message("ReserveResponse")
    answer.container_res.envs["ACME_VISIBLE"] = ",".join(request.device_ids)
    answer.container_res.devices.add(host_path="/dev/null", task_path="/dev/acme0", permissions="rw")
    answer.container_res.mounts.add(host_path="/opt/acme", task_path="/opt/acme", read_only=True)
    return answer


async def stats(_request: Any) -> AsyncIterator[Any]:
    answer = device_message("StatsResponse")
    figures = answer.groups.add(vendor="acme", type="gpu", name="Z1").instance_stats["one"]
    figures.timestamp.seconds = 7
    figures.summary.int_numerator_val.value = 3
    figures.summary.int_denominator_val.value = 80
    figures.summary.unit = "GiB"
    figures.stats.attributes["power"].float_numerator_val.value = 12.5
    yield answer
    await asyncio.Event().wait()


async def info(_request: Any) -> Any:
    return base_message("PluginInfoResponse", type=3, plugin_api_versions=["v0.1.0"], plugin_version="1.0", name="acme")


async def schema(_request: Any) -> Any:
    options = Schema(attributes=(AttributeSpec(name="ignored", type="list(string)"),))
    return base_message("ConfigSchemaResponse", spec=spec_from_schema(options))


async def configure(_request: Any) -> Any:
    return base_message("SetConfigResponse")


async def main() -> None:
    server = grpc.aio.server()
    for service, offered in (
        (BASE_SERVICE, {"PluginInfo": info, "ConfigSchema": schema, "SetConfig": configure}),
        (DEVICE_SERVICE, {"Fingerprint": fingerprint, "Reserve": reserve, "Stats": stats}),
    ):
        known = methods(service)
        handlers = {name: handler_of(known[name], call) for name, call in offered.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    await server.start()
    print(handshake_line(Handshake(network="unix", address=sys.argv[1])), flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
