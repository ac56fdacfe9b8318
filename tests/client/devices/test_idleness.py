"""When an allocation counts as idle: by what was measured, by the monotonic clock, never by missing figures."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from yurt.client.devices.idleness import CardSample, Idleness, advance, sample_of
from yurt.sdk.device import DeviceUse, Stat
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.policies import IdlePolicy, InteractivePolicy

POLICY = IdlePolicy(window=seconds(60), first=seconds(30), warn=(seconds(20), seconds(40)), below=5)
QUIET = CardSample(busy=0.0, memory_mib=1000.0, traffic=0.0)
GAP_S = 5.0


def play(
    samples: list[CardSample | None],
    *,
    policy: IdlePolicy = POLICY,
    step_s: float = 1.0,
    starts: tuple[int, ...] = (1,),
) -> list[int]:
    """What is reached, in seconds, after each sample of one card."""
    known: Idleness | None = None
    found = []
    for number, sample in enumerate(samples):
        now_s = 1000.0 + number * step_s
        known = advance(known, starts, {"a": sample}, policy=policy, now_s=now_s, gap_s=GAP_S)
        found.append(known.reached // seconds(1))
    return found


def test_time_counts_from_the_first_window_on_and_each_time_is_reached_once() -> None:
    found = play([QUIET] * 100)
    assert [found.index(each) for each in (20, 40, 60)] == [50, 70, 90]
    assert found == sorted(found) and set(found) == {0, 20, 40, 60}


def test_the_longer_window_of_interactive_work_is_told_too() -> None:
    policy = replace(POLICY, interactive=InteractivePolicy(window=seconds(80)))
    assert play([QUIET] * 120, policy=policy)[-1] == 80


def test_work_traffic_and_changed_memory_begin_the_count_anew() -> None:
    for busy in (
        CardSample(busy=5.0, memory_mib=1000.0),
        CardSample(busy=0.0, memory_mib=1000.0, traffic=2e6),
        CardSample(busy=0.0, memory_mib=1011.0),
        None,
    ):
        found = play([*[QUIET] * 85, busy, *[QUIET] * 70])
        assert found[84] == 40 and found[86] == 0 and found[-1] == 60, busy


def test_memory_that_grows_slowly_is_not_unchanged() -> None:
    leaking = [replace(QUIET, memory_mib=1000.0 + number) for number in range(300)]
    assert max(play(leaking)) < 60


def test_a_gap_between_samples_is_not_idleness() -> None:
    assert max(play([QUIET] * 50, step_s=6.0)) == 0
    assert max(play([QUIET] * 50, step_s=4.0)) == 60


def test_a_task_that_starts_again_has_its_first_window_again() -> None:
    known = None
    for number in range(100):
        known = advance(known, (1,), {"a": QUIET}, policy=POLICY, now_s=float(number), gap_s=GAP_S)
    assert known is not None and known.reached == seconds(60)
    known = advance(known, (2,), {"a": QUIET}, policy=POLICY, now_s=100.0, gap_s=GAP_S)
    assert known.reached == 0 and not known.cards
    assert advance(known, (), {}, policy=POLICY, now_s=101.0, gap_s=GAP_S).reached == 0


def test_another_policy_begins_the_count_anew_and_another_source_does_not() -> None:
    known = None
    for number in range(100):
        known = advance(known, (1,), {"a": QUIET}, policy=POLICY, now_s=float(number), gap_s=GAP_S)
    assert known is not None and known.reached == seconds(60)
    renamed = replace(POLICY, source='namespace "x"', enforce=True)
    known = advance(known, (1,), {"a": QUIET}, policy=renamed, now_s=100.0, gap_s=GAP_S)
    assert known.reached == seconds(60)
    stricter = replace(POLICY, below=1)
    known = advance(known, (1,), {"a": QUIET}, policy=stricter, now_s=101.0, gap_s=GAP_S)
    assert known.reached == 0
    for number in range(102, 162):
        known = advance(known, (1,), {"a": QUIET}, policy=stricter, now_s=float(number), gap_s=GAP_S)
    assert known.reached == seconds(60), "its tasks started long ago"


def test_all_cards_must_be_idle_or_any_of_them() -> None:
    busy = CardSample(busy=99.0)
    for gpus, expected in (("all", 0), ("any", 60)):
        known: Idleness | None = None
        policy = replace(POLICY, gpus=gpus)
        for number in range(100):
            cards: Mapping[str, CardSample | None] = {"a": QUIET, "b": busy}
            known = advance(known, (1,), cards, policy=policy, now_s=float(number), gap_s=GAP_S)
        assert known is not None and known.reached == seconds(expected)
    assert known.text == "busy 0 % on 1 of 2 devices, memory 1.0 GiB unchanged"


@given(
    st.lists(
        st.one_of(st.none(), st.floats(0, 100).map(lambda busy: CardSample(busy=busy, memory_mib=10.0))), max_size=120
    )
)
def test_what_is_reached_was_measured_without_a_break(samples: list[CardSample | None]) -> None:
    for end, reached in enumerate(play(samples)):
        if reached:
            run = samples[end - reached : end + 1]
            assert all(each is not None and each.busy < POLICY.below for each in run)
            assert end - reached >= POLICY.first // seconds(1)


def test_figures_of_a_plugin() -> None:
    memory = Stat(value=2048, of=4096, unit="MiB", description="")

    def use(**stats: float) -> DeviceUse:
        made = {name.replace("_", " "): Stat(value=value, unit="%", description="") for name, value in stats.items()}
        return DeviceUse(at=UnixNano(1), summary=memory, stats=made)

    assert sample_of(use()) is None, "nobody knows how busy it is"
    assert sample_of(use(GPU_utilization=7)) == CardSample(7.0, 2048.0, None)
    # One thread in a loop drives the utilization to 100.
    found = sample_of(use(GPU_utilization=100, SM_utilization=0.4, Memory_utilization=0))
    assert found is not None and found.busy == 0.4
    assert sample_of(use(GPU_utilization=float("nan"))) is None
