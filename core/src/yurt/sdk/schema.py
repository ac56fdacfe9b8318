"""The schema of a driver's `config` block, and the single place that checks and decodes such a block.

A schema says what a block may hold: attributes (type, required, default) and nested blocks (single, list, map with a
label). Nodes publish it with a digest, so that a server can refuse a misspelt option when a job is registered. The
same schema form serves Python structs and Nomad's hclspec.

Job files and the JSON API write the same thing in several ways, and all of them are equal here: a block and an
attribute of objects; one block and a list of one; "8080" and 8080, "true" and true. Before interpolation a string
that contains `${` may become any scalar, so it satisfies every scalar type; after it (`decode_config`) it does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import inspect

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, Value, parse_duration

TRUE_WORDS = ("true", "1")
FALSE_WORDS = ("false", "0")
SCALARS = ("string", "number", "bool")
DIGEST_BYTES = 16
SCHEMAS_MAX = 64
"""The number of types whose schemas are cached: drivers and device plugins have one each."""
SUGGESTION_CUTOFF = 0.6
HINTS_MAX = 10
"""Unknown options of a config block, its nested blocks included, that have a hint."""
NAME_COMPARED_MAX = 64
"""Characters of an unknown option that are compared with the known ones."""

BlockKind = Literal["single", "list", "map"]


class AttributeSpec(Value):
    """An option: `type` is string, number, bool, any, list(<type>) or map(<type>)."""

    name: str
    type: str = "string"
    required: bool = False
    default: Any = None


class BlockSpec(Value):
    """A nested block: `kind` is single, list, or map (one label names each)."""

    name: str
    body: Schema
    kind: BlockKind = "single"
    required: bool = False


class Schema(Value):
    """The options and blocks of a config block."""

    attributes: tuple[AttributeSpec, ...] = ()
    blocks: tuple[BlockSpec, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest that is equal for equal schemas, on every machine."""
        return hashlib.blake2b(msgspec.json.encode(self, order="sorted"), digest_size=DIGEST_BYTES).hexdigest()


class ConfigProblem(Value):
    """The problem of one option: where it is, and what to write instead."""

    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class OptionHints:
    """The hints of one check about unknown options: at most HINTS_MAX, because comparing names costs most of it."""

    def __init__(self) -> None:
        self._left = HINTS_MAX

    def hint(self, name: str, options: Sequence[str]) -> str:
        """The most similar option, or all of them; "" once the check has had its hints."""
        if self._left == 0:
            return ""
        self._left -= 1
        import difflib

        near = difflib.get_close_matches(name[:NAME_COMPARED_MAX], options, n=1, cutoff=SUGGESTION_CUTOFF)
        listing = "known options: " + ", ".join(sorted(options)) if options else "this block takes no options"
        return f'did you mean "{near[0]}"?' if near else listing


class Checked(Value):
    """A block in canonical form, and its problems."""

    value: Any = None
    problems: tuple[ConfigProblem, ...] = ()


# Cached: each start of a task decodes a block, and inspecting the type is a tenth of the agent's work for a start.
@lru_cache(SCHEMAS_MAX)
def schema_of(config_type: type[msgspec.Struct]) -> Schema:
    """The schema of a msgspec struct."""
    info = inspect.type_info(config_type)
    assert isinstance(info, inspect.StructType), config_type
    return struct_schema(info)


def struct_schema(info: inspect.StructType) -> Schema:
    """The schema of a struct: fields that are structs, or lists or maps of structs, are blocks, others attributes."""
    attributes: list[AttributeSpec] = []
    blocks: list[BlockSpec] = []
    for field in info.fields:
        block = block_kind(field.type)
        if block is not None:
            kind, body = block
            labels = ("name",) if kind == "map" else ()
            inner = msgspec.structs.replace(struct_schema(body), labels=labels)
            blocks.append(BlockSpec(name=field.encode_name, kind=kind, required=field.required, body=inner))
        else:
            default = None if field.required else default_of(field)
            attributes.append(
                AttributeSpec(
                    name=field.encode_name, type=attribute_type(field.type), required=field.required, default=default
                )
            )
    return Schema(attributes=tuple(attributes), blocks=tuple(blocks))


def default_of(field: inspect.Field) -> Any:
    """The default of an optional field, as plain data."""
    if field.default is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default)
    return msgspec.to_builtins(field.default_factory()) if callable(field.default_factory) else None


def without_none(info: inspect.Type) -> inspect.Type:
    """`X | None` as X."""
    if not isinstance(info, inspect.UnionType):
        return info
    others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
    return others[0] if len(others) == 1 else inspect.AnyType()


def item_of(info: inspect.Type) -> inspect.Type | None:
    """The item type of a list or of a tuple of any length."""
    return info.item_type if isinstance(info, inspect.ListType | inspect.VarTupleType) else None


