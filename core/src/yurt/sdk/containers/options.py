"""Options that the plugin block of every container driver has, and what follows from them."""

from __future__ import annotations

import msgspec

from yurt.sdk.containers.common import parse_duration
from yurt.sdk.containers.dangling import DanglingRules

MIN_PERIOD_S = 1.0


class AgentAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where credentials of registries are: a file that `login` writes, or a credential helper."""

    config: str = ""
    helper: str = ""


class DanglingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Containers that no task knows any more."""

    enabled: bool = True
    period: str = "5m"
    creation_grace: str = "5m"
    dry_run: bool = False


class Gc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is removed when it is not needed."""

    image: bool = True
    image_delay: str = "3m"
    container: bool = True
    dangling_containers: DanglingOptions = DanglingOptions()


class Volumes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether tasks may mount what lies outside their allocation."""

    enabled: bool | None = None
    selinuxlabel: str = ""


def dangling_rules(gc: Gc) -> DanglingRules:
    """When a container that no task knows is removed; raises Invalid that names a wrong duration."""
    given = gc.dangling_containers
    return DanglingRules(
        enabled=given.enabled,
        period_s=max(MIN_PERIOD_S, parse_duration(given.period, option="gc.dangling_containers.period")),
        grace_s=parse_duration(given.creation_grace, option="gc.dangling_containers.creation_grace"),
        dry_run=given.dry_run,
    )


def image_delay_s(gc: Gc) -> float:
    """How long an image stays after its last task."""
    return parse_duration(gc.image_delay, option="gc.image_delay")
