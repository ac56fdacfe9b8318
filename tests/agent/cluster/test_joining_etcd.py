"""A server that is killed or stopped while it joins or leaves a cluster joins it at its next start; with a real etcd.

What the others send is held back by freezing their etcd, so that each step lasts as long as the test needs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.agent.cluster.cluster_files import CLUSTER_FILE, Founding, load, save
from yurt.agent.cluster.etcd_admin import OwnEtcdAdmin
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.members_listener import MembersListener
from yurt.agent.cluster.members_port import AdmissionAnswer
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.peer_address import OtherServers, PeerAddress
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.cluster.start_progress import DATA_LOOK_S
from yurt.agent.cluster.voters import LEAVE_LIMIT_S, Admitter, leave, put_out
from yurt.agent.config import make_config
from yurt.agent.tls import TlsSettings
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Unavailable
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.member_files.check import holds_entries
from yurt.storage.etcd.member_files.joining import join_progress
from yurt.storage.etcd.member_files.raft_log import read_segment
from yurt.storage.etcd.membership import member_status
from yurt.storage.etcd.settings import has_member_data
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import Member
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import eventually
from yurt.testing.nightly import is_nightly
from yurt.testing.unique_ports import quiet_port

LIMIT_S = 60.0
ENTRIES, AT_ONCE = 9_000, 100
"""Enough for etcd to make a snapshot and to drop all but the last 5,000 entries before it."""
SECURITY = ServerSecurity(TlsSettings())


class HeldAdmitter(Admitter):
    """Holds promotions back while its `gate` is closed; may lose the answers, or admit as versions without learners."""

    def __init__(self, admin: OwnEtcdAdmin, membership: Membership) -> None:
        super().__init__(admin, membership, AutopilotConfiguration, env=RealEnv())
        self.gate = asyncio.Event()
        self.gate.set()
        self.was_asked = self.has_promoted = False
        self.loses_answers = self.adds_voters = False

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        return await super().admit(member, knows_learners=knows_learners and not self.adds_voters)

    async def promote(self, learner_id: str) -> None:
        self.was_asked = True
        await self.gate.wait()
        await super().promote(learner_id)
        self.has_promoted = True
        if self.loses_answers:
            await asyncio.Event().wait()


class Server(NamedTuple):
    """A server's part in its cluster."""

    etcd: OwnEtcd
    membership: Membership
    admin: OwnEtcdAdmin
    admitter: HeldAdmitter
    folder: Path

    def meet(self, other: Server) -> None:
        self.membership.merge_update(other.membership.update())
        other.membership.merge_update(self.membership.update())

    @property
    def record(self) -> Founding:
        return load(self.folder / CLUSTER_FILE, Founding)

    def kill_etcd(self) -> None:
        """Kill etcd, unless it ends at this moment."""
        with suppress(ProcessLookupError):
            if self.etcd.pid:
                os.kill(self.etcd.pid, signal.SIGKILL)

    async def voter_id(self, name: str) -> str:
        """The id of a server's etcd member, by the name that etcd knows, or as the only other one."""
        others = [each for each in await self.admin.voters() if each.name != self.membership.own.name]
        return next((each.id for each in others if each.name == name), others[0].id)

    async def write(self) -> None:
        """Write to etcd, for which it needs a majority."""
        client = EtcdClient((self.etcd.endpoint,))
        await client.put(b"key", b"")
        await client.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        os.kill(self.etcd.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.etcd.pid, signal.SIGCONT)


@asynccontextmanager
async def server(folder: Path, name: str, port: int) -> AsyncIterator[Server]:
    """A server that listens for others; its etcd does not run yet."""
    block = {"enabled": True, "bootstrap_expect": 3}
    given = {"server": block, "data_dir": str(folder), "bind_addr": "127.0.0.1", "name": name}
    config = make_config({**given, "ports": {"etcd": port}}, {}, is_dev=False)
    serf = quiet_port()
    own = member(name, address=f"127.0.0.1:{serf}", etcd_addr=f"127.0.0.1:{port}", has_data=False)
    env = RealEnv()
    membership = Membership(own, env=env)
    exchange = Exchange(membership, security=SECURITY, env=env)
    etcd = OwnEtcd(config, folder, membership=membership, exchange=exchange, env=env, tls=TlsSettings())
    admin = OwnEtcdAdmin(etcd.endpoint)
    admitter = HeldAdmitter(admin, membership)
    listener = MembersListener(membership, security=SECURITY, admission=admitter)
    await listener.start(f"127.0.0.1:{serf}")
    async with asyncio.TaskGroup() as group:
        exchanging = group.create_task(exchange.run())
        try:
            yield Server(etcd, membership, admin, admitter, folder)
        finally:
            exchanging.cancel()
            await etcd.stop()
            await admin.close()
            await listener.stop()


