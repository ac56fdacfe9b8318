"""Converts bodies to API objects, as the tables in `schema` prescribe.

One method decodes any block: it starts from the zero values, converts each argument to its kind, decodes nested
blocks into lists, single objects or maps, and lets `block_rules` apply the rules that a table cannot say. Findings are
collected, so one bad argument does not hide the next; an argument that has no value is left at its zero.

A JSON file has no blocks of its own, only objects; `jsonsyntax` gives them a body's shape with the help of the same
tables, so nothing here knows which syntax a file was written in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import block_rules
from .budget import BudgetExhausted
from .diagnostics import EvaluationError, Near, OffsetDiagnostic, SourceText, fail
from .durations import parse_duration
from .evaluator import Evaluator, NameScope
from .findings import Findings
from .plain_data import to_driver_config
from .schema import ApiObject, BlockSchema, ChildBlock, Field, homes, schema_of
from .suggestions import entry_hint, map_hint, unknown_hint, value_hint
from .syntax.nodes import AttributeNode, BlockNode, Body, Expr, Label, LiteralValue, RootVariable, place
from .values import ConversionError, Value, convert, entries_of, is_null, pairs_of, type_name, type_of

_BITS = {
    "int": (-(2**63), 2**63 - 1),
    "uint": (0, 2**64 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "uint16": (0, 65535),
    "uint32": (0, 2**32 - 1),
}
_TOLD = _BITS | {"int8": (-100, 100)}
"""The bounds that errors name: an int8 is a weight, of which servers take only these."""
_SIZE_DIGITS_MAX = 15
_MAPS = frozenset(("map", "multimap", "free"))
_ONCE = _MAPS | {"block"}
"""Kinds of blocks that may stand in a body once."""


class Placed(NamedTuple):
    """A block to decode, with the names in scope."""

    block: BlockNode
    scope: NameScope


class Decoder:
    """Decodes the bodies of one file; with `with_marks`, `marks` records the position of each object and field."""

    def __init__(
        self, source: SourceText, evaluator: Evaluator, *, findings: Findings | None = None, with_marks: bool = False
    ) -> None:
        self.source = source
        self.evaluator = evaluator
        self.findings = findings or Findings()
        self.marks: dict[int, dict[str | None, tuple[int, int]]] | None = {} if with_marks else None
        self.owner: dict[str, Any] = {}
        self.damaged: dict[int, ApiObject] = {}
        """The objects of which something could not be read, by identity: while they are here no other object has it."""

    # Findings and marks.

    def report(self, summary: str, detail: str, start: int, end: int, *, hint: str | Near | None = None) -> None:
        self.damaged[id(self.owner)] = self.owner
        self.findings.add(self.source, OffsetDiagnostic(summary, detail, start, end, hint))

    def record(self, error: EvaluationError) -> None:
        """Record the problems of a failed evaluation; an exhausted budget ends the decoding."""
        self.damaged[id(self.owner)] = self.owner
        self.findings.add_all(self.source, error.problems)
        if isinstance(error, BudgetExhausted):
            raise error

    def mark(self, owner: ApiObject, key: str | None, start: int, end: int) -> None:
        if self.marks is not None:
            self.marks.setdefault(id(owner), {})[key] = (start, end)

    def charge(self, elements: int) -> None:
        self.evaluator.budget.charge(elements, _NOWHERE)

    # Blocks.

    def decode(self, placed: Placed, schema: BlockSchema) -> ApiObject:
        """A block as an API object."""
        block = placed.block
        result: ApiObject = dict(schema.zeros)
        for field, label in zip(schema.labels, block.labels, strict=False):
            result[field] = label.text
        if self.marks is not None:
            self.mark_head(block, schema, result)
        outer, self.owner = self.owner, result
        try:
            self.body(block.body, schema, placed.scope, result)
            block_rules.apply(self, schema.name, result, block)
        finally:
            self.owner = outer
        return result

    def mark_head(self, block: BlockNode, schema: BlockSchema, result: ApiObject) -> None:
        for field, label in zip(schema.labels, block.labels, strict=False):
            self.mark(result, field, label.start, label.end)
        self.mark(result, None, block.start, block.labels[-1].end if block.labels else block.name_end)

    def body(self, body: Body, schema: BlockSchema, scope: NameScope, result: ApiObject) -> None:
        fields = schema.attributes
        for attribute in body.attributes:
            field = fields.get(attribute.name)
            if field is not None:
                self.argument(attribute, field, scope, result)
            else:
                self.other_argument(attribute, schema, scope, result)
        for name in schema.required:
            if not any(attribute.name == name for attribute in body.attributes):
                detail = f'The argument "{name}" is required, but no definition was found.'
                self.report("Missing required argument", detail, body.missing, body.missing)
        if body.blocks:
            self.blocks(body.blocks, schema, scope, result)

    def blocks(self, blocks: tuple[BlockNode, ...], schema: BlockSchema, scope: NameScope, result: ApiObject) -> None:
        seen: dict[str, BlockNode] = {}
        for placed in self.expanded(blocks, scope):
            child = schema.blocks.get(placed.block.type)
            if child is None:
                self.unknown_block(placed.block, schema)
            else:
                self.nested(placed, child, seen, result)

    def nested(self, placed: Placed, child: ChildBlock, seen: dict[str, BlockNode], result: ApiObject) -> None:
        block = placed.block
        if child.kind in _ONCE:
            if block.type in seen:
                line = self.source.position(seen[block.type].start)[0]
                detail = f"Only one {block.type} block is allowed. Another was defined on line {line}."
                hint = f"Put all of it into one {block.type} block."
                self.report(f"Duplicate {block.type} block", detail, block.start, block.name_end, hint=hint)
                return
            seen[block.type] = block
        if child.kind in _MAPS:
            if self.labels_fit(block, ()):
                self.mark(result, child.field, block.start, block.name_end)
                result[child.field] = self.map_block(placed, child.kind)
            return
        schema = schema_of(child.block)
        if not self.labels_fit(block, schema.labels):
            return
        value = self.decode(placed, schema)
        if child.kind == "block":
            result[child.field] = value
        elif child.kind == "blocks":
            result.setdefault(child.field, []).append(value)
        else:
            result.setdefault(child.field, {})[block.labels[0].text] = value

    def labels_fit(self, block: BlockNode, expected: tuple[str, ...]) -> bool:
        if len(block.labels) == len(expected):
            return True
        names = ", ".join(field.strip("-").lower() for field in expected) or "none"
        if len(block.labels) > len(expected):
            extra = block.labels[len(expected)]
            detail = f"Only {len(expected)} labels ({names}) are expected for {block.type} blocks."
            if not expected:
                detail = f"No labels are expected for {block.type} blocks."
            self.report(f"Extraneous label for {block.type}", detail, extra.start, extra.end)
            return False
        detail = f"All {block.type} blocks must have {len(expected)} label{'s' if len(expected) > 1 else ''} ({names})."
        hint = f'Write {block.type} "name" {{ ... }}.'
        if block.is_generated:
            hint = f'Write labels = ["name"] in the dynamic "{block.type}" block, before content.'
        self.report(f"Missing name for {block.type}", detail, block.open, block.open + 1, hint=hint)
        return False

    def unknown_block(self, block: BlockNode, schema: BlockSchema) -> None:
        if block.type in schema.attributes:
            hint: str | Near = f'Did you mean the argument "{block.type}"? Write it with an equals sign.'
        else:
            hint = unknown_hint(block.type, (*schema.blocks, *schema.attributes), homes().get(block.type, ()))
        detail = f'Blocks of type "{block.type}" are not expected here.'
        self.report("Unsupported block type", detail, block.start, block.name_end, hint=hint)

    # Dynamic blocks.

    def expanded(self, blocks: tuple[BlockNode, ...], scope: NameScope) -> Iterator[Placed]:
        """The blocks of a body, with each dynamic block replaced by the blocks it generates."""
        for block in blocks:
            if block.type != "dynamic":
                yield Placed(block, scope)
                continue
            try:
                yield from self.dynamic(block, scope)
            except EvaluationError as error:
                self.record(error)

    def dynamic(self, block: BlockNode, scope: NameScope) -> Iterator[Placed]:
        if not self.labels_fit(block, ("type",)):
            return
        arguments = {attribute.name: attribute for attribute in block.body.attributes}
        for name in arguments.keys() - {"for_each", "iterator", "labels"}:
            attribute = arguments[name]
            detail = f'A dynamic block has for_each, iterator, labels and content, but no "{name}".'
            self.report("Unsupported argument", detail, attribute.start, attribute.name_end)
        if "for_each" not in arguments:
            missing = block.body.missing
            detail = 'The argument "for_each" is required, but no definition was found.'
            raise fail("Missing required argument", detail, missing, missing)
        content = self.dynamic_content(block)
        iterator = self.dynamic_iterator(block, arguments)
        each = arguments["for_each"].value
        for key, value in self.dynamic_items(each, scope):
            self.evaluator.budget.charge(1, each)
            inner = NameScope({iterator: {"key": key, "value": value}}, scope)
            labels = self.dynamic_labels(arguments.get("labels"), inner)
            yield Placed(
                content._replace(type=block.labels[0].text, labels=labels, start=block.start, is_generated=True), inner
            )

    def dynamic_content(self, block: BlockNode) -> BlockNode:
        contents = [item for item in block.body.blocks if item.type == "content"]
        if len(contents) != 1 or len(block.body.blocks) != 1:
            wrong = next((item for item in block.body.blocks if item.type != "content"), None) or (
                contents[1] if contents else block
            )
            detail = 'A dynamic block needs exactly one nested block, "content", which describes each generated block.'
            raise fail("Invalid dynamic block", detail, wrong.start, wrong.name_end)
        return contents[0]

    def dynamic_iterator(self, block: BlockNode, arguments: dict[str, AttributeNode]) -> str:
        attribute = arguments.get("iterator")
        if attribute is None:
            return block.labels[0].text
        name = getattr(attribute.value, "name", None) or getattr(attribute.value, "value", None)
        if not isinstance(name, str):
            detail = "The iterator of a dynamic block is a bare name."
            raise fail("Invalid dynamic block", detail, attribute.value.start, attribute.value.end)
        return name

    def dynamic_items(self, each: Expr, scope: NameScope) -> Iterator[tuple[Value, Value]]:
        value = self.evaluator.evaluate(each, scope)
        pairs = pairs_of(value)
        if pairs is None:
            what = "a null value" if is_null(value) else f"a value of type {type_name(type_of(value))}"
            detail = f"Cannot use {what} in for_each. An iterable collection is required."
            raise fail("Invalid dynamic for_each value", detail, *place(each))
        return pairs

    def dynamic_labels(self, attribute: AttributeNode | None, scope: NameScope) -> tuple[Label, ...]:
        if attribute is None:
            return ()
        node = attribute.value
        try:
            labels = convert(self.evaluator.evaluate(node, scope), ("list", "string"))
        except ConversionError as error:
            raise fail(
                "Invalid dynamic block", f"The labels must be a list of strings: {error}.", node.start, node.end
            ) from None
        return tuple(Label(str(text), node.start, node.end) for text in (() if is_null(labels) else labels.items))

    # Arguments.

    def argument(self, attribute: AttributeNode, field: Field, scope: NameScope, result: ApiObject) -> None:
        node = attribute.value
        try:
            value = node.value if type(node) is LiteralValue else self.evaluator.evaluate(node, scope)
        except EvaluationError as error:
            self.record(error)
            return
        if is_null(value):
            if not field.nullable:
                self.report("Unsuitable value type", _NO_NULL, *place(node), hint=_NULL_HINT)
            return
        if type(node) is RootVariable and value == "${" + node.name + "}":
            self.warn_of_bare_word(node)
        if type(value) is _AS_IS.get(field.kind):
            result[field.field] = value
        else:
            try:
                result[field.field] = _KINDS[field.kind](value)
            except ConversionError as error:
                hint = value_hint(attribute.name, field.kind, value) if type(node) is LiteralValue else None
                self.report("Unsuitable value type", f"Unsuitable value: {error}", *place(node), hint=hint)
        if self.marks is not None:
            self.mark(result, field.field, attribute.start, attribute.end)

    def warn_of_bare_word(self, node: RootVariable) -> None:
        """Warn of `driver = docker`: a reference that only the node resolves, usually a missing quote."""
        detail = f'There is no variable {node.name} here; the value is the text "${{{node.name}}}".'
        hint = f'Write "{node.name}" if the word itself is meant.'
        problem = OffsetDiagnostic("Word without quotes", detail, node.start, node.end, hint)
        self.findings.add(self.source, problem, "warning")

    def other_argument(
        self, attribute: AttributeNode, schema: BlockSchema, scope: NameScope, result: ApiObject
    ) -> None:
        child = schema.blocks.get(attribute.name)
        if child is not None and child.kind in _MAPS:
            self.map_argument(attribute, child, scope, result)
            return
        if child is not None:
            hint: str | Near = (
                f'Did you mean to define a block of type "{attribute.name}"? Write it without the equals sign.'
            )
        else:
            names = (*schema.attributes, *schema.blocks)
            hint = unknown_hint(attribute.name, names, homes().get(attribute.name, ()))
        detail = f'An argument named "{attribute.name}" is not expected here.'
        self.report("Unsupported argument", detail, attribute.start, attribute.name_end, hint=hint)

    # Maps.

    def map_argument(self, attribute: AttributeNode, child: ChildBlock, scope: NameScope, result: ApiObject) -> None:
        """The argument form of a block, as in `meta = { ... }`."""
        try:
            value = self.evaluator.evaluate(attribute.value, scope)
        except EvaluationError as error:
            self.record(error)
            return
        if is_null(value):
            return
        entries = entries_of(value)
        self.mark(result, child.field, attribute.start, attribute.end)
        if entries is None:
            detail = f"Unsuitable value: a map is required, but have {type_name(type_of(value))}"
            self.report("Unsuitable value type", detail, *place(attribute.value), hint=map_hint(attribute.name))
            return
        target: ApiObject = {}
        for key, item in entries.items():
            self.entry(target, key, item, child.kind, attribute)
        result[child.field] = target

    def map_block(self, placed: Placed, kind: str) -> ApiObject:
        target: ApiObject = {}
        self.mark(target, None, placed.block.start, placed.block.name_end)
        for attribute in placed.block.body.attributes:
            try:
                value = self.evaluator.evaluate(attribute.value, placed.scope)
            except EvaluationError as error:
                self.record(error)
                continue
            self.entry(target, attribute.name, value, kind, attribute)
        for inner in placed.block.body.blocks:
            if kind == "free":
                self.free_block(target, Placed(inner, placed.scope))
            else:
                detail = f'Blocks of type "{inner.type}" are not expected here.'
                self.report("Unsupported block type", detail, inner.start, inner.name_end)
        return target

    def free_block(self, target: ApiObject, placed: Placed) -> None:
        """A block inside a free-form block; its labels become nested keys."""
        block = placed.block
        content: ApiObject = self.map_block(placed, "free")
        for label in reversed(block.labels):
            content = {label.text: [content]}
            self.mark(content, None, label.start, label.end)
        contents = target.setdefault(block.type, [])
        if not isinstance(contents, list):
            detail = f'"{block.type}" is set both as an argument and as a block.'
            self.report("Duplicate name", detail, block.start, block.name_end)
            return
        contents.append(content)

    def entry(self, target: ApiObject, key: str, value: Value, kind: str, attribute: AttributeNode) -> None:
        """One entry of a map, converted to the map's kind; null entries of untyped maps are dropped."""
        if is_null(value):
            if kind != "free":
                self.report("Unsuitable value type", _NO_NULL, *place(attribute.value), hint=_NULL_HINT)
            return
        if self.marks is not None:
            self.mark(target, key, attribute.start, attribute.end)
        if type(value) is str and kind != "multimap":
            target[key] = value
            return
        try:
            if kind == "free":
                target[key] = to_driver_config(value, self.charge)
            elif kind == "multimap":
                target[key] = _strings(value)
            else:
                target[key] = convert(value, "string")
        except ConversionError as error:
            hint = None if kind == "free" else entry_hint(key)
            self.report("Unsuitable value type", f"Unsuitable value: {error}", *place(attribute.value), hint=hint)


