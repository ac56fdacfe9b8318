"""Type expressions: `string`, `list(number)`, `object({ name = string })`."""

from __future__ import annotations

from typing import NoReturn

from .diagnostics import Near, fail
from .suggestions import CONSTRUCTORS
from .syntax.nodes import Expr, FunctionCall, LiteralValue, ObjectOf, RootVariable, TupleOf, place
from .values import PRIMITIVES, Type

SUMMARY = "Invalid type specification"


def read_type(node: Expr, *, exact: bool = False) -> Type:
    """The type that an expression denotes; `exact` refuses `any`. Raises EvaluationError."""
    if isinstance(node, RootVariable):
        return _keyword(node, exact)
    if isinstance(node, LiteralValue) and node.quoted and node.value in PRIMITIVES:
        return node.value
    if not isinstance(node, FunctionCall):
        _reject(
            node, "A type is a primitive keyword (bool, number, string) or a constructor call such as list(string)."
        )
    if len(node.arguments) != 1:
        _reject(node, f"The {node.name} type constructor requires one argument.")
    argument = node.arguments[0]
    if node.name in ("list", "set", "map"):
        return (node.name, read_type(argument, exact=exact))
    if node.name == "tuple":
        if not isinstance(argument, TupleOf):
            _reject(argument, "Tuple type constructor requires a list of element types.")
        return ("tuple", tuple(read_type(item, exact=exact) for item in argument.items))
    if node.name == "object":
        return _object(argument, exact)
    if node.name == "optional":
        _reject(node, "The keyword optional is valid only for the attributes of an object type.")
    _reject(node, f'There is no type constructor named "{node.name}".')


def _keyword(node: RootVariable, exact: bool) -> Type:
    if node.name in PRIMITIVES:
        return node.name
    if node.name == "any":
        if exact:
            _reject(node, 'The keyword "any" cannot be used in this type specification: an exact type is required.')
        return "any"
    if node.name in ("list", "set", "map", "object", "tuple"):
        _reject(node, f"The {node.name} type constructor requires one argument, the type of what it holds.")
    _reject(
        node,
        f'The keyword "{node.name}" is not a valid type specification.',
        hint=Near(node.name, PRIMITIVES, f"Use {CONSTRUCTORS}."),
    )


def _object(node: Expr, exact: bool) -> Type:
    if not isinstance(node, ObjectOf):
        _reject(
            node,
            "Object type constructor requires a map whose keys are attribute names and whose values are their types.",
        )
    members: dict[str, Type] = {}
    for key, value in node.items:
        if not isinstance(key, LiteralValue) or not isinstance(key.value, str):
            _reject(key, "Object constructor map keys must be attribute names.")
        if isinstance(value, FunctionCall) and value.name == "optional" and len(value.arguments) == 1:
            members[key.value] = ("optional", read_type(value.arguments[0], exact=exact))
        else:
            members[key.value] = read_type(value, exact=exact)
    return ("object", tuple(sorted(members.items())))


def _reject(node: Expr, detail: str, *, hint: Near | None = None) -> NoReturn:
    raise fail(SUMMARY, detail, *place(node), hint=hint)
