"""Converts Nomad's hclspec to Yurt's schema and back, and a config to the msgpack that a plugin decodes.

A plugin describes its options by a tree: an object of attributes and blocks, each possibly wrapped in a default. The
key of an object's entry is the plugin's name of the option, the name inside is that of the job file; they are almost
always equal. The msgpack has every option of the tree, null when it was not given, because Go's decoder relies on the
shape.

Rules that hclspec can express and Yurt's schema cannot (numbers of blocks, several labels, tuples, constants) are
checked or filled in when the config is encoded.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from typing import Any

import msgspec

from yurt.goplugin.messages import HCLSPEC, Message, message_class
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import AttributeSpec, BlockSpec, Schema

MISSING: Any = msgspec.UNSET
TYPE_WORDS = ("string", "number", "bool", "any")
MANY_KINDS = ("block_list", "block_set")


def schema_from_spec(spec: Message) -> Schema:
    """The schema that corresponds to a spec."""
    attributes: list[AttributeSpec] = []
    blocks: list[BlockSpec] = []
    for part in parts_of(spec):
        add_part(part, attributes, blocks)
    return Schema(attributes=tuple(attributes), blocks=tuple(blocks))


def parts_of(spec: Message) -> list[Message]:
    """The specs of the options of one body, in the order of their names."""
    match spec.WhichOneof("block"):
        case "object":
            return [spec.object.attributes[key] for key in sorted(spec.object.attributes)]
        case "array":
            return list(spec.array.values)
        case "default":
            return parts_of(spec.default.primary)
        case "literal" | None:
            return []
        case _:
            return [spec]


def add_part(spec: Message, attributes: list[AttributeSpec], blocks: list[BlockSpec]) -> None:
    """One option as an attribute or a block."""
    default = None
    if spec.WhichOneof("block") == "default":
        default = literal_of(spec.default.default)
        spec = spec.default.primary
    match spec.WhichOneof("block"):
        case "Attr":
            attribute = spec.Attr
            is_required = attribute.required and default is None
            kind = type_from_text(attribute.type)
            attributes.append(AttributeSpec(name=attribute.name, type=kind, required=is_required, default=default))
        case "block_attrs":
            block = spec.block_attrs
            kind = f"map({type_from_text(block.type)})"
            attributes.append(AttributeSpec(name=block.name, type=kind, required=block.required, default=default))
        case "block_value":
            block = spec.block_value
            blocks.append(BlockSpec(name=block.name, body=schema_from_spec(block.nested), required=block.required))
        case "block_list" | "block_set" as kind:
            block = getattr(spec, kind)
            body = schema_from_spec(block.nested)
            blocks.append(BlockSpec(name=block.name, body=body, kind="list", required=block.min_items > 0))
        case "block_map":
            block = spec.block_map
            body = msgspec.structs.replace(schema_from_spec(block.nested), labels=tuple(block.labels) or ("name",))
            if len(block.labels) > 1:
                attributes.append(AttributeSpec(name=block.name, type="any"))
            else:
                blocks.append(BlockSpec(name=block.name, body=body, kind="map"))
        case "object" | "array":
            for part in parts_of(spec):
                add_part(part, attributes, blocks)
        case _:
            return


def type_from_text(text: str) -> str:
    """A type as hclspec writes it (`list(map(string))`, `set(number)`, `tuple(...)`) as one of ours."""
    plain = text.replace(" ", "")
    if plain in TYPE_WORDS:
        return plain
    for outer, ours in (("list(", "list"), ("set(", "list"), ("map(", "map")):
        if plain.startswith(outer) and plain.endswith(")"):
            return f"{ours}({type_from_text(plain[len(outer) : -1])})"
    return "any"


def literal_of(spec: Message) -> Any:
    """The value of a literal, whose text is an HCL expression (`{ container = true }`); most are valid JSON."""
    if spec.WhichOneof("block") != "literal":
        return None
    text: str = spec.literal.value
    try:
        return json.loads(text)
    except ValueError:
        return expression_of(text)


def expression_of(text: str) -> Any:
    """The value of an HCL expression; the text itself when it does not parse."""
    from yurt_jobspec import JobspecError, parse_body

    try:
        return parse_body(f"value = {text}\n", filename="default")["value"]
    except JobspecError:
        return text


def struct_of(name: str, schema: Schema) -> type[msgspec.Struct]:
    """A msgspec struct with exactly the options of a schema; an option that is not given is left out of its value."""
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    options: list[AttributeSpec | BlockSpec] = [*schema.attributes, *schema.blocks]
    for position, option in enumerate(options):
        is_plain = option.name.isidentifier() and not keyword.iskeyword(option.name) and not option.name.startswith("_")
        field = option.name if is_plain else f"option_{position}"
        names[field] = option.name
        kind = (
            attribute_type(option.type) if isinstance(option, AttributeSpec) else block_type(f"{name}_{field}", option)
        )
        default = option.default if isinstance(option, AttributeSpec) else None
        if option.required:
            fields.append((field, kind, msgspec.NODEFAULT))
        elif default is None:
            fields.append((field, kind | None if kind is not Any else Any, None))
        else:
            fields.append((field, kind, default_field(default)))
    made = msgspec.defstruct(
        name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=names
    )
    return made


def default_field(default: Any) -> Any:
    """A default value; a list or a map is created for each use."""
    if isinstance(default, list | dict):
        return msgspec.field(default_factory=lambda: json.loads(json.dumps(default)))
    return default


def attribute_type(kind: str) -> Any:
    """The Python type of an attribute."""
    if kind.startswith("list("):
        return list[attribute_type(kind[5:-1])]  # type: ignore[misc]
    if kind.startswith("map("):
        return dict[str, attribute_type(kind[4:-1])]  # type: ignore[misc]
    return {"string": str, "number": float, "bool": bool}.get(kind, Any)


def block_type(name: str, block: BlockSpec) -> Any:
    """The Python type of a block."""
    body = struct_of(name, block.body)
    match block.kind:
        case "list":
            return list[body]  # type: ignore[valid-type]
        case "map":
            return dict[str, body]  # type: ignore[valid-type]
        case _:
            return body


def encode_config(spec: Message, config: Mapping[str, Any]) -> bytes:
    """A checked config (canonical form, by the names of the job file) as msgpack; raises Invalid for a wrong count."""
    return msgspec.msgpack.encode(shaped(spec, config))


def shaped(spec: Message, config: Mapping[str, Any]) -> Any:
    """A config in the shape of its spec: every option present, defaults filled in."""
    match spec.WhichOneof("block"):
        case "object":
            return {key: shaped(part, config) for key, part in sorted(spec.object.attributes.items())}
        case "array":
            return [shaped(part, config) for part in spec.array.values]
        case "default":
            found = shaped(spec.default.primary, config)
            return shaped(spec.default.default, config) if found is None else found
        case "literal":
            return literal_of(spec)
        case "Attr":
            return exact(config.get(spec.Attr.name))
        case "block_attrs":
            return exact(config.get(spec.block_attrs.name))
        case "block_value":
            body = config.get(spec.block_value.name)
            return None if body is None else shaped(spec.block_value.nested, body)
        case "block_list" | "block_set" as kind:
            return shaped_list(getattr(spec, kind), config)
        case "block_map":
            block = spec.block_map
            return shaped_map(block.nested, config.get(block.name) or {}, depth=max(1, len(block.labels)))
        case _:
            return None


def exact(value: Any) -> Any:
    """Numbers without a fraction as integers, at any depth, as Go's side writes them."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [exact(each) for each in value]
        case dict():
            return {name: exact(each) for name, each in value.items()}
    return value