def _whole(kind: str) -> Any:
    low, high = _BITS[kind]

    def read(value: Value) -> int:
        number = value if type(value) is int else convert(value, "number")
        if number == 0:
            return 0
        if not isinstance(number, int) or not low <= number <= high:
            raise ConversionError(f"value must be a whole number, between {_TOLD[kind][0]} and {_TOLD[kind][1]}")
        return number

    return read


def _duration(value: Value) -> int:
    if type(value) is not str:
        return int(_whole("int")(value))
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConversionError(str(error)) from None


def _durations(value: Value) -> list[int]:
    """Durations of a list of texts: ["30m", "50m"]."""
    return [_duration(item) for item in _strings(value)]


def _count(value: Value) -> int | str:
    """A whole number, or "all"."""
    return "all" if value == "all" else int(_whole("uint")(value))


_SIZES = {"": 1, "MiB": 1, "GiB": 2**10, "TiB": 2**20, "MB": 10**6 / 2**20, "GB": 10**9 / 2**20, "TB": 10**12 / 2**20}


def _size(value: Value) -> int:
    """A size in MiB, from a number or a text with a unit: 512, "20GiB"."""
    if type(value) is not str:
        return int(_whole("uint")(value))
    text = value.strip()
    number = text.rstrip("BGMTi").rstrip()
    unit = text[len(number) :].strip()
    if not number.isdigit() or len(number) > _SIZE_DIGITS_MAX or unit not in _SIZES:
        raise ConversionError('a size is a number of MiB or a text like "512MiB", "20GiB" or "20GB"')
    return math.ceil(int(number) * _SIZES[unit])


