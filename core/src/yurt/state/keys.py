"""Key sets of index entries: immutable, and compact for few keys, the usual case.

A few keys are a tuple, which takes a quarter of the time and of the memory of a map; more than `FEW` are a map to None,
of which a copy with a further key shares all but a path. Who has a key in an entry knows it: none is added twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias, TypeVar

import immutables

K = TypeVar("K", bound=Hashable)

Keys: TypeAlias = "tuple[K, ...] | immutables.Map[K, None]"
"""Keys in no particular order, each once."""
NO_KEYS: Final[tuple[()]] = ()
FEW: Final = 64


def with_key(entry: Keys[K], key: K) -> Keys[K]:
    """The entry with one more key."""
    return (*entry, key) if isinstance(entry, tuple) and len(entry) < FEW else with_keys(entry, (key,))


def with_keys(entry: Keys[K], keys: Sequence[K]) -> Keys[K]:
    """The entry with more keys."""
    if isinstance(entry, tuple):
        if len(entry) + len(keys) <= FEW:
            return (*entry, *keys)
        entry = immutables.Map(dict.fromkeys(entry))
    return entry.set(keys[0], None) if len(keys) == 1 else entry.update(dict.fromkeys(keys))


def without_key(entry: Keys[K], key: K) -> Keys[K]:
    """The entry without a key."""
    # A key that is not there raises in both forms: an index that lost a key is never papered over.
    if isinstance(entry, tuple):
        at = entry.index(key)
        return (*entry[:at], *entry[at + 1 :])
    return entry.delete(key)
