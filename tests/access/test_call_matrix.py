"""Every call between agents by every kind of peer over real TLS: what is carried out is what access_calls.json says."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.access.calls import CallerKind
from yurt.testing.access.call_matrix import PEERS, calls, measure_calls, read_calls

FILE = Path(__file__).parents[2] / "docs" / "reference" / "access_calls.json"
MADE = read_calls(FILE.read_text())
PROVEN = {
    CallerKind.NEW_NODE: "new node", CallerKind.NODE: "node", CallerKind.SERVER: "server",
    CallerKind.REGION: "server of another region",
}  # fmt: skip
"""The peer that stands for a kind of caller; the others are no more than one of these, or nobody."""
AS = {"server's certificate, as a node": "node"}


async def test_every_peer_makes_the_calls_that_the_file_says() -> None:
    assert await measure_calls() == MADE, "run `python -m docs.access_matrix --changed` and read the diff"


@pytest.mark.parametrize("name", MADE["calls"])
def test_a_call_is_carried_out_for_the_kinds_of_callers_that_it_declares(name: str) -> None:
    (needs,) = [call.method.needs for _, _, call in calls() if call.name == name]
    # Whoever is known may do what a stranger may; the kinds of two ports are proven on connections of their own.
    expected = {PROVEN[kind] for kind in needs.callers}
    found = set(MADE["calls"][name])
    # A call that names no node is not about one.
    about_another = {"node, about another node"} if name == "ApiPort.ask" else set()
    assert found - AS.keys() == expected | about_another
    assert {peer for peer in AS if peer in found} == {peer for peer, kind in AS.items() if kind in expected}


def test_whoever_is_not_what_it_says_makes_no_call() -> None:
    allowed = {peer for found in MADE["calls"].values() for peer in found}
    assert {peer.name for peer in PEERS} - allowed == {
        "no TLS", "no certificate", "no certificate, as a server", "certificate of another authority",
        "command line's certificate", "node with a wrong secret", "client's certificate, as a server",
        "client's certificate of another region", "server of another region, as one of this",
        "new node, about another node",
    }  # fmt: skip
