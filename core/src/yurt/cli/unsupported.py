"""Commands and flags of Nomad that Yurt lacks, each with the reason or what serves instead.

The error for one of them says so instead of suggesting a spelling; a test compares the tables with the list of all
commands and flags; docs/reference shows them.
"""

from __future__ import annotations

from collections.abc import Sequence

ABSENT: dict[str, str] = {
    "deployment unblock": "Only deployments of several regions can be blocked, and Yurt deploys in one.",
    "keygen": "There is no gossip key; see: yurt operator gossip keyring generate",
    "keyring": "Its present name is: yurt operator gossip keyring, and for root keys: yurt operator root keyring",
    "license": "Yurt needs no license.",
    "operator keygen": "There is no gossip key; see: yurt operator gossip keyring generate",
    "operator keyring": "Its present name is: yurt operator gossip keyring, and for root keys: "
    "yurt operator root keyring",
    "operator raft migrate-backend": "A server's log has one format, which each version reads: there is nothing to do.",
    "operator snapshot agent": "Let a periodic job, or cron, run: yurt operator snapshot save FILE",
    "recommendation": "Recommendations come from Nomad Enterprise's autoscaler. Actual usage is shown by: "
    "yurt alloc status -stats",
    "sentinel": "Sentinel is HashiCorp's policy engine. Rules for jobs are set by: yurt namespace apply, "
    "yurt quota apply and yurt acl policy apply",
    "setup": "Yurt does not use Consul or Vault. Services and variables are built in: yurt service, yurt var",
    "windows": "Yurt agents run on Linux and macOS.",
}
"""Commands and whole groups; a group covers all of its commands."""

_CONSUL = "Yurt does not use Consul; services are built in"
_VAULT = "Yurt does not use Vault; secrets are kept by: yurt var"
_EVENT_LOG = "Yurt agents run on Linux and macOS, which have no Windows event log"

ABSENT_FLAGS: dict[str, tuple[tuple[str, str], ...]] = {
    "agent": (
        ("consul-", _CONSUL),
        ("vault-", _VAULT),
        ("eventlog", _EVENT_LOG),
        ("dev-consul", f"{_CONSUL}; use: yurt agent -dev"),
        ("dev-vault", f"{_VAULT}; start it with: yurt agent -dev"),
        ("dev-connect", 'Yurt has no service mesh; use: yurt agent -dev, and network { mode = "bridge" } in jobs'),
    ),
    "operator debug": (("consul-", _CONSUL), ("vault-", _VAULT)),
}
"""By command: the prefixes of flags that it lacks, and why."""

NO_EFFECT: dict[tuple[str, str], str] = {
    ("agent", "alloc-mounts-dir"): "Yurt mounts task folders in place and needs no second folder.",
    ("agent", "raft-protocol"): "The log has one protocol.",
    ("job plan", "policy-override"): "There are no Sentinel policies to override.",
    ("job plan", "vault-namespace"): _VAULT + ".",
    ("job run", "consul-namespace"): _CONSUL + ".",
    ("job run", "policy-override"): "There are no Sentinel policies to override.",
    ("job run", "vault-namespace"): _VAULT + ".",
    ("job stop", "global"): "A job belongs to one region.",
    ("job validate", "vault-namespace"): _VAULT + ".",
    ("operator autopilot set-config", "disable-upgrade-migration"): "Servers are upgraded one by one, in place.",
    ("operator snapshot save", "redact"): "Snapshots hold no keys.",
    ("operator utilization", "today-only"): "The file always has the figures of this moment, and of no earlier day.",
    ("volume create", "policy-override"): "There are no Sentinel policies to override.",
    ("volume register", "policy-override"): "There are no Sentinel policies to override.",
}
"""Flags accepted so that scripts keep working, and why they have no effect."""
LOCAL = "The command works on local files and asks no agent."
"""Why the flags of clients have no effect on other commands."""


def absent_command(words: Sequence[str]) -> str:
    """The command or group of Nomad in the words that Yurt lacks, else ""."""
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in ABSENT:
            return name
    return ""


def absent_flag(command: str, flag: str) -> str:
    """Why a command lacks a flag of Nomad's; empty for any other flag."""
    for start, reason in ABSENT_FLAGS.get(command, ()):
        if flag.startswith(start):
            return reason
    return ""
