"""When a server tries to lead: sights in, reasons out."""

from __future__ import annotations

import pytest
from yurt.sdk.value import replace
from yurt.storage.etcd.candidacy import (
    PAUSE_MAX_S,
    RESIGN_PAUSE_S,
    SILENCE_S,
    STEADY_TERM_S,
    Candidacy,
    LeaderObservation,
)

ALIVE = LeaderObservation(now=100.0, leader="srv2", successor="", silent_s=0.1, is_caught_up=True)
"""Another server leads and was heard of just now; etcd stands by itself."""


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (ALIVE, ""),
        (replace(ALIVE, silent_s=0.59), ""),
        (replace(ALIVE, silent_s=0.61), "silence"),
        (replace(ALIVE, silent_s=9.0, is_caught_up=False), ""),
        (replace(ALIVE, leader=""), "vacant"),
        (replace(ALIVE, leader="srv1"), "vacant"),
        (replace(ALIVE, leader="", is_caught_up=False), ""),
        (replace(ALIVE, leader="", successor="srv1"), "vacant"),
        (replace(ALIVE, leader="", successor="srv3"), ""),
        (replace(ALIVE, leader="", successor="srv3", silent_s=0.61), "vacant"),
        (replace(ALIVE, own_leads=True), ""),
        (replace(ALIVE, own_leads=True, silent_s=0.31), "own member"),
        (replace(ALIVE, own_leads=True, silent_s=0.31, is_caught_up=False), ""),
        (replace(ALIVE, own_leads=False, silent_s=0.99), ""),
        (replace(ALIVE, own_leads=False, silent_s=1.01), "silence"),
        (replace(ALIVE, own_leads=True, leader=""), "vacant"),
        (replace(ALIVE, own_leads=False, leader=""), ""),
        (replace(ALIVE, own_leads=False, leader="", silent_s=0.61), "vacant"),
        (replace(ALIVE, own_leads=False, leader="", successor="srv1"), "vacant"),
    ],
)
def test_a_server_tries_when_there_is_a_reason(observed: LeaderObservation, reason: str) -> None:
    assert Candidacy("srv1").decide(observed) == reason


def test_etcds_leadership_must_stay_for_a_second_while_the_leader_lives() -> None:
    candidacy = Candidacy("srv1")
    observed = replace(ALIVE, own_leads=True)
    assert candidacy.decide(observed) == ""
    assert candidacy.decide(replace(observed, now=100.9)) == ""
    assert candidacy.decide(replace(observed, now=100.95, own_leads=False)) == ""
    assert candidacy.decide(replace(observed, now=101.0)) == ""
    assert candidacy.decide(replace(observed, now=101.9)) == ""
    assert candidacy.decide(replace(observed, now=102.0)) == "own member"


def test_short_terms_make_the_next_try_wait_longer_and_longer() -> None:
    candidacy, now, waits = Candidacy("srv1"), 100.0, []
    for _ in range(8):
        candidacy.won(now, chance=0.0)
        candidacy.lost(now, chance=0.0)
        tries = (now + step / 10 for step in range(200))
        next_try = next(at for at in tries if candidacy.decide(replace(ALIVE, now=at, leader="")))
        waits.append(round(next_try - now, 1))
        now = next_try
    assert waits[0] < 0.5
    assert waits == sorted(waits)
    assert waits[-1] == PAUSE_MAX_S


def test_a_long_term_makes_the_next_try_quick_again() -> None:
    candidacy = Candidacy("srv1")
    for _ in range(8):
        candidacy.won(100.0, chance=0.0)
        candidacy.lost(100.0, chance=0.0)
    candidacy.won(200.0, chance=0.0)
    candidacy.lost(200.0 + STEADY_TERM_S, chance=0.0)
    assert candidacy.decide(replace(ALIVE, now=200.5 + STEADY_TERM_S, leader="")) == "vacant"


def test_who_gave_its_term_away_lets_others_come_first() -> None:
    candidacy = Candidacy("srv1")
    candidacy.resigned(100.0)
    vacant = replace(ALIVE, leader="", silent_s=5.0)
    assert candidacy.decide(replace(vacant, now=100.0 + RESIGN_PAUSE_S - 0.1)) == ""
    assert candidacy.decide(replace(vacant, leader="srv2", now=101.0)) == "silence"
    assert candidacy.decide(replace(vacant, now=100.0 + RESIGN_PAUSE_S)) == "vacant"


def test_chance_keeps_candidates_apart() -> None:
    early, late = Candidacy("srv1"), Candidacy("srv3")
    early.beaten(100.0, chance=0.0)
    late.beaten(100.0, chance=0.99)
    silent = replace(ALIVE, silent_s=SILENCE_S + 0.1)
    assert (early.decide(silent), late.decide(silent)) == ("silence", "")


def test_patience_makes_silence_longer() -> None:
    patient = Candidacy("srv1", time_factor=3)
    assert patient.decide(replace(ALIVE, silent_s=3 * SILENCE_S - 0.1)) == ""
    assert patient.decide(replace(ALIVE, silent_s=3 * SILENCE_S + 0.1)) == "silence"


def test_a_try_that_is_not_answered_is_given_more_time_the_next_time() -> None:
    candidacy = Candidacy("srv1")
    limits = []
    for _ in range(6):
        limits.append(candidacy.limit_s)
        candidacy.failed(100.0, chance=0.0)
        assert candidacy.decide(replace(ALIVE, now=100.05, silent_s=9.0)) == ""
        assert candidacy.decide(replace(ALIVE, now=100.15, silent_s=9.0)) == "silence"
    assert limits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    candidacy.won(200.0, chance=0.0)
    assert candidacy.limit_s == 0.5


def test_the_first_try_after_a_leader_was_heard_is_given_up_early() -> None:
    """Tries failed in an outage of etcd that its leader's term outlived."""
    candidacy = Candidacy("srv1")
    for _ in range(3):
        candidacy.failed(100.0, chance=0.0)
    assert candidacy.decide(replace(ALIVE, now=101.0)) == ""
    assert candidacy.limit_s == 0.5
