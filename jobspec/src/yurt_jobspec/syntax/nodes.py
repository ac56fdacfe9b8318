"""The syntax tree: immutable values with their offsets.

An expression node is data without behaviour; the evaluator decides by its type. `start` and `end` are character
offsets. `place` of a node (see `place`) is where type errors point: inside the quotes for a template, at the opening
bracket for a collection.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple, Protocol


class SyntaxNode(Protocol):
    """The fields that all nodes share; a protocol, because mypy does not support mutually recursive named tuples."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


Expr = SyntaxNode
Step = SyntaxNode
TemplatePart = str | SyntaxNode


class LiteralValue(NamedTuple):
    """A number, bool, null or plain string."""

    value: str | bool | int | Decimal | None
    start: int
    end: int
    quoted: bool = False


class RootVariable(NamedTuple):
    """A root name, which begins a reference."""

    name: str
    start: int
    end: int


class Attr(NamedTuple):
    """`.name`"""

    name: str
    start: int
    end: int


class Index(NamedTuple):
    """`[key]`, or the legacy form `.0`."""

    key: Expr
    start: int
    end: int


class Splat(NamedTuple):
    """`[*]` or `.*` with the steps applied to each element; `origin` is the start of the splatted expression."""

    steps: tuple[Step, ...]
    origin: int
    start: int
    end: int


class Traversal(NamedTuple):
    """A value followed by attributes, indexes and splats."""

    source: Expr
    steps: tuple[Step, ...]
    start: int
    end: int


class FunctionCall(NamedTuple):
    """A function call; `spread`: the last argument is followed by `...`."""

    name: str
    arguments: tuple[Expr, ...]
    spread: bool
    name_end: int
    close: int
    start: int
    end: int


class Unary(NamedTuple):
    """`-x` or `!x`"""

    operator: str
    operand: Expr
    start: int
    end: int


class Binary(NamedTuple):
    """Two operands and an operator."""

    operator: str
    left: Expr
    right: Expr
    start: int
    end: int


class Conditional(NamedTuple):
    """`condition ? yes : no`"""

    condition: Expr
    yes: Expr
    no: Expr
    start: int
    end: int


class Parentheses(NamedTuple):
    """`(inner)`, kept because a key in parentheses is an expression while a bare key is a name."""

    inner: Expr
    start: int
    end: int


class TupleOf(NamedTuple):
    """`[a, b]`"""

    items: tuple[Expr, ...]
    start: int
    end: int


class ObjectOf(NamedTuple):
    """`{ key = value }`"""

    items: tuple[tuple[Expr, Expr], ...]
    start: int
    end: int


class For(NamedTuple):
    """A for expression; `key` is None in the tuple form, `group`: the value is followed by `...`."""

    key_name: str | None
    value_name: str
    collection: Expr
    key: Expr | None
    value: Expr
    condition: Expr | None
    group: bool
    start: int
    end: int


class TemplateExpr(NamedTuple):
    """Text with sequences; `inner` is the offset after the opening quote or marker."""

    parts: tuple[TemplatePart, ...]
    inner: int
    start: int
    end: int


class Wrap(NamedTuple):
    """A template that consists of one interpolation, `"${x}"`: its value is x, of any type."""

    inner: Expr
    start: int
    end: int


class TemplateIf(NamedTuple):
    """`%{ if c }yes%{ else }no%{ endif }`"""

    condition: Expr
    yes: tuple[TemplatePart, ...]
    no: tuple[TemplatePart, ...]
    start: int
    end: int


class TemplateFor(NamedTuple):
    """`%{ for k, v in c }body%{ endfor }`"""

    key_name: str | None
    value_name: str
    collection: Expr
    body: tuple[TemplatePart, ...]
    start: int
    end: int


class Embedded(NamedTuple):
    """An expression inside a JSON string: its own offsets are into `text`, the string's content; `start` and `end`
    are those of the string.
    """

    inner: Expr
    text: str
    start: int
    end: int


class AttributeNode(NamedTuple):
    """`name = value` in a body."""

    name: str
    value: Expr
    start: int
    name_end: int
    end: int


class Label(NamedTuple):
    """A label of a block."""

    text: str
    start: int
    end: int


class BlockNode(NamedTuple):
    """`type "label" { body }`; `open` is the offset of the brace. `is_generated`: by a dynamic block."""

    type: str
    labels: tuple[Label, ...]
    body: Body
    open: int
    start: int
    end: int
    is_generated: bool = False

    @property
    def name_end(self) -> int:
        """The end offset of the block's type."""
        return self.start + len(self.type)


class Body(NamedTuple):
    """Attributes and blocks in file order; `missing` is where absent items are reported."""

    attributes: tuple[AttributeNode, ...]
    blocks: tuple[BlockNode, ...]
    missing: int
    end: int


def place(node: Expr) -> tuple[int, int]:
    """The offsets at which errors about the node's value are reported."""
    if isinstance(node, LiteralValue) and node.quoted:
        return (node.start + 1, node.end - 1) if node.end - node.start > 2 else (node.end, node.end)
    if isinstance(node, TemplateExpr):
        first = node.parts[0] if node.parts else None
        return (node.inner, node.end) if first is None or isinstance(first, str) else (first.start, first.end)
    if isinstance(node, FunctionCall):
        return node.start, node.name_end + 1
    if isinstance(node, (TupleOf, ObjectOf, For)):
        return node.start, node.start + 1
    if isinstance(node, Binary):
        return place(node.left)
    return node.start, node.end
