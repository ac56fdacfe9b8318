"""The contract of fingerprints: detect facts about the machine and publish them as node attributes.

Jobs ask for attributes in constraints, affinities and spreads, and tasks read them in `${attr.<name>}`. A fingerprint
with the name `rack` gives attributes `rack.<key>`; a key that begins with `unique.` gives `unique.rack.<rest>`, by
which Nomad's users know that no other node has the same value.

A failing fingerprint is reported: in the log, as a node event, and in the attribute `fingerprint.<name>.reason`. What
it found before stays, and it is asked again 30 s later.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol, runtime_checkable

from yurt.sdk.errors import Invalid

ATTRIBUTES_MAX: Final = 256
VALUE_CHARACTERS_MAX: Final = 1024
UNIQUE: Final = "unique."
REASON_ATTRIBUTE: Final = "fingerprint."
"""The prefix of the attribute with the reason of a fingerprint's failure."""
RESERVED: Final = frozenset({
    "artifact", "cgroup", "consul", "cpu", "device", "driver", "fingerprint", "hostname", "kernel", "memory", "network",
    "nomad", "os", "platform", "plugin", "plugins", "service", "storage", "tls", "unique",
    "vault", "yurt",
})  # fmt: skip
"""Names whose attributes are Yurt's own."""
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@runtime_checkable
class NodeFingerprint(Protocol):
    """Detects a property of the machine; all calls run on the client's event loop, so none may block."""

    name: str

    def fingerprint(self) -> AsyncIterator[Mapping[str, str]]:
        """The attributes by key: first at once, then all of them again after each change.

        It may end when nothing changes any more. It is called again after a failure.
        """
        ...

    async def close(self) -> None:
        """Free the fingerprint's own resources when the agent ends."""
        ...


def node_attributes(name: str, found: Mapping[str, str]) -> dict[str, str]:
    """The node's attributes for the results of the fingerprint of this name; raises Invalid for unusable values."""
    if len(found) > ATTRIBUTES_MAX:
        raise Invalid(f"{len(found)} attributes are too many; {ATTRIBUTES_MAX} are allowed")
    attributes = {}
    for key, value in found.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key.removeprefix(UNIQUE)):
            raise Invalid(f"{key!r:.80} is not a valid key of an attribute; use letters, digits, _, - and .")
        if not isinstance(value, str) or len(value) > VALUE_CHARACTERS_MAX:
            raise Invalid(f'the attribute "{key}" must be a text of {VALUE_CHARACTERS_MAX} characters at most')
        attributes[attribute_name(name, key)] = value
    return attributes


def attribute_name(name: str, key: str) -> str:
    """The name of the node attribute for a key of a fingerprint."""
    return f"{UNIQUE}{name}.{key.removeprefix(UNIQUE)}" if key.startswith(UNIQUE) else f"{name}.{key}"
