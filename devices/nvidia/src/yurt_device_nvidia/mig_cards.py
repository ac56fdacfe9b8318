"""The cards that the operator lets the plugin split: creates MIG instances for claims and destroys them afterwards.

On such a card the plugin owns MIG mode and all instances. An instance is created when its task is about to start, and
destroyed once no claim has it; one that a process still uses stays, and its card is suspect meanwhile. It serves the
task for which it was created and no other. A task that has the whole card, or a share of another mode, gets it out of
MIG mode. Where that needs a reset of the card (before Hopper), a task with the whole card gets the instance of the
largest profile.

The plugin leaves a card alone while tasks have instances of it that were made by hand. A card that the operator no
longer lists and that the record names is *retired*: it takes nothing new. The record names it even if the plugin has no
instance of it, and the operator may have split it by hand since. So the plugin destroys only instances with a recorded
owner whose task is gone. When no task has one any more, the card is forgotten: out of MIG mode if it has no instance,
and as it is if it has others.

A card that neither the list nor the record names is another tool's: its instances and its mode stay as they are, also
while a task claims an instance of it. A claim is no permission: each one is reported, also one of an old plan that will
be refused.

The record may be lost, now or before an earlier start. So on listed cards the first report of claims tells whose
the instances without a recorded owner are: one at the place and of the profile that a task without an instance has
claimed counts as its own. Without that a running task's instance would be a stranger's, and be destroyed when the task
is reserved again. On a retired card nothing is destroyed without a recorded owner, so none is found there.

`report`, `reserve` and the questions run on the event loop, all that takes a `MigControl` blocks and runs on the thread
of the driver. What both sides read is replaced as a whole, never changed in place. A report may come at any moment of
`prepare`, so what its claims mean for owners is set before the claims are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from yurt.sdk.device import MIG, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.mig import profiles_text
from yurt.sdk.value import replace

from yurt_device_nvidia.health import Verdict
from yurt_device_nvidia.mig_claims import ClaimsNow, MigPlace, TaskKey, key_of, places_of
from yurt_device_nvidia.mig_control import CardProfile, GpuInstance, MigControl, MigProblem
from yurt_device_nvidia.mig_record import InstanceOwner, MigRecord, RecordedCard

ALL_CARDS = "all"
RESET = "reset the card while nothing uses it (nvidia-smi --gpu-reset)"
BY_HAND = (
    "tasks have MIG instances of this card that were made by hand; drain the node, then the plugin splits the card"
)
BOTH_KINDS = "tasks have MIG instances of this card that were made by hand, and others of the plugin; drain the node"
RETIRED = "mig_gpu_ids no longer names this card, and it is given back when no task has a MIG instance of it"
NOT_GIVEN_BACK = "mig_gpu_ids no longer names this card, and it cannot be given back yet"
UNLISTED = (
    "a task has booked a MIG instance of this card, which mig_gpu_ids does not name; the plugin changes nothing on it"
)
ONE_INSTANCE = "a process sees one MIG instance only"

log = logging.getLogger(__name__)


class PreparedInstance(NamedTuple):
    """The number of a task's instance, and whether it was created just now."""

    number: int
    is_new: bool


Prepared = dict[MigPlace | str, PreparedInstance]
"""Instances by place, and those that stand for a whole card by card."""


