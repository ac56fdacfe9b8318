"""The state: tables, indexes, watches and the columnar view."""

from yurt.state.store import Change, Changes, Snapshot, Transaction
from yurt.state.tables import TABLES, Tables

__all__ = ["TABLES", "Change", "Changes", "Snapshot", "Tables", "Transaction"]
