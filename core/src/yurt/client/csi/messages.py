"""The messages and services of CSI, as classes made from `csi.proto` when they are first needed."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from yurt.runtime.proto_text import read_proto

PACKAGE = "csi.v1"
FILE = "csi.proto"

Message = Any
"""A protobuf message: its class is made at run time, so its type cannot be named."""


class Method(NamedTuple):
    """One method of a service."""

    path: str
    request: Any
    response: Any


@cache
def pool() -> DescriptorPool:
    """The descriptors of all messages and services."""
    made = DescriptorPool()
    made.Add(read_proto(FILE, (resources.files("yurt.client.csi") / FILE).read_text("utf-8"), {}))
    return made


@cache
def message_class(name: str) -> Any:
    """The class of a message."""
    return GetMessageClass(pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def methods(service: str) -> dict[str, Method]:
    """The methods of a service by name."""
    found = pool().FindServiceByName(f"{PACKAGE}.{service}")
    return {
        each.name: Method(
            path=f"/{PACKAGE}.{service}/{each.name}",
            request=GetMessageClass(each.input_type),
            response=GetMessageClass(each.output_type),
        )
        for each in found.methods
    }


def enum_name(message: str, enum: str, number: int) -> str:
    """The name of a number of an enum; empty for one that is newer than this file."""
    found = pool().FindMessageTypeByName(f"{PACKAGE}.{message}").enum_types_by_name[enum].values_by_number.get(number)
    return found.name if found is not None else ""