class MigCards:
    """The state of the cards in `allowed` (UUIDs, or `all`), and of those in the record."""

    def __init__(self, allowed: Iterable[str], record: MigRecord) -> None:
        self._allowed = frozenset(allowed)
        self._record = record
        recorded = record.read()
        self._profiles: Mapping[str, tuple[CardProfile, ...]] = {card: each.profiles for card, each in recorded.items()}
        self._owners: Mapping[str, tuple[InstanceOwner, ...]] = {card: each.owners for card, each in recorded.items()}
        self._retired = frozenset(card for card in recorded if not self._is_listed(card))
        self._asked: frozenset[str] = frozenset()
        """Cards whose driver has named the profiles since the start."""
        self._problems: dict[str, str] = {}
        """Why a card cannot be split, by card."""
        self._claims = ClaimsNow()
        self._parts: Mapping[str, tuple[str, int]] = {}
        """Card and GPU instance of each MIG instance at the last look, by UUID."""
        self._leftovers: Mapping[str, str] = {}
        """Cards with an instance or a mode that no claim has and that the driver does not end now, with the reason."""
        self._unowned: tuple[DeviceClaim, ...] = ()
        """The claims of the first report whose tasks own no instance, and for which none has been looked for yet."""

    # Questions.

    @property
    def is_used(self) -> bool:
        """Whether any card is split by the plugin, or may be."""
        return bool(self._allowed or self._retired)

    def manages(self, card: str) -> bool:
        """Whether this card is offered as a card, whatever instances it has now.

        That includes another tool's card of which a task claims an instance: the task may be a running one whose record
        is lost, and its instance must not be offered to others.
        """
        by_hand, is_split = card in self._cards_by_hand(), card in self._claims.split_cards()
        if card in self._retired:
            return True
        if self._is_listed(card):
            return is_split or (card in self._profiles and not by_hand)
        return is_split and not by_hand

    def texts(self) -> dict[str, str]:
        """The profiles of each managed card, as its attribute."""
        found = {card: profiles_text(each.offered for each in known) for card, known in self._profiles.items()}
        return {card: text for card, text in found.items() if self.manages(card)}

    def verdict(self, card: str) -> Verdict | None:
        """What speaks against new tasks on a card because of its MIG instances."""
        by_hand, is_split = card in self._cards_by_hand(), card in self._claims.split_cards()
        if is_split and not self._is_owned(card):
            return Verdict(severity="degraded", reason=UNLISTED)
        if by_hand and is_split:
            return Verdict(severity="degraded", reason=BOTH_KINDS)
        reason = self._leftovers.get(card, "")
        if card in self._retired:
            return Verdict(severity="degraded", reason=f"{NOT_GIVEN_BACK}: {reason}" if reason else RETIRED)
        if by_hand and self._is_listed(card):
            return Verdict(severity="suspect", reason=BY_HAND)
        return Verdict(severity="suspect", reason=reason) if reason else None

    def _is_listed(self, card: str) -> bool:
        return bool(self._allowed & {card, ALL_CARDS})

    def _is_owned(self, card: str) -> bool:
        """Whether the plugin owns MIG mode and the instances of a card: the list or the record names it."""
        return self._is_listed(card) or card in self._retired

    def _cards_by_hand(self) -> frozenset[str]:
        parts = self._parts
        return frozenset(parts[each][0] for each in self._claims.instances() if each in parts)

    # What is known.

    def report(self, claims: Iterable[DeviceClaim]) -> None:
        """Take over a report of all claims, made now."""
        reported = self._claims.reported(claims)
        if not self._claims.is_reported:
            # First: with the claims alone an instance without an owner would seem to be nobody's.
            owning = {(each.alloc_id, each.task_name) for owners in self._owners.values() for each in owners}
            self._unowned = tuple(claim for task, claim in reported.by_task.items() if task not in owning)
        self._claims = reported

    def reserve(self, claim: DeviceClaim) -> None:
        """Count a claim from now on, until the next report."""
        self._claims = self._claims.reserved(claim)

    def see(self, parts: Mapping[str, tuple[str, int]]) -> None:
        """Take over card and GPU instance of each MIG instance, by UUID, and note the UUIDs of the plugin's own."""
        self._parts = parts
        found = {place: uuid for uuid, place in parts.items()}
        self._owners = {
            card: tuple(
                each if each.uuid else replace(each, uuid=found.get((card, each.number), "")) for each in owners
            )
            for card, owners in self._owners.items()
        }

    def learn(self, control: MigControl, cards: Mapping[str, bool]) -> bool:
        """Find the profiles of new cards; True when a card's mode changed.

        Drivers answer only in MIG mode, so it is turned on where the card is free (the mapping's value) and no claim
        has it; otherwise the card is asked again at the next look.
        """
        has_changed = False
        for card, is_free in cards.items():
            if card in self._asked or not self._is_owned(card):
                continue
            is_known_free = is_free and self._claims.is_reported and card not in self._claims.whole_cards()
            is_needed = self._is_listed(card) and card not in self._profiles
            try:
                has_changed = self._learn_card(control, card, may_switch=is_known_free and is_needed) or has_changed
            except MigProblem as problem:
                self._tell(card, problem.reason)
        self._save()
        return has_changed

    def _learn_card(self, control: MigControl, card: str, *, may_switch: bool) -> bool:
        found, has_changed = control.profiles(card), False
        if not found and may_switch:
            has_changed = control.set_mode(card, is_on=True)
            found = control.profiles(card)
            if not found:
                self._tell(card, f"MIG mode is not on yet; {RESET}")
        if found:
            self._profiles = {**self._profiles, card: found}
            self._asked |= {card}
            self._problems.pop(card, None)
        return has_changed

    def _tell(self, card: str, problem: str) -> None:
        if self._problems.get(card) != problem:
            self._problems[card] = problem
            log.warning("card cannot be split into MIG instances: gpu=%s reason=%s", card, problem)

    def _save(self) -> None:
        cards = self._profiles.keys() | self._owners.keys()
        self._record.write(
            {
                card: RecordedCard(profiles=self._profiles.get(card, ()), owners=self._owners.get(card, ()))
                for card in sorted(cards)
            }
        )

    # What tasks get.

    def prepare(self, control: MigControl, claim: DeviceClaim) -> Prepared:
        """Make the cards of a claim ready. Raises DriverError, or RecoverableError when a retry may help."""
        try:
            self._find_owners(control)
            of_devices = [self._ready(control, claim, devices) for devices in claim.devices]
        except MigProblem as problem:
            if problem.is_temporary:
                raise RecoverableError(problem.reason) from None
            raise DriverError(problem.reason) from None
        finally:
            self._save()
        return {key: each for found in of_devices for key, each in found.items()}

    def _ready(self, control: MigControl, claim: DeviceClaim, devices: ClaimedDevices) -> Prepared:
        if devices.share == MIG:
            places = places_of(devices)
            if places and len([each for every in claim.devices for each in every.ids]) > 1:
                raise DriverError(f"{ONE_INSTANCE}; ask for one with count = 1, and for no other GPU in the same task")
            return {place: self._instance(control, place, key_of(claim)) for place in places}
        found: Prepared = {}
        for card in devices.ids:
            number = self._leave(control, card, devices.share, claim) if self._is_split_here(card) else None
            if number is not None:
                found[card] = number
        return found

    def _is_split_here(self, card: str) -> bool:
        """Whether the plugin takes a card that is claimed whole out of MIG mode, if it is in it."""
        return self._is_owned(card) and (self.manages(card) or card in self._cards_by_hand())

    def _instance(self, control: MigControl, place: MigPlace, task: TaskKey) -> PreparedInstance:
        """The instance at a place, created unless the task has it already."""
        if not self._is_owned(place.card):
            # Before the driver is asked: a card of known profiles is recorded, and counts as the plugin's own then.
            raise not_listed(place.card)
        if place.card in self._cards_by_hand():
            raise RecoverableError(f"GPU {place.card} cannot be split: {BY_HAND}")
        profile = self._profile(control, place)
        own = self._own_instance(control, place, profile, task)
        if own is not None:
            return own
        if not self._is_listed(place.card):
            raise not_listed(place.card)
        self._enter(control, place.card, task)
        for each in control.instances(place.card):
            if each.overlaps(place.start, profile.offered.size):
                self._clear(control, place.card, each, task)
        return self._create(control, place.card, profile, place.start, task)

    def _own_instance(
        self, control: MigControl, place: MigPlace, profile: CardProfile, task: TaskKey
    ) -> PreparedInstance | None:
        """The instance that a task has at a place already."""
        for each in control.instances(place.card) if control.is_on(place.card) else ():
            if (each.profile_id, each.start) == (profile.id, place.start) and self._owner(place.card, each) == task:
                control.complete(place.card, each.id, profile)
                return PreparedInstance(each.id, is_new=False)
        return None

    def _enter(self, control: MigControl, card: str, task: TaskKey) -> None:
        """Bring a card into MIG mode."""
        if control.is_on(card):
            return
        if card in self._claims.whole_cards(but=task):
            raise RecoverableError(f"GPU {card} is still in use by another task as a whole")
        if not control.set_mode(card, is_on=True):
            raise DriverError(f"GPU {card} comes into MIG mode only by a reset; {RESET}")

    def _create(
        self, control: MigControl, card: str, profile: CardProfile, start: int, task: TaskKey
    ) -> PreparedInstance:
        number = control.create(card, profile, start)
        owner = InstanceOwner(number=number, start=start, alloc_id=task[0], task_name=task[1])
        others = [each for each in self._owners.get(card, ()) if each.number != number]
        self._owners = {**self._owners, card: (*others, owner)}
        log.info("created MIG instance: gpu=%s profile=%s slice=%d", card, profile.offered.name, start)
        return PreparedInstance(number, is_new=True)

    def _clear(self, control: MigControl, card: str, instance: GpuInstance, task: TaskKey) -> None:
        """Destroy an instance that is in the way of a task, unless another task has it."""
        if self._is_wanted(card, instance, but=task):
            raise RecoverableError(
                f"slice {instance.start} of GPU {card} is still in use by the MIG instance of another task"
            )
        if not self._may_destroy(card, instance):
            raise DriverError(f"GPU {card} has MIG instances that the plugin did not create; plan the job again")
        self._destroy(control, card, instance)

    def _may_destroy(self, card: str, instance: GpuInstance) -> bool:
        """Whether an unclaimed instance is the plugin's: any of a listed card, a recorded one of a retired card."""
        return self._is_listed(card) or self._owner(card, instance) is not None

    def _destroy(self, control: MigControl, card: str, instance: GpuInstance) -> None:
        control.destroy(card, instance.id)
        left = tuple(each for each in self._owners.get(card, ()) if each.number != instance.id)
        self._owners = {**self._owners, card: left}
        log.info("destroyed MIG instance: gpu=%s slice=%d", card, instance.start)

    def _leave(self, control: MigControl, card: str, share: str, claim: DeviceClaim) -> PreparedInstance | None:
        """Take a card out of MIG mode; where it cannot leave, its largest instance."""
        if not control.is_on(card):
            return None
        task, largest = key_of(claim), max(self._known(control, card), key=lambda p: (p.slices, p.offered.memory_mb))
        start, present = largest.offered.starts[0], control.instances(card)
        for each in present:
            if each.profile_id == largest.id and self._owner(card, each) == task and share == WHOLE:
                control.complete(card, each.id, largest)
                return PreparedInstance(each.id, is_new=False)
        for each in present:
            self._clear(control, card, each, task)
        if control.set_mode(card, is_on=False):
            return None
        control.set_mode(card, is_on=True)
        if share != WHOLE:
            raise DriverError(f'GPU {card} leaves MIG mode only by a reset, which share = "{share}" needs; {RESET}')
        if len(claim.ids) > 1:
            raise DriverError(f"GPU {card} leaves MIG mode only by a reset, and {ONE_INSTANCE}; {RESET}")
        return self._create(control, card, largest, start, task)

    def _known(self, control: MigControl, card: str) -> tuple[CardProfile, ...]:
        """The profiles of a card, asked for now where they are not known yet."""
        if card not in self._profiles:
            self._learn_card(control, card, may_switch=False)
        found = self._profiles.get(card, ())
        if not found:
            raise RecoverableError(f"the MIG profiles of GPU {card} are not known yet: the driver names none now")
        return found

    def _profile(self, control: MigControl, place: MigPlace) -> CardProfile:
        found = profile_of(place, self._known(control, place.card))
        if found is None:
            raise DriverError(
                f"GPU {place.card} has no MIG profile of {place.memory_mb} MiB at slice {place.start}; "
                "plan the job again"
            )
        return found

    def _find_owners(self, control: MigControl) -> None:
        """Enter the tasks of the first report that own no instance as owners of those without an owner at their places.

        Only on listed cards: on others the instance may be another tool's, and an owner's is destroyed after it.
        Later claims are left out: a new task must not get the instance of one that has ended. One that is already in
        the first report may, since nothing tells it from a running one; that takes a lost record or another tool.
        """
        unowned, left = self._unowned, list[DeviceClaim]()
        for claim in unowned:
            try:
                for place in (place for devices in claim.devices for place in places_of(devices)):
                    self._find_owner(control, place, key_of(claim))
            except MigProblem as problem:
                left.append(claim)
                log.warning("owner of MIG instance is not known: alloc=%s reason=%s", claim.alloc_id, problem.reason)
        if unowned:
            self._unowned = tuple(left)

    def _find_owner(self, control: MigControl, place: MigPlace, task: TaskKey) -> None:
        if not self._is_listed(place.card):
            return
        if place.card not in self._profiles:
            self._learn_card(control, place.card, may_switch=False)
        profile = profile_of(place, self._profiles.get(place.card, ()))
        if profile is None or not control.is_on(place.card):
            return
        for each in control.instances(place.card):
            is_there = (each.profile_id, each.start) == (profile.id, place.start)
            if is_there and self._owner(place.card, each) is None:
                owner = InstanceOwner(number=each.id, start=each.start, alloc_id=task[0], task_name=task[1])
                self._owners = {**self._owners, place.card: (*self._owners.get(place.card, ()), owner)}
                log.warning(
                    "MIG instance had no recorded owner, owner found by its claim: gpu=%s slice=%d alloc=%s task=%s",
                    place.card, place.start, *task,
                )  # fmt: skip

    def _owner(self, card: str, instance: GpuInstance) -> TaskKey | None:
        """The task for which an instance was created; None for one of another tool."""
        found = (each for each in self._owners.get(card, ()) if self._is_recorded_for(each, card, instance))
        return next(((each.alloc_id, each.task_name) for each in found), None)

    def _is_recorded_for(self, owner: InstanceOwner, card: str, instance: GpuInstance) -> bool:
        """Whether an instance is that of an owner, as far as its number, place and UUIDs at the last look tell."""
        if (owner.number, owner.start) != (instance.id, instance.start):
            return False
        uuids = {uuid for uuid, place in self._parts.items() if place == (card, instance.id)}
        return not owner.uuid or not uuids or owner.uuid in uuids

    # What stays.

    def keep(self, control: MigControl) -> bool:
        """Destroy the plugin's instances that no claim has, and give back retired cards; True when the driver did any.

        Does nothing before the first report.
        """
        if not self._claims.is_reported:
            return False
        self._find_owners(control)
        leftovers, has_destroyed = dict[str, str](), False
        for card in sorted(self._profiles.keys() | self._retired):
            if not self.manages(card) or card in self._claims.whole_cards():
                continue
            reasons = list[str]()
            has_destroyed = self._keep_card(control, card, reasons) or has_destroyed
            if not reasons and card in self._retired and card not in self._claims.split_cards():
                has_destroyed = self._give_back(control, card, reasons) or has_destroyed
            if reasons:
                leftovers[card] = reasons[0]
                if reasons[0] != self._leftovers.get(card):
                    log.warning("MIG instance or mode without a task stays: gpu=%s reason=%s", card, reasons[0])
        self._leftovers = leftovers
        self._save()
        return has_destroyed

    def _keep_card(self, control: MigControl, card: str, reasons: list[str]) -> bool:
        """Destroy the plugin's instances of one card that no claim has; `reasons` gets why one stays."""
        has_destroyed = False
        try:
            present = control.instances(card) if control.is_on(card) else ()
        except MigProblem as problem:
            reasons.append(problem.reason)
            return False
        owners = self._owners.get(card, ())
        left = tuple(each for each in owners if any(self._is_recorded_for(each, card, one) for one in present))
        self._owners = {**self._owners, card: left}
        for each in present:
            if self._is_wanted(card, each) or not self._may_destroy(card, each):
                continue
            try:
                self._destroy(control, card, each)
                has_destroyed = True
            except MigProblem as problem:
                reasons.append(problem.reason)
        return has_destroyed

    def _give_back(self, control: MigControl, card: str, reasons: list[str]) -> bool:
        """Forget a retired card of which no task has an instance of the plugin; True when its mode changed.

        It leaves MIG mode where it can, unless it has other instances. When the driver refuses (a monitoring program
        has the card open), the card stays retired and `reasons` gets why: forgotten, it would stay in MIG mode.
        """
        has_changed = False
        try:
            if control.is_on(card):
                if control.instances(card) or card in self._cards_by_hand():
                    log.info("leaving MIG mode and instances of a card that is no longer listed: gpu=%s", card)
                else:
                    has_changed = control.set_mode(card, is_on=False)
        except MigProblem as problem:
            reasons.append(problem.reason)
            return False
        self._retired -= {card}
        self._asked -= {card}
        self._profiles = {key: each for key, each in self._profiles.items() if key != card}
        self._owners = {key: each for key, each in self._owners.items() if key != card}
        return has_changed

    def _is_wanted(self, card: str, instance: GpuInstance, *, but: TaskKey | None = None) -> bool:
        """Whether a claim has the instance; before the first report it may be any task's, `but` leaves out one task."""
        claims, parts, owner = self._claims, self._parts, self._owner(card, instance)
        if not claims.is_reported:
            return owner is None or owner != but
        by_hand = claims.instances()
        if any(parts.get(each, (card, instance.id)) == (card, instance.id) for each in by_hand if owner is None):
            return True  # An instance that the driver does not list now may be this one.
        places = set(claims.places(but=but))
        if owner is None:  # It may be of any task whose instances have not been looked for, `but` included.
            places |= {place for claim in self._unowned for devices in claim.devices for place in places_of(devices)}
        return any(self._is_at(place, card, instance) for place in places)

    def _is_at(self, place: MigPlace, card: str, instance: GpuInstance) -> bool:
        """Whether an instance is at a place and, as far as profiles are known, of its profile."""
        profile = profile_of(place, self._profiles.get(card, ()))
        is_same = profile is None or profile.id == instance.profile_id
        return is_same and (place.card, place.start) == (card, instance.start)


def not_listed(card: str) -> DriverError:
    """The refusal of a new instance on a card that is not listed."""
    return DriverError(f"the plugin may not split GPU {card} (mig_gpu_ids); plan the job again")


def profile_of(place: MigPlace, profiles: Iterable[CardProfile]) -> CardProfile | None:
    """The profile that a place asks for."""
    amounts = (place.memory_mb, place.compute)
    known = (each for each in profiles if (each.offered.memory_mb, each.offered.compute) == amounts)
    return next((each for each in known if place.start in each.offered.starts), None)
