"""The `audit` block of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yurt.agent.config_check import ConfigFinding
from yurt.audit import settings
from yurt.audit.settings import BEST_EFFORT, ENFORCED, AuditSettings, AuditSinkSettings, FilterSettings
from yurt.sdk.value import NANOSECONDS, parse_duration

if TYPE_CHECKING:
    from yurt.audit.trail import AuditCounters, AuditTrail
    from yurt.runtime.env import Env

GUARANTEES: Final = (ENFORCED, BEST_EFFORT)
STAGES: Final = (*settings.STAGES, "*")
OPERATIONS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "*")
FILE, JSON, EVENT = "file", "json", "HTTPEvent"
MODE: Final = re.compile(r"0?[0-7]{3}")
DEFAULT_SINK: Final = "audit"


def audit_problems(block: Mapping[str, Any]) -> list[ConfigFinding]:
    """All problems of the block, each at its value."""
    found = [
        ConfigFinding(("audit", kind, name, key), f'audit {kind} "{name}": {text}')
        for kind, problems in (("sink", _sink_problems), ("filter", _filter_problems))
        for name, body in block.get(kind, {}).items()
        for key, text in problems(body)
    ]
    used: dict[str, str] = {}
    for name, body in block.get("sink", {}).items():
        path = body.get("path") or "(the default)"
        if used.setdefault(path, name) != name:
            text = f'audit: two sinks write to {path}, "{used[path]}" and "{name}"; give each a path of its own.'
            found.append(ConfigFinding(("audit", "sink", name, "path"), text))
    return found


def _sink_problems(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys and the problems of their values."""
    if (kind := body.get("type", FILE)) != FILE:
        yield "type", f'type "{kind}" must be "{FILE}".'
    if (form := body.get("format", JSON)) != JSON:
        yield "format", f'format "{form}" must be "{JSON}".'
    if (guarantee := body.get("delivery_guarantee", GUARANTEES[0])) not in GUARANTEES:
        text = f'delivery_guarantee "{guarantee}" must be "{GUARANTEES[0]}" or "{GUARANTEES[1]}".'
        yield "delivery_guarantee", text
    if not MODE.fullmatch(mode := body.get("mode", "0600")):
        yield "mode", f'mode "{mode}" must be an octal number such as "0600".'
    elif not int(mode, 8) & 0o200:
        yield "mode", f'mode "{mode}" does not let the agent write; it must include 0200.'
    if (path := body.get("path", "")) and not path.startswith("/"):
        yield "path", f'path "{path}" must be an absolute path.'


def _filter_problems(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys and the problems of their values."""
    # The reference of Nomad's configuration names both words for this one kind of filter.
    if (kind := body.get("type", EVENT)) not in (EVENT, FILE):
        yield "type", f'type "{kind}" must be "{EVENT}".'
    for key in ("endpoints", "stages", "operations"):
        if not body.get(key):
            yield key, f'{key} is empty, so the filter would match nothing; write ["*"] for all of them.'
    yield from (
        ("stages", f'stage "{each}" must be one of {", ".join(STAGES)}.')
        for each in body.get("stages", ())
        if each not in STAGES
    )
    yield from (
        ("operations", f'operation "{each}" must be one of {", ".join(OPERATIONS)}.')
        for each in body.get("operations", ())
        if each.upper() not in OPERATIONS
    )
    yield from (
        ("endpoints", f'endpoint "{each}" must begin with "/" or "*".')
        for each in body.get("endpoints", ())
        if each[:1] not in ("/", "*")
    )


def audit_trail(block: Mapping[str, Any], root: Path, env: Env, counts: AuditCounters | None) -> AuditTrail | None:
    """The audit log with its files opened, None where it is not enabled; raises Invalid for a file that does not open.

    `root` is the data directory. Where no sink is named there is one, with everything as it is by default.
    """
    if not block.get("enabled"):
        return None
    from yurt.audit.trail import AuditTrail, NoAuditCounters

    trail = AuditTrail(audit_settings(block, root), env, counts or NoAuditCounters())
    trail.open()
    return trail


def audit_settings(block: Mapping[str, Any], root: Path) -> AuditSettings:
    """The settings of a block that has no problems."""
    sinks = block.get("sink") or {DEFAULT_SINK: {}}
    return AuditSettings(
        sinks=tuple(_sink(name, body, root) for name, body in sinks.items()),
        filters=tuple(
            FilterSettings(
                name=name,
                endpoints=tuple(body.get("endpoints", ())),
                stages=tuple(body.get("stages", ())),
                operations=tuple(each.upper() for each in body.get("operations", ())),
            )
            for name, body in block.get("filter", {}).items()
        ),
    )


def _sink(name: str, body: Mapping[str, Any], root: Path) -> AuditSinkSettings:
    return AuditSinkSettings(
        name=name,
        path=body.get("path") or str(root / "audit" / "audit.log"),
        is_enforced=body.get("delivery_guarantee", ENFORCED) == ENFORCED,
        mode=int(body.get("mode", "0600"), 8),
        rotate_bytes=body.get("rotate_bytes", 0),
        rotate_s=parse_duration(body.get("rotate_duration", "24h")) / NANOSECONDS,
        rotate_max_files=body.get("rotate_max_files", 0),
    )
