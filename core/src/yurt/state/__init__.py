"""Tables, indexes, watches and the columnar view: what applying the log leads to."""

from yurt.state.store import Change, Changes, Snapshot, Transaction

__all__ = ["Change", "Changes", "Snapshot", "Transaction"]
