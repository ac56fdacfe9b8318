"""Sticky ephemeral disks: a replacement on the same node begins with what its predecessor left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from yurt.client.allocations.migration import pack
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir, carry_over
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.resources import EphemeralDisk
from yurt.structs.status import CLIENT_RUNNING, DESIRED_STOP
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

OLD, NEW = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"


def sticky(node_id: str, alloc_id: str, **changes: Any) -> Allocation:
    """An allocation with a disk of its own choice."""
    disk = EphemeralDisk(**{"sticky": True, **changes})
    job = factories.job(task_groups=(factories.group(ephemeral_disk=disk, update=None, migrate=None),))
    return replace(placed(node_id, job=job), id=alloc_id)


def leave(root: Path, alloc_id: str) -> None:
    """What a task has written."""
    (root / alloc_id / "alloc" / "data" / "shared").write_text("s")
    (root / alloc_id / "web" / "local" / "own").write_text("o")


async def replaced(server: FakeServerPort, node_id: str, root: Path, **changes: Any) -> str:
    """Run an allocation that writes, stop it, and run its replacement; the replacement's id."""
    old = sticky(node_id, OLD, **changes)
    server.put_alloc(old)
    await eventually(lambda: server.status_of(OLD) == CLIENT_RUNNING)
    leave(root, OLD)
    server.put_alloc(replace(old, desired_status=DESIRED_STOP))
    server.put_alloc(replace(sticky(node_id, NEW, **changes), previous_allocation=OLD))
    await eventually(lambda: server.status_of(NEW) == CLIENT_RUNNING)
    return NEW


async def test_a_replacement_has_the_data_of_its_predecessor(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
):
    root = tmp_path / "alloc"
    async with run_client() as client:
        await replaced(server, client.node_id, root)
        assert driver.host.starts == [f"{OLD}/web/0", f"{NEW}/web/0"]
        assert (root / NEW / "alloc" / "data" / "shared").read_text() == "s"
        assert (root / NEW / "web" / "local" / "own").read_text() == "o"
        assert not (root / OLD / "alloc" / "data").exists()


async def test_without_sticky_a_replacement_begins_empty(run_client, server: FakeServerPort, tmp_path: Path):
    root = tmp_path / "alloc"
    async with run_client() as client:
        await replaced(server, client.node_id, root, sticky=False)
        assert list((root / NEW / "alloc" / "data").iterdir()) == []
        assert (root / OLD / "web" / "local" / "own").exists()


async def test_data_of_another_node_is_fetched(run_client, server: FakeServerPort, tmp_path: Path):
    build_alloc_dir(str(tmp_path / "far"), OLD)
    (tmp_path / "far" / OLD / "alloc" / "data" / "word").write_text("kept")
    async with run_client() as client:
        server.disks[NEW] = tuple([piece async for piece in pack(str(tmp_path / "far"), OLD, ["web"])])
        server.put_alloc(replace(sticky(client.node_id, NEW, migrate=True), previous_allocation=OLD))
        await eventually(lambda: server.status_of(NEW) == CLIENT_RUNNING)
        assert (Path(client.config.alloc_dir) / NEW / "alloc" / "data" / "word").read_text() == "kept"


async def test_data_that_nobody_has_is_named_and_the_allocation_begins_without(run_client, server: FakeServerPort):
    async with run_client() as client:
        server.put_alloc(replace(sticky(client.node_id, NEW, migrate=True), previous_allocation=OLD))
        await eventually(lambda: server.status_of(NEW) == CLIENT_RUNNING)
        events = server.last_update(NEW).task_states["web"].events
        assert any("could not be copied: allocation" in event.display_message for event in events), events


@pytest.mark.parametrize("place", ["alloc/data", "web/local", "web"])
def test_a_link_in_the_place_of_sticky_data_is_not_carried_over(tmp_path: Path, place: str):
    outside = tmp_path / "outside"
    (outside / "local").mkdir(parents=True)
    for alloc_id in (OLD, NEW):
        build_alloc_dir(str(tmp_path), alloc_id)
    build_task_dir(str(tmp_path), OLD, "web")
    os.rename(tmp_path / OLD / place, tmp_path / OLD / "moved")
    (tmp_path / OLD / place).symlink_to(outside)

    carry_over(str(tmp_path), OLD, NEW, ["web"])

    assert not (tmp_path / NEW / place).is_symlink() and (outside / "local").is_dir()


def test_to_carry_over_again_changes_nothing(tmp_path: Path):
    for alloc_id in (OLD, NEW):
        build_alloc_dir(str(tmp_path), alloc_id)
        build_task_dir(str(tmp_path), alloc_id, "web")
    leave(tmp_path, OLD)
    carry_over(str(tmp_path), OLD, NEW, ["web"])

    carry_over(str(tmp_path), OLD, NEW, ["web"])

    assert (tmp_path / NEW / "web" / "local" / "own").read_text() == "o"
