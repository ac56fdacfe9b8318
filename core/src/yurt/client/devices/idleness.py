"""Judges whether an allocation uses its devices. Pure.

A card is idle as long as each sample shows that it is busy for less than the policy's percentage, that it moves at most
`TRAFFIC_MAX` bytes a second, and that its memory in use stays within 1 % of the amount at the begin of the idle time.
Missing figures do not count as idle: a sample without them restarts the count, and so do a gap between samples and a
start of the tasks. All times are of the monotonic clock, so that a jump of the wall clock makes nothing idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from yurt.client.devices.readings import reading_of
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.idle import ANY, is_same_policy

TRAFFIC_MAX: Final = 1_000_000.0
"""Bytes a second between a card and anything else."""
MEMORY_CHANGE: Final = 0.01
MEMORY_CHANGE_MIN_MIB: Final = 1.0
MIB_OF_GIB: Final = 1024


class CardSample(msgspec.Struct, frozen=True):
    """A card's load: percent of its time, MiB in use, bytes a second; None where the plugin does not say."""

    busy: float
    memory_mib: float | None = None
    traffic: float | None = None


class CardIdleness(msgspec.Struct, frozen=True):
    """The begin of a card's idle time in monotonic seconds, and its memory in use then."""

    since_s: float
    memory_mib: float | None


class Idleness(msgspec.Struct, frozen=True):
    """An allocation's cards over time."""

    starts: tuple[int, ...]
    """The start times of its tasks; other start times restart the count."""
    began_s: float
    """The time of the first sample with these start times."""
    last_s: float
    """The time of the last sample."""
    policy: IdlePolicy
    """Another policy restarts the count."""
    cards: Mapping[str, CardIdleness]
    """Idle cards."""
    reached: Duration = Duration(0)
    """The longest time of the policy for which it has been idle; 0 when none is reached or it is in use."""
    text: str = ""
    """The measurements when `reached` was reached."""


def sample_of(use: DeviceUse) -> CardSample | None:
    """A plugin's figures as a sample; None when they do not tell how busy the card is."""
    reading = reading_of(use)
    busy = reading.active_percent
    return None if busy is None else CardSample(busy, reading.memory_mb, reading.traffic)


def advance(
    last: Idleness | None,
    starts: tuple[int, ...],
    samples: Mapping[str, CardSample | None],
    *,
    policy: IdlePolicy,
    now_s: float,
    gap_s: float,
) -> Idleness:
    """The idleness after samples of all cards of an allocation.

    After more than `gap_s` seconds without a sample the count restarts.
    """
    if last is None or last.starts != starts:
        last = Idleness(starts, now_s, now_s, policy, {})
    elif not is_same_policy(last.policy, policy):
        last = Idleness(starts, last.began_s, now_s, policy, {})
    is_judged = bool(starts and samples) and now_s - last.began_s >= policy.first / NANOSECONDS
    before = last.cards if now_s - last.last_s <= gap_s else {}
    cards = {
        device: idle
        for device, sample in samples.items()
        if is_judged and (idle := _after(before.get(device), sample, policy, now_s)) is not None
    }
    reached = _reached(policy, _idle_s(cards, samples, policy, now_s))
    if reached == last.reached:
        return replace(last, last_s=now_s, cards=cards)
    text = description(cards, samples) if reached else ""
    return replace(last, last_s=now_s, cards=cards, reached=reached, text=text)


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
    """The seconds for which all cards have been idle; with the policy `any`, those of the card idle longest."""
    since = [card.since_s for card in cards.values()]
    if not since or (policy.gpus != ANY and len(since) < len(samples)):
        return 0.0
    return now_s - (min(since) if policy.gpus == ANY else max(since))


def times_of(policy: IdlePolicy) -> list[Duration]:
    """The idle times at which the client reports to the servers, ascending."""
    longer = policy.interactive.window if policy.interactive is not None else Duration(0)
    return sorted({*policy.warn, policy.window, *([longer] if longer > 0 else [])})


def _reached(policy: IdlePolicy, idle_s: float) -> Duration:
    return max((each for each in times_of(policy) if each / NANOSECONDS <= idle_s), default=Duration(0))


def description(cards: Mapping[str, CardIdleness], samples: Mapping[str, CardSample | None]) -> str:
    """The measurements as text: `busy 0 % on 8 of 8 devices, memory 41.0 GiB unchanged`."""
    found = [sample for device, sample in samples.items() if sample is not None and device in cards]
    busy = max((sample.busy for sample in found), default=0.0)
    text = f"busy {busy:.0f} % on {len(found)} of {len(samples)} devices"
    memory = [sample.memory_mib for sample in found if sample.memory_mib is not None]
    return f"{text}, memory {sum(memory) / MIB_OF_GIB:.1f} GiB unchanged" if memory else text
