"""The settings of the audit log."""

from __future__ import annotations

from typing import Final

from yurt.sdk.value import Value

ENFORCED, BEST_EFFORT = "enforced", "best-effort"
RECEIVED, COMPLETE = "OperationReceived", "OperationComplete"
STAGES: Final = (RECEIVED, COMPLETE)


class AuditSinkSettings(Value):
    """One file that lines go to."""

    name: str
    path: str
    is_enforced: bool = True
    """A request fails when its line cannot be written."""
    mode: int = 0o600
    rotate_bytes: int = 0
    """A file is rotated before it would grow beyond this; 0: never for its size."""
    rotate_s: float = 86_400.0
    """A file is rotated when it is older than this, in seconds; 0: never for its age."""
    rotate_max_files: int = 0
    """Older files that are kept; 0: all of them, -1: none."""
    kind: str = "audit"
    """What its messages call it."""


class FilterSettings(Value):
    """Lines to omit: those of these endpoints, stages and operations, each with `*`."""

    name: str
    endpoints: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()


class AuditSettings(Value):
    """The recorded events and the place of the files."""

    sinks: tuple[AuditSinkSettings, ...]
    filters: tuple[FilterSettings, ...] = ()
