"""Records the use of each running allocation's cards: one-minute aggregates for a day, and sums since its start.

Once an interval (`usage_history.device_interval`, 10 s unless configured) each device plugin is sampled.
Samples fall into buckets of six intervals, so a bucket is a minute; a ring keeps the last `BUCKETS_MAX` of each card
of each allocation, in 57 KB when it is full. Buckets are numbered by the monotonic clock: a wall clock that jumps
neither fills nor ages one.

A plugin that hangs, fails or vanishes gives no sample, so there is no bucket. The time until its next sample enters the
sums only if it is at most `GAP` intervals: a longer gap is unknown time, not idle time. A restarted agent begins new
rings and continues the sums (`restore`).

Readers (idle reclaim, reports) call `minutes` and `totals`; both return values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from yurt.client.devices.holders import DeviceHolders, HoldingTask
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.process_owners import LiveTask
from yurt.client.devices.readings import (
    MS,
    CardMinute,
    CardPart,
    Interval,
    Reading,
    elapsed,
    reading_of,
    with_memory,
    with_sample,
)
from yurt.client.devices.task_stats import booked_mb, is_attributed, own_uses
from yurt.client.sample_ring import SampleRing
from yurt.lifecycle.task import RUNNING, STOPPING
from yurt.runtime.env import Env
from yurt.sdk.device import WHOLE, DeviceClaim, DeviceUse
from yurt.sdk.schema import duration_option
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.structs.accounting.devices import DeviceAccounting

OPTION: Final = "usage_history.device_interval"
INTERVAL_S: Final = 10.0
INTERVAL_MIN_S: Final = 0.1
SAMPLES_OF_BUCKET: Final = 6
BUCKETS_MAX: Final = 24 * 60
GAP: Final = 3
"""The longest time between two samples, in intervals, that still counts; beyond it the use is unknown."""
COLUMNS: Final = 11
GROWTH: Final = 5
REPORT_INTERVAL_MAX_S: Final = 3600.0
"""Sums are reported when the time they cover has grown by 1/`GROWTH`, and at least once in this time."""
WHOLE_PERCENT: Final = 100.0


def interval_of(options: Mapping[str, str]) -> float:
    """The time between samples in seconds; raises DriverError when the option is not a valid duration."""
    text = options.get(OPTION)
    if text is None:
        return INTERVAL_S
    return max(INTERVAL_MIN_S, duration_option(text, option=OPTION) / NANOSECONDS)


class _Last(msgspec.Struct, frozen=True):
    """The last sample of a card and its time in monotonic seconds."""

    at_s: float
    reading: Reading


class _Mean:
    """The mean of the figures that a plugin reported; None is left out."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.sum += value
            self.count += 1

    @property
    def value(self) -> float | None:
        return self.sum / self.count if self.count else None


class _Bucket:
    """The samples of a card in the current bucket."""

    def __init__(self, number: int, at: UnixNano, clock_s: float) -> None:
        self.number = number
        self.at = at
        self.clock_s = clock_s
        self.samples = 0
        self.memory_max_mb: float | None = None
        self.energy_j: float | None = None
        self._means = tuple(_Mean() for _ in range(7))

    def add(self, reading: Reading, energy_j: float | None) -> None:
        """Add one sample."""
        self.samples += 1
        throttled = None if reading.throttling is None else float(bool(reading.throttling))
        figures = (
            reading.busy_percent,
            reading.sm_percent,
            reading.memory_percent,
            reading.memory_mb,
            throttled,
            reading.pcie,
            reading.nvlink,
        )
        for mean, figure in zip(self._means, figures, strict=True):
            mean.add(figure)
        if reading.memory_mb is not None:
            self.memory_max_mb = max(self.memory_max_mb or 0.0, reading.memory_mb)
        if energy_j is not None:
            self.energy_j = (self.energy_j or 0.0) + energy_j

    def row(self, clock_begin_s: float) -> tuple[float | None, ...]:
        """The aggregates in the order of the ring's columns.

        The time is relative to `clock_begin_s`, because the ring's 4-byte floats lose seconds of an absolute one.
        """
        busy, sm, memory, memory_mb, throttled, pcie, nvlink = (mean.value for mean in self._means)
        clock = self.clock_s - clock_begin_s
        memory_max = self.memory_max_mb
        return (
            clock, float(self.samples), busy, sm, memory, memory_mb, memory_max, self.energy_j, throttled, pcie, nvlink,
        )  # fmt: skip


