"""Derives the calls of a port from its Protocol: the single definition that both ends share.

A coroutine is a call with one answer. A plain method that gives an async iterator is a stream of items, and one that
takes an async iterator besides is a stream both ways. The parameters travel as a struct by their names, so a newer
end may add one with a default.
Each method declares who may call it (`yurt.access.calls`).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from yurt.access.calls import CallNeed, need_of

TIMEOUT = "timeout_s"
ITERATORS = (AsyncIterator, AsyncGenerator)


class PortMethod(msgspec.Struct, frozen=True):
    """One call of a port: the struct of its parameters, its answer's type, and the type of the streamed items.

    `item` is set when the answer is a stream of them, `input` when the caller sends a stream too; `input_name` is the
    parameter that stands for it.
    """

    name: str
    needs: CallNeed
    """What the caller of the method needs."""
    request: type[msgspec.Struct]
    parameters: tuple[str, ...]
    answer: Any = None
    item: Any = None
    input: Any = None
    input_name: str = ""
    is_long_poll: bool = False
    """Whether the answer may wait for a change: the caller sends `timeout_s`, itself or in a struct."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream."""
        return self.item is not None

    def pack(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> msgspec.Struct:
        """The parameters of one call as a struct; raises TypeError when they do not fit."""
        return self.request(**dict(zip(self.parameters, args, strict=False)), **given)

    def unpack(self, request: msgspec.Struct) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(request, name) for name in self.parameters if name != self.input_name}


Contract = Mapping[str, PortMethod]


def contract_of(port: type) -> Contract:
    """The calls of a Protocol by name; raises TypeError for one without a declared caller."""
    found = {
        name: _method(name, member)
        for name, member in inspect.getmembers(port, inspect.isfunction)
        if not name.startswith("_")
    }
    return types.MappingProxyType(found)


def _method(name: str, function: Any) -> PortMethod:
    hints = get_type_hints(function, include_extras=True)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    input_name = next((each.name for each in parameters if get_origin(hints[each.name]) in ITERATORS), "")
    fields = [_field(each, hints[each.name]) for each in parameters if each.name != input_name]
    answer = hints["return"]
    is_stream = get_origin(answer) in ITERATORS
    return PortMethod(
        name=name,
        needs=need_of(function),
        request=msgspec.defstruct(name, fields, kw_only=True, frozen=True, omit_defaults=True),
        parameters=tuple(each.name for each in parameters),
        answer=None if is_stream else answer,
        item=get_args(answer)[0] if is_stream else None,
        input=get_args(hints[input_name])[0] if input_name else None,
        input_name=input_name,
        is_long_poll=any(
            each.name == TIMEOUT or TIMEOUT in getattr(hints[each.name], "__struct_fields__", ()) for each in parameters
        ),
    )


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default
