"""Coverage of simulated runs: what is counted, what is missing, and plans that are steered to it."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.state import Change
from yurt.structs import commands as c
from yurt.testing import factories
from yurt.testing.sim.campaign.coverage import (
    BEGIN,
    COMMANDS,
    END,
    FEATURE_OF,
    NAMES,
    PAIRS,
    Coverage,
    Gaps,
    read_gaps,
    steered,
    with_gaps,
)
from yurt.testing.sim.plan import (
    CSI_FEATURES,
    FAULTS,
    FEATURES,
    LATE_FAULTS,
    OF_CSI,
    OF_DEVICES,
    RARE_FEATURES,
    VOLUME_FEATURES,
    draw,
)

LEDGER = f"before\n{BEGIN}{END}\nafter\n"


def test_commands_changes_of_status_and_pairs_of_faults_are_counted() -> None:
    coverage, node = Coverage(), factories.node()
    down = replace(node, status="down")
    coverage.applied(c.RegisterNode(node=node), (Change("nodes", node.id, None, node),))
    coverage.applied(c.RegisterNode(node=node), (Change("nodes", node.id, node, down),))
    coverage.applied(c.RegisterNode(node=node), (Change("nodes", node.id, down, down),))
    coverage.struck("kill-server", ["slow-disk", "slow-disk", "kill-server", "cut-client"])
    assert coverage.counts == {
        "command RegisterNode": 3,
        f"change nodes none {node.status}": 1,
        f"change nodes {node.status} down": 1,
        "faults kill-server slow-disk": 1,
        "faults cut-client kill-server": 1,
    }


def test_gaps_survive_the_ledger() -> None:
    gaps = Gaps().without({"command RegisterNode", "faults kill-server slow-disk", "faults cut-client kill-server"})
    text = with_gaps(LEDGER, gaps)
    assert read_gaps(LEDGER) == Gaps(COMMANDS, PAIRS)
    assert read_gaps(text) == gaps and with_gaps(text, read_gaps(text)) == text
    assert f"2 of {len(PAIRS)} pairs" in text and "RegisterNode," not in text
    assert read_gaps(text.replace(NAMES, "0" * 12)) == Gaps(), "a table of other commands and faults says nothing"
    nothing = with_gaps(text, Gaps(frozenset(), frozenset()))
    assert read_gaps(nothing) == Gaps(frozenset(), frozenset())


def test_a_steered_plan_can_fill_gaps_and_is_the_same_each_time() -> None:
    gaps = Gaps(frozenset({"PutVariable"}), frozenset({("cut-client", "device-breaks")}))
    drawn = draw(5, features=("service",))
    plan = steered(drawn, gaps)
    assert {*plan.faults} == {*drawn.faults, "cut-client", "device-breaks"} and plan.has_devices
    assert plan.features == ("service", "variables") and plan.fault_pause_s <= 3.0
    assert plan == steered(draw(5, features=("service",)), gaps)
    assert steered(draw(5), Gaps(frozenset(), frozenset())) == draw(5)


def test_the_names_are_those_of_plans_and_commands() -> None:
    assert set(FEATURE_OF) <= COMMANDS and set(FEATURE_OF.values()) <= {
        *FEATURES,
        *RARE_FEATURES,
        *VOLUME_FEATURES,
        *CSI_FEATURES,
    }
    assert {each for pair in PAIRS for each in pair} == {*FAULTS, *OF_DEVICES, *LATE_FAULTS, *OF_CSI}
