"""The tree of a parsed template. `at` is an offset into the source."""

from __future__ import annotations

from typing import NamedTuple


class Dot(NamedTuple):
    """`.`"""

    at: int


class Nil(NamedTuple):
    """`nil`"""

    at: int


class LiteralNode(NamedTuple):
    """A text, a number, or a boolean."""

    at: int
    value: str | int | float | bool


class VariableNode(NamedTuple):
    """`$name`; `$` is the data that the template was given."""

    at: int
    name: str


class Called(NamedTuple):
    """The name of a function, where a value is expected."""

    at: int
    name: str


class Nested(NamedTuple):
    """A pipeline in parentheses."""

    at: int
    pipeline: Pipeline


class Chain(NamedTuple):
    """Fields of an operand: `.A.B`, `$x.A`, `(f).A`."""

    at: int
    operand: Operand
    fields: tuple[str, ...]


Operand = Dot | Nil | LiteralNode | VariableNode | Called | Nested | Chain


class CommandNode(NamedTuple):
    """An operand, or a function with its arguments."""

    at: int
    words: tuple[Operand, ...]


class Pipeline(NamedTuple):
    """Commands, each given the value of the one before; the last value goes to the declared variables."""

    at: int
    commands: tuple[CommandNode, ...]
    variables: tuple[str, ...] = ()
    is_assignment: bool = False


class Text(NamedTuple):
    """Text outside the delimiters."""

    at: int
    text: str


class ActionNode(NamedTuple):
    """A pipeline whose value is printed, unless it declares variables."""

    at: int
    pipeline: Pipeline


class If(NamedTuple):
    """`if`: one body or the other."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class With(NamedTuple):
    """`with`: as `if`, and the value becomes the dot."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class Range(NamedTuple):
    """`range`: the body for each element, the other one when there is none."""

    at: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class Include(NamedTuple):
    """`template`: another template with the pipeline's value as its data."""

    at: int
    name: str
    pipeline: Pipeline | None


class Break(NamedTuple):
    """`break`"""

    at: int


class Continue(NamedTuple):
    """`continue`"""

    at: int


Node = Text | ActionNode | If | With | Range | Include | Break | Continue
Body = tuple[Node, ...]
