"""Reads files of plain values, in native syntax or JSON, as one kind of tree with positions.

Policies and similar files have no expressions. A block is a member whose value is an object, each label of the block an
object around its content, so that `namespace "a" { policy = "read" }` and `{"namespace": {"a": {"policy": "read"}}}`
are the same tree. Names may repeat, as blocks do; the reader of the tree decides about their meaning.
"""

from __future__ import annotations

from .diagnostics import OffsetDiagnostic, SourceText
from .findings import Findings
from .syntax.jsonsyntax import JsonArray, JsonNode, JsonObject, JsonScalar, read_json
from .syntax.nodes import (
    AttributeNode,
    BlockNode,
    Body,
    Expr,
    Label,
    LiteralValue,
    ObjectOf,
    RootVariable,
    TupleOf,
    Unary,
)
from .syntax.parser import parse_file, too_deep


def read_document(source: SourceText) -> JsonObject:
    """The file as a tree. Raises JobspecError with all syntax errors."""
    if source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        return read_json(source)
    findings = Findings()
    try:
        tree = _DocumentReader(source, findings).body(parse_file(source, is_lenient=True), 0)
    except RecursionError:
        raise too_deep(source) from None
    findings.raise_errors()
    return tree


class _DocumentReader:
    """Converts native syntax to the nodes of JSON; reports anything that is not a plain value, as null."""

    def __init__(self, source: SourceText, findings: Findings) -> None:
        self._source = source
        self._findings = findings

    def body(self, body: Body, start: int) -> JsonObject:
        items: list[AttributeNode | BlockNode] = [*body.attributes, *body.blocks]
        items.sort(key=lambda item: item.start)
        return JsonObject(tuple(map(self._member, items)), start, body.end)

    def _member(self, item: AttributeNode | BlockNode) -> tuple[Label, JsonNode]:
        if isinstance(item, AttributeNode):
            return Label(item.name, item.start, item.name_end), self._value(item.value)
        content = self.body(item.body, item.open)
        for label in reversed(item.labels):
            content = JsonObject(((label, content),), label.start, item.end)
        return Label(item.type, item.start, item.name_end), content

    def _value(self, node: Expr) -> JsonNode:
        match node:
            case LiteralValue(value=value):
                return JsonScalar(value, node.start, node.end)
            case Unary(operator="-", operand=LiteralValue(value=int(value))):
                return JsonScalar(-value, node.start, node.end)
            case TupleOf(items=items):
                return JsonArray(tuple(map(self._value, items)), node.start, node.end)
            case ObjectOf(items=pairs):
                members = tuple((self._key(key), self._value(value)) for key, value in pairs)
                return JsonObject(members, node.start, node.end)
            case _:
                return self._refused(node)

    def _key(self, node: Expr) -> Label:
        match node:
            case LiteralValue(value=str(text)):
                return Label(text, node.start, node.end)
            case RootVariable(name=name):
                return Label(name, node.start, node.end)
            case _:
                self._refused(node)
                return Label("", node.start, node.end)

    def _refused(self, node: Expr) -> JsonScalar:
        detail = "Only texts, numbers, booleans, lists and maps may stand here; expressions are not evaluated."
        self._findings.add(self._source, OffsetDiagnostic("Expressions are not allowed", detail, node.start, node.end))
        return JsonScalar(None, node.start, node.end)
