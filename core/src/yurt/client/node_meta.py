"""A node's metadata as its configuration says and as operators changed it while it runs; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yurt.sdk.errors import Invalid
from yurt.structs.rpc import NodeMeta

KEYS_MAX = 256
KEY_LENGTH_MAX = 128
VALUE_LENGTH_MAX = 4096
KEY = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.\-/]*$")


def combined(static: Mapping[str, str], dynamic: Mapping[str, str | None]) -> NodeMeta:
    """What holds: the changes over the configuration."""
    merged = {**static, **dynamic}
    meta = {key: value for key, value in merged.items() if value is not None}
    return NodeMeta(meta=meta, dynamic=dynamic, static=static)


def changed(old: NodeMeta, changes: Mapping[str, str | None]) -> NodeMeta:
    """The metadata after changes; None takes a value away. Raises Invalid for what no node should carry."""
    if not changes:
        raise Invalid("missing required Meta object: name at least one key, with a text or null")
    for key, value in changes.items():
        _check(key, value)
    dynamic = {**old.dynamic, **changes}
    kept = {key: value for key, value in dynamic.items() if value is not None or key in old.static}
    if len(kept) > KEYS_MAX:
        raise Invalid(f"a node keeps {KEYS_MAX} changed keys of metadata at most; take some away first")
    return combined(old.static, kept)


def _check(key: str, value: str | None) -> None:
    if not KEY.match(key) or len(key) > KEY_LENGTH_MAX:
        raise Invalid(
            f"invalid metadata key {key[:KEY_LENGTH_MAX]!r}: use letters, digits and _ . - /, "
            f"{KEY_LENGTH_MAX} characters at most"
        )
    if value is not None and len(value) > VALUE_LENGTH_MAX:
        raise Invalid(f"the metadata value of {key!r} is longer than {VALUE_LENGTH_MAX} characters")
