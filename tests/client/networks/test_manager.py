"""The life of an allocation's network, with plugins that succeed, fail and are killed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.client.networks import construction, manager, namespaces
from yurt.sdk.driver import Capabilities, Mount
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import replace
from yurt.structs.alloc import AllocatedResources, AllocatedSharedResources, Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.network import CNIConfig, DNSConfig, NetworkResource, PortMapping
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver

from .conftest import AS_ROOT, Node, Plugins

pytestmark = AS_ROOT
ADDED = [("first", "ADD"), ("second", "ADD")]
DELETED = [("second", "DEL"), ("first", "DEL")]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(construction, "RETRY_S", 0.01)


def asking(mode: str = "bridge", **changes: Any) -> tuple[Allocation, TaskGroup]:
    """An allocation and its group, which asks for a network."""
    network = NetworkResource(mode=mode, **changes)
    alloc = placed("node", job=factories.job(task_groups=(factories.group(networks=(network,)),)))
    ports = (PortMapping(label="web", value=20000, to=80, host_ip="127.0.0.1"),)
    given = AllocatedResources(shared=AllocatedSharedResources(ports=ports))
    assert alloc.job is not None
    return replace(alloc, allocated_resources=given), alloc.job.task_groups[0]


def grouped(driver: FakeDriver, **changes: Any) -> FakeDriver:
    driver.capabilities = replace(driver.capabilities, network_modes=("host", "group"), mounts=True, **changes)
    return driver


def text_of(mount: Mount) -> str:
    return Path(mount.host_path).read_text()


async def test_the_first_task_makes_the_network_and_the_others_find_it(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking(cni=CNIConfig(args={"Colour": "green"}))
    made = await asyncio.gather(*(networks.join(alloc, group, grouped(node.driver)) for _ in range(3)))
    assert plugins.asked == ADDED and len({each.namespace for each in made}) == 1
    status = networks.status(alloc.id)
    assert status is not None and (status.address, status.interface_name) == ("10.9.8.7", "eth0")
    assert plugins.inputs("second", "ADD")[0]["prevResult"]["ips"]
    assert plugins.inputs("second", "ADD")[0]["runtimeConfig"]["portMappings"][0]["hostPort"] == 20000
    told = (plugins.folder / "asked").read_text()
    assert f"NOMAD_ALLOC_ID={alloc.id};Colour=green" in told and made[0].namespace in told

    await networks.release(alloc.id)
    assert plugins.asked == ADDED + DELETED
    assert plugins.inputs("first", "DEL")[0]["prevResult"]["ips"] and networks.status(alloc.id) is None
    assert not namespaces.identity(made[0].namespace) and not list(node.records.folder.iterdir())


async def test_the_files_name_the_allocation_and_the_resolver_of_the_network(node: Node):
    networks = await node.networks()
    alloc, group = asking(hostname="shop", dns=DNSConfig(searches=("job.example",)))
    made = await networks.join(alloc, group, grouped(node.driver))
    hosts, resolver = map(text_of, made.mounts)
    assert "10.9.8.7 shop" in hosts
    assert "nameserver 10.9.8.53\nsearch job.example\n" in resolver
    assert [mount.task_path for mount in made.mounts] == ["/etc/hosts", "/etc/resolv.conf"]


async def test_a_failure_is_undone_tried_again_and_told(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking()
    mark = plugins.fail("second", "ADD")
    with pytest.raises(RecoverableError, match='CNI plugin "second" of network "net" failed to ADD: refused: by the'):
        await networks.join(alloc, group, grouped(node.driver))
    assert plugins.asked == (ADDED + DELETED) * construction.ATTEMPTS
    assert not list(node.records.folder.iterdir()) and not list((node.folder / "netns").iterdir())
    mark.unlink()
    assert (await networks.join(alloc, group, grouped(node.driver))).namespace


async def test_the_next_agent_takes_up_what_it_finds(node: Node, plugins: Plugins):
    first, (alloc, group) = await node.networks(), asking()
    before = await first.join(alloc, group, grouped(node.driver))
    identity = namespaces.identity(before.namespace)

    second = await node.networks(allocs=(alloc.id,))
    assert second.status(alloc.id) == before.status
    assert await second.join(alloc, group, grouped(node.driver)) == before
    assert namespaces.identity(before.namespace) == identity and plugins.asked == ADDED


async def test_a_namespace_that_somebody_removed_is_made_again(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking()
    before = await networks.join(alloc, group, grouped(node.driver))
    namespaces.remove_namespace(Path(before.namespace))

    after = await networks.join(alloc, group, grouped(node.driver))
    assert namespaces.identity(after.namespace) and plugins.asked == ADDED + DELETED + ADDED


@pytest.mark.parametrize("cut", ["before ADD", "after ADD"])
async def test_what_was_cut_off_in_the_making_is_undone_first(
    node: Node, plugins: Plugins, monkeypatch: pytest.MonkeyPatch, cut: str
):
    networks, (alloc, group) = await node.networks(), asking()
    record = await networks.join(alloc, group, grouped(node.driver))
    known = node.records.read(alloc.id)
    assert known is not None
    intent = replace(known, identity=0, result=None, status=None)
    node.records.write(intent)
    if cut == "before ADD":
        namespaces.remove_namespace(Path(record.namespace))

    again = await (await node.networks(allocs=(alloc.id,))).join(alloc, group, grouped(node.driver))
    assert plugins.asked == ADDED + DELETED + ADDED and namespaces.identity(again.namespace)


async def test_what_allocations_left_that_nobody_knows_goes_at_the_next_start(node: Node, plugins: Plugins):
    first, (alloc, group) = await node.networks(), asking()
    made = await first.join(alloc, group, grouped(node.driver))

    second = await node.networks(allocs=())
    await until_idle(second.run(), lambda: not list(node.records.folder.iterdir()))
    assert plugins.asked == ADDED + DELETED and not namespaces.identity(made.namespace)


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_what_a_dead_agent_left_goes_with_an_agent_of_the_same_network_namespace(
    node: Node, plugins: Plugins, tmp_path: Path, is_elsewhere: bool
):
    first, (alloc, group) = await node.networks(), asking()
    await first.join(alloc, group, grouped(node.driver))
    record = node.records.read(alloc.id)
    assert record is not None and record.owner.network
    network = record.owner.network + is_elsewhere
    left = replace(record, owner=replace(record.owner, state_dir=str(tmp_path / "gone"), network=network))
    node.records.write(left)

    second = await node.networks()
    if is_elsewhere:
        assert second._leftover == {}
    else:
        await until_idle(second.run(), lambda: not list(node.records.folder.iterdir()))
        assert plugins.asked == ADDED + DELETED


async def until_idle(work: Any, is_done: Callable[[], bool]) -> None:
    """Run work that never ends until something has come true."""
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(60):
            while not is_done():  # noqa: ASYNC110 - any condition, not an event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()


async def test_a_network_that_cannot_be_taken_away_is_left_to_the_next_agent(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking()
    made = await networks.join(alloc, group, grouped(node.driver))
    mark = plugins.fail("first", "DEL")
    await networks.release(alloc.id)
    assert not namespaces.identity(made.namespace) and node.records.read(alloc.id) is not None
    assert plugins.asked == ADDED + DELETED * construction.ATTEMPTS
    mark.unlink()

    after = await node.networks()
    await until_idle(after.run(), lambda: not list(node.records.folder.iterdir()))
    assert plugins.asked[-2:] == DELETED


async def test_a_group_without_a_network_has_a_namespace_that_no_plugin_sees(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking("none")
    made = await networks.join(alloc, group, grouped(node.driver))
    assert namespaces.identity(made.namespace) and plugins.asked == [] and made.status is None
    await networks.release(alloc.id)
    assert not namespaces.identity(made.namespace)


async def test_the_network_of_the_host_takes_nothing_but_another_resolver(node: Node, plugins: Plugins):
    networks = await node.networks()
    assert await networks.join(*asking("host"), grouped(node.driver)) == manager.TaskNetwork()
    alloc, group = asking("host", dns=DNSConfig(servers=("192.0.2.53",)))
    (mount,) = (await networks.join(alloc, group, grouped(node.driver))).mounts
    assert "nameserver 192.0.2.53" in text_of(mount) and plugins.asked == []
    await networks.release(alloc.id)
    assert not list(node.records.folder.iterdir())


async def test_a_driver_that_knows_no_groups_is_told_from_one_that_lacks_the_network(node: Node):
    networks = await node.networks()
    with pytest.raises(DriverError, match='driver "fake" cannot join the network of its group'):
        await networks.join(*asking(), node.driver)
    with pytest.raises(DriverError, match='no network of mode "cni/other": no CNI configuration has this name'):
        await networks.join(*asking("cni/other"), grouped(node.driver))


class Maker(FakeDriver):
    """A driver that makes the namespaces of its groups."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.destroyed: list[str] = []
        self.capabilities = Capabilities(network_modes=("host", "group"), must_create_network=True)

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        path = self.folder / alloc_id
        if not path.exists():
            namespaces.make_namespace(path)
        return str(path)

    async def destroy_network(self, alloc_id: str) -> None:
        self.destroyed.append(alloc_id)
        namespaces.remove_namespace(self.folder / alloc_id)


