"""Handlers that are imported with the first request for one of them.

An agent answers few of its routes. The declarations (`yurt.http.declarations`) are imported with the agent; a module of
handlers is imported with the first request of its resource, once the dispatcher has let that request through. A
declaration names its handler as an attribute of the module; type checkers see the module itself:

    if TYPE_CHECKING:
        from yurt.http.resources import nodes
    else:
        nodes = handlers_of("yurt.http.resources.nodes")

    ROUTES = (routes.get("/v1/nodes", nodes.list_nodes, needs=needs.NODE_READ),)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from yurt.http.call import Call

Handler = Callable[["Call"], Coroutine[Any, Any, web.StreamResponse]]


class NamedHandler:
    """A handler by its module and name."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, call: Call) -> Coroutine[Any, Any, web.StreamResponse]:
        """Answer, as the handler does."""
        return self.function(call)

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"

    @cached_property
    def function(self) -> Handler:
        """The handler itself; imports its module."""
        found: Handler = getattr(import_module(self.module), self.name)
        return found


class HandlerModule:
    """A module of handlers whose attributes are their names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NamedHandler:
        return NamedHandler(self._name, name)


def handlers_of(module: str) -> HandlerModule:
    """The handlers of a module, which is not imported yet."""
    return HandlerModule(module)


def function_of(handler: Handler) -> Handler:
    """The function that answers, for code that reads it."""
    return handler.function if isinstance(handler, NamedHandler) else handler
