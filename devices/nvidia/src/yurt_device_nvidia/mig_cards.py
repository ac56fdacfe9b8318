"""The cards that the operator lets the plugin split: creates MIG instances for claims and destroys them afterwards.

On such a card the plugin owns MIG mode and all instances. An instance is created when its task is about to start, and
destroyed once no claim has it; one that a process still uses stays, and its card is suspect meanwhile. A task that has
the whole card, or a share of another mode, gets it out of MIG mode. Where that needs a reset of the card (before
Hopper), a task with the whole card gets the instance of the largest profile.

All methods but `allows` and `texts` block and run on the thread of the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from yurt.sdk.device import MIG, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.mig import profiles_text

from yurt_device_nvidia.mig_control import CardProfile, GpuInstance, MigControl, MigProblem

ALL_CARDS = "all"
NEW_S = 60.0
"""How long the reservation of a task counts without a report of its claim."""
RESET = "reset the card while nothing uses it (nvidia-smi --gpu-reset)"

log = logging.getLogger(__name__)


class MigPlace(NamedTuple):
    """An instance that a claim asks for: its card, its first slice, and the MiB and percent of its profile."""

    card: str
    start: int
    memory_mb: int
    compute: int


class MigCards:
    """The state of the cards in `allowed` (UUIDs, or `all`)."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(allowed)
        self._profiles: dict[str, tuple[CardProfile, ...]] = {}
        self._problems: dict[str, str] = {}
        """Why a card cannot be split, by card."""
        self._reported: dict[tuple[str, str], DeviceClaim] | None = None
        """The claims of the last report by allocation and task; None before the first."""
        self._new: dict[tuple[str, str], tuple[float, DeviceClaim]] = {}
        """Reservations that no report has had yet, with the time until which they count."""
        self.leftovers: dict[str, str] = {}
        """Cards with an instance that no claim has and that cannot be destroyed, with the reason."""

    def allows(self, card: str) -> bool:
        """Whether the plugin splits this card: the operator allows it and the card can."""
        return card in self._profiles

    @property
    def is_used(self) -> bool:
        """Whether the operator allows it for any card."""
        return bool(self._allowed)

    def texts(self) -> dict[str, str]:
        """The profiles of each card, as its attribute."""
        return {card: profiles_text(each.offered for each in found) for card, found in self._profiles.items()}

    def learn(self, control: MigControl, cards: Mapping[str, bool]) -> bool:
        """Find the profiles of new cards; True when a card's mode changed.

        Drivers answer only in MIG mode, so it is turned on where the card is free (the mapping's value) and no claim
        has it; otherwise the card is asked again at the next look.
        """
        has_changed = False
        for card, is_free in cards.items():
            if card in self._profiles or not self._allowed & {card, ALL_CARDS}:
                continue
            is_known_free = is_free and self._reported is not None and card not in self._whole
            try:
                has_changed = self._learn_card(control, card, is_free=is_known_free) or has_changed
            except MigProblem as problem:
                self._tell(card, problem.reason)
        return has_changed

    def _learn_card(self, control: MigControl, card: str, *, is_free: bool) -> bool:
        found, has_changed = control.profiles(card), False
        if not found and is_free:
            has_changed = control.set_mode(card, is_on=True)
            found = control.profiles(card)
            if not found:
                self._tell(card, f"MIG mode is not on yet; {RESET}")
        if found:
            self._profiles[card] = found
            self._problems.pop(card, None)
        return has_changed

    def _tell(self, card: str, problem: str) -> None:
        if self._problems.get(card) != problem:
            self._problems[card] = problem
            log.warning("card cannot be split into MIG instances: gpu=%s reason=%s", card, problem)

    # What tasks get.

    def prepare(self, control: MigControl, claim: DeviceClaim) -> dict[MigPlace | str, int]:
        """Make the cards of a claim ready: the numbers of its instances by place, and of whole-card ones by card.

        Raises DriverError, or RecoverableError when a retry may help.
        """
        self._new[claim.alloc_id, claim.task_name] = (time.monotonic() + NEW_S, claim)
        try:
            of_devices = [self._ready(control, devices) for devices in claim.devices]
        except MigProblem as problem:
            if problem.is_in_use:
                raise RecoverableError(problem.reason) from None
            raise DriverError(problem.reason) from None
        return {key: number for found in of_devices for key, number in found.items()}

    def _ready(self, control: MigControl, devices: ClaimedDevices) -> dict[MigPlace | str, int]:
        if devices.share == MIG:
            return {place: self._instance(control, place) for place in places_of(devices)}
        numbers = {card: self._leave(control, card, devices.share) for card in devices.ids if self.allows(card)}
        return {card: number for card, number in numbers.items() if number is not None}

    def _instance(self, control: MigControl, place: MigPlace) -> int:
        """The number of the instance at a place, created if it is missing."""
        profile = self._profile(place)
        if not control.is_on(place.card) and not control.set_mode(place.card, is_on=True):
            raise DriverError(f"GPU {place.card} comes into MIG mode only by a reset; {RESET}")
        for each in control.instances(place.card, self._profiles[place.card]):
            if (each.profile_id, each.start) == (profile.id, place.start):
                control.complete(place.card, each.id, profile)
                return each.id
            if each.overlaps(place.start, profile.offered.size):
                self._clear(control, place.card, each)
        number = control.create(place.card, profile, place.start)
        log.info("created MIG instance: gpu=%s profile=%s slice=%d", place.card, profile.offered.name, place.start)
        return number

    def _clear(self, control: MigControl, card: str, instance: GpuInstance) -> None:
        """Destroy an instance that is in the way of another, unless a claim has it."""
        if self._is_wanted(card, instance):
            raise RecoverableError(
                f"slice {instance.start} of GPU {card} is still in use by the MIG instance of another task"
            )
        control.destroy(card, instance.id)
        log.info("destroyed MIG instance: gpu=%s slice=%d", card, instance.start)

    def _leave(self, control: MigControl, card: str, share: str) -> int | None:
        """Take a card out of MIG mode; where it cannot leave, the number of its largest instance."""
        if not control.is_on(card):
            return None
        largest = max(self._profiles[card], key=lambda each: (each.slices, each.offered.memory_mb))
        start = largest.offered.starts[0]
        present = control.instances(card, self._profiles[card])
        for each in present:
            if (each.profile_id, each.start) == (largest.id, start) and share == WHOLE and len(present) == 1:
                control.complete(card, each.id, largest)
                return each.id
        for each in present:
            self._clear(control, card, each)
        if control.set_mode(card, is_on=False):
            return None
        control.set_mode(card, is_on=True)
        if share != WHOLE:
            raise DriverError(f'GPU {card} leaves MIG mode only by a reset, which share = "{share}" needs; {RESET}')
        return control.create(card, largest, start)

    def _profile(self, place: MigPlace) -> CardProfile:
        amounts = (place.memory_mb, place.compute)
        for each in self._profiles.get(place.card, ()):
            if (each.offered.memory_mb, each.offered.compute) == amounts and place.start in each.offered.starts:
                return each
        raise DriverError(
            f"GPU {place.card} has no MIG profile of {place.memory_mb} MiB at slice {place.start}, or the plugin may "
            "not split it (mig_gpu_ids); plan the job again"
        )

    # What stays.

    def keep(self, control: MigControl | None, claims: Iterable[DeviceClaim] | None = None) -> None:
        """Destroy the instances that no claim has; `claims` are a new report of all. Without a driver: later.

        A report may have been made before a reservation that is newer, so that one counts for `NEW_S`.
        """
        if claims is not None:
            self._reported = {(claim.alloc_id, claim.task_name): claim for claim in claims}
        if self._reported is None:
            return
        self._new = {
            key: (until, claim)
            for key, (until, claim) in self._new.items()
            if key not in self._reported and time.monotonic() < until
        }
        for card in self._profiles if control is not None else ():
            if control is not None and card not in self._whole:
                self._keep_card(control, card)

    def _keep_card(self, control: MigControl, card: str) -> None:
        before = self.leftovers.pop(card, "")
        try:
            if not control.is_on(card):
                return
            for each in control.instances(card, self._profiles[card]):
                if not self._is_wanted(card, each):
                    self._clear(control, card, each)
        except MigProblem as problem:
            self.leftovers[card] = problem.reason
            if problem.reason != before:
                log.warning("MIG instance without a task stays: reason=%s", problem)

    def _is_wanted(self, card: str, instance: GpuInstance) -> bool:
        """Whether a claim has the instance; before the first report it may be any task's."""
        places = (place for claim in self._claims for each in claim.devices for place in places_of(each))
        return self._reported is None or (card, instance.start) in {(place.card, place.start) for place in places}

    @property
    def _claims(self) -> list[DeviceClaim]:
        return [*(self._reported or {}).values(), *(claim for _, claim in self._new.values())]

    @property
    def _whole(self) -> frozenset[str]:
        """Cards that claims have in another way than by MIG instances."""
        devices = (each for claim in self._claims for each in claim.devices if each.share != MIG)
        return frozenset(card for each in devices for card in each.ids)


def places_of(devices: ClaimedDevices) -> list[MigPlace]:
    """The instances that claimed devices ask for."""
    if devices.share != MIG:
        return []
    pairs = zip(devices.ids, devices.numbers, strict=True)
    return [MigPlace(card, int(number), devices.memory_mb, devices.compute) for card, number in pairs]