@asynccontextmanager
async def founded(folder: Path, names: str) -> AsyncIterator[list[Server]]:
    """Servers that have founded a cluster."""
    ports = {name: quiet_port() for name in names}
    founders = {f"{name}.global": f"127.0.0.1:{port}" for name, port in ports.items()}
    async with AsyncExitStack() as stack:
        made = []
        for name, port in ports.items():
            (folder / name).mkdir()
            save(folder / name / CLUSTER_FILE, Founding(founding=founders))
            made.append(await stack.enter_async_context(server(folder / name, name, port)))
        async with asyncio.TaskGroup() as group:
            for each in made:
                group.create_task(each.etcd.form())
        for each in made:
            each.meet(made[0])
            await wait_voters(each, *founders.values())
        yield made


class NoProbe:
    """No server uses TLS here."""

    async def problem_with(self, server: Member) -> str:
        raise AssertionError(server)

    async def mismatches(self, names: Mapping[str, str]) -> tuple[str, ...]:
        raise AssertionError(names)


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.05)


async def wait_voters(asked: Server, *addresses: str) -> None:
    """Wait until etcd lists exactly these members, all of which have begun and are voters."""

    async def is_listed() -> bool:
        with suppress(Unavailable):
            voters = await asked.admin.voters()
            has_begun = all(each.name and not each.is_learner for each in voters)
            return has_begun and {each.address for each in voters} == set(addresses)
        return False

    await wait_until(is_listed)


async def join(joiner: Server, others: Sequence[Server]) -> None:
    """Start the etcd of a server that begins, or goes on; afterwards it is where it says, and all have begun."""
    joiner.meet(others[0])
    own = joiner.membership.own
    servers = OtherServers(joiner.membership.members, tuple, NoProbe())
    address = PeerAddress(joiner.etcd, joiner.admin, own=own, servers=servers, env=RealEnv())

    async def has_begun() -> bool:
        return joiner.etcd.has_begun and not joiner.record.is_joining

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        await joiner.etcd.form()
        kept = [group.create_task(address.run()), group.create_task(joiner.etcd.run())]
        addresses = (own.etcd_addr, *(each.membership.own.etcd_addr for each in others))
        for asked in (others[0], joiner):  # What a removed one knows is old.
            await wait_voters(asked, *addresses)
        await wait_until(has_begun)
        for each in kept:
            each.cancel()


async def join_until(joiner: Server, others: Sequence[Server], is_reached: Callable[[Server], bool]) -> None:
    """Begin to join, and have the server end at a moment after which the others send nothing."""
    joiner.meet(others[0])
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        forming = group.create_task(joiner.etcd.form())
        await eventually(lambda: is_reached(joiner))
        with ExitStack() as stack:
            for each in others:
                stack.enter_context(each.frozen())
            await asyncio.sleep(4 * DATA_LOOK_S)
            forming.cancel()
            await asyncio.wait([forming])


STEPS: dict[str, Callable[[Server], bool]] = {
    "admitted": lambda joiner: joiner.record.is_joining,
    "log": lambda joiner: has_member_data(str(joiner.etcd.folder)),
    "entries": lambda joiner: holds_entries(joiner.etcd.folder),
    "member": lambda joiner: join_progress(joiner.etcd.folder).is_member,
}


async def cut_join(folder: Path, port: int, founders: Sequence[Server], step: str, *, is_killed: bool) -> None:
    """Have the server `b` end at a step of its join before its promotion, its etcd in order or by a kill."""
    for each in founders:
        each.admitter.gate.clear()
    async with server(folder, "b", port) as joiner:
        await join_until(joiner, founders, STEPS[step])
        if is_killed:
            joiner.kill_etcd()
    for each in founders:
        each.admitter.gate.set()