async def test_a_driver_that_has_to_makes_the_namespace_that_the_plugins_connect(node: Node, plugins: Plugins):
    maker = Maker(node.folder / "made")
    networks, (alloc, group) = await node.networks(drivers={"fake": maker}), asking()
    made = await networks.join(alloc, group, maker)
    assert namespaces.identity(made.namespace) == namespaces.identity(maker.folder / alloc.id) != 0
    assert await networks.join(alloc, group, maker) == made and plugins.asked == ADDED

    namespaces.remove_namespace(maker.folder / alloc.id)
    again = await networks.join(alloc, group, maker)
    assert plugins.asked == ADDED + DELETED + ADDED
    assert namespaces.identity(again.namespace) == namespaces.identity(maker.folder / alloc.id) != 0
    await networks.release(alloc.id)
    assert maker.destroyed[-1] == alloc.id and not (maker.folder / alloc.id).exists()
    namespaces.remove_folder(maker.folder)


async def test_a_driver_that_has_to_make_networks_and_cannot_is_named(node: Node):
    node.driver.capabilities = replace(node.driver.capabilities, network_modes=("group",), must_create_network=True)
    networks = await node.networks()
    with pytest.raises(DriverError, match='driver "fake" has to make the network of its group'):
        await networks.join(*asking(), node.driver)


