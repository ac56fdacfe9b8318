"""The messages and services of etcd's API, as classes made from `etcd.proto` when they are first needed."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from yurt.runtime.proto_text import read_proto

PACKAGE = "etcdserverpb"
FILE = "etcd.proto"

Message = Any
"""A protobuf message: its class is made at run time, so its type cannot be named."""


class Method(NamedTuple):
    """One method of a service."""

    path: str
    request: Any
    response: Any


@cache
def _pool() -> DescriptorPool:
    made = DescriptorPool()
    made.Add(read_proto(FILE, (resources.files("yurt.storage.etcd") / FILE).read_text("utf-8"), {}))
    return made


@cache
def message_class(name: str) -> Any:
    """The class of a message."""
    return GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def message(name: str, /, **fields: Any) -> Message:
    """A message with fields."""
    return message_class(name)(**fields)


@cache
def method(service: str, name: str) -> Method:
    """A method by its service and name."""
    found = _pool().FindServiceByName(f"{PACKAGE}.{service}").FindMethodByName(name)
    return Method(
        path=f"/{PACKAGE}.{service}/{name}",
        request=GetMessageClass(found.input_type),
        response=GetMessageClass(found.output_type),
    )
