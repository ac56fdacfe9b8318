"""A file in the agent's state folder with the cards that the plugin splits: their profiles, and whose each instance is.

After a restart the plugin so knows its own instances, also on cards that are no longer in `mig_gpu_ids`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from yurt.sdk.value import Value

from yurt_device_nvidia.mig_control import CardProfile

FILE = "nvidia-mig.json"

log = logging.getLogger(__name__)


class InstanceOwner(Value):
    """The task for which a GPU instance was created, and the instance's first slice."""

    number: int
    start: int
    alloc_id: str
    task_name: str


class RecordedCard(Value):
    """A card: its profiles, and the owners of its instances."""

    profiles: tuple[CardProfile, ...] = ()
    owners: tuple[InstanceOwner, ...] = ()


class MigRecord:
    """The file in `folder`; without a folder nothing outlives the agent."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / FILE if folder else None
        self._written: Mapping[str, RecordedCard] = {}

    def read(self) -> Mapping[str, RecordedCard]:
        """The cards by UUID; a file that cannot be read counts as none."""
        if self._path is None:
            return {}
        try:
            self._written = msgspec.json.decode(self._path.read_bytes(), type=dict[str, RecordedCard])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("record of MIG instances cannot be read: path=%s error=%s", self._path, error)
        return self._written

    def write(self, cards: Mapping[str, RecordedCard]) -> None:
        """Write the file when it changes."""
        if self._path is None or cards == self._written:
            return
        part = self._path.with_name(f"{FILE}.part")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(msgspec.json.encode(cards))
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            log.warning("record of MIG instances cannot be written: path=%s error=%s", self._path, error)
        else:
            self._written = dict(cards)
