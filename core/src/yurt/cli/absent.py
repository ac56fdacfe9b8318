"""Commands that Nomad has and this version of Yurt has not: whoever types one made no typing mistake."""

from __future__ import annotations

from collections.abc import Sequence

ABSENT = frozenset({
    "acl", "alloc pause", "check", "deployment unblock", "job action",
    "job actions", "keygen", "keyring", "license", "login",
    "operator client-state", "operator gossip", "operator keygen", "operator keyring",
    "operator raft info", "operator raft logs", "operator raft migrate-backend",
    "operator raft state", "operator snapshot agent", "operator utilization", "quota",
    "recommendation", "secret", "sentinel", "setup", "ui",
    "volume snapshot",
})  # fmt: skip
"""Commands and whole groups; a group stands for all that is in it."""


def absent_command(words: Sequence[str]) -> str:
    """The command or group of Nomad that the words begin with and that Yurt lacks, else ""."""
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in ABSENT:
            return name
    return ""
