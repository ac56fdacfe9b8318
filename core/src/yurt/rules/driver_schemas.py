"""The options of drivers as the rows of a state tell them, in a form that tasks can be checked against."""

from __future__ import annotations

from typing import Final

import msgspec

from yurt.sdk.schema import Schema
from yurt.sdk.value import Value
from yurt.structs.cluster import DriverSchema

READ_MAX: Final = 256
"""The number of schemas that are kept. A cluster has one for each driver and version of it."""
PORT_OPTIONS: Final = {("ports", "list(string)"), ("port_map", "list(map(number))")}


class ReadSchema(Value):
    """The schema of one version of a driver."""

    schema: Schema
    names_ports: bool
    """Whether the driver has Nomad's option `ports`, a list of labels, and its predecessor `port_map`."""


_READ: Final[dict[tuple[str, str], tuple[DriverSchema, ReadSchema]]] = {}


def read_schema(row: DriverSchema) -> ReadSchema:
    """The schema in a row. It is read once: each registration needs it, and docker's takes 35 µs."""
    known = _READ.get((row.driver, row.digest))
    if known is not None and known[0] is row:
        return known[1]
    schema = msgspec.convert(row.schema, Schema)
    read = ReadSchema(schema=schema, names_ports={(each.name, each.type) for each in schema.attributes} >= PORT_OPTIONS)
    if len(_READ) >= READ_MAX:
        _READ.clear()
    _READ[(row.driver, row.digest)] = (row, read)
    return read
