"""A driver in memory whose cards can be split, and cards with a record on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from yurt.sdk.device import DeviceClaim
from yurt.sdk.mig import MigProfile
from yurt_device_nvidia.mig_cards import MigCards
from yurt_device_nvidia.mig_control import CardProfile, GpuInstance, MigControl, MigProblem
from yurt_device_nvidia.mig_record import InstanceOwner, MigRecord, RecordedCard

from .mig_bench import ALL, HALF, SMALL, gpu

CARD, OTHER = gpu(0), gpu(1)
SMALL_ID, HALF_ID, ALL_ID = 19, 9, 0
PROFILES = (
    CardProfile(id=SMALL_ID, slices=1, offered=MigProfile("1g.10gb", *SMALL, size=1, starts=tuple(range(7)))),
    CardProfile(id=HALF_ID, slices=3, offered=MigProfile("3g.40gb", *HALF, size=4, starts=(0, 4))),
    CardProfile(id=ALL_ID, slices=7, offered=MigProfile("7g.80gb", *ALL, size=8, starts=(0,))),
)


class Driver:
    """The MIG functions of a driver whose cards are in memory; `changes` has each change that it was asked for."""

    def __init__(self, *present: GpuInstance, is_on: bool = True) -> None:
        self.present = list(present)
        self.changes: list[tuple[Any, ...]] = []
        self.asked_profiles = 0
        self.leaves_by_reset = False
        self.refusal = ""
        """Why changes of the mode and destructions fail."""
        self._is_on = is_on

    def is_on(self, card: str) -> bool:
        return self._is_on and card == CARD

    def set_mode(self, card: str, *, is_on: bool) -> bool:
        self._refuse()
        self.changes.append(("mode", card, is_on))
        if self.leaves_by_reset:
            return False
        self._is_on = is_on
        return True

    def profiles(self, card: str) -> tuple[CardProfile, ...]:
        self.asked_profiles += 1
        return PROFILES if self.is_on(card) else ()

    def instances(self, card: str) -> tuple[GpuInstance, ...]:
        if not self.is_on(card):
            raise MigProblem("the card is not in MIG mode")
        return tuple(self.present)

    def create(self, card: str, profile: CardProfile, start: int) -> int:
        number = max((each.id for each in self.present), default=0) + 1
        self.present.append(GpuInstance(number, profile.id, start, profile.offered.size))
        self.changes.append(("create", profile.offered.name, start))
        return number

    def complete(self, card: str, number: int, profile: CardProfile) -> None:
        self.changes.append(("complete", number))

    def destroy(self, card: str, number: int) -> None:
        self._refuse()
        self.changes.append(("destroy", number))
        self.present = [each for each in self.present if each.id != number]

    def _refuse(self) -> None:
        if self.refusal:
            raise MigProblem(self.refusal, is_temporary=True)


class Bench:
    """Cards with their record and their driver."""

    def __init__(
        self, folder: Path, *listed: str, driver: Driver | None = None, owners: tuple[InstanceOwner, ...] | None = None
    ) -> None:
        """`owners`: those of the first card in the record of an earlier agent; None without a record."""
        record = MigRecord(str(folder))
        if owners is not None:
            record.write({CARD: RecordedCard(profiles=PROFILES, owners=owners)})
        self.cards = MigCards(listed, MigRecord(str(folder)))
        self.driver = driver or Driver()

    @property
    def control(self) -> MigControl:
        return cast("MigControl", self.driver)

    def learn(self, *, is_free: bool = True) -> bool:
        """Ask the first card for its profiles."""
        return self.cards.learn(self.control, {CARD: is_free})

    def take(self, wanted: DeviceClaim) -> Any:
        """Reserve for a task."""
        self.cards.reserve(wanted)
        return self.cards.prepare(self.control, wanted)


def owner(number: int, start: int, task: str = "running") -> InstanceOwner:
    return InstanceOwner(number=number, start=start, alloc_id="a", task_name=task)


def small(number: int, start: int) -> GpuInstance:
    return GpuInstance(number, SMALL_ID, start, 1)
