"""Commands that restore a snapshot."""

from __future__ import annotations

from yurt.structs.commands.base import Command


class StageRestore(Command, tag=True):
    """A piece of a snapshot that is to be restored; number 0 begins, and drops what another restore left."""

    restore_id: str
    number: int
    data: bytes


class FinishRestore(Command, tag=True):
    """Replace the whole state by the snapshot whose `count` pieces were staged; `digest` is their SHA-256 in hex."""

    restore_id: str
    count: int
    digest: str


RestoreCommand = StageRestore | FinishRestore
