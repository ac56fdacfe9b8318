"""The log and the state it leads to: the one writer, decisions, waits, snapshots, restores."""