def shaped_list(block: Message, config: Mapping[str, Any]) -> list[Any]:
    """Repeated blocks."""
    bodies = config.get(block.name) or []
    if len(bodies) < block.min_items:
        raise Invalid(f"config.{block.name}: {block.min_items} blocks at least are needed, there are {len(bodies)}")
    if block.max_items and len(bodies) > block.max_items:
        raise Invalid(f"config.{block.name}: {block.max_items} blocks at most are allowed, there are {len(bodies)}")
    return [shaped(block.nested, body) for body in bodies]


def shaped_map(nested: Message, bodies: Any, *, depth: int) -> dict[str, Any]:
    """Labelled blocks, as deep as there are labels."""
    if depth == 1:
        return {label: shaped(nested, body) for label, body in bodies.items()}
    return {label: shaped_map(nested, body, depth=depth - 1) for label, body in bodies.items()}


def spec_from_schema(schema: Schema) -> Message:
    """The spec of a schema, for a host that is not ours."""
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.object.SetInParent()
    for attribute in schema.attributes:
        fill_attribute(spec.object.attributes[attribute.name], attribute)
    for block in schema.blocks:
        entry = spec.object.attributes[block.name]
        nested = spec_from_schema(block.body)
        match block.kind:
            case "list":
                entry.block_list.name = block.name
                entry.block_list.min_items = int(block.required)
                entry.block_list.nested.CopyFrom(nested)
            case "map":
                entry.block_map.name = block.name
                entry.block_map.labels.extend(block.body.labels or ("name",))
                entry.block_map.nested.CopyFrom(nested)
            case _:
                entry.block_value.name = block.name
                entry.block_value.required = block.required
                entry.block_value.nested.CopyFrom(nested)
    return spec


def fill_attribute(entry: Message, attribute: AttributeSpec) -> None:
    """An attribute; maps are written as repeated blocks in job files, so a map of scalars is a list of maps there."""
    kind = "list(" + attribute.type + ")" if attribute.type.startswith("map(") else attribute.type
    default = attribute.default
    target = entry.default.primary if default not in (None, "", 0, False, [], {}) else entry
    target.Attr.name = attribute.name
    target.Attr.type = kind
    target.Attr.required = attribute.required
    if target is not entry:
        literal = [default] if kind != attribute.type and isinstance(default, dict) else default
        entry.default.default.literal.value = json.dumps(literal)


def decode_options(data: bytes) -> dict[str, Any]:
    """Decode a config in msgpack for validation; null values and empty blocks count as unset."""
    try:
        found = msgspec.msgpack.decode(data) if data else {}
    except msgspec.DecodeError as error:
        raise Invalid(f"the config is not valid msgpack: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Invalid("the config must be a map of options")
    return {name: without_null(value) for name, value in found.items() if value is not None}


def without_null(value: Any) -> Any:
    """A copy without null values in maps, at any depth."""
    if isinstance(value, dict):
        return {name: without_null(each) for name, each in value.items() if each is not None}
    return [without_null(each) for each in value] if isinstance(value, list) else value
