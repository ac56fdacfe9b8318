"""The block `idle` in the bodies of namespaces and node pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.value import parse_duration
from yurt.structs.policies import IdlePolicy


def with_idle_block(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with a complete block in the API's spelling; raises Invalid for keys and durations that are none."""
    key = next((key for key in document if str(key).lower() == "idle"), "")
    if not key or document[key] is None:
        return document
    from yurt.rules.idle import normalised_idle

    rest = {name: value for name, value in document.items() if name != key}
    return rest | {"Idle": normalised_idle(document[key], parse_duration)}


def space_problems(policy: IdlePolicy | None) -> list[str]:
    """The problems of the block of a namespace or a node pool."""
    if policy is None:
        return []
    from yurt.rules.validation.idle import idle_problems

    return list(idle_problems(policy))