class CardHistory:
    """The buckets of one card of one allocation; the last one is still being filled."""

    def __init__(self, clock_s: float) -> None:
        self._ring = SampleRing(COLUMNS, samples_max=BUCKETS_MAX, kind="f")
        self._begin_s = clock_s
        self._bucket: _Bucket | None = None

    def add(self, number: int, at: UnixNano, clock_s: float, sample: tuple[Reading, float | None]) -> None:
        """Add a sample to the bucket `number`: a reading, and the energy in joules since the previous one."""
        if self._bucket is None or self._bucket.number != number:
            self._close()
            self._bucket = _Bucket(number, at, clock_s)
        self._bucket.add(*sample)

    def _close(self) -> None:
        if self._bucket is not None:
            self._ring.add(self._bucket.at, *self._bucket.row(self._begin_s))

    def minutes(self) -> tuple[CardMinute, ...]:
        """All buckets with samples, oldest first."""
        rows = [(UnixNano(at), self._ring.row(position)) for position, at in enumerate(self._ring.at)]
        if self._bucket is not None:
            rows.append((self._bucket.at, self._bucket.row(self._begin_s)))
        return tuple(self._minute(at, row) for at, row in rows)

    def _minute(self, at: UnixNano, row: tuple[float | None, ...]) -> CardMinute:
        clock, samples, busy, sm, memory, memory_mb, memory_max, energy, throttled, pcie, nvlink = row
        return CardMinute(
            at=at,
            clock_s=self._begin_s + (clock or 0.0),
            samples=int(samples or 0),
            busy_percent=busy,
            sm_percent=sm,
            memory_percent=memory,
            memory_mb=memory_mb,
            memory_max_mb=memory_max,
            energy_j=energy,
            throttled=throttled,
            pcie=pcie,
            nvlink=nvlink,
        )


class AllocActivity:
    """The recorded use of one allocation's cards."""

    def __init__(self, totals: DeviceAccounting) -> None:
        self.totals = totals
        self.reported = totals if totals.wall_ms else None
        """The sums that the client reports to the servers while the allocation runs."""
        self.cards: dict[str, CardHistory] = {}
        self.last: dict[str, _Last] = {}


