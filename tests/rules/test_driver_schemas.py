"""A driver's schema is read once for each row, and anew for another row of its name."""

from __future__ import annotations

import msgspec
import pytest
from yurt.rules import driver_schemas
from yurt.rules.driver_schemas import read_schema
from yurt.sdk.schema import AttributeSpec, Schema
from yurt.structs.cluster import DriverSchema


def row(digest: str, *attributes: AttributeSpec) -> DriverSchema:
    return DriverSchema(
        driver="docker", digest=digest, schema=msgspec.to_builtins(Schema(attributes=attributes)), create_index=1
    )


def test_it_is_read_once() -> None:
    given = row("once", AttributeSpec(name="image", type="string"))
    read = read_schema(given)
    assert [each.name for each in read.schema.attributes] == ["image"]
    assert read_schema(given) is read


def test_another_row_of_the_same_name_is_read_anew() -> None:
    before = read_schema(row("same", AttributeSpec(name="image", type="string")))
    after = read_schema(row("same", AttributeSpec(name="command", type="string")))
    assert [[each.name for each in read.schema.attributes] for read in (before, after)] == [["image"], ["command"]]


def test_only_both_options_of_nomad_name_ports() -> None:
    ports = AttributeSpec(name="ports", type="list(string)")
    port_map = AttributeSpec(name="port_map", type="list(map(number))")
    found = [read_schema(row(str(len(given)), *given)).names_ports for given in ((), (ports,), (ports, port_map))]
    assert found == [False, False, True]


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_schemas, "READ_MAX", 2)
    for number in range(5):
        read_schema(row(f"kept-{number}"))
    assert len(driver_schemas._READ) <= 2
