"""The tree of a parsed template. `at` is an offset into the source."""

from __future__ import annotations

import msgspec


class Dot(msgspec.Struct, frozen=True):
    """`.`"""

    at: int


class Nil(msgspec.Struct, frozen=True):
    """`nil`"""

    at: int


class LiteralNode(msgspec.Struct, frozen=True):
    """A text, a number, or a boolean."""

    at: int
    value: str | int | float | bool


class VariableNode(msgspec.Struct, frozen=True):
    """`$name`; `$` is the data that the template was given."""

    at: int
    name: str


class Called(msgspec.Struct, frozen=True):
    """The name of a function, where a value is expected."""

    at: int
    name: str


class Nested(msgspec.Struct, frozen=True):
    """A pipeline in parentheses."""

    at: int
    pipeline: Pipeline


class Chain(msgspec.Struct, frozen=True):
    """Fields of an operand: `.A.B`, `$x.A`, `(f).A`."""

    at: int
    operand: Operand
    fields: tuple[str, ...]


Operand = Dot | Nil | LiteralNode | VariableNode | Called | Nested | Chain


class CommandNode(msgspec.Struct, frozen=True):
    """An operand, or a function with its arguments."""

    at: int
    words: tuple[Operand, ...]


class Pipeline(msgspec.Struct, frozen=True):
    """Commands, each given the value of the one before; the last value goes to the declared variables."""

    at: int
    commands: tuple[CommandNode, ...]
    variables: tuple[str, ...] = ()
    is_assignment: bool = False


class Text(msgspec.Struct, frozen=True):
    """Text outside the delimiters."""

    at: int
    text: str


class ActionNode(msgspec.Struct, frozen=True):
    """A pipeline whose value is printed, unless it declares variables."""

    at: int
    pipeline: Pipeline


class If(msgspec.Struct, frozen=True):
    """`if`: one body or the other."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class With(msgspec.Struct, frozen=True):
    """`with`: as `if`, and the value becomes the dot."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class Range(msgspec.Struct, frozen=True):
    """`range`: the body for each element, the other one when there is none."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class Include(msgspec.Struct, frozen=True):
    """`template`: another template with the pipeline's value as its data."""

    at: int
    name: str
    pipeline: Pipeline | None


class Break(msgspec.Struct, frozen=True):
    """`break`"""

    at: int


class Continue(msgspec.Struct, frozen=True):
    """`continue`"""

    at: int


Node = Text | ActionNode | If | With | Range | Include | Break | Continue
Body = tuple[Node, ...]