class DeviceActivity:
    """Samples the cards that running tasks hold."""

    def __init__(
        self,
        env: Env,
        *,
        devices: DeviceManager,
        holders: DeviceHolders,
        interval_s: float = INTERVAL_S,
        on_bucket: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """`on_bucket` is called once a bucket with the ids of allocations whose sums have grown, to save them."""
        self.interval_s = interval_s
        self._env = env
        self._devices = devices
        self._holders = holders
        self._on_bucket = on_bucket
        self._allocs: dict[str, AllocActivity] = {}
        self._bucket = 0

    @property
    def bucket_s(self) -> float:
        """The length of a bucket in seconds: 60 unless the interval is configured."""
        return self.interval_s * SAMPLES_OF_BUCKET

    async def run(self) -> None:
        """Take samples until cancelled; return at once when the client has no device plugins."""
        while self._devices.plugins:
            await self.sample()
            await self._env.sleep(self.interval_s)

    # Queries.

    def minutes(self, alloc_id: str) -> Mapping[str, tuple[CardMinute, ...]]:
        """The buckets of each card that an allocation's running tasks hold, oldest first, by device id.

        Empty for an allocation without devices, or before its first sample. Buckets without a sample are missing.
        """
        found = self._allocs.get(alloc_id)
        return {} if found is None else {device: card.minutes() for device, card in found.cards.items()}

    def totals(self, alloc_id: str) -> DeviceAccounting | None:
        """The sums of an allocation since its start; None before its first sample."""
        found = self._allocs.get(alloc_id)
        return None if found is None else found.totals

    def reported(self, alloc_id: str) -> DeviceAccounting | None:
        """The sums for the reports of a running allocation: renewed rarely, so that few reports differ."""
        found = self._allocs.get(alloc_id)
        return None if found is None else found.reported

    def _renew_reported(self, activity: AllocActivity) -> None:
        """Renew the reported sums once they have grown by a fifth: at most once a bucket, at least once an hour.

        A lost node then loses little accounting, and reports stay few: about twenty in an allocation's first hour,
        then one an hour.
        """
        before = activity.reported.wall_ms if activity.reported is not None else 0
        due_ms = min(max(self.bucket_s, before / MS / GROWTH), REPORT_INTERVAL_MAX_S) * MS
        if activity.totals.wall_ms - before >= due_ms:
            activity.reported = activity.totals

    def restore(self, alloc_id: str, totals: DeviceAccounting) -> None:
        """Continue the sums of an earlier run of the agent."""
        self._allocs[alloc_id] = AllocActivity(totals)

    def forget(self, alloc_id: str) -> None:
        """Free the records of an ended allocation."""
        self._allocs.pop(alloc_id, None)

    # Samples.

    async def sample(self) -> None:
        """Take one sample of every card that a running task holds."""
        running = {
            (task.alloc.id, task.name): (task, claim)
            for task, claim in tuple(self._holders.each())
            if task.machine.phase in (RUNNING, STOPPING)
        }
        uses = await self._devices.uses() if running else {}
        now_s, now = self._env.monotonic(), self._env.now()
        readings = {device: reading_of(use) for device, use in uses.items()}
        totals_mb = {device: each.memory_total_mb for device, each in readings.items() if each.memory_total_mb}
        parts = card_parts((claim for _, claim in running.values()), totals_mb)
        own = await self._own_readings(running.values(), uses)
        live = {task.alloc.id for task, _ in running.values() if task.machine.phase in (RUNNING, STOPPING)}
        for alloc_id, cards in parts.items():
            if alloc_id not in live:
                continue  # it ended while the plugins were asked, and `forget` has removed its record
            activity = self._allocs.setdefault(alloc_id, AllocActivity(DeviceAccounting()))
            mine = {
                card.device: (card, own_reading(readings[card.device], own.get((alloc_id, card.device))))
                for card in cards
                if card.device in readings
            }
            self._add(activity, mine, now_s, now)
        bucket, self._bucket = self._bucket, int(now_s // self.bucket_s)
        if bucket != self._bucket and live:
            for alloc_id in live & self._allocs.keys():
                self._renew_reported(self._allocs[alloc_id])
            self._on_bucket(live)

    async def _own_readings(
        self, running: Iterable[tuple[HoldingTask, DeviceClaim]], uses: Mapping[str, DeviceUse]
    ) -> dict[tuple[str, str], Reading]:
        """The use of each shared card by each allocation's processes; reads /proc in a thread."""
        found: dict[tuple[str, str], Reading] = {}
        for task, claim in running:
            booked, handle = booked_mb(claim), task.handle
            if not booked or handle is None:
                continue
            live = LiveTask(alloc_id=claim.alloc_id, task_name=task.name, task_id=handle.task_id, pid=handle.pid)
            for device, use in (await self._env.in_thread(own_uses, live, booked, uses)).items():
                mine = replace(reading_of(use), is_own=is_attributed(uses[device]))
                before = found.get((claim.alloc_id, device))
                found[claim.alloc_id, device] = mine if before is None else together(before, mine)
        return found

    def _add(
        self, activity: AllocActivity, mine: Mapping[str, tuple[CardPart, Reading]], now_s: float, now: UnixNano
    ) -> None:
        """Add the samples of one allocation's cards."""
        seconds_max = 0.0
        for device, (card, reading) in mine.items():
            interval = self._interval(activity.last.get(device), reading, now_s)
            activity.last[device] = _Last(now_s, reading)
            if reading.is_known:
                activity.totals = with_sample(activity.totals, card, reading, interval)
                seconds_max = max(seconds_max, interval.seconds)
            history = activity.cards.setdefault(device, CardHistory(now_s))
            energy = None if interval.energy_j is None else interval.energy_j * card.energy_part
            history.add(int(now_s // self.bucket_s), now, now_s, (reading, energy))
        measured = [pair for pair in mine.values() if pair[1].is_known]
        if measured:
            used = sum(reading.memory_mb or 0.0 for _, reading in measured)
            booked = sum(booked_of(card, reading) for card, reading in measured)
            activity.totals = with_memory(activity.totals, used_mb=used, booked_mb=booked, seconds=seconds_max)

    def _interval(self, last: _Last | None, reading: Reading, now_s: float) -> Interval:
        """The time since the last sample; 0 s after a gap, whose use is unknown."""
        if last is None or now_s - last.at_s > GAP * self.interval_s:
            return Interval(seconds=0.0)
        return elapsed(last.reading, reading, now_s - last.at_s)


def own_reading(reading: Reading, own: Reading | None) -> Reading:
    """The reading of a card; of one that the holder shares with its own memory and, where known, its own load."""
    if own is None:
        return reading
    mine = replace(reading, memory_mb=own.memory_mb)
    if not own.is_own:
        return mine
    return replace(
        mine,
        busy_percent=own.busy_percent,
        sm_percent=own.sm_percent,
        memory_percent=own.memory_percent,
        is_own=True,
    )


def together(one: Reading, other: Reading) -> Reading:
    """The own use of a shared card by two tasks of one allocation."""
    return replace(
        one,
        memory_mb=(one.memory_mb or 0.0) + (other.memory_mb or 0.0),
        busy_percent=_percents(one.busy_percent, other.busy_percent),
        sm_percent=_percents(one.sm_percent, other.sm_percent),
        memory_percent=_percents(one.memory_percent, other.memory_percent),
        is_own=one.is_own and other.is_own,
    )


def _percents(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else min(WHOLE_PERCENT, one + other)


def booked_of(card: CardPart, reading: Reading) -> int:
    """Memory in MiB that an allocation may use on a card."""
    return round(reading.memory_total_mb or 0.0) if card.memory_booked_mb is None else card.memory_booked_mb


def card_parts(
    claims: Iterable[DeviceClaim], totals_mb: Mapping[str, float] | None = None
) -> dict[str, list[CardPart]]:
    """The parts of cards that each allocation holds; `totals_mb` is the memory of each card where that is known.

    A share is the larger part of the card's compute and of its memory that it booked. The parts of a card's energy
    never add up to more than the card's, also where shares booked more than there is.
    """
    shares: dict[tuple[str, str], _Share] = {}
    for claim in claims:
        for devices in claim.devices:
            is_whole = devices.share == WHOLE
            mine = _Share(devices.compute, devices.memory_mb, is_whole)
            for device in devices.ids:
                before = shares.get((claim.alloc_id, device))
                shares[claim.alloc_id, device] = mine if before is None else before.plus(mine)
    parts = {key: share.part((totals_mb or {}).get(key[1])) for key, share in shares.items()}
    # Overbooked shares add up to more than the card; energy is a sum over the card, so it is divided by that total.
    of_card: dict[str, float] = {}
    for (_, device), part in parts.items():
        of_card[device] = of_card.get(device, 0.0) + part
    found: dict[str, list[CardPart]] = {}
    for (alloc_id, device), part in parts.items():
        share = shares[alloc_id, device]
        card = CardPart(
            device=device,
            part=part,
            energy_part=part / max(1.0, of_card[device]),
            memory_booked_mb=None if share.is_whole else share.memory_mb,
        )
        found.setdefault(alloc_id, []).append(card)
    return found


class _Share(msgspec.Struct, frozen=True):
    """The booking of one allocation on one card."""

    compute: int
    memory_mb: int
    is_whole: bool

    def plus(self, other: _Share) -> _Share:
        """The sum of the bookings of two tasks of an allocation."""
        return _Share(self.compute + other.compute, self.memory_mb + other.memory_mb, self.is_whole or other.is_whole)

    def part(self, total_mb: float | None) -> float:
        """The part of the card, 0 to 1.

        A share without compute on a card of unknown memory counts as the whole card.
        """
        if self.is_whole:
            return 1.0
        of_memory = self.memory_mb / total_mb if total_mb else 0.0
        return min(1.0, max(self.compute / WHOLE_PERCENT, of_memory)) or 1.0
