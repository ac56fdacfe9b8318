"""The `audit` block of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yurt.api.times import parse_duration
from yurt.audit import settings
from yurt.audit.settings import BEST_EFFORT, ENFORCED, AuditSettings, FilterSettings, SinkSettings
from yurt.sdk.value import NANOSECONDS

if TYPE_CHECKING:
    from yurt.audit.trail import AuditTrail, Counts
    from yurt.runtime.env import Env

GUARANTEES: Final = (ENFORCED, BEST_EFFORT)
STAGES: Final = (*settings.STAGES, "*")
OPERATIONS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "*")
FILE, JSON, EVENT = "file", "json", "HTTPEvent"
MODE: Final = re.compile(r"0?[0-7]{3}")
DEFAULT_SINK: Final = "audit"


def audit_problems(given: Mapping[str, Any]) -> list[str]:
    """What is wrong with the block, all of it."""
    found = [text for name, body in given.get("sink", {}).items() for text in _sink_problems(name, body)]
    found += [text for name, body in given.get("filter", {}).items() for text in _filter_problems(name, body)]
    paths = [body.get("path", "") for body in given.get("sink", {}).values()]
    twice = sorted({path or "(the default)" for path in paths if paths.count(path) > 1})
    found += [f"audit: two sinks write to {path}; give each a path of its own." for path in twice]
    return found


def _sink_problems(name: str, body: Mapping[str, Any]) -> Iterator[str]:
    where = f'audit sink "{name}"'
    if (kind := body.get("type", FILE)) != FILE:
        yield f'{where}: type "{kind}" must be "{FILE}".'
    if (form := body.get("format", JSON)) != JSON:
        yield f'{where}: format "{form}" must be "{JSON}".'
    if (guarantee := body.get("delivery_guarantee", GUARANTEES[0])) not in GUARANTEES:
        yield f'{where}: delivery_guarantee "{guarantee}" must be "{GUARANTEES[0]}" or "{GUARANTEES[1]}".'
    if not MODE.fullmatch(mode := body.get("mode", "0600")):
        yield f'{where}: mode "{mode}" must be an octal number such as "0600".'
    elif not int(mode, 8) & 0o200:
        yield f'{where}: mode "{mode}" does not let the agent write; it must include 0200.'
    if (path := body.get("path", "")) and not path.startswith("/"):
        yield f'{where}: path "{path}" must be an absolute path.'


def _filter_problems(name: str, body: Mapping[str, Any]) -> Iterator[str]:
    where = f'audit filter "{name}"'
    # The reference of Nomad's configuration names both words for this one kind of filter.
    if (kind := body.get("type", EVENT)) not in (EVENT, FILE):
        yield f'{where}: type "{kind}" must be "{EVENT}".'
    for key in ("endpoints", "stages", "operations"):
        if not body.get(key):
            yield f'{where}: {key} is empty, so the filter would match nothing; write ["*"] for all of them.'
    yield from (
        f'{where}: stage "{each}" must be one of {", ".join(STAGES)}.'
        for each in body.get("stages", ())
        if each not in STAGES
    )
    yield from (
        f'{where}: operation "{each}" must be one of {", ".join(OPERATIONS)}.'
        for each in body.get("operations", ())
        if each.upper() not in OPERATIONS
    )
    yield from (
        f'{where}: endpoint "{each}" must begin with "/" or "*".'
        for each in body.get("endpoints", ())
        if each[:1] not in ("/", "*")
    )


def audit_trail(given: Mapping[str, Any], root: Path, env: Env, counts: Counts | None) -> AuditTrail | None:
    """The audit log with its files opened, None where it is not enabled; raises Invalid for a file that does not open.

    `root` is the data directory. Where no sink is named there is one, with everything as it is by default.
    """
    if not given.get("enabled"):
        return None
    from yurt.audit.trail import AuditTrail, NoCounts

    trail = AuditTrail(audit_settings(given, root), env, counts or NoCounts())
    trail.open()
    return trail


def audit_settings(given: Mapping[str, Any], root: Path) -> AuditSettings:
    """The settings of a block that has no problems."""
    sinks = given.get("sink") or {DEFAULT_SINK: {}}
    return AuditSettings(
        sinks=tuple(_sink(name, body, root) for name, body in sinks.items()),
        filters=tuple(
            FilterSettings(
                name=name,
                endpoints=tuple(body.get("endpoints", ())),
                stages=tuple(body.get("stages", ())),
                operations=tuple(each.upper() for each in body.get("operations", ())),
            )
            for name, body in given.get("filter", {}).items()
        ),
    )


def _sink(name: str, body: Mapping[str, Any], root: Path) -> SinkSettings:
    return SinkSettings(
        name=name,
        path=body.get("path") or str(root / "audit" / "audit.log"),
        is_enforced=body.get("delivery_guarantee", ENFORCED) == ENFORCED,
        mode=int(body.get("mode", "0600"), 8),
        rotate_bytes=body.get("rotate_bytes", 0),
        rotate_s=parse_duration(body.get("rotate_duration", "24h")) / NANOSECONDS,
        rotate_max_files=body.get("rotate_max_files", 0),
    )
