"""`yurt operator autopilot set-config`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import MAYBE_BOOL, Flag, choice, text, without_effect
from yurt.cli.terminal.text import parse_duration

Json = dict[str, Any]

_SWITCHES = {
    "cleanup-dead-servers": ("CleanupDeadServers", "Take servers that are gone out when new ones have come."),
    "enable-redundancy-zones": ("EnableRedundancyZones", "A feature of Nomad Enterprise."),
    "disable-upgrade-migration": ("DisableUpgradeMigration", ""),
    "enable-custom-upgrades": ("EnableCustomUpgrades", "A feature of Nomad Enterprise."),
}
_NUMBERS = {
    "max-trailing-logs": ("MaxTrailingLogs", "How far a server may be behind the leader and count as healthy."),
    "min-quorum": ("MinQuorum", "How many servers are left at least when servers that are gone are taken out."),
}
_DURATIONS = {
    "last-contact-threshold": ("LastContactThreshold", "How long news of a server may be overdue, such as 200ms."),
    "server-stabilization-time": ("ServerStabilizationTime", "How long a server must be well before it counts."),
}


def run(call: Invocation) -> int:
    """Change what the flags name and keep the rest."""
    flags = call.flags
    config: Json = call.api.get("/v1/operator/autopilot/configuration")
    for name, (key, _) in _SWITCHES.items():
        if flags.choice(name) is not None:
            config[key] = flags.choice(name)
    for name, (key, _) in _NUMBERS.items():
        if flags.text(name):
            config[key] = _whole(name, flags.text(name))
    for name, (key, _) in _DURATIONS.items():
        if flags.text(name):
            config[key] = _duration(name, flags.text(name))
    if not call.api.put("/v1/operator/autopilot/configuration", config, {"cas": config.get("ModifyIndex") or 0}):
        raise CliError("The configuration was changed by somebody else meanwhile, please try again")
    call.screen.line("Configuration updated!")
    return 0


def _whole(name: str, given: str) -> int:
    if not given.isdigit():
        raise UsageError(f'-{name} needs a whole number, not "{given}"')
    return int(given)


def _duration(name: str, given: str) -> str:
    try:
        parse_duration(given)
    except ValueError:
        raise UsageError(f'-{name} needs a duration such as 10s, not "{given}"') from None
    return given


FLAGS: tuple[Flag, ...] = (
    *(
        choice(name, f"true or false; unset keeps what is. {help_text}")
        if help_text
        else without_effect(name, kind=MAYBE_BOOL)
        for name, (_, help_text) in _SWITCHES.items()
    ),
    *(text(name, help_text) for name, (_, help_text) in (_NUMBERS | _DURATIONS).items()),
)

COMMAND = Command("operator autopilot set-config", "Change how servers mind themselves.", run, FLAGS)
