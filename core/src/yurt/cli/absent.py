"""Commands of Nomad that this version of Yurt lacks, so that the error says so instead of suggesting a spelling."""

from __future__ import annotations

from collections.abc import Sequence

ABSENT = frozenset({
    "alloc pause", "deployment unblock", "keygen", "keyring", "license",
    "operator gossip", "operator keygen", "operator keyring",
    "operator raft migrate-backend", "operator snapshot agent", "operator snapshot redact",
    "operator utilization", "recommendation", "secret", "sentinel", "setup",
    "volume snapshot",
})  # fmt: skip
"""Commands and whole groups; a group stands for all that is in it."""
INSTEAD = {
    "license": "Yurt needs no license.",
    "operator gossip": "There is no gossip: TLS encrypts what servers say, with certificates of: yurt tls cert create",
    "operator raft migrate-backend": "A server's log has one form, which each version reads: there is nothing to do.",
    "operator snapshot agent": "Have a periodic job, or cron, run: yurt operator snapshot save FILE",
    "operator snapshot redact": "There is nothing to take out: snapshots hold no keys, and variables only sealed.",
    "operator utilization": "Figures for a monitoring system are given by: yurt operator metrics",
}
"""What serves instead of some of them."""


def absent_command(words: Sequence[str]) -> str:
    """The command or group of Nomad that the words name and that Yurt lacks, else ""."""
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in ABSENT:
            return name
    return ""
