"""The state: tables, indexes, watches and the columnar view."""

from yurt.state.store import (
    Change,
    Changes,
    Snapshot,
    Transaction,
    has_change_among,
    has_change_of,
    without_plain_placements,
)
from yurt.state.tables import TABLES, Tables

__all__ = [
    "TABLES",
    "Change",
    "Changes",
    "Snapshot",
    "Tables",
    "Transaction",
    "has_change_among",
    "has_change_of",
    "without_plain_placements",
]
