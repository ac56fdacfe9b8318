"""The life cycle of a device: single changes, and what no order of events may break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.lifecycle.device_health import (
    HISTORY_MAX,
    DeviceEvent,
    DeviceHealthSettings,
    DeviceRecord,
    Enabled,
    NotTested,
    Reported,
    Suspected,
    Tested,
    TimePassed,
    restored,
    step,
)
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace
from yurt.structs.node import DeviceTrial

QUICK = DeviceHealthSettings(probation_s=10.0, suspect_s=20.0, max_faults=3, fault_window_s=1000.0, trial_s=0.0)
START = 10**18
FAILED, GOOD = Reported(severity="failed", reason="Xid 79"), Reported(severity="healthy")
SUSPECTED = Suspected(mark="5/1", reason="three jobs failed")
FREE = TimePassed(is_free=True)


class Card:
    """A record and its clock."""

    def __init__(self, settings: DeviceHealthSettings = QUICK) -> None:
        self.record = DeviceRecord()
        self.settings = settings
        self.now = START

    def after(self, *events: DeviceEvent, wait_s: float = 0.0) -> Card:
        """The card after a wait and these events."""
        self.now += round(wait_s * NANOSECONDS)
        for event in events:
            self.record = step(self.record, event, now=UnixNano(self.now), settings=self.settings)
        return self

    @property
    def state(self) -> str:
        return self.record.health.state

    @property
    def states(self) -> list[str]:
        return [change.state for change in self.record.health.history]


def test_a_card_returns_after_its_probation_by_a_passed_test() -> None:
    card = Card().after(GOOD, FAILED, GOOD)
    assert card.state == "probation"
    assert not card.after(FREE, wait_s=9).record.is_testing
    assert card.after(FREE, wait_s=1).record.is_testing
    assert card.after(Tested(detail="memory")).states == ["failed", "probation", "healthy"]
    assert (card.record.health.reason, card.record.health.history[-1].reason) == ("", "self-test passed: memory")


def test_a_card_that_had_a_fault_is_suspect_until_its_trial_is_over() -> None:
    card = Card(replace(QUICK, trial_s=100.0)).after(FAILED, GOOD).after(FREE, wait_s=10).after(Tested())
    assert card.state == "suspect"
    assert card.record.health.reason.startswith("back after a fault, on trial for 0.0278 h after it; self-test passed")
    assert card.after(FREE, wait_s=89).state == "suspect"
    assert card.after(FREE, wait_s=1).state == "healthy"


def test_servers_learn_of_a_trial_while_the_card_may_have_work() -> None:
    card = Card(replace(QUICK, trial_s=100.0, trial_run_s=60.0)).after(FAILED, GOOD).after(FREE, wait_s=10)
    assert card.record.health.trial is None, "nothing is placed on a card on probation"
    card.after(Tested())
    trial = DeviceTrial(until=START + 100 * NANOSECONDS, run_max=Duration(60 * NANOSECONDS))
    assert card.record.health.trial == trial
    hot = Reported(severity="suspect", reason="it slows down for heat")
    assert card.after(hot, wait_s=89).record.health.trial == trial
    assert card.after(FREE, wait_s=1).record.health.trial is None, "it stays suspect for heat alone"
    assert card.state == "suspect"


def test_a_fault_ends_a_trial_and_begins_the_next() -> None:
    card = Card(replace(QUICK, trial_s=100.0)).after(FAILED, GOOD).after(FREE, wait_s=10).after(Tested())
    assert card.after(FAILED, wait_s=5).record.health.trial is None
    card.after(GOOD).after(FREE, wait_s=10).after(Tested())
    assert card.record.health.trial is not None
    assert card.record.health.trial.until == START + 115 * NANOSECONDS


def test_a_card_on_trial_gives_no_reason_that_is_over() -> None:
    hot = Reported(severity="suspect", reason="it slows down for heat")
    card = Card(replace(QUICK, trial_s=100.0)).after(FAILED, GOOD).after(FREE, wait_s=10).after(Tested(), hot)
    assert card.record.health.reason == hot.reason
    assert card.after(GOOD).after(FREE, wait_s=19).record.health.reason == hot.reason
    assert card.after(FREE, wait_s=1).record.health.reason == "back after a fault, on trial for 0.0278 h after it"
    assert card.state == "suspect"


def test_a_card_that_was_degraded_or_that_an_operator_enabled_is_not_on_trial() -> None:
    settings = replace(QUICK, trial_s=100.0)
    degraded = Card(settings).after(Reported(severity="degraded"), GOOD).after(FREE, wait_s=10).after(Tested())
    assert degraded.state == "healthy"
    enabled = Card(settings).after(FAILED, GOOD, Enabled(mark="7/1"), FREE, Tested())
    assert enabled.state == "healthy"


def test_a_card_with_a_holder_is_not_tested() -> None:
    card = Card().after(FAILED, GOOD).after(TimePassed(is_free=False), wait_s=60)

    assert (card.state, card.record.is_testing) == ("probation", False)


def test_a_failed_test_is_a_fault_and_is_made_again_after_the_probation() -> None:
    card = Card().after(FAILED, GOOD).after(FREE, wait_s=10).after(Tested(problem="memory differs"))
    assert (card.state, card.record.health.reason) == ("failed", "self-test failed: memory differs")
    assert card.after(FREE, wait_s=9).state == "failed"
    assert card.after(FREE, wait_s=1).state == "probation"


def test_a_fault_during_a_test_ends_it_and_its_result_counts_for_nothing() -> None:
    card = Card().after(FAILED, GOOD).after(FREE, wait_s=10).after(FAILED, Tested())

    assert card.state == "failed"


def test_a_card_that_fails_again_and_again_stays_out_until_an_operator_enables_it() -> None:
    card = Card()
    for _ in range(3):
        card.after(FAILED, GOOD).after(FREE, wait_s=10).after(Tested())
    assert (card.state, card.record.is_locked) == ("failed", True)
    assert "3 faults within 0.278 h: out until an operator enables it" in card.record.health.reason
    assert card.after(FREE, wait_s=500).state == "failed"
    card.after(Enabled(mark="7/1"), FREE)
    assert (card.state, card.record.is_testing, card.record.health.acknowledged_mark) == ("probation", True, "7/1")


def test_old_faults_count_no_more() -> None:
    card = Card()
    for _ in range(5):
        card.after(FAILED, GOOD, wait_s=500).after(FREE, wait_s=10).after(Tested())

    assert card.state == "healthy"


def test_a_degraded_card_keeps_its_holders_and_no_fault_is_counted() -> None:
    card = Card().after(Reported(severity="degraded", reason="rows wait to be remapped"))

    assert (card.state, card.record.faults) == ("degraded", ())
    assert card.after(FAILED).state == "failed"
    assert card.after(Reported(severity="degraded")).state == "failed", "it is no better before it was tested"


def test_a_suspect_card_is_well_after_a_time_without_signs() -> None:
    card = Card().after(Reported(severity="suspect", reason="it slows down for heat"), GOOD)
    assert card.after(FREE, wait_s=19).state == "suspect"
    assert card.after(FREE, wait_s=1).state == "healthy"


def test_a_card_that_jobs_fail_on_is_out_for_a_probation_and_each_mark_counts_once() -> None:
    card = Card().after(GOOD, SUSPECTED).after(FREE, wait_s=9)
    assert (card.states, card.record.is_testing) == (["suspect", "probation"], False), "its test may test nothing"
    card.after(FREE, wait_s=1).after(Tested(), SUSPECTED)
    assert (card.state, len(card.record.faults)) == ("healthy", 1)


def test_a_card_that_jobs_fail_on_again_and_again_is_locked() -> None:
    card = Card()
    for number in range(3):
        card.after(GOOD, replace(SUSPECTED, mark=f"{number}/1")).after(FREE, wait_s=10).after(Tested())

    assert (card.state, card.record.is_locked) == ("failed", True)


def test_a_mark_of_a_lower_index_than_the_acknowledged_one_counts() -> None:
    card = Card().after(GOOD, replace(SUSPECTED, mark="90000/1")).after(FREE, wait_s=10).after(Tested())

    assert card.after(replace(SUSPECTED, mark="50/2")).state == "probation"


def test_a_passed_test_leaves_a_card_suspect_that_its_plugin_suspects() -> None:
    hot = Reported(severity="suspect", reason="hot")
    card = Card().after(FAILED, hot).after(FREE, wait_s=10)
    assert card.record.is_testing, "a sign of a fault is no fault"
    card.after(Tested(detail="memory"))
    assert (card.state, card.record.health.reason) == ("suspect", "hot; self-test passed: memory")
    assert card.after(GOOD).after(FREE, wait_s=20).state == "healthy"


def test_a_test_that_cannot_be_made_is_no_fault() -> None:
    card = Card().after(FAILED, GOOD).after(FREE, wait_s=10).after(NotTested(reason="the driver hangs"))

    assert (card.state, len(card.record.faults)) == ("probation", 1)
    assert card.record.health.reason == "it cannot be tested now: the driver hangs"
    assert not card.after(FREE, wait_s=9).record.is_testing
    assert card.after(FREE, wait_s=1).record.is_testing


def test_an_operator_shortens_the_probation_and_learns_of_a_fault_that_lasts() -> None:
    card = Card().after(FAILED, GOOD, Enabled(mark="1/1"), FREE)
    assert card.record.is_testing
    card = Card().after(FAILED, Enabled(mark="1/1"))
    assert card.record.health.reason == "enabled by an operator; its plugin still reports: Xid 79"


def test_a_test_that_an_agent_did_not_end_is_made_again() -> None:
    card = Card().after(FAILED, GOOD).after(FREE, wait_s=10)
    card.record = restored(card.record)
    card.after(GOOD, FREE)

    assert card.record.is_testing


SEVERITIES = st.sampled_from(("healthy", "suspect", "degraded", "failed"))
EVENTS = st.one_of(
    st.builds(Reported, severity=SEVERITIES, reason=st.sampled_from(("", "a", "b"))),
    st.builds(Suspected, mark=st.sampled_from("123456789"), reason=st.just("jobs")),
    st.builds(Enabled, mark=st.sampled_from("123456789")),
    st.builds(TimePassed, is_free=st.booleans()),
    st.builds(Tested, problem=st.sampled_from(("", "bad"))),
    st.builds(NotTested, reason=st.just("the driver hangs")),
)
SETTINGS = st.builds(
    DeviceHealthSettings,
    probation_s=st.sampled_from((0.0, 10.0)),
    suspect_s=st.sampled_from((0.0, 20.0)),
    max_faults=st.integers(0, 4),
    fault_window_s=st.sampled_from((1.0, 100.0)),
    trial_s=st.sampled_from((0.0, 50.0)),
)


@given(SETTINGS, st.lists(st.tuples(EVENTS, st.integers(-5, 30)), max_size=40))
def test_no_order_of_events_breaks_the_life_cycle(
    settings: DeviceHealthSettings, events: list[tuple[DeviceEvent, int]]
) -> None:
    card = Card(settings)
    for event, wait_s in events:
        before = card.record
        after = card.after(event, wait_s=wait_s).record
        old, new = before.health, after.health

        if old.state in ("degraded", "failed", "probation") and new.state in ("healthy", "suspect"):
            assert isinstance(event, Tested), "only a passed test brings a card back"
            assert not event.problem
            assert before.is_testing
        if old.state in ("degraded", "failed") and new.state not in ("degraded", "failed"):
            assert new.state == "probation", "there is no way around the probation"
        if before.is_locked and not after.is_locked:
            assert isinstance(event, Enabled), "only an operator unlocks"
        if after.is_testing and not before.is_testing:
            assert event == FREE, "a card with a holder is not tested"
        assert not after.is_locked or new.state == "failed"
        assert not after.is_testing or new.state == "probation"
        assert len(new.history) <= HISTORY_MAX
        if isinstance(event, Suspected | Enabled):
            assert new.acknowledged_mark == event.mark
            assert event.mark != old.acknowledged_mark or after == before, "a mark counts once"
        if isinstance(event, Tested) and not event.problem and before.is_testing:
            age_s = (card.now - before.faults[-1]) / NANOSECONDS if before.faults else settings.trial_s
            is_suspect = before.reported == "suspect" or age_s < settings.trial_s
            assert new.state == ("suspect" if is_suspect else "healthy")
        if isinstance(event, NotTested):
            assert after.faults == before.faults
        assert not new.history or new.history[-1].state == new.state
        assert (new.state == "healthy") <= (new.reason == "")
        if isinstance(event, Reported) and event.severity in ("degraded", "failed"):
            assert new.state in ("degraded", "failed"), "a reported fault counts at once"


@given(SETTINGS, st.lists(st.tuples(EVENTS, st.integers(0, 30)), max_size=40))
def test_a_card_that_is_free_and_well_returns_in_bounded_time_unless_it_is_locked(
    settings: DeviceHealthSettings, events: list[tuple[DeviceEvent, int]]
) -> None:
    card = Card(settings)
    for event, wait_s in events:
        card.after(event, wait_s=wait_s)
    card.after(GOOD, Tested())
    for _ in range(3):
        card.after(FREE, wait_s=max(settings.probation_s, settings.suspect_s, settings.trial_s))
        card.after(Tested())

    assert card.record.is_locked or card.state == "healthy"
