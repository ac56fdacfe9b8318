"""Which changed settings take effect in a running agent, and which require a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

RELOADED: Final = ("log_level", "tls.ca_file", "tls.cert_file", "tls.key_file")
"""Keys that SIGHUP takes over. The files that `tls` names are read again whether their names changed or not."""


class Reload(msgspec.Struct, frozen=True):
    """Changed keys, as `client.meta`."""

    taken: tuple[str, ...]
    waiting: tuple[str, ...]
    """Take effect at the next start."""


def reload_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> Reload:
    """Compare two configurations in the shape of files."""
    changed = sorted(set(_changed(old, new, ())))
    return Reload(
        tuple(key for key in changed if key in RELOADED), tuple(key for key in changed if key not in RELOADED)
    )


def _changed(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[str]:
    if old == new:
        return
    if _is_block(old) and _is_block(new) and len(path) < 2:
        before, after = old or {}, new or {}
        for name in {*before, *after}:
            yield from _changed(before.get(name), after.get(name), (*path, name))
        return
    yield ".".join(path)


def _is_block(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)
