"""Options between hclspec and our schema, and configs as Go's side decodes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.goplugin.hclspec import (
    decode_options,
    encode_config,
    literal_of,
    schema_from_spec,
    shaped,
    spec_from_schema,
    struct_of,
    type_from_text,
)
from yurt.goplugin.messages import HCLSPEC, Message, message_class
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import AttributeSpec, BlockSpec, Schema, decode_config, schema_of

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
SCALAR = st.sampled_from(["string", "number", "bool", "any"])
TYPES = SCALAR | SCALAR.map(lambda kind: f"list({kind})") | st.just("list(map(string))") | st.just("list(map(number))")
DEFAULTS = {"string": st.text(min_size=1, max_size=9), "number": st.integers(1, 999), "bool": st.just(True)}


@st.composite
def attributes(draw: st.DrawFn, name: str) -> AttributeSpec:
    kind = draw(TYPES)
    is_required = draw(st.booleans())
    default = draw(st.none() | DEFAULTS[kind]) if kind in DEFAULTS and not is_required else None
    return AttributeSpec(name=name, type=kind, required=is_required, default=default)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Schema:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    cut = draw(st.integers(0, len(names))) if depth else len(names)
    blocks = []
    for name in sorted(names[cut:]):
        kind = draw(st.sampled_from(["single", "list", "map"]))
        body = draw(schemas(depth=depth - 1))
        labelled = msgspec.structs.replace(body, labels=("name",)) if kind == "map" else body
        is_required = kind != "map" and draw(st.booleans())
        blocks.append(BlockSpec(name=name, kind=kind, body=labelled, required=is_required))
    return Schema(attributes=tuple(draw(attributes(name)) for name in sorted(names[:cut])), blocks=tuple(blocks))


def attr(name: str, kind: str, *, required: bool = False) -> Message:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.Attr.name, spec.Attr.type, spec.Attr.required = name, kind, required
    return spec


def body(**entries: Message) -> Message:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.object.SetInParent()
    for name, entry in entries.items():
        spec.object.attributes[name].CopyFrom(entry)
    return spec


def wrapped(primary: Message, literal: str) -> Message:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.default.primary.CopyFrom(primary)
    spec.default.default.literal.value = literal
    return spec


@given(schemas())
def test_a_schema_survives_the_way_over_hclspec(schema: Schema) -> None:
    assert schema_from_spec(spec_from_schema(schema)) == schema


@given(schemas())
def test_the_struct_of_a_schema_has_that_schema(schema: Schema) -> None:
    assert schema_of(struct_of("options", schema)) == schema


@given(schemas())
def test_every_option_stands_in_the_msgpack(schema: Schema) -> None:
    spec = spec_from_schema(schema)
    names = {option.name for option in (*schema.attributes, *schema.blocks)}
    assert set(shaped(spec, {})) == names if not any(b.required for b in schema.blocks if b.kind == "list") else True


@given(st.text(max_size=30))
def test_no_type_is_unknown(text: str) -> None:
    assert type_from_text(text)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("list(map(string))", "list(map(string))"),
        ("set(number)", "list(number)"),
        ("map(list(string))", "map(list(string))"),
        ("object({a=string})", "any"),
        ("list(object({}))", "list(any)"),
    ],
)
def test_types_are_translated(text: str, ours: str) -> None:
    assert type_from_text(text) == ours


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"3m"', "3m"),
        ("true", True),
        ("100000", 100000),
        ("[]", []),
        ("{ container = true }", {"container": True}),
        ('{\n  image = true\n  image_delay = "3m"\n}', {"image": True, "image_delay": "3m"}),
        ("unix:///x", "unix:///x"),
    ],
)
def test_literals_are_read(text: str, value: Any) -> None:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.literal.value = text
    assert literal_of(spec) == value


def test_a_config_is_encoded_as_go_decodes_it() -> None:
    spec = body(
        command=attr("command", "string", required=True),
        args=attr("args", "list(string)"),
        retries=wrapped(attr("retries", "number"), "3"),
        words=attr("class", "string"),
    )
    options = struct_of("options", schema_from_spec(spec))
    decoded = decode_config(options, {"command": "ls", "retries": "5.0", "class": "x"})
    encoded = encode_config(spec, msgspec.to_builtins(decoded))
    assert msgspec.msgpack.decode(encoded) == {"command": "ls", "args": None, "retries": 5, "words": "x"}


def test_defaults_are_filled_in_at_any_depth() -> None:
    nested = message_class(f"{HCLSPEC}.Spec")()
    nested.block_value.name = "limits"
    nested.block_value.nested.CopyFrom(body(nofile=wrapped(attr("nofile", "number"), "1024")))
    spec = body(limits=nested)
    assert shaped(spec, {"limits": {}}) == {"limits": {"nofile": 1024}}
    assert shaped(spec, {}) == {"limits": None}


def test_a_block_that_is_absent_takes_its_default() -> None:
    gc = message_class(f"{HCLSPEC}.Spec")()
    gc.block_value.name = "gc"
    gc.block_value.nested.CopyFrom(body(container=attr("container", "bool"), delay=attr("delay", "string")))
    spec = body(gc=wrapped(gc, "{ container = true }"))
    assert shaped(spec, {}) == {"gc": {"container": True}}
    assert shaped(spec, {"gc": {"delay": "1m"}}) == {"gc": {"container": None, "delay": "1m"}}


def test_numbers_inside_lists_and_maps_are_as_whole_as_at_the_top() -> None:
    spec = body(port_map=attr("port_map", "list(map(number))"), weights=attr("weights", "list(number)"))
    options = struct_of("options", schema_from_spec(spec))
    decoded = decode_config(options, {"port_map": [{"http": 80}], "weights": [1, 1.5]})
    found = msgspec.msgpack.decode(encode_config(spec, msgspec.to_builtins(decoded)))
    assert repr(found) == "{'port_map': [{'http': 80}], 'weights': [1, 1.5]}"


def test_blocks_are_counted() -> None:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.object.attributes["mount"].block_list.name = "mount"
    spec.object.attributes["mount"].block_list.min_items = 1
    spec.object.attributes["mount"].block_list.max_items = 2
    spec.object.attributes["mount"].block_list.nested.CopyFrom(body(target=attr("target", "string")))
    assert shaped(spec, {"mount": [{"target": "/a"}]}) == {"mount": [{"target": "/a"}]}
    for count in (0, 3):
        with pytest.raises(Invalid, match=r"config\.mount"):
            shaped(spec, {"mount": [{}] * count})


def test_several_labels_nest() -> None:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.object.attributes["rule"].block_map.name = "rule"
    spec.object.attributes["rule"].block_map.labels.extend(["from", "to"])
    spec.object.attributes["rule"].block_map.nested.CopyFrom(body(port=attr("port", "number")))
    given_rule = {"rule": {"a": {"b": {"port": 1}}}}
    assert shaped(spec, given_rule) == given_rule
    assert schema_from_spec(spec).attributes[0].type == "any"


def test_a_host_that_sends_nulls_means_absent() -> None:
    data = msgspec.msgpack.encode({"command": "ls", "args": None, "limits": {"nofile": None}})
    assert decode_options(data) == {"command": "ls", "limits": {}}
    assert decode_options(b"") == {}


@pytest.mark.parametrize("data", [b"\xc1", b"\x93\x01", b"\x05"])
def test_what_is_no_config_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid):
        decode_options(data)
