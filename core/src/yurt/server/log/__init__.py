"""The log and the state derived from it: the single writer, decisions, waits, snapshots, restores."""