def block_kind(info: inspect.Type) -> tuple[BlockKind, inspect.StructType] | None:
    """The kind and the type of a field that is a block; None for an attribute."""
    plain = without_none(info)
    item = item_of(plain)
    if isinstance(plain, inspect.StructType):
        return "single", plain
    if isinstance(item, inspect.StructType):
        return "list", item
    if isinstance(plain, inspect.DictType) and isinstance(plain.value_type, inspect.StructType):
        return "map", plain.value_type
    return None


def attribute_type(info: inspect.Type) -> str:
    """The name of an attribute's type."""
    plain = without_none(info)
    item = item_of(plain)
    if item is not None:
        return f"list({attribute_type(item)})"
    match plain:
        case inspect.StrType() | inspect.LiteralType() | inspect.EnumType():
            return "string"
        case inspect.BoolType():
            return "bool"
        case inspect.IntType() | inspect.FloatType():
            return "number"
        case inspect.DictType(value_type=value_type):
            return f"map({attribute_type(value_type)})"
        case _:
            return "any"


def check_config(schema: Schema, config: Mapping[str, Any]) -> list[ConfigProblem]:
    """All problems of a config block before interpolation."""
    return list(normalise(schema, config, path="config", is_final=False).problems)


C = TypeVar("C", bound=msgspec.Struct)


def decode_config(config_type: type[C], config: Mapping[str, Any]) -> C:
    """A config block after interpolation as the driver's struct; raises Invalid that lists every problem."""
    checked = normalise(schema_of(config_type), config, path="config", is_final=True)
    if checked.problems:
        raise Invalid("; ".join(map(str, checked.problems)))
    try:
        return msgspec.convert(checked.value, config_type)
    except msgspec.ValidationError as error:
        raise Invalid(f"config: {error}") from None


def normalise(
    schema: Schema, config: Mapping[str, Any], *, path: str, is_final: bool, hints: OptionHints | None = None
) -> Checked:
    """One block in canonical form: absent options omitted, values converted.

    `hints` are those of the block around it; None: it has its own.
    """
    hints = hints or OptionHints()
    attributes = {each.name: each for each in schema.attributes}
    blocks = {each.name: each for each in schema.blocks}
    options = (*attributes, *blocks)
    value: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for name, option in config.items():
        here = f"{path}.{name}"
        if option is None:
            continue
        if name in attributes:
            checked = convert(attributes[name].type, option, path=here, is_final=is_final)
        elif name in blocks:
            checked = normalise_block(blocks[name], option, path=here, is_final=is_final, hints=hints)
        else:
            checked = failed(here, "unknown option", hints.hint(name, options))
        problems += checked.problems
        if checked.value is not None:
            value[name] = checked.value
    required = {each.name for each in schema.attributes if each.required} | {
        each.name for each in schema.blocks if each.required
    }
    problems += [
        ConfigProblem(path=f"{path}.{name}", message="is required and missing", hint=f"add {name} = ...")
        for name in sorted(required)
        if config.get(name) is None
    ]
    return Checked(value=value, problems=tuple(problems))


def normalise_block(
    block: BlockSpec, content: Any, *, path: str, is_final: bool, hints: OptionHints | None = None
) -> Checked:
    """A nested block in canonical form; `hints` as in `normalise`."""
    hints = hints or OptionHints()
    bodies = content if isinstance(content, list | tuple) else [content]
    wrong = [body for body in bodies if not isinstance(body, Mapping)]
    if wrong:
        return failed(path, f"is a block, not {described(wrong[0])}", f"write {block.name} {{ ... }}")
    if block.kind == "map":
        labelled = [(label, body) for each in bodies for label, body in each.items()]
        return joined_map(
            labelled, path, lambda body, here: one_body(block, body, path=here, is_final=is_final, hints=hints)
        )
    parts = [
        normalise(
            block.body, body, path=path if len(bodies) == 1 else f"{path}[{index}]", is_final=is_final, hints=hints
        )
        for index, body in enumerate(bodies)
    ]
    problems = tuple(problem for part in parts for problem in part.problems)
    if block.kind == "list":
        return Checked(value=[part.value for part in parts], problems=problems)
    if len(parts) > 1:
        return failed(path, f"may be given once, not {len(parts)} times", "keep one of the blocks")
    return Checked(value=parts[0].value if parts else None, problems=problems)


def one_body(block: BlockSpec, body: Any, *, path: str, is_final: bool, hints: OptionHints | None = None) -> Checked:
    """The body behind one label: an object, or a list of one; `hints` as in `normalise`."""
    plain = body[0] if isinstance(body, list | tuple) and len(body) == 1 else body
    if not isinstance(plain, Mapping):
        return failed(path, f"is a block, not {described(plain)}", f'write {block.name} "<label>" {{ ... }}')
    return normalise(block.body, plain, path=path, is_final=is_final, hints=hints)


