"""Reads .proto files into descriptors, so that the repository needs no generated code.

Generated modules demand a protobuf as new as the one that made them; descriptors built when they are needed do not.
The reader knows what our own files use of proto3: messages, enums, oneofs, maps, repeated fields, services with
streams, reserved numbers. A test compares its descriptors with those of the real compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

TOKEN = re.compile(r'"[^"]*"|[\w.]+|[{}();=<>,]')
SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13,
}  # fmt: skip
MESSAGE, ENUM = 11, 14
OPTIONAL, REPEATED = 1, 3

Kinds = dict[str, int]
"""The full name of every message and enum, and which of the two it is."""


class TokenCursor:
    """A cursor over the tokens of one file."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = TOKEN.findall("\n".join(line.partition("//")[0] for line in text.splitlines()))
        self.at = 0

    @property
    def is_done(self) -> bool:
        """Whether all tokens are read."""
        return self.at >= len(self.tokens)

    def take(self, *expected: str) -> str:
        """The next token, which must be one of `expected` when they are given."""
        token = self.tokens[self.at]
        assert not expected or token in expected, (token, expected, self.at)
        self.at += 1
        return token

    def take_if(self, token: str) -> bool:
        """Take the next token if it is this one; returns whether it was."""
        is_next = self.tokens[self.at] == token
        self.at += is_next
        return is_next

    def statement(self) -> list[str]:
        """The tokens up to the next semicolon."""
        end = self.tokens.index(";", self.at)
        found, self.at = self.tokens[self.at : end], end + 1
        return found


def read_proto(name: str, text: str, kinds: Kinds) -> FileDescriptorProto:
    """The descriptor of one file; `kinds` has the types of the files before it, and gets those of this file."""
    reader = TokenCursor(text)
    file = FileDescriptorProto(name=name, syntax="proto3")
    while not reader.is_done:
        match reader.take():
            case "syntax" | "option":
                reader.statement()
            case "package":
                file.package = reader.statement()[0]
            case "import":
                file.dependency.append(reader.statement()[0].strip('"'))
            case "message":
                read_message(reader, file.message_type.add())
            case "enum":
                read_enum(reader, file.enum_type.add())
            case "service":
                read_service(reader, file.service.add())
            case other:
                raise AssertionError(f"{name}: {other}")
    learn(kinds, f".{file.package}", file.message_type, file.enum_type)
    for message in file.message_type:
        resolve(message, f".{file.package}", kinds)
    for method in (method for service in file.service for method in service.method):
        method.input_type = found_name(method.input_type, f".{file.package}", kinds)
        method.output_type = found_name(method.output_type, f".{file.package}", kinds)
    return file


def read_message(reader: TokenCursor, message: DescriptorProto) -> None:
    """Read a message, from its name on."""
    message.name = reader.take()
    reader.take("{")
    while not reader.take_if("}"):
        match reader.take():
            case "message":
                read_message(reader, message.nested_type.add())
            case "enum":
                read_enum(reader, message.enum_type.add())
            case "oneof":
                read_oneof(reader, message)
            case "reserved":
                number = int(reader.statement()[0])
                message.reserved_range.add(start=number, end=number + 1)
            case "map":
                read_map(reader, message)
            case "repeated":
                read_field(reader, message, reader.take(), label=REPEATED)
            case type_name:
                read_field(reader, message, type_name)


def read_field(
    reader: TokenCursor, message: DescriptorProto, type_name: str, *, label: int = OPTIONAL
) -> FieldDescriptorProto:
    """Read `name = number;`, which follows a field's type."""
    name, _, number = reader.statement()
    field = message.field.add(name=name, number=int(number), label=label, json_name=json_name(name))
    if type_name in SCALARS:
        field.type = SCALARS[type_name]
    else:
        field.type_name = type_name
    return field


def json_name(name: str) -> str:
    """The field's name in JSON: task_id -> taskId."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def read_oneof(reader: TokenCursor, message: DescriptorProto) -> None:
    """Read a oneof, from its name on."""
    index = len(message.oneof_decl)
    message.oneof_decl.add(name=reader.take())
    reader.take("{")
    while not reader.take_if("}"):
        read_field(reader, message, reader.take()).oneof_index = index


def read_map(reader: TokenCursor, message: DescriptorProto) -> None:
    """Read `<key, value> name = number;`: a map is a list of entry messages."""
    reader.take("<")
    key = reader.take()
    reader.take(",")
    value = reader.take()
    reader.take(">")
    field = read_field(reader, message, "", label=REPEATED)
    name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
    field.type_name = name
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, type_name) in enumerate((("key", key), ("value", value)), 1):
        read_field(TokenCursor(f"{part} = {number};"), entry, type_name)


def read_enum(reader: TokenCursor, enum: EnumDescriptorProto) -> None:
    """Read an enum, from its name on."""
    enum.name = reader.take()
    reader.take("{")
    while not reader.take_if("}"):
        match reader.statement():
            case ["option", *_]:
                enum.options.allow_alias = True
            case [name, "=", number]:
                enum.value.add(name=name, number=int(number))


def read_service(reader: TokenCursor, service: ServiceDescriptorProto) -> None:
    """Read a service, from its name on."""
    service.name = reader.take()
    reader.take("{")
    while not reader.take_if("}"):
        reader.take("rpc")
        method = service.method.add(name=reader.take())
        reader.take("(")
        if reader.take_if("stream"):
            method.client_streaming = True
        method.input_type = reader.take()
        reader.take(")")
        reader.take("returns")
        reader.take("(")
        if reader.take_if("stream"):
            method.server_streaming = True
        method.output_type = reader.take()
        reader.take(")")
        reader.take(";")


def learn(kinds: Kinds, scope: str, messages: Sequence[DescriptorProto], enums: Sequence[EnumDescriptorProto]) -> None:
    """Add the types that are defined in a scope and below it to `kinds`."""
    kinds |= {f"{scope}.{enum.name}": ENUM for enum in enums}
    for message in messages:
        kinds[f"{scope}.{message.name}"] = MESSAGE
        learn(kinds, f"{scope}.{message.name}", message.nested_type, message.enum_type)


def found_name(name: str, scope: str, kinds: Kinds) -> str:
    """The full name of a type, searched from the inner scope to the outer ones."""
    parts = scope.split(".")
    for length in range(len(parts), 0, -1):
        full = ".".join([*parts[:length], name])
        if full in kinds:
            return full
    raise AssertionError(f"unknown type {name} in {scope}")


def resolve(message: DescriptorProto, scope: str, kinds: Kinds) -> None:
    """Set the full type name and the kind of every field."""
    inner = f"{scope}.{message.name}"
    for field in message.field:
        if field.type_name:
            field.type_name = found_name(field.type_name, inner, kinds)
            field.type = kinds[field.type_name]
    for nested in message.nested_type:
        resolve(nested, inner, kinds)