def _strings(value: Value) -> list[str]:
    if type(value) is tuple and all(type(item) is str for item in value):
        return list(value)
    items: list[str] = list(convert(value, ("list", "string")).items)
    _check_elements(items)
    return items


def _check_elements(items: Iterable[Value]) -> None:
    for index, item in enumerate(items):
        if is_null(item):
            raise ConversionError(f"element {index} is null, and a null value is not allowed")


def _integers(value: Value) -> list[int]:
    read = _whole("uint16")
    items = convert(value, ("list", "number")).items
    _check_elements(items)
    return [read(item) for item in items]


_AS_IS = {"string": str, "bool": bool}
"""Kinds whose values need no conversion when they have this type, as nearly all have."""

_KINDS: ApiObject = {
    "string": lambda value: convert(value, "string"),
    "bool": lambda value: convert(value, "bool"),
    "duration": _duration,
    "durations": _durations,
    "strings": _strings,
    "ints": _integers,
    "count": _count,
    "size": _size,
    **{kind: _whole(kind) for kind in _BITS},
}
_NOWHERE = LiteralValue(None, 0, 0)
_NO_NULL = "Unsuitable value: null value is not allowed"
_NULL_HINT = 'Leave it out, or give it another value where a condition decides: var.x == null ? "" : var.x.'
