"""The messages and services of a package's .proto file, as classes made at first use.

They live in a descriptor pool of their own, because a plugin may load other protobuf files with the same names.
"""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from typing import Any, NamedTuple

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from yurt.runtime.proto_text import read_proto

Message = Any
"""A protobuf message. Its class is made at run time, so its static type cannot be named."""


class ProtoMethod(NamedTuple):
    """One method of a service."""

    path: str
    request: Any
    response: Any


class ProtoApi:
    """The API of the .proto file `file`, which lies in the package `home` and declares `package`."""

    def __init__(self, home: str, file: str, package: str) -> None:
        self._home = home
        self._file = file
        self._package = package
        self._methods: dict[str, dict[str, ProtoMethod]] = {}
        self._classes: dict[str, Any] = {}

    @cached_property
    def pool(self) -> DescriptorPool:
        """The descriptors of all messages and services."""
        made = DescriptorPool()
        made.Add(read_proto(self._file, (resources.files(self._home) / self._file).read_text("utf-8"), {}))
        return made

    def message_class(self, name: str) -> Any:
        """The class of a message."""
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = GetMessageClass(self.pool.FindMessageTypeByName(f"{self._package}.{name}"))
        return found

    def message(self, name: str, /, **fields: Any) -> Message:
        """A message with these fields."""
        return (self._classes.get(name) or self.message_class(name))(**fields)

    def methods(self, service: str) -> dict[str, ProtoMethod]:
        """The methods of a service by name."""
        if service not in self._methods:
            full_name = f"{self._package}.{service}"
            self._methods[service] = {
                each.name: ProtoMethod(
                    path=f"/{full_name}/{each.name}",
                    request=GetMessageClass(each.input_type),
                    response=GetMessageClass(each.output_type),
                )
                for each in self.pool.FindServiceByName(full_name).methods
            }
        return self._methods[service]

    def method(self, service: str, name: str) -> ProtoMethod:
        """A method by its service and name."""
        return self.methods(service)[name]

    def enum_name(self, message: str, enum: str, number: int) -> str:
        """The name of an enum's number; empty for a number that the file does not have."""
        enums = self.pool.FindMessageTypeByName(f"{self._package}.{message}").enum_types_by_name
        found = enums[enum].values_by_number.get(number)
        return found.name if found is not None else ""
