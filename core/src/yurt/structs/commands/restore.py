"""Commands that restore a snapshot."""

from __future__ import annotations

from yurt.structs.commands.base import Command


class StageRestore(Command, tag=True):
    """Stage a chunk of a snapshot to restore; number 0 discards the chunks of an earlier restore."""

    restore_id: str
    number: int
    data: bytes


class FinishRestore(Command, tag=True):
    """Replace the state by the snapshot of `count` staged chunks; `digest` is their SHA-256 in hex."""

    restore_id: str
    count: int
    digest: str


RestoreCommand = StageRestore | FinishRestore


def is_abandonment(command: RestoreCommand) -> bool:
    """Whether the command drops the parts of a restore that does not go on."""
    return isinstance(command, StageRestore) and not command.data
