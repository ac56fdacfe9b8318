"""The device plugin for NVIDIA GPUs: polls them, caches the results, and serves the client.

There are two intervals. A full look finds cards, instances and their facts (`fingerprint_period`); between full looks
only the conditions of the cards are queried (`health_period`), and an Xid error causes a look at once. A card that was
found once stays on offer while the agent runs: when it stops answering, as unhealthy with the reason. NVML is then
opened again at each full look, because only a new start of NVML finds a card that was reset or replaced. Earlier errors
of a card that answers again no longer count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from yurt.sdk.device import (
    MPS,
    WHOLE,
    ClaimedDevices,
    DeviceClaim,
    DeviceFingerprint,
    DeviceUse,
    Reservation,
    SelfTest,
)
from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import NANOSECONDS, UnixNano, replace

from yurt_device_nvidia.caller import Hanging, NvmlThread
from yurt_device_nvidia.facts import CardFacts, CardUse, Condition, GpuObservation, SystemFacts
from yurt_device_nvidia.groups import GroupOffer
from yurt_device_nvidia.health import (
    SEVERITIES,
    ConditionSample,
    HealthRules,
    SeenXid,
    Verdict,
    sampled,
    signs_of_fault,
    verdict_against,
)
from yurt_device_nvidia.library import FAKE_PREFIX, has_library
from yurt_device_nvidia.mig_cards import MigCards, Prepared, PreparedInstance
from yurt_device_nvidia.mig_claims import places_of
from yurt_device_nvidia.mig_record import MigRecord, machine_boot_id
from yurt_device_nvidia.mps import MpsDaemons, limits
from yurt_device_nvidia.nvml import Nvml, NvmlProblem, Xid
from yurt_device_nvidia.options import Settings
from yurt_device_nvidia.reservation import parts_of, read_cdi_names, read_mig_minors, reservation
from yurt_device_nvidia.usage_statistics import device_use
from yurt_device_nvidia.xids import XidWatcher

CALL_LIMIT_S = 60.0
"""The time limit of a call into the driver: waking eight cards without persistence takes seconds for each."""
NOT_LISTED = "the driver does not list it any more"

log = logging.getLogger(__name__)


class NvidiaDevices:
    """The NVIDIA GPUs of this machine."""

    name = "nvidia"

    def __init__(self, settings: Settings, context: PluginContext) -> None:
        self._settings = settings
        self._context = context
        options = settings.options
        self._rules = HealthRules(quiet_s=settings.quiet_s, ignored=frozenset(options.ignored_xids))
        self._mps = MpsDaemons(Path(options.mps_dir or Path(context.paths.run_dir) / "nvidia-mps"))
        self._mig = MigCards(options.mig_gpu_ids, MigRecord(context.paths.state_dir, machine_boot_id()))
        self._nvml = Nvml(options.library)
        self._caller = NvmlThread("nvml", limit_s=CALL_LIMIT_S)
        self._watcher = XidWatcher(self._nvml, self._take_xid)
        self._system = SystemFacts()
        self._cards: dict[str, CardFacts] = {}
        self._conditions: Mapping[str, Condition] = {}
        self._xids: dict[tuple[str, int | None], SeenXid] = {}
        self._samples: dict[str, tuple[ConditionSample, ...]] = {}
        self._looked_s = float("-inf")
        self._wake = asyncio.Event()
        self._is_closed = False

    # What there is.

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """The GPUs at once, and after each change, health included."""
        last: DeviceFingerprint | None = None
        while not self._is_closed:
            self._wake.clear()
            found = await self._found()
            if found != last:
                last = found
                yield found
            await self._rest()

    async def _rest(self) -> None:
        """Wait for the next poll."""
        try:
            async with asyncio.timeout(self._settings.health_s if self._cards else self._settings.fingerprint_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _found(self) -> DeviceFingerprint:
        try:
            await self._look()
        except NvmlProblem as problem:
            await self._watcher.stop()
            return self._offer(everything=problem.reason, problem=problem)
        except Hanging as hanging:
            return self._offer(everything=str(hanging), problem=NvmlProblem(str(hanging), "restart the machine"))
        return self._offer()

    async def _look(self) -> None:
        """Query the driver, completely when due; raises NvmlProblem or Hanging."""
        now_s = asyncio.get_running_loop().time()
        if self._nvml.is_open and now_s - self._looked_s < self._settings.fingerprint_s:
            self._conditions = {**self._missing(()), **await self._caller.call(self._nvml.conditions)}
            return
        if any(condition.lost for condition in self._conditions.values()):
            await self._watcher.stop()
            await self._caller.call(self._nvml.close)
        look = await self._caller.call(self._look_and_split)
        await self._listen_to(look)
        self._looked_s, self._system = now_s, look.system
        self._cards |= {card.uuid: card for card in look.cards}
        back = {uuid for uuid, old in self._conditions.items() if old.lost and not is_lost(look, uuid)}
        self._xids = {key: xid for key, xid in self._xids.items() if key[0] not in back}
        self._conditions = {**self._missing(look.conditions), **look.conditions}

    async def _listen_to(self, look: GpuObservation) -> None:
        """Subscribe to the errors of these cards; a new card requires a new subscription."""
        if self._watcher.is_listening and not {card.uuid for card in look.cards} <= self._cards.keys():
            await self._watcher.stop()
        if not self._watcher.is_listening and not self._is_closed:
            self._watcher.start()

    def _missing(self, found: Mapping[str, Condition] | tuple[()]) -> dict[str, Condition]:
        """The condition of cards that the driver no longer lists: the reason it gave when it lost them, if any."""
        gone = [uuid for uuid in self._cards if uuid not in found]
        return {uuid: Condition(lost=self._lost(uuid) or NOT_LISTED) for uuid in gone}

    def _lost(self, uuid: str) -> str:
        """The reason why a card did not answer at the last poll; empty when it did."""
        condition = self._conditions.get(uuid)
        return condition.lost if condition is not None else ""

    def _blocking_look(self) -> GpuObservation:
        if not self._nvml.is_open:
            self._check_library()
            self._nvml.open()
        try:
            return self._nvml.look()
        except NvmlProblem:
            self._nvml.close()
            raise

    def _look_and_split(self) -> GpuObservation:
        """Look at all cards, and at those that the plugin may split: their profiles and their instances of no task."""
        look = self._blocking_look()
        self._see_parts(look)
        if not self._mig.is_used:
            return look
        control = self._nvml.mig_control()
        has_changed = self._mig.learn(control, {card.uuid: self._is_free(card) for card in look.cards})
        if self._mig.keep(control) or has_changed:
            look = self._blocking_look()
            self._see_parts(look)
        return look

    def _see_parts(self, look: GpuObservation) -> None:
        self._mig.see({mig.uuid: (card.uuid, mig.gpu_instance) for card in look.cards for mig in card.migs})

    def _marked(self) -> list[CardFacts]:
        """The cards, with what the plugin may create on those that it splits."""
        profiles = self._mig.texts()
        return [
            replace(card, mig_profiles=profiles.get(uuid, ""), is_managed=self._mig.manages(uuid))
            for uuid, card in self._cards.items()
        ]

    def _is_free(self, card: CardFacts) -> bool:
        """Whether no process uses a card that is not split."""
        use = None if card.mig else self._nvml.use(card.uuid)
        return use is not None and not use.processes

    def _check_library(self) -> None:
        library = self._settings.options.library
        if not has_library(library):
            raise NvmlProblem(
                f"this machine has an NVIDIA card, but its driver's library {library} is not found",
                "install the NVIDIA driver",
            )

    def _offer(self, everything: str = "", problem: NvmlProblem | None = None) -> DeviceFingerprint:
        """The present offer; `everything` is why no device is available."""
        verdicts = self._verdicts()
        if everything:
            # Without its driver nothing tells how a card is: what runs on it may go on.
            verdicts = dict.fromkeys(self._cards, Verdict(severity="degraded", reason=everything))
        options = self._settings.options
        modes = tuple(mode for mode in options.sharing if mode != MPS or self._mps.is_installed())
        offer = GroupOffer(
            self._system,
            self._marked(),
            reasons={device: verdict.reason for device, verdict in verdicts.items()},
            severities={device: verdict.severity for device, verdict in verdicts.items()},
            ignored=frozenset(options.ignored_gpu_ids),
            modes=modes,
        )
        facts = {"driver_version": self._system.driver_version, "cuda_version": self._system.cuda_version}
        pretended: NvmlProblem | None = None
        if options.library.startswith(FAKE_PREFIX):
            facts["fake"] = options.library
            pretended = NvmlProblem(f"pretended by {options.library}")
        no_cards = NvmlProblem("the NVIDIA driver works and lists no GPU", "see what nvidia-smi -L says")
        said = problem or (pretended if self._cards else no_cards)
        return DeviceFingerprint(
            groups=offer.groups(),
            description=said.reason if said else "",
            fix=said.fix if said else "",
            attributes={name: value for name, value in facts.items() if value},
        )

    def _verdicts(self) -> dict[str, Verdict]:
        """Devices with a fault or signs of one, by card and by MIG instance."""
        now = self._now()
        found: dict[str, Verdict] = {}
        for uuid, card in self._cards.items():
            condition = self._conditions.get(uuid, Condition(lost=NOT_LISTED))
            self._samples[uuid] = sampled(self._samples.get(uuid, ()), condition, now=now)
            xid = self._xids.get((uuid, None))
            verdict = verdict_against(condition, xid, now=now, rules=self._rules)
            signs = signs_of_fault(self._samples[uuid])
            against = [verdict, self._mig.verdict(uuid), Verdict(severity="suspect", reason=signs) if signs else None]
            is_managed = self._mig.manages(uuid)
            for number in sorted({gi for card_id, gi in self._xids if card_id == uuid and gi is not None}):
                of_part = verdict_against(Condition(), self._xids[uuid, number], now=now, rules=self._rules)
                if of_part is not None and is_managed:
                    # Instances of the plugin's own come and go: their card takes nothing new, and what runs may go on.
                    against.append(replace(of_part, severity="degraded"))
                elif of_part is not None:
                    found |= {mig.uuid: of_part for mig in card.migs if mig.gpu_instance == number}
            worst = max(filter(None, against), key=lambda each: SEVERITIES.index(each.severity), default=None)
            if worst is not None:
                found[uuid] = worst
        return found

    async def self_test(self, device_id: str) -> SelfTest:
        """Query the card again: it passes when it answers and its counters show no fault.

        Nothing runs on the card: a memory or compute test would need CUDA, which this plugin does not bring.
        """
        uuid = next((uuid for uuid, card in self._cards.items() if device_id in (uuid, *card.devices)), "")
        try:
            conditions = await self._caller.call(self._blocking_conditions)
        except (NvmlProblem, Hanging) as error:
            # This says nothing of the card.
            raise RecoverableError(str(error)) from None
        condition = conditions.get(uuid, Condition(lost=NOT_LISTED))
        verdict = verdict_against(condition, None, now=self._now(), rules=self._rules)
        return SelfTest(
            problem=verdict.reason if verdict else "",
            detail="the driver reports no fault of the card; no program was run on it",
        )

    def _blocking_conditions(self) -> Mapping[str, Condition]:
        """All conditions in one call of the thread, because between two calls a look may close the library."""
        if self._nvml.is_open:
            return self._nvml.conditions()
        try:
            return self._blocking_look().conditions
        finally:
            self._nvml.close()

    def _take_xid(self, xid: Xid) -> None:
        """Record an error of a card, and poll at once."""
        log.warning("GPU %s reports Xid %d", xid.uuid or "(unknown)", xid.number)
        if xid.uuid and self._rules.counts(xid.number):
            card = self._cards.get(xid.uuid)
            instance = xid.gpu_instance if card is not None and card.mig else None
            seen = SeenXid(number=xid.number, at=self._now(), gpu_instance=instance)
            self._xids[xid.uuid, instance] = seen
        self._wake.set()

    def _now(self) -> UnixNano:
        return self._context.now() if self._context.now else wall_clock()

    # What tasks get.

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """Variables, device nodes and CDI names for exactly these devices."""
        present = {*self._cards, *(device for card in self._cards.values() for device, _ in parts_of(card))}
        unknown = [device for device in claim.ids if device not in present]
        if unknown:
            raise DriverError(f"GPU {unknown[0]} is not on this machine any more")
        notes: tuple[str, ...] = ()
        self._mig.reserve(claim)
        if self._concerns_mig(claim):
            claim, notes = await self._split(claim)
        cards = self._marked()
        parts = {device for card in cards for device, _ in parts_of(card)}
        missing = [device for device in claim.ids if device not in parts]
        if missing:
            raise RecoverableError(f"GPU {missing[0]} is in MIG mode now; another look at it follows")
        cdi_names, mig_minors = await asyncio.to_thread(lambda: (read_cdi_names(), read_mig_minors()))
        folder = Path(self._settings.options.device_dir)
        found = reservation(claim, cards, folder=folder, cdi_names=cdi_names, mig_minors=mig_minors)
        for devices in claim.devices:
            if devices.share != WHOLE:
                found = joined(found, await self._share(devices, claim))
        return replace(found, notes=notes)

    def _concerns_mig(self, claim: DeviceClaim) -> bool:
        """Whether a claim is on cards that the plugin splits, or that are in MIG mode and claimed whole."""
        cards = {card.uuid for card in self._cards.values() if card.mig or self._mig.manages(card.uuid)}
        return bool(cards & set(claim.ids)) or any(places_of(devices) for devices in claim.devices)

    async def _split(self, claim: DeviceClaim) -> tuple[DeviceClaim, tuple[str, ...]]:
        """The claim with the MIG instances that are made for it in place of their cards, and notes of them."""

        def work() -> tuple[Prepared, GpuObservation]:
            if not self._nvml.is_open:
                raise RecoverableError("the NVIDIA driver does not answer; it is looked for again")
            prepared = self._mig.prepare(self._nvml.mig_control(), claim)
            look = self._nvml.look()
            self._see_parts(look)
            return prepared, look

        try:
            prepared, look = await self._caller.call(work)
        except (NvmlProblem, Hanging) as error:
            raise RecoverableError(str(error)) from None
        self._cards |= {card.uuid: card for card in look.cards}
        return with_instances(claim, prepared, self._cards)

    async def _share(self, devices: ClaimedDevices, claim: DeviceClaim) -> Reservation:
        """The additions for a share of a card."""
        total_mb = devices.memory_mb * len(devices.ids)
        booked = Reservation(env={"YURT_GPU_MEMORY_MB": str(total_mb)} if total_mb else {})
        if devices.share != MPS:
            return booked
        if len(claim.ids) > 1:
            raise DriverError('a task with share = "mps" can use one card; ask for count = 1')
        await self._mps.ensure(devices.ids[0])
        return joined(booked, limits(devices, self._mps.pipe_folder(devices.ids[0])))

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """Run MPS daemons for exactly the cards shared by MPS, and destroy MIG instances that no claim has any more."""
        self._mig.report(claims)
        shared = {
            device for claim in claims for devices in claim.devices if devices.share == MPS for device in devices.ids
        }
        await self._mps.keep(shared, startable=frozenset(self._cards))
        if self._mig.is_used:
            await self._keep_instances()

    async def _keep_instances(self) -> None:

        def work() -> bool:
            return self._nvml.is_open and self._mig.keep(self._nvml.mig_control())

        try:
            has_destroyed = await self._caller.call(work)
        except (NvmlProblem, Hanging) as error:
            raise DriverError(str(error)) from None
        if has_destroyed:
            self._looked_s = float("-inf")
        self._wake.set()

    # How much is used.

    async def stats(self) -> Mapping[str, DeviceUse]:
        """Usage of every device."""
        cards = tuple(self._cards.values())
        split = {card.uuid: card for card in cards if self._mig.manages(card.uuid)}
        devices = [device for card in cards if card.uuid not in split for device, _ in parts_of(card)]

        def measure() -> dict[str, CardUse]:
            found = {device: self._nvml.use(device) for device in (*devices, *split)}
            uses = {device: use for device, use in found.items() if use is not None}
            for uuid in split.keys() & uses.keys():
                parts = [self._nvml.use(mig.uuid) for mig in split[uuid].migs]
                uses[uuid] = with_parts(uses[uuid], [each for each in parts if each is not None])
            return uses

        if not self._nvml.is_open:
            return {}
        try:
            uses = await self._caller.call(measure)
        except (NvmlProblem, Hanging) as problem:
            raise DriverError(str(problem)) from None
        now = self._now()
        return {device: device_use(use, now) for device, use in uses.items()}

    async def close(self) -> None:
        """Close the driver's library; the daemons of a dev agent end too."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.set()
        await self._watcher.stop()
        if self._context.dev:
            await self._mps.keep((), startable=frozenset())
        try:
            await self._caller.call(self._nvml.close)
        except Hanging:
            log.warning("the NVIDIA driver hangs; it is left as it is")
        self._caller.close()


