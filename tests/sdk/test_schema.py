"""Option schemas: made from a driver's struct, and checked against config blocks however they are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import (
    HINTS_MAX,
    NAME_COMPARED_MAX,
    AttributeSpec,
    BlockSpec,
    ConfigProblem,
    Schema,
    check_config,
    decode_config,
    duration_option,
    normalise,
    schema_of,
)


class Mount(msgspec.Struct, forbid_unknown_fields=True):
    target: str
    readonly: bool = False


class Options(msgspec.Struct, forbid_unknown_fields=True):
    image: str
    args: list[str] = []
    port: int = 0
    privileged: bool = False
    grace: str = "5s"
    labels: dict[str, str] = {}
    port_map: list[dict[str, int]] = []
    mount: list[Mount] = []
    logging: Mount | None = None
    volume: dict[str, Mount] = {}


SCHEMA = schema_of(Options)


def problems(**config: Any) -> list[ConfigProblem]:
    return check_config(SCHEMA, {"image": "redis", **config})


def decoded(**config: Any) -> Options:
    return decode_config(Options, {"image": "redis", **config})


def test_a_struct_becomes_attributes_and_blocks() -> None:
    assert SCHEMA.attributes[:4] == (
        AttributeSpec(name="image", required=True),
        AttributeSpec(name="args", type="list(string)", default=[]),
        AttributeSpec(name="port", type="number", default=0),
        AttributeSpec(name="privileged", type="bool", default=False),
    )
    assert [(block.name, block.kind, block.body.labels) for block in SCHEMA.blocks] == [
        ("mount", "list", ()), ("logging", "single", ()), ("volume", "map", ("name",)),
    ]  # fmt: skip


def test_a_type_is_inspected_once() -> None:
    class Config(msgspec.Struct):
        command: str = ""

    first = schema_of(Config)
    decode_config(Config, {"command": "true"})
    assert schema_of(Config) is first


def test_equal_schemas_have_equal_digests_and_others_do_not() -> None:
    assert schema_of(Options).digest == SCHEMA.digest
    assert schema_of(Mount).digest != SCHEMA.digest


def test_a_schema_survives_the_wire() -> None:
    stored = msgspec.json.encode(msgspec.to_builtins(SCHEMA))
    assert msgspec.json.decode(stored, type=Schema).digest == SCHEMA.digest


def test_a_misspelt_option_is_named_with_the_one_that_was_meant() -> None:
    (problem,) = problems(privleged=True)
    assert str(problem) == 'config.privleged: unknown option (did you mean "privileged"?)'


def test_an_option_like_no_other_gets_the_list_of_all() -> None:
    (problem,) = problems(zzz=1)
    assert "args, grace, image" in problem.hint


def test_a_hint_is_looked_for_a_few_times_in_a_block_of_unknown_options(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr("difflib.get_close_matches", lambda name, *_, **__: compared.append(name) or [])
    config = {"image": "x"} | {f"option{number}" * 20: "x" for number in range(1_000)}
    problems = check_config(SCHEMA, config)
    assert len(problems) == 1_000 and sum(bool(problem.hint) for problem in problems) == HINTS_MAX
    assert len(compared) == HINTS_MAX and max(map(len, compared)) <= NAME_COMPARED_MAX


def test_nested_blocks_share_the_hints_of_the_config_block() -> None:
    mounts = [{"target": "/a", f"tarjet{number}": "/b"} for number in range(HINTS_MAX + 5)]
    found = problems(mount=mounts)
    assert len(found) == len(mounts) and sum(bool(problem.hint) for problem in found) == HINTS_MAX


def test_an_unknown_option_is_a_problem_like_any_other() -> None:
    schema = Schema(attributes=(AttributeSpec(name="image"),))
    expected = ConfigProblem(path="config.imge", message="unknown option", hint='did you mean "image"?')
    (found,) = check_config(schema, {"imge": "x"})
    assert found == expected and type(found) is ConfigProblem
    assert msgspec.to_builtins(found).keys() == {"Path", "Message", "Hint"}
    assert normalise(schema, {"imge": "x"}, path="config", is_final=False).problems == (expected,)


def test_a_missing_option_is_named() -> None:
    (problem,) = check_config(SCHEMA, {"image": None})
    assert (problem.path, problem.message) == ("config.image", "is required and missing")


def test_a_problem_inside_a_block_names_its_place() -> None:
    found = problems(mount=[{"target": "/a"}, {"tarjet": "/b"}])
    assert {problem.path for problem in found} == {"config.mount[1].tarjet", "config.mount[1].target"}


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"port": "many"}, "config.port"),
        ({"port": True}, "config.port"),
        ({"privileged": "maybe"}, "config.privileged"),
        ({"privileged": 1}, "config.privileged"),
        ({"args": "one"}, "config.args"),
        ({"args": [["one"]]}, "config.args[0]"),
        ({"image": {"name": "redis"}}, "config.image"),
        ({"labels": "a=b"}, "config.labels"),
        ({"port_map": {"web": "x"}}, "config.port_map[0].web"),
        ({"logging": [{"target": "a"}, {"target": "b"}]}, "config.logging"),
        ({"logging": "x"}, "config.logging"),
        ({"volume": {"data": "x"}}, "config.volume.data"),
        ({"port": "nan"}, "config.port"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_a_hint(config: dict[str, Any], path: str) -> None:
    (problem,) = problems(**config)
    assert problem.path == path
    assert problem.hint


def test_a_value_to_be_interpolated_may_become_any_scalar() -> None:
    assert problems(port="${NOMAD_PORT_web}", privileged="${meta.x}", args=["${attr.y}"]) == []


def test_after_interpolation_it_must_be_what_it_claims() -> None:
    with pytest.raises(Invalid, match=r"config\.port"):
        decoded(port="${NOMAD_PORT_web}")


def test_text_is_converted_to_what_the_option_is() -> None:
    options = decoded(port="8080", privileged="true", args=[1, True], grace="1m30s")
    assert (options.port, options.privileged, options.args, options.grace) == (8080, True, ["1", "true"], "1m30s")


def test_a_number_is_not_cut_to_fit() -> None:
    with pytest.raises(Invalid, match="port"):
        decoded(port="1.5")


def test_one_block_is_a_list_of_one() -> None:
    assert decoded(mount={"target": "/a"}).mount == [Mount(target="/a")]
    assert decoded(port_map={"web": "80"}).port_map == [{"web": 80}]


def test_a_list_of_one_is_a_block() -> None:
    assert decoded(logging=[{"target": "/a"}]).logging == Mount(target="/a")
    assert decoded(labels=[{"a": "1"}, {"b": 2}]).labels == {"a": "1", "b": "2"}


def test_labels_name_the_blocks_of_a_map() -> None:
    volumes = decoded(volume=[{"data": [{"target": "/a"}]}, {"logs": {"target": "/b"}}]).volume
    assert volumes == {"data": Mount(target="/a"), "logs": Mount(target="/b")}


def test_a_label_given_twice_is_a_problem() -> None:
    (problem,) = problems(volume=[{"data": {"target": "/a"}}, {"data": {"target": "/b"}}])
    assert problem.message == "is given twice"


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        decode_config(Options, {"port": "x", "imag": "y"})
    assert all(name in str(caught.value) for name in ("config.port", "config.imag", "config.image"))


def test_a_schema_from_elsewhere_needs_no_struct() -> None:
    schema = Schema(attributes=(AttributeSpec(name="x", type="any"),), blocks=(BlockSpec(name="b", body=Schema()),))
    assert check_config(schema, {"x": [1, {"y": None}], "b": {}}) == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([field.name for field in msgspec.structs.fields(Options)]) | st.text(max_size=5)


@settings(deadline=None)
@given(config=st.dictionaries(names, anything, max_size=6))
def test_any_config_is_decoded_or_refused_and_the_check_before_agrees(config: dict[str, Any]) -> None:
    found = check_config(SCHEMA, config)
    try:
        decode_config(Options, config)
    except Invalid:
        return
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5m", 300_000_000_000), ("1m30s", 90_000_000_000), ("9007199254740993ns", 9007199254740993), ("0", 0)],
)
def test_a_duration_of_an_option_is_exact(text: str, expected: int) -> None:
    assert duration_option(text, option="gc.image_delay") == expected


@pytest.mark.parametrize("text", ["", "soon", "5 s", "10", "1x", "-5s", "999999999h", "1h" * 40])
def test_what_is_no_duration_is_named_with_its_option(text: str) -> None:
    with pytest.raises(
        Invalid, match=r"^gc\.image_delay = .* is not a valid duration; write it as 250ms, 10s or 1m30s$"
    ):
        duration_option(text, option="gc.image_delay")
