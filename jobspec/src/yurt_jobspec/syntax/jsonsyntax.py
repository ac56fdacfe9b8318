"""Parses the JSON form of the language.

A JSON file says the same as a native one, but an object in it may mean a block, several blocks, or a value. Which one
is meant depends on where it stands, so the reader asks the tables of `schema`: a name that is a block becomes one
block for each object (for a block with labels, one for each key of the object), a list of such objects becomes
several blocks, and every other name becomes an argument. Strings are templates, as in the native form. A key "//" is
a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, NoReturn

from yurt_jobspec.diagnostics import JobspecError, OffsetDiagnostic, SourceText
from yurt_jobspec.findings import Findings
from yurt_jobspec.numbers import parse_number
from yurt_jobspec.schema import BlockSchema, ChildBlock, schema_of

from .expressions import ExpressionParser, SyntaxProblem, normalize
from .lexer import MAX_NESTING, SURROGATE, tokenize_template
from .nodes import AttributeNode, BlockNode, Body, Embedded, Expr, Label, LiteralValue, ObjectOf, TupleOf
from .parser import all_problems, check_size
from .templates import parse_template

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"true|false|null")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_COMMENT = "//"


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object with the position of each key."""

    members: tuple[tuple[Label, JsonNode], ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonArray:
    items: tuple[JsonNode, ...]
    start: int
    end: int


class JsonScalar(NamedTuple):
    value: str | bool | int | Decimal | None
    start: int
    end: int


JsonNode = JsonObject | JsonArray | JsonScalar


class _JsonReader:
    """Reads JSON with positions, up to the first mistake."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.text = source.text
        self.at = 1 if source.text.startswith("\ufeff") else 0
        self.depth = 0

    def file(self) -> JsonObject:
        bad = SURROGATE.search(self.text)
        if bad:
            self.at = bad.start()
            self.stop("Invalid character encoding", "The file must be UTF-8 throughout.")
        self.space()
        node = self.value()
        self.space()
        if self.at < len(self.text):
            self.stop("Extraneous data after value", "The file must hold a single JSON object.")
        if not isinstance(node, JsonObject):
            self.stop("Root value must be object", "The root of a JSON file must be an object.")
        return node

    def stop(self, summary: str, detail: str) -> NoReturn:
        raise JobspecError(
            [self.source.diagnostic(OffsetDiagnostic(summary, detail, self.at, min(self.at + 1, len(self.text))))]
        )

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def value(self) -> JsonNode:
        char = self.text[self.at : self.at + 1]
        if char in ("{", "["):
            self.depth += 1
            if self.depth > MAX_NESTING:
                self.stop("Nested too deeply", f"JSON may be nested {MAX_NESTING} deep at most.")
            node: JsonNode = self.object() if char == "{" else self.list()
            self.depth -= 1
            return node
        if char == '"':
            label = self.string()
            return JsonScalar(label.text, label.start, label.end)
        return self.scalar()

    def scalar(self) -> JsonScalar:
        start = self.at
        found = _WORD.match(self.text, start)
        if found:
            self.at = found.end()
            return JsonScalar(_WORDS[found[0]], start, self.at)
        found = _NUMBER.match(self.text, start)
        if found is None:
            self.stop("Invalid JSON value", "Expected a string, number, object, list, true, false or null here.")
        self.at = found.end()
        try:
            negative = found[0].startswith("-")
            number = parse_number(found[0].lstrip("-"))
        except ValueError as error:
            self.at = start
            self.stop("Invalid number", str(error))
        return JsonScalar(-number if negative else number, start, self.at)

    def string(self) -> Label:
        start = self.at
        found = _STRING.match(self.text, start)
        if found is None:
            self.stop(
                "Invalid JSON string",
                "A string stands between double quotes and holds no line end and no unknown escape.",
            )
        self.at = found.end()
        return Label(normalize(json.loads(found[0])), start, self.at)

    def object(self) -> JsonObject:
        start = self.at
        members: list[tuple[Label, JsonNode]] = []
        self.at += 1
        self.space()
        while self.text[self.at : self.at + 1] != "}":
            if members:
                self.expect(",", "Missing attribute separator", "A comma is required between two members of an object.")
            if self.text[self.at : self.at + 1] != '"':
                self.stop("Invalid object member name", "A JSON object member name must be a string.")
            label = self.string()
            self.space()
            self.expect(":", "Missing attribute value colon", "A colon is required between a name and its value.")
            members.append((label, self.value()))
            self.space()
        self.at += 1
        return JsonObject(tuple(members), start, self.at)

    def list(self) -> JsonArray:
        start = self.at
        items: list[JsonNode] = []
        self.at += 1
        self.space()
        while self.text[self.at : self.at + 1] != "]":
            if items:
                self.expect(",", "Missing item separator", "A comma is required between two elements of a list.")
            items.append(self.value())
            self.space()
        self.at += 1
        return JsonArray(tuple(items), start, self.at)

    def expect(self, char: str, summary: str, detail: str) -> None:
        if self.text[self.at : self.at + 1] != char:
            self.stop(summary, detail)
        self.at += 1
        self.space()


class _Shaper:
    """Converts JSON nodes to bodies and expressions."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.problems: list[OffsetDiagnostic] = []

    # Expressions.

    def expression(self, node: JsonNode) -> Expr:
        if isinstance(node, JsonObject):
            items = tuple(
                (self.string_expression(JsonScalar(label.text, label.start, label.end)), self.expression(value))
                for label, value in node.members
            )
            return ObjectOf(items, node.start, node.end)
        if isinstance(node, JsonArray):
            return TupleOf(tuple(self.expression(item) for item in node.items), node.start, node.end)
        if isinstance(node.value, str):
            return self.string_expression(node)
        return LiteralValue(node.value, node.start, node.end)

    def string_expression(self, node: JsonScalar) -> Expr:
        """A string as a template; its expressions have the position of the whole string."""
        text = str(node.value)
        if "${" not in text and "%{" not in text:
            return LiteralValue(text, node.start, node.end, True)
        tokens = tokenize_template(text)
        parser = ExpressionParser(text, tokens)
        try:
            expr = parse_template(parser)
        except SyntaxProblem as error:
            parser.problems.append(error.problem)
            expr = LiteralValue(text, node.start, node.end, True)
        for problem in all_problems(tokens, parser.problems):
            self.problems.append(problem._replace(start=node.start, end=node.end))
        return Embedded(expr, text, node.start, node.end)

    # Bodies.

    def body(self, node: JsonObject, schema: BlockSchema | None) -> Body:
        attributes: dict[str, AttributeNode] = {}
        blocks: list[BlockNode] = []
        for label, value in node.members:
            if label.text == _COMMENT:
                continue
            child = schema.blocks.get(label.text) if schema is not None else None
            if label.text == "dynamic" and schema is not None:
                blocks.extend(self.dynamic_blocks(label, value, schema))
            elif child is not None and (child.block or self.is_block(value)):
                blocks.extend(self.blocks(label, value, child))
            elif label.text in attributes:
                detail = f'The argument "{label.text}" was already set. Each argument may be set only once.'
                self.problems.append(OffsetDiagnostic("Attribute redefined", detail, label.start, label.end))
            else:
                attributes[label.text] = AttributeNode(
                    label.text, self.expression(value), label.start, label.end, value.end
                )
        return Body(tuple(attributes.values()), tuple(blocks), node.start, node.end)

    def is_block(self, node: JsonNode) -> bool:
        """Whether a map is written as a block: an object, or a list of one object."""
        return isinstance(node, JsonArray) and all(isinstance(item, JsonObject) for item in node.items)

    def blocks(self, label: Label, node: JsonNode, child: ChildBlock) -> Iterator[BlockNode]:
        schema = schema_of(child.block) if child.block else None
        for labels, content in self.labelled(node, len(schema.labels) if schema else 0, label.text):
            yield self.block(label, labels, content, schema)

    def block(
        self, label: Label, labels: tuple[Label, ...], content: JsonObject, schema: BlockSchema | None
    ) -> BlockNode:
        return BlockNode(label.text, labels, self.body(content, schema), content.start, label.start, content.end)

    def labelled(
        self, node: JsonNode, count: int, name: str, labels: tuple[Label, ...] = ()
    ) -> Iterator[tuple[tuple[Label, ...], JsonObject]]:
        """The objects under a block's name, with the enclosing keys as labels."""
        if isinstance(node, JsonArray):
            for item in node.items:
                yield from self.labelled(item, count, name, labels)
        elif isinstance(node, JsonScalar):
            if node.value is not None:
                detail = f'The block "{name}" is written as an object or as a list of objects.'
                self.problems.append(OffsetDiagnostic("Incorrect JSON value type", detail, node.start, node.end))
        elif count == 0:
            yield labels, node
        else:
            for label, value in node.members:
                if label.text != _COMMENT:
                    yield from self.labelled(value, count - 1, name, (*labels, label))

    def dynamic_blocks(self, label: Label, node: JsonNode, schema: BlockSchema) -> Iterator[BlockNode]:
        for labels, content in self.labelled(node, 1, "dynamic"):
            child = schema.blocks.get(labels[0].text)
            inner = schema_of(child.block) if child is not None and child.block else None
            arguments = tuple((key, value) for key, value in content.members if key.text != "content")
            body = self.body(JsonObject(arguments, content.start, content.end), None)
            generated = tuple(
                BlockNode("content", (), self.body(value, inner), value.start, key.start, value.end)
                for key, value in content.members
                if key.text == "content" and isinstance(value, JsonObject)
            )
            yield BlockNode("dynamic", labels, body._replace(blocks=generated), content.start, label.start, content.end)


def parse_json_job(source: SourceText) -> Body:
    """The body of a job file in JSON, with the same top-level blocks as native syntax."""
    shaper = _Shaper(source)
    root = read_json(source)
    blocks: list[BlockNode] = []
    attributes: list[AttributeNode] = []
    for label, value in root.members:
        if label.text == "job":
            blocks.extend(shaper.blocks(label, value, ChildBlock("", "blocks", "Job")))
        elif label.text == "variable":
            blocks.extend(
                _variable(shaper, label, labels, content) for labels, content in shaper.labelled(value, 1, "variable")
            )
        elif label.text in ("locals", "variables"):
            blocks.extend(
                shaper.block(label, labels, content, None) for labels, content in shaper.labelled(value, 0, label.text)
            )
        elif label.text != _COMMENT:
            attributes.append(AttributeNode(label.text, shaper.expression(value), label.start, label.end, value.end))
    _raise(source, shaper)
    return Body(tuple(attributes), tuple(blocks), 0, len(source.text))


def _variable(shaper: _Shaper, label: Label, labels: tuple[Label, ...], content: JsonObject) -> BlockNode:
    block = shaper.block(label, labels, content, None)
    attributes: list[AttributeNode] = []
    nested: list[BlockNode] = []
    for attribute, (key, value) in zip(
        block.body.attributes, (pair for pair in content.members if pair[0].text != _COMMENT), strict=False
    ):
        if attribute.name == "validation":
            nested.extend(
                shaper.block(key, found, inner, None) for found, inner in shaper.labelled(value, 0, "validation")
            )
        elif attribute.name == "type" and isinstance(value, JsonScalar) and isinstance(value.value, str):
            attributes.append(attribute._replace(value=_type_expression(shaper, value)))
        else:
            attributes.append(attribute)
    return block._replace(body=block.body._replace(attributes=tuple(attributes), blocks=tuple(nested)))


def _type_expression(shaper: _Shaper, node: JsonScalar) -> Expr:
    from .parser import parse_expression

    text = str(node.value)
    try:
        return parse_expression(SourceText(shaper.source.filename, text))
    except JobspecError:
        shaper.problems.append(
            OffsetDiagnostic("Invalid type specification", f'"{text}" is not a type.', node.start, node.end)
        )
        return LiteralValue("string", node.start, node.end, True)


def parse_json_body(source: SourceText) -> Body:
    """A JSON object as a body of arguments, as in variable files."""
    shaper = _Shaper(source)
    body = shaper.body(read_json(source), None)
    _raise(source, shaper)
    return body


def read_json(source: SourceText) -> JsonObject:
    """The file's root object; raises JobspecError."""
    check_size(source)
    return _JsonReader(source).file()


def _raise(source: SourceText, shaper: _Shaper) -> None:
    findings = Findings()
    findings.add_all(source, shaper.problems)
    findings.raise_errors()
