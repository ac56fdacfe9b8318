"""Options common to the plugin blocks of all container drivers, and values derived from them."""

from __future__ import annotations

import msgspec

from yurt.sdk.schema import duration_option
from yurt.sdk.value import NANOSECONDS

MIN_PERIOD_S = 1.0


class AgentAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sources of registry credentials: a file written by `login`, or a credential helper."""

    config: str = ""
    helper: str = ""


class DanglingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for the removal of dangling containers."""

    enabled: bool = True
    period: str = "5m"
    creation_grace: str = "5m"
    dry_run: bool = False


class Gc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for the removal of unused images and containers."""

    image: bool = True
    image_delay: str = "3m"
    container: bool = True
    dangling_containers: DanglingOptions = DanglingOptions()


class Volumes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether tasks may mount paths outside their allocation."""

    enabled: bool | None = None
    selinuxlabel: str = ""


class DanglingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for dangling containers; times in seconds."""

    enabled: bool
    period_s: float
    grace_s: float
    dry_run: bool


def dangling_rules(gc: Gc) -> DanglingRules:
    """The rules for the removal of dangling containers; raises Invalid that names an invalid duration."""
    settings = gc.dangling_containers
    return DanglingRules(
        enabled=settings.enabled,
        period_s=max(MIN_PERIOD_S, _seconds(settings.period, "gc.dangling_containers.period")),
        grace_s=_seconds(settings.creation_grace, "gc.dangling_containers.creation_grace"),
        dry_run=settings.dry_run,
    )


def image_delay_s(gc: Gc) -> float:
    """The delay between an image's last use and its removal."""
    return _seconds(gc.image_delay, "gc.image_delay")


def _seconds(text: str, option: str) -> float:
    return duration_option(text, option=option) / NANOSECONDS
