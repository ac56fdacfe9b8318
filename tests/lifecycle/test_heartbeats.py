"""When a client speaks to its servers next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.lifecycle import heartbeats
from yurt.lifecycle.heartbeats import Contact
from yurt.sdk.value import duration_text, replace, seconds
from yurt.structs.policies import DisconnectStrategy
from yurt.testing import factories

KNOWN = Contact(is_registered=True, ttl_s=20.0, last_ok_s=100.0)


def test_a_dev_agent_waits_for_nothing():
    dev = Contact(is_dev=True)

    assert heartbeats.first_delay(dev, 0.9) == 0.0
    assert heartbeats.register_retry(dev, 0.9) == 1.0
    assert heartbeats.heartbeat_retry(dev, has_leader=False, now_s=0.0, chance=0.9) == 1.0


def test_without_a_leader_the_wait_is_15_to_30_seconds():
    assert heartbeats.heartbeat_retry(KNOWN, has_leader=False, now_s=101.0, chance=0.0) == 15.0
    assert heartbeats.heartbeat_retry(KNOWN, has_leader=False, now_s=101.0, chance=0.999) < 30.0


@given(now_s=st.floats(100, 1000), chance=st.floats(0, 0.999))
def test_the_wait_after_an_error_stays_within_its_bounds(now_s, chance):
    wait_s = heartbeats.heartbeat_retry(KNOWN, has_leader=True, now_s=now_s, chance=chance)

    assert 1.0 <= wait_s <= 30.0
    if 0 < now_s - 120.0 < 30.0:
        assert wait_s < 2.0


def test_only_a_group_that_wants_it_is_stopped_without_contact():
    group = replace(factories.group(), disconnect=DisconnectStrategy(stop_on_client_after=seconds(60)))

    assert heartbeats.stop_on_client_after_s(factories.group(), "service") == 0.0
    assert heartbeats.stop_on_client_after_s(group, "system") == 0.0
    after_s = heartbeats.stop_on_client_after_s(group, "service")
    assert heartbeats.is_cut_off(after_s, last_contact_s=10.0, now_s=71.0)
    assert not heartbeats.is_cut_off(after_s, last_contact_s=10.0, now_s=70.0)


def test_durations_are_written_as_nomad_writes_them():
    assert [duration_text(seconds(each)) for each in (0, 0.2, 1.5, 30, 90, 1800, 3661)] == [
        "0s",
        "200ms",
        "1.5s",
        "30s",
        "1m30s",
        "30m0s",
        "1h1m1s",
    ]
