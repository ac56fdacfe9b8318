"""A file in the agent's state folder with the cards that the plugin splits: their profiles, and whose each instance is.

After a restart the plugin so knows its own instances, also on cards that are no longer in `mig_gpu_ids`.

An instance is known by its number, its first slice and the UUID of its MIG device. These tell another tool's instance
apart where they differ, and no more: a driver gives numbers again and derives the UUID from the card, the number and
the engine, so an instance that was created again at the same place may have all three. But no instance outlives a
restart of the machine, so owners that were recorded before it are forgotten.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from yurt.sdk.value import Value, replace

from yurt_device_nvidia.mig_control import CardProfile

FILE = "nvidia-mig.json"
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


class InstanceOwner(Value):
    """The task for which a GPU instance was created, the instance's first slice, and the UUID of its MIG device.

    Without a UUID until the driver has listed the device.
    """

    number: int
    start: int
    alloc_id: str
    task_name: str
    uuid: str = ""


class RecordedCard(Value):
    """A card: its profiles, the owners of its instances, and the machine's boot in which it was recorded."""

    profiles: tuple[CardProfile, ...] = ()
    owners: tuple[InstanceOwner, ...] = ()
    boot_id: str = ""


class MigRecord:
    """The file in `folder`; without a folder nothing outlives the agent. `boot_id` names the machine's boot."""

    def __init__(self, folder: str, boot_id: str = "") -> None:
        self._path = Path(folder) / FILE if folder else None
        self._boot_id = boot_id
        self._written: Mapping[str, RecordedCard] = {}

    def read(self) -> Mapping[str, RecordedCard]:
        """The cards by UUID, without the owners of an earlier boot; a file that cannot be read counts as none."""
        if self._path is None:
            return {}
        try:
            self._written = msgspec.json.decode(self._path.read_bytes(), type=dict[str, RecordedCard])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("record of MIG instances cannot be read: path=%s error=%s", self._path, error)
        return {card: self._of_this_boot(each) for card, each in self._written.items()}

    def _of_this_boot(self, card: RecordedCard) -> RecordedCard:
        is_earlier = bool(card.boot_id and self._boot_id) and card.boot_id != self._boot_id
        return replace(card, owners=()) if is_earlier else card

    def write(self, cards: Mapping[str, RecordedCard]) -> None:
        """Write the file when it changes."""
        cards = {card: replace(each, boot_id=self._boot_id) for card, each in cards.items()}
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


def machine_boot_id() -> str:
    """The id of the machine's boot; empty where it cannot be read: then owners are kept."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return ""