def convert(kind: str, value: Any, *, path: str, is_final: bool) -> Checked:
    """A value converted to the attribute's type."""
    if kind == "any":
        return Checked(value=value)
    if kind.startswith("list("):
        return convert_list(kind[5:-1], value, path=path, is_final=is_final)
    if kind.startswith("map("):
        return convert_map(kind[4:-1], value, path=path, is_final=is_final)
    if not is_final and isinstance(value, str) and "${" in value:
        return Checked(value=value)
    found = scalar(kind, value)
    if found is None:
        hint = f'"{value}" cannot be read as {a_type(kind)}' if isinstance(value, str) else f"write {EXAMPLES[kind]}"
        return failed(path, f"must be {a_type(kind)}, not {described(value)}", hint)
    return Checked(value=found)


EXAMPLES = {"string": 'text in quotes: "..."', "number": "a number: 10", "bool": "true or false"}


def scalar(kind: str, value: Any) -> str | int | float | bool | None:
    """A scalar after HCL's conversions; None when it is not a scalar."""
    match kind, value:
        case "string", str():
            return value
        case "string", bool():
            return "true" if value else "false"
        case "string", int() | float():
            return str(value)
        case "bool", bool():
            return value
        case "bool", str() if value.lower() in TRUE_WORDS:
            return True
        case "bool", str() if value.lower() in FALSE_WORDS:
            return False
        case "number", bool():
            return None
        case "number", int() | float():
            return int(value) if isinstance(value, float) and value.is_integer() else value
        case "number", str():
            return number(value)
        case _:
            return None


def number(text: str) -> int | float | None:
    """A decimal number written as text."""
    plain = text.strip()
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if value - value == 0 else None


def convert_list(item: str, value: Any, *, path: str, is_final: bool) -> Checked:
    """A list; a single object becomes a list of one."""
    if isinstance(value, Mapping) and (item.startswith("map(") or item == "any"):
        return convert_list(item, [value], path=path, is_final=is_final)
    if not isinstance(value, list | tuple):
        shown = f'["{value}"]' if isinstance(value, str) else "[...]"
        return failed(path, f"must be a list, not {described(value)}", f"write {shown}")
    parts = [convert(item, each, path=f"{path}[{index}]", is_final=is_final) for index, each in enumerate(value)]
    return Checked(
        value=[part.value for part in parts], problems=tuple(problem for part in parts for problem in part.problems)
    )


def convert_map(item: str, entries: Any, *, path: str, is_final: bool) -> Checked:
    """A map, from an object or from repeated blocks as a list of objects."""
    bodies = entries if isinstance(entries, list | tuple) else [entries]
    if not all(isinstance(body, Mapping) for body in bodies):
        return failed(path, f"must be a map, not {described(entries)}", "write { key = value }")
    pairs = [(key, value) for body in bodies for key, value in body.items()]
    return joined_map(pairs, path, lambda value, here: convert(item, value, path=here, is_final=is_final))


def joined_map(pairs: Sequence[tuple[str, Any]], path: str, each: Callable[[Any, str], Checked]) -> Checked:
    """A map from its entries; a duplicate key is a problem."""
    value: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for key, entry in pairs:
        here = f"{path}.{key}"
        if key in value:
            problems.append(ConfigProblem(path=here, message="is given twice", hint="keep one of the two"))
        checked = each(entry, here)
        value[key] = checked.value
        problems += checked.problems
    return Checked(value=value, problems=tuple(problems))


def duration_option(text: str, *, option: str) -> Duration:
    """A duration in an option, as Go writes it ("1m30s", "250ms"); raises Invalid that names the option by its path."""
    try:
        found = parse_duration(text)
    except ValueError:
        found = Duration(-1)
    if found < 0:
        raise Invalid(f'{option} = "{text[:64]}" is not a valid duration; write it as 250ms, 10s or 1m30s')
    return found


def failed(path: str, message: str, hint: str) -> Checked:
    """One problem without a value."""
    return Checked(problems=(ConfigProblem(path=path, message=message, hint=hint),))


def a_type(kind: str) -> str:
    """A type with its article."""
    return {"string": "a string", "number": "a number", "bool": "true or false"}.get(kind, kind)


def described(value: Any) -> str:
    """A description of an invalid value, for a message."""
    match value:
        case str():
            return "a string"
        case bool():
            return "a bool"
        case int() | float():
            return "a number"
        case Mapping():
            return "a block"
        case list() | tuple():
            return "a list"
        case None:
            return "null"
        case _:
            return type(value).__name__
