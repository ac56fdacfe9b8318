"""Permitted `security_opt` entries: one that replaces the engine's confinement is a privilege.

A profile that the job chooses can be an empty one, so that a seccomp profile by path or content, an AppArmor profile
and a label count as `unconfined` does. The operator allows all of them with `allow_privileged`, or single ones by
pattern with `allow_security_opt`.
"""

from __future__ import annotations

import fnmatch
import os.path
from collections.abc import Iterable

from yurt.sdk.errors import DriverError

FREE = frozenset(("no-new-privileges", "no-new-privileges=true", "seccomp=builtin"))
"""Settings that restrict a container further, or repeat its defaults."""


def canonical(text: str) -> str:
    """The entry as `name=value` in canonical form, with normalised profile paths."""
    name, separator, value = text.partition("=") if "=" in text else text.partition(":")
    value = value.strip()
    value = os.path.normpath(value) if value.startswith("/") else value
    return f"{name.strip()}={value}" if separator else name.strip()


def check_security_option(text: str, *, allow_privileged: bool, patterns: Iterable[str], plugin: str) -> None:
    """Refuse an entry that weakens a container, unless the operator allows it; raises DriverError."""
    entry = canonical(text)
    if allow_privileged or entry in FREE or any(fnmatch.fnmatchcase(entry, each) for each in patterns):
        return
    raise DriverError(
        f'security_opt: "{text}" replaces the confinement of the engine, which is off on this client; drop it from the '
        f'job, or set allow_security_opt = ["{entry}"] or allow_privileged = true in plugin "{plugin}" of its '
        "configuration"
    )