def with_instances(
    claim: DeviceClaim, prepared: Prepared, cards: Mapping[str, CardFacts]
) -> tuple[DeviceClaim, tuple[str, ...]]:
    """The claim by the ids of its MIG instances, and a note for each of them."""
    found, notes = list[ClaimedDevices](), list[str]()

    def instance(card: str, made: PreparedInstance) -> str:
        mig = next((each for each in cards[card].migs if each.gpu_instance == made.number), None)
        if mig is None:
            raise RecoverableError(f"the driver does not list MIG instance {made.number} of GPU {card} yet")
        what = "was created for this task" if made.is_new else "is used by this task again"
        notes.append(f"MIG instance {mig.profile} of GPU {card} {what}: {mig.uuid}")
        return mig.uuid

    for devices in claim.devices:
        places = places_of(devices)
        if places:
            ids = tuple(instance(place.card, prepared[place]) for place in places)
        else:
            ids = tuple(instance(card, prepared[card]) if card in prepared else card for card in devices.ids)
        found.append(replace(devices, ids=ids))
    return replace(claim, devices=tuple(found)), tuple(notes)


def with_parts(card: CardUse, parts: Sequence[CardUse]) -> CardUse:
    """The usage of a split card with that of its instances: their processes, and at least their memory."""
    by_pid = {each.pid: each for part in (card, *parts) for each in part.processes}
    memory_mb = max(card.memory_used_mb, sum(part.memory_used_mb for part in parts))
    return replace(card, memory_used_mb=memory_mb, processes=tuple(by_pid[pid] for pid in sorted(by_pid)))


def is_lost(look: GpuObservation, uuid: str) -> bool:
    """Whether a card does not answer."""
    return bool(look.conditions.get(uuid, Condition(lost=NOT_LISTED)).lost)


def wall_clock() -> UnixNano:
    """The system's clock; the default where the agent provides none."""
    return UnixNano(round(datetime.now(UTC).timestamp() * NANOSECONDS))


def joined(one: Reservation, two: Reservation) -> Reservation:
    """The first reservation with the variables and mounts of the second."""
    return replace(one, env={**one.env, **two.env}, mounts=(*one.mounts, *two.mounts))
