"""What a handler of the HTTP API reads of a request, found in its source and that of the functions it calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from yurt.structs.cluster import NodePool

DECODERS = {"decode_node_pool": NodePool}
"""Functions that decode a body by rules of their own, and the struct that they return."""
SKIPPED = ("yurt.http.query", "yurt.http.dispatcher", "yurt.http.errors", "yurt.http.call")


class Reads(NamedTuple):
    """Names of query parameters, whether it blocks and pages, and the fields of its body."""

    parameters: frozenset[str]
    blocks: bool
    pages: bool
    body: tuple[str, ...]
    ignored: frozenset[str] = frozenset()
    """Fields of the body that nobody looks at."""


def reads_of(handler: Callable[..., Any]) -> Reads:
    """Everything that the handler and its helpers in `yurt.http` read."""
    names: set[str] = set()
    called: set[str] = set()
    looked_at: set[str] = set()
    cls: type[msgspec.Struct] | None = None
    for function, tree in functions(handler, set()):
        for node in ast.walk(tree):
            names |= parameter_of(node)
            if isinstance(node, ast.Name):
                called.add(node.id)
            if isinstance(node, ast.Attribute) and ends_with(node.value, ("body",)):
                looked_at.add(node.attr)
        cls = cls or body_of(tree, function)
    fields = msgspec.structs.fields(cls) if cls is not None else ()
    is_own = cls is not None and cls.__module__.startswith("yurt.http.")
    if cls is not None and is_own:
        looked_at |= read_by_methods(cls)
    return Reads(
        parameters=frozenset(names),
        blocks=bool(called & {"changed_state", "changed_view"}),
        pages="Pager" in called,
        body=tuple(field.encode_name for field in fields),
        ignored=frozenset(field.encode_name for field in fields if is_own and field.name not in looked_at),
    )


def read_by_methods(cls: type[msgspec.Struct]) -> set[str]:
    """The fields that a body's own methods look at."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ends_with(node.value, ("self",))
    }


def functions(function: Callable[..., Any], seen: set[str]) -> Iterator[tuple[Callable[..., Any], ast.AST]]:
    """The function and all that it reaches inside `yurt.http`."""
    key = f"{function.__module__}.{function.__qualname__}"
    if key in seen:
        return
    seen.add(key)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    yield function, tree
    for node in ast.walk(tree):
        target = function.__globals__.get(node.id) if isinstance(node, ast.Name) else None
        if inspect.isfunction(target) and is_followed(target.__module__):
            yield from functions(target, seen)


def is_followed(module: str) -> bool:
    """Functions of this module may read the request."""
    return module.startswith("yurt.http.") and module not in SKIPPED


def parameter_of(node: ast.AST) -> set[str]:
    """The parameter that this piece of source reads, if it does."""
    if isinstance(node, ast.Call) and node.args and ends_with(node.func, ("get", "getall")) and is_query(node.func):
        return constant(node.args[0])
    if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.func, ast.Name):
        return constant(node.args[1]) if node.func.id in ("flag", "number") else set()
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn) and is_query(node.comparators[0]):
        return constant(node.left)
    if isinstance(node, ast.Attribute) and ends_with(node.value, ("options",)) and node.attr == "prefix":
        return {"prefix"}
    if isinstance(node, ast.Attribute) and ends_with(node.value, ("options",)) and node.attr in ("namespace", "sees"):
        return {"namespace"}
    return set()


def is_query(node: ast.AST) -> bool:
    """`call.query` or something below it."""
    return any(isinstance(each, ast.Attribute) and each.attr == "query" for each in ast.walk(node))


def ends_with(node: ast.AST, names: tuple[str, ...]) -> bool:
    """An attribute or a name of these."""
    return (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)


def constant(node: ast.AST) -> set[str]:
    """A text that stands in the source."""
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def body_of(tree: ast.AST, function: Callable[..., Any]) -> type[msgspec.Struct] | None:
    """The struct that the body is decoded to: by `call.body(X)`, or by `decode_value(document, X)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in DECODERS:
            return DECODERS[node.func.id]
        place = 0 if isinstance(node.func, ast.Attribute) and node.func.attr == "body" else None
        if isinstance(node.func, ast.Name) and node.func.id == "decode_value":
            place = 1
        named = node.args[place] if place is not None and len(node.args) > place else None
        cls = function.__globals__.get(named.id) if isinstance(named, ast.Name) else None
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
            return cls
    return None
