"""Records of the networks that a plugin created for groups, needed by their tasks and for their removal.

A driver that makes the namespace of a group itself returns its path and labels (for example the id of the container
that holds it), which it must get again with each task of the group and when the network is removed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from google.protobuf.message import DecodeError

from yurt.goplugin.messages import DRIVERS, Message, message_class
from yurt.goplugin.process import write_private


class PluginNetworks:
    """The networks of one plugin, by allocation."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def _path(self, alloc_id: str) -> Path:
        return self._folder / f"{hashlib.blake2b(alloc_id.encode(), digest_size=16).hexdigest()}.network"

    def write(self, alloc_id: str, spec: Message) -> None:
        """Store the plugin's answer."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._path(alloc_id), spec.SerializeToString())

    def read(self, alloc_id: str) -> Message | None:
        """The stored answer; None when the plugin created no network."""
        try:
            return message_class(f"{DRIVERS}.NetworkIsolationSpec").FromString(self._path(alloc_id).read_bytes())
        except (OSError, DecodeError):
            return None

    def remove(self, alloc_id: str) -> None:
        """Delete the record."""
        self._path(alloc_id).unlink(missing_ok=True)