def ends(*, moves: bool) -> Iterator[tuple[str, bool]]:
    """The steps at which a join ends, each in order and by a kill in nightly runs, else in one of the two ways."""
    if is_nightly():
        return product(STEPS, (False, True))
    return ((step, bool(number % 2) is moves) for number, step in enumerate(STEPS))


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("names", ["a", *(["ac"] if is_nightly() else [])])
async def test_a_join_that_is_cut_short_is_made_at_the_next_start(tmp_path: Path, names: str, moves: bool) -> None:
    """Meanwhile the others go on, even when there is only one. A member that knows that it is one remains the same."""
    for step, is_killed in ends(moves=moves):
        (tmp_path / f"{step}-{is_killed}").mkdir()
        async with founded(tmp_path / f"{step}-{is_killed}", names) as founders:
            folder, port = tmp_path / f"{step}-{is_killed}" / "b", quiet_port()
            folder.mkdir()
            await cut_join(folder, port, founders, step, is_killed=is_killed)
            await founders[0].write()
            learner = await founders[0].voter_id("b.global")
            async with server(folder, "b", quiet_port() if moves else port) as again:
                await join(again, founders)
            if step == "member" or not moves:
                assert await founders[0].voter_id("b.global") == learner, "it goes on"


@pytest.mark.parametrize("moves", [False, True])
async def test_a_server_that_has_not_heard_of_its_promotion_goes_on(tmp_path: Path, moves: bool) -> None:
    """One of one has promoted a second: from then on nobody can be admitted, removed or added without it."""
    async with founded(tmp_path, "a") as (founder,):
        founder.admitter.loses_answers = True
        folder, port = tmp_path / "b", quiet_port()
        folder.mkdir()
        async with server(folder, "b", port) as joiner:
            await join_until(joiner, [founder], lambda _: founder.admitter.has_promoted)
            joiner.kill_etcd()
            assert joiner.record.is_joining
        founder.admitter.loses_answers = False
        async with server(folder, "b", quiet_port() if moves else port) as again:
            await join(again, [founder])


async def test_a_server_is_promoted_though_the_leader_ends_after_it_was_added(tmp_path: Path) -> None:
    async with founded(tmp_path, "acd") as founders:
        for each in founders:
            each.admitter.gate.clear()
        (tmp_path / "b").mkdir()
        async with server(tmp_path / "b", "b", quiet_port()) as joiner, asyncio.TaskGroup() as group:
            joining = group.create_task(joiner.etcd.form())
            joiner.meet(founders[0])
            await eventually(lambda: any(each.admitter.was_asked for each in founders), within_s=LIMIT_S)
            (leader,) = [each for each in founders if await leads(each)]
            leader.kill_etcd()
            for each in founders:
                each.admitter.gate.set()
            async with asyncio.timeout(LIMIT_S):
                await joining
            others = [each for each in founders if each is not leader]
            addresses = [each.membership.own.etcd_addr for each in (*founders, joiner)]
            await wait_voters(others[0], *addresses)


async def leads(one: Server) -> bool:
    client = EtcdClient((one.etcd.endpoint,))
    try:
        return (await member_status(client)).is_leader
    finally:
        await client.close()


async def test_two_servers_that_come_at_once_join_one_after_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with founded(tmp_path, "a") as (founder,), AsyncExitStack() as stack:
        founder.admitter.gate.clear()
        comers = []
        for name in "bc":
            (tmp_path / name).mkdir()
            comers.append(await stack.enter_async_context(server(tmp_path / name, name, quiet_port())))
            comers[-1].meet(founder)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            for each in comers:
                group.create_task(each.etcd.form())
            await eventually(lambda: "joins the cluster at this moment" in caplog.text, within_s=LIMIT_S)
            founder.admitter.gate.set()
        await wait_voters(founder, *(each.membership.own.etcd_addr for each in (founder, *comers)))


async def test_a_learner_that_is_promoted_after_the_limit_goes_on_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yurt.agent.cluster.promotion.PROMOTION_LIMIT_S", 1.0)
    monkeypatch.setattr("yurt.agent.cluster.promotion.ASK_LIMIT_S", 0.5)
    caplog.set_level("INFO")
    async with founded(tmp_path, "a") as (founder,):
        founder.admitter.gate.clear()
        (tmp_path / "b").mkdir()
        async with server(tmp_path / "b", "b", quiet_port()) as joiner, asyncio.TaskGroup() as group:
            joining = group.create_task(join(joiner, [founder]))
            await eventually(lambda: "etcd member goes on with its join" in caplog.text, within_s=LIMIT_S)
            learner = await founder.voter_id("b.global")
            founder.admitter.gate.set()
            await joining
        assert await founder.voter_id("b.global") == learner
        assert "in use by another process" not in caplog.text, "the etcd that waited gives way to the next"


