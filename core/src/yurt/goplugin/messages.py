"""The messages and services of Nomad's plugin protocol, as classes made from the .proto files in this package.

They live in a descriptor pool of their own, because a plugin may load other protobuf files with the same names. Import
this module only where there is a plugin process, because loading protobuf takes time and memory.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from yurt.runtime.proto_text import Kinds, learn, read_proto

WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2)
FILES = (
    "attribute.proto", "stats.proto", "recoverable_error.proto", "hcl_spec.proto", "base.proto", "device.proto",
    "driver.proto", "goplugin.proto", "health.proto", "status.proto",
)  # fmt: skip

Message = Any
"""A protobuf message. Its class is made at run time, so its static type cannot be named."""

DRIVERS = "hashicorp.nomad.plugins.drivers.proto"
DEVICE = "hashicorp.nomad.plugins.device"
BASE = "hashicorp.nomad.plugins.base.proto"
HCLSPEC = "hashicorp.nomad.plugins.shared.hclspec"
SHARED = "hashicorp.nomad.plugins.shared.structs"
DRIVER_SERVICE = f"{DRIVERS}.Driver"
DEVICE_SERVICE = f"{DEVICE}.DevicePlugin"
BASE_SERVICE = f"{BASE}.BasePlugin"
CONTROLLER_SERVICE = "plugin.GRPCController"
BROKER_SERVICE = "plugin.GRPCBroker"
STDIO_SERVICE = "plugin.GRPCStdio"
HEALTH_SERVICE = "grpc.health.v1.Health"


def read_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """Descriptors of all files, each after those that it imports."""
    kinds: Kinds = {}
    found = []
    for module in WELL_KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        learn(kinds, f".{file.package}", file.message_type, file.enum_type)
        found.append(file)
    folder = resources.files("yurt.goplugin") / "proto"
    return found + [read_proto(name, (folder / name).read_text(), kinds) for name in FILES]


@cache
def pool() -> DescriptorPool:
    """All descriptors."""
    made = DescriptorPool()
    for file in read_files():
        made.Add(file)
    return made


@cache
def message_class(full_name: str) -> Any:
    """The class of a message by its full name."""
    return GetMessageClass(pool().FindMessageTypeByName(full_name))


def driver_message(name: str, /, **fields: Any) -> Message:
    """A message of the driver service."""
    return message_class(f"{DRIVERS}.{name}")(**fields)


def base_message(name: str, /, **fields: Any) -> Message:
    """A message of the base service."""
    return message_class(f"{BASE}.{name}")(**fields)


def device_message(name: str, /, **fields: Any) -> Message:
    """A message of the device service."""
    return message_class(f"{DEVICE}.{name}")(**fields)


class Method:
    """One method of a service: its path, its messages and which sides stream."""

    def __init__(self, service: str, descriptor: Any) -> None:
        self.name: str = descriptor.name
        self.path = f"/{service}/{descriptor.name}"
        self.request = GetMessageClass(descriptor.input_type)
        self.response = GetMessageClass(descriptor.output_type)
        self.client_streams: bool = descriptor.client_streaming
        self.server_streams: bool = descriptor.server_streaming


@cache
def methods(service: str) -> dict[str, Method]:
    """The methods of a service by name."""
    descriptor = pool().FindServiceByName(service)
    return {method.name: Method(service, method) for method in descriptor.methods}
