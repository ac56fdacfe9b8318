"""Metadata of a node that is changed while it runs."""

from __future__ import annotations

import pytest
from yurt.client.node.metadata import KEYS_MAX, changed, combined, static_meta
from yurt.sdk.errors import Invalid
from yurt.testing.fakes import FakeServerPort, eventually

STATIC = {"rack": "r1", "tier": "web"}


def test_changes_lie_over_the_configuration():
    meta = changed(combined(STATIC, {}), {"rack": "r2", "new": "1"})
    assert (meta.meta, meta.dynamic) == ({"rack": "r2", "tier": "web", "new": "1"}, {"rack": "r2", "new": "1"})
    assert meta.static == STATIC


def test_null_hides_a_configured_value_and_forgets_any_other():
    meta = changed(changed(combined(STATIC, {}), {"rack": "r2", "new": "1"}), {"rack": None, "new": None})
    assert (meta.meta, meta.dynamic) == ({"tier": "web"}, {"rack": None})


@pytest.mark.parametrize("key", ["", " ", "a b", "a=b", "ключ", "x" * 129, "-a"])
def test_keys_that_no_constraint_could_name_are_refused(key: str):
    with pytest.raises(Invalid, match="invalid metadata key"):
        changed(combined({}, {}), {key: "v"})


def test_nothing_and_too_much_are_refused():
    with pytest.raises(Invalid, match="missing required Meta"):
        changed(combined({}, {}), {})
    with pytest.raises(Invalid, match="longer than"):
        changed(combined({}, {}), {"a": "x" * 5000})
    with pytest.raises(Invalid, match="at most"):
        changed(combined({}, {}), {f"k{number}": "" for number in range(KEYS_MAX + 1)})


async def test_a_change_is_registered_and_outlives_the_agent(run_client, server: FakeServerPort):
    async with run_client() as client:
        await client.calls.apply_node_meta({"rack": "r2"})
        await eventually(lambda: server.registrations[-1].node.meta == static_meta({"rack": "r2"}))
        assert server.nodes[client.node_id].status == "ready"

    async with run_client() as client:
        assert server.registrations[-1].node.meta == static_meta({"rack": "r2"})
        assert (await client.calls.node_meta()).dynamic == {"rack": "r2"}


async def test_what_changes_nothing_registers_nothing(run_client, server: FakeServerPort):
    async with run_client() as client:
        await client.calls.apply_node_meta({"rack": "r2"})
        await eventually(lambda: server.registrations[-1].node.meta == static_meta({"rack": "r2"}))
        count = len(server.registrations)
        await client.calls.apply_node_meta({"rack": "r2"})
        assert len(server.registrations) == count
