"""Judges whether an allocation uses its devices. Pure.

A card is idle as long as each sample shows that it is busy for less than the policy's percentage, moves at most
`TRAFFIC_MAX` bytes a second, and that its memory in use stays within 1 % of what it was when that began. Missing
figures are no idleness: a sample without them, or a gap between samples, begins the count anew, and so does a start of
the tasks. All times are those of the monotonic clock, so a wall clock that jumps makes nothing idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from yurt.client.devices.readings import reading_of
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS, Duration
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.idle import ANY

TRAFFIC_MAX: Final = 1_000_000.0
"""Bytes a second between a card and anything else."""
MEMORY_CHANGE: Final = 0.01
MEMORY_CHANGE_MIN_MIB: Final = 1.0
MIB_OF_GIB: Final = 1024


class CardSample(NamedTuple):
    """What a card does: percent of its time, MiB in use, bytes a second; None where nobody knows."""

    busy: float
    memory_mib: float | None = None
    traffic: float | None = None


class CardIdleness(NamedTuple):
    """Since when a card has been idle, and what of its memory was in use then."""

    since_s: float
    memory_mib: float | None


class Idleness(NamedTuple):
    """An allocation's cards over time."""

    starts: tuple[int, ...]
    """When its tasks were started: with other starts the count begins anew."""
    began_s: float
    """When it was first seen with these."""
    last_s: float
    cards: Mapping[str, CardIdleness]
    """Idle cards."""
    reached: Duration = Duration(0)
    """The longest time of the policy for which it has been idle; 0: none yet, or it is in use."""
    text: str = ""
    """What was measured when that was reached."""


def sample_of(use: DeviceUse) -> CardSample | None:
    """The figures of a plugin; None when it says nothing of how busy the card is."""
    reading = reading_of(use)
    busy = reading.active_percent
    return None if busy is None else CardSample(busy, reading.memory_mb, reading.traffic)


def advance(
    known: Idleness | None,
    starts: tuple[int, ...],
    samples: Mapping[str, CardSample | None],
    *,
    policy: IdlePolicy,
    now_s: float,
    gap_s: float,
) -> Idleness:
    """The idleness after samples of all cards of an allocation; `gap_s` is the longest time between two of them."""
    if known is None or known.starts != starts:
        known = Idleness(starts, now_s, now_s, {})
    is_judged = bool(starts and samples) and now_s - known.began_s >= policy.first / NANOSECONDS
    before = known.cards if now_s - known.last_s <= gap_s else {}
    cards = {
        device: idle
        for device, sample in samples.items()
        if is_judged and (idle := _after(before.get(device), sample, policy, now_s)) is not None
    }
    reached = _reached(policy, _idle_s(cards, samples, policy, now_s))
    if reached == known.reached:
        return known._replace(last_s=now_s, cards=cards)
    text = description(cards, samples) if reached else ""
    return known._replace(last_s=now_s, cards=cards, reached=reached, text=text)


def _after(
    idle: CardIdleness | None, sample: CardSample | None, policy: IdlePolicy, now_s: float
) -> CardIdleness | None:
    if sample is None or sample.busy >= policy.below or (sample.traffic or 0.0) > TRAFFIC_MAX:
        return None
    if idle is None or _has_changed(idle.memory_mib, sample.memory_mib):
        return CardIdleness(now_s, sample.memory_mib)
    return idle


def _has_changed(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before != after
    return abs(after - before) > max(MEMORY_CHANGE_MIN_MIB, before * MEMORY_CHANGE)


def _idle_s(
    cards: Mapping[str, CardIdleness], samples: Mapping[str, CardSample | None], policy: IdlePolicy, now_s: float
) -> float:
    """How long all cards have been idle, or the one that has been idle longest, where `any` counts."""
    since = [card.since_s for card in cards.values()]
    if not since or (policy.gpus != ANY and len(since) < len(samples)):
        return 0.0
    return now_s - (min(since) if policy.gpus == ANY else max(since))


def times_of(policy: IdlePolicy) -> list[Duration]:
    """The idle times at which the servers are told, ascending."""
    longer = policy.interactive.window if policy.interactive is not None else Duration(0)
    return sorted({*policy.warn, policy.window, *([longer] if longer > 0 else [])})


def _reached(policy: IdlePolicy, idle_s: float) -> Duration:
    return max((each for each in times_of(policy) if each / NANOSECONDS <= idle_s), default=Duration(0))


def description(cards: Mapping[str, CardIdleness], samples: Mapping[str, CardSample | None]) -> str:
    """What was measured: `busy 0 % on 8 of 8 devices, memory 41.0 GiB unchanged`."""
    found = [sample for device, sample in samples.items() if sample is not None and device in cards]
    busy = max((sample.busy for sample in found), default=0.0)
    text = f"busy {busy:.0f} % on {len(found)} of {len(samples)} devices"
    known = [sample.memory_mib for sample in found if sample.memory_mib is not None]
    return f"{text}, memory {sum(known) / MIB_OF_GIB:.1f} GiB unchanged" if known else text
