"""`yurt operator autopilot`: the automatic care for the servers of a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from yurt.cli.commands.operator.settings import require_setting, whole_number
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import MAYBE_BOOL, Flag, choice, switch, text, without_effect
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import parse_duration

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient


KEYS = (
    "CleanupDeadServers", "LastContactThreshold", "MaxTrailingLogs", "MinQuorum", "ServerStabilizationTime",
    "EnableRedundancyZones", "DisableUpgradeMigration", "EnableCustomUpgrades",
)  # fmt: skip


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
FLAGS: tuple[Flag, ...] = (
    *(
        choice(name, f"true or false; unset keeps the present value. {help_text}")
        if help_text
        else without_effect(name, kind=MAYBE_BOOL)
        for name, (_, help_text) in _SWITCHES.items()
    ),
    *(text(name, help_text) for name, (_, help_text) in (_NUMBERS | _DURATIONS).items()),
)
NOT_WELL = 429
HEADER = "ID|Name|Address|SerfStatus|Version|Leader|Voter|Healthy|LastContact|LastTerm|LastIndex|StableSince"


def show_config(call: Invocation) -> int:
    """Show the settings of autopilot."""
    is_data = wants_data(call)
    config: dict[str, Any] = call.api.get("/v1/operator/autopilot/configuration")
    if is_data:
        return show_data(call, config)
    for key in KEYS:
        value = config.get(key)
        call.screen.line(f"{key} = {str(value).lower() if isinstance(value, bool) else value}")
    return 0


def set_config(call: Invocation) -> int:
    """Change the settings given as flags and keep the rest."""
    flags = call.flags
    require_setting(call, FLAGS)
    config: Json = call.api.get("/v1/operator/autopilot/configuration")
    for name, (key, _) in _SWITCHES.items():
        if flags.choice(name) is not None:
            config[key] = flags.choice(name)
    for name, (key, _) in _NUMBERS.items():
        if flags.is_given(name):
            config[key] = whole_number(name, flags.text(name))
    for name, (key, _) in _DURATIONS.items():
        if flags.is_given(name):
            config[key] = _duration(name, flags.text(name))
    if not call.api.put("/v1/operator/autopilot/configuration", config, {"cas": config.get("ModifyIndex") or 0}):
        raise CliError("The configuration was changed by somebody else meanwhile, please try again")
    call.screen.line("Configuration updated!")
    return 0


def _duration(name: str, value: str) -> str:
    try:
        parse_duration(value)
    except ValueError:
        raise UsageError(f'-{name} needs a duration such as 10s, not "{value}"') from None
    return value


def show_health(call: Invocation) -> int:
    """Whether the servers are well; 1 when they are not."""
    health = _health(call.api)
    code = 0 if health.get("Healthy") else 1
    if call.flags.is_on("json"):
        call.screen.json(health)
        return code
    call.screen.line(f"Healthy: {str(bool(health.get('Healthy'))).lower()}")
    call.screen.line(f"FailureTolerance: {health.get('FailureTolerance') or 0}")
    call.screen.line(f"Leader: {health.get('Leader') or ''}")
    call.screen.line(f"Voters: \n\t{', '.join(health.get('Voters') or ())}")
    call.screen.line("Servers: ")
    rows = [[row.get(key) for key in HEADER.split("|")] for row in health.get("Servers") or ()]
    call.screen.table(HEADER, rows)
    return code


def _health(api: ApiClient) -> Json:
    """The answer, which is a document with status 429 too, when something is not well; other answers are errors."""
    from yurt.cli.api.client import error_of

    answer = api.raw("GET", "/v1/operator/autopilot/health")
    try:
        found = json.loads(answer.body) if answer.status in (200, NOT_WELL) else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise error_of(answer)
    return found


COMMANDS = (
    CliCommand("operator autopilot get-config", "Show the configuration of autopilot", show_config, JSON_FLAGS),
    CliCommand(
        "operator autopilot set-config",
        "Change the configuration of autopilot",
        set_config,
        FLAGS,
        details="At least one setting is needed; the others keep their values.",
    ),
    CliCommand(
        "operator autopilot health",
        "Show the health of the servers",
        show_health,
        (switch("json", "Print the answer of the API as JSON."),),
        details="The exit code is 1 when they are not well.",
    ),
)
