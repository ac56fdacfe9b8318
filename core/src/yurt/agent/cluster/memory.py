"""What a server remembers of its cluster from one start to the next: a small file in its data directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries
from yurt.storage.data_dir import write_durably

FILE = "cluster.json"


class Remembered(Value):
    """Where other servers were, and what this one began."""

    peers: tuple[str, ...] = ()
    """Addresses of servers that were there at last."""
    founding: Mapping[str, str] = no_entries()
    """The servers that this one began a cluster with, itself included, and their etcd addresses."""
    awaited: tuple[str, ...] = ()
    """Those of them that had not begun yet."""
    is_joining: bool = False
    """It has been admitted, and its etcd member has never run."""
    has_begun: bool = False
    """Its own etcd member has run: should its data be gone, this server is a new one."""


def load(folder: Path) -> Remembered:
    """What was remembered, nothing at the first start; raises Invalid for a file that is broken."""
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Remembered)
    except FileNotFoundError:
        return Remembered()
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(
            f"{path} cannot be read: {error}; without it, the server joins its cluster as a new one"
        ) from None


def save(folder: Path, remembered: Remembered) -> None:
    """Keep it, durably."""
    write_durably(folder / FILE, msgspec.json.encode(remembered))
