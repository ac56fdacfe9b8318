"""Records of the SDK that plugins of others may make or unpack as tuples."""

from __future__ import annotations

import pytest
from yurt.sdk.commands import CommandFlag, PackageCommand
from yurt.sdk.landlock import Availability, PathRule
from yurt.sdk.log_engines import LogBatch

RECORDS = (
    LogBatch(1, [b"a"]),
    CommandFlag("row", "text", "Show this row only."),
    PackageCommand("racks list", "Show the nodes of each row", lambda call: 0),
    PathRule("/usr", 1),
    Availability(4),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_can_be_unpacked(record: tuple[object, ...]) -> None:
    first, *_ = record
    assert record[0] == first and type(record)(*record) == record