async def test_arguments_that_no_plugin_can_be_told_are_refused_before_anything_is_made(node: Node, plugins: Plugins):
    networks, (alloc, group) = await node.networks(), asking(cni=CNIConfig(args={"a": "b;c=d"}))
    with pytest.raises(DriverError, match="cni args: 'a' = 'b;c=d'"):
        await networks.join(alloc, group, grouped(node.driver))
    assert plugins.asked == [] and not node.records.folder.exists()


async def test_tasks_of_the_host_network_that_start_together_share_one_resolver_file(node: Node):
    networks, (alloc, group) = await node.networks(), asking("host", dns=DNSConfig(servers=("192.0.2.53",)))
    made = await asyncio.gather(*(networks.join(alloc, group, grouped(node.driver)) for _ in range(20)))
    assert len(set(made)) == 1 and len(made[0].mounts) == 1


async def test_what_a_driver_made_waits_for_that_driver(node: Node, plugins: Plugins, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(manager, "CLEAR_EVERY_S", 0.01)
    maker = Maker(node.folder / "made")
    first, (alloc, group) = await node.networks(drivers={"fake": maker}), asking()
    await first.join(alloc, group, maker)

    without = await node.networks(drivers={})
    await until_idle(without.run(), lambda: plugins.asked.count(("first", "DEL")) >= 3)
    assert node.records.read(alloc.id) is not None and maker.destroyed == []

    after = await node.networks(drivers={"fake": maker})
    await until_idle(after.run(), lambda: not list(node.records.folder.iterdir()))
    assert maker.destroyed == [alloc.id]
    namespaces.remove_folder(maker.folder)


async def test_a_network_that_was_made_again_is_not_taken_away_with_what_failed_before(
    node: Node, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
):
    networks, (alloc, group) = await node.networks(), asking()
    marks = plugins.fail("second", "ADD"), plugins.fail("first", "DEL")
    with pytest.raises(RecoverableError):
        await networks.join(alloc, group, grouped(node.driver))
    for mark in marks:
        mark.unlink()
    made = await networks.join(alloc, group, grouped(node.driver))
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(networks._env, "sleep", pause)
    await until_idle(networks.run(), lambda: len(pauses) > 2)
    assert namespaces.identity(made.namespace) and networks.status(alloc.id) == made.status
