"""Checks the files of an etcd member before etcd opens them, for losses that etcd itself does not report.

etcd keeps its raft log in segments, `wal/SEQUENCE-INDEX.wal`, that are zeros behind their last record, and what it has
applied in `snap/db`. It refuses records whose checksum does not fit. But a segment that ends early, in the middle of
a record or where a page of zeros begins, looks to it like one whose end a crash tore off: it cuts the segment there and
starts. What it had promised other members behind that place is forgotten, and alone it answers no request any more.

A crash tears off only entries that were never acknowledged, and those are never applied. So the applied index
of `snap/db` tells the two apart: a raft log that ends below it has lost something. What `snap/db` does not hold
either is missed by the server, which knows the last command that it has read (`commit_record`).
"""