async def test_a_server_joins_through_one_of_a_version_without_learners(tmp_path: Path) -> None:
    async with founded(tmp_path, "a") as (founder,):
        founder.admitter.adds_voters = True
        (tmp_path / "b").mkdir()
        async with server(tmp_path / "b", "b", quiet_port()) as joiner:
            await join(joiner, [founder])
        assert not founder.admitter.was_asked


async def test_a_server_that_never_comes_back_keeps_no_other_out(tmp_path: Path) -> None:
    async with founded(tmp_path, "a") as (founder,):
        for name in "bc":
            (tmp_path / name).mkdir()
        await cut_join(tmp_path / "b", quiet_port(), [founder], "member", is_killed=True)
        async with server(tmp_path / "c", "c", quiet_port()) as other:
            await join(other, [founder])


async def test_a_join_whose_member_was_removed_meanwhile_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.agent.cluster.start_progress.JOIN_SILENCE_S", 3.0)
    async with founded(tmp_path, "a") as (founder,):
        folder, port = tmp_path / "b", quiet_port()
        folder.mkdir()
        await cut_join(folder, port, [founder], "log", is_killed=False)
        await put_out(founder.admin, await founder.voter_id("b.global"), RealEnv())
        async with server(folder, "b", port) as again:
            await join(again, [founder])


async def test_a_join_whose_files_are_damaged_meanwhile_is_asked_for_again(tmp_path: Path) -> None:
    async with founded(tmp_path, "a") as (founder,):
        folder = tmp_path / "b"
        folder.mkdir()
        await cut_join(folder, quiet_port(), [founder], "log", is_killed=True)
        (segment,) = folder.rglob("*.wal")
        shutil.copy(segment, segment.with_name("0000000000000002-0000000000000000.wal"))  # There is no 1.
        async with server(folder, "b", quiet_port()) as again:
            await join(again, [founder])


async def test_a_join_by_a_snapshot_ends_without_the_entries_before_it(tmp_path: Path) -> None:
    """etcd sends a snapshot once it has dropped the first entries of its raft log."""
    async with founded(tmp_path, "a") as founders:
        client = EtcdClient((founders[0].etcd.endpoint,))
        for first in range(0, ENTRIES, AT_ONCE):
            await asyncio.gather(*(client.put(b"%d" % number, b"") for number in range(first, first + AT_ONCE)))
        await client.close()
        (tmp_path / "b").mkdir()
        async with server(tmp_path / "b", "b", quiet_port()) as joiner:
            await join(joiner, founders)
            (segment,) = (joiner.etcd.folder / "data" / "member" / "wal").glob("*.wal")
            assert read_segment(segment).snapshot_index > ENTRIES // 2


async def test_a_server_whose_leave_is_cut_short_joins_again(tmp_path: Path) -> None:
    """etcd refuses a removal in the first 5 s after a join, so a round takes as long."""
    steps, ways = ("removed", "forgotten"), (False, True)
    async with founded(tmp_path, "ac") as founders:
        for step, moves in product(steps, ways) if is_nightly() else zip(steps, ways, strict=True):
            folder, port = tmp_path / f"b-{step}-{moves}", quiet_port()
            folder.mkdir()
            async with server(folder, "b", port) as leaver:
                await join(leaver, founders)
                await cut_leave(leaver, step)
            async with server(folder, "b", quiet_port() if moves else port) as again:
                await join(again, founders)


async def cut_leave(leaver: Server, step: str) -> None:
    """Have a server leave, and end once its etcd member is removed, or while its data are."""
    own, began = leaver.etcd, time.monotonic()
    assert await leave(leaver.admin, leaver.membership.own.name, RealEnv(), is_removed=lambda: own.was_removed)
    assert time.monotonic() - began < LEAVE_LIMIT_S, "etcd of one that does not lead ends before it answers"
    leaver.kill_etcd()
    if step == "forgotten":
        await forget_in_part(leaver)


async def forget_in_part(leaver: Server) -> None:
    """Have a server end before the data of its etcd member is removed."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Ended):
        patch.setattr("shutil.rmtree", ended)
        await leaver.etcd.forget()
    assert has_member_data(str(leaver.etcd.folder))


class Ended(Exception):
    """The end of the server."""


def ended(*_: object, **__: object) -> None:
    raise Ended
