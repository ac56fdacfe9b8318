"""What a server remembers of its own etcd member carries it over crashes at any step; here with a real etcd."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yurt.agent.blocks.cluster import ETCD_FOLDER
from yurt.agent.cluster.cluster_files import (
    CLUSTER_FILE,
    SERVERS_FILE,
    Founding,
    KnownServers,
    load,
    save,
)
from yurt.agent.cluster.etcd_admin import OwnEtcdAdmin
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.known_servers import KnownServersRecord
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.cluster.voters import Reach
from yurt.agent.config import make_config
from yurt.agent.tls import TlsSettings
from yurt.rpc.certificates import SERVER, Wish, make_authority, make_certificate, role_name
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid, Unavailable
from yurt.testing.fake_cluster import member
from yurt.testing.unique_ports import quiet_port

LIMIT_S = 60.0
NO_TLS = TlsSettings()


def own_etcd(folder: Path, port: int, tls: TlsSettings = NO_TLS) -> tuple[OwnEtcd, Membership]:
    """A server's etcd member as an agent makes it at its start."""
    settings = {"enabled": True, "bootstrap_expect": 3}
    given = {"server": settings, "data_dir": str(folder), "bind_addr": "127.0.0.1", "name": "a"}
    config = make_config({**given, "ports": {"etcd": port}}, {}, is_dev=False)
    own = member("a", etcd_addr=f"127.0.0.1:{port}", has_data=False)
    membership = Membership(own, env=RealEnv())
    exchange = Exchange(membership, security=ServerSecurity(NO_TLS), env=RealEnv())
    etcd = OwnEtcd(config, folder, membership=membership, exchange=exchange, env=RealEnv(), tls=tls)
    return etcd, membership


@asynccontextmanager
async def formed(folder: Path, port: int, tls: TlsSettings = NO_TLS) -> AsyncIterator[tuple[OwnEtcd, Membership]]:
    """The same with etcd running."""
    own, membership = own_etcd(folder, port, tls)
    try:
        async with asyncio.timeout(LIMIT_S):
            await own.form()
        yield own, membership
    finally:
        await own.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A short path: etcd's socket lies in it."""
    made = tmp_path / "s"
    made.mkdir()
    return made


async def test_a_founding_that_was_cut_short_is_finished_and_never_repeated(folder: Path) -> None:
    port = quiet_port()
    alone = {"a.global": f"127.0.0.1:{port}"}
    save(folder / CLUSTER_FILE, Founding(founding=alone))
    async with formed(folder, port) as (own, membership):
        assert own.has_begun and membership.own.has_data and own.pid
        admin = OwnEtcdAdmin(own.endpoint)
        (voter,) = await admin.voters()
        assert (voter.name, voter.address) == ("a.global", f"127.0.0.1:{port}")
        await admin.move(voter.id, f"localhost:{port}", Reach.BY_BOTH)
        (moved,) = await admin.voters()
        assert (moved.address, moved.reach) == (f"localhost:{port}", Reach.BY_BOTH)
        assert await admin.db_bytes() > 0
        await admin.close()
    assert load(folder / CLUSTER_FILE, Founding).has_begun

    async with formed(folder, port) as (again, _):
        assert again.has_begun, "the second start goes on with its data"

    shutil.rmtree(folder / ETCD_FOLDER)
    lost, knows = own_etcd(folder, port)
    assert not lost.has_begun and not knows.own.has_data
    assert load(folder / CLUSTER_FILE, Founding) == Founding(), "it never founds that cluster again"


async def test_a_founder_that_is_killed_as_soon_as_it_has_begun_goes_on(folder: Path) -> None:
    """The first entries of etcd's log name the members; a member without them waits for a leader for good."""
    port = quiet_port()
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port) as (own, _):
        os.kill(own.pid, signal.SIGKILL)
    async with formed(folder, port) as (own, _):
        await wait_running(own)


async def test_a_founder_whose_log_has_no_entry_begins_again(folder: Path) -> None:
    port = quiet_port()
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port) as (own, _):
        await wait_running(own)
    (log,) = (own.folder / "data" / "member" / "wal").glob("*.wal")
    log.write_bytes(bytes(4096))
    shutil.rmtree(own.folder / "data" / "member" / "snap")
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port) as (own, membership):
        await wait_running(own)
        assert membership.own.has_data and load(folder / CLUSTER_FILE, Founding).has_begun


def server_tls(folder: Path) -> TlsSettings:
    """`tls { rpc = true }` with files of a new authority."""
    now = RealEnv().now()
    authority = make_authority(Wish(common_name="authority", days=1), now)
    wish = Wish(
        common_name=role_name(SERVER, "global"), days=1, names=("localhost",), addresses=("127.0.0.1",), is_server=True
    )
    pair = make_certificate(wish, authority, now)
    for name, data in (("ca.pem", authority.certificate), ("cert.pem", pair.certificate), ("key.pem", pair.key)):
        (folder / name).write_bytes(data)
    ca_file, cert_file, key_file = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    return TlsSettings(rpc=True, ca_file=ca_file, cert_file=cert_file, key_file=key_file)


async def test_a_member_of_an_earlier_version_goes_on_as_etcds_data_say_when_tls_is_turned_on(folder: Path) -> None:
    """That version recorded nothing; a member that guesses TLS here is cut off from those that know its plain URL."""
    port, tls = quiet_port(), server_tls(folder)
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port) as (own, _):
        await wait_running(own)
    save(folder / CLUSTER_FILE, Founding(has_begun=True))
    async with formed(folder, port, tls) as (own, _):
        assert not own.has_peer_tls
        assert load(folder / CLUSTER_FILE, Founding).has_peer_tls is False


async def test_a_member_of_an_earlier_version_goes_on_by_tls_where_etcds_data_say_so(folder: Path) -> None:
    port, tls = quiet_port(), server_tls(folder)
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port, tls) as (own, _):
        await wait_running(own)
    save(folder / CLUSTER_FILE, Founding(has_begun=True))
    async with formed(folder, port, tls) as (own, _):
        assert own.has_peer_tls
        assert own.settings.peer_url == f"https://127.0.0.1:{port}"


async def test_a_member_turns_to_tls_once_its_etcd_has_ended_in_order(folder: Path) -> None:
    """A killed one may have lost what the others had agreed on; it goes on in plain text."""
    port = quiet_port()
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port) as (own, _):
        await wait_running(own)
    async with formed(folder, port, server_tls(folder)) as (own, _), asyncio.TaskGroup() as group:
        kept_running = group.create_task(own.run())
        os.kill(own.pid, signal.SIGKILL)
        await own.turn_to_tls()
        assert not load(folder / CLUSTER_FILE, Founding).has_peer_tls
        await wait_running(own)
        assert own.settings.peer_url == f"http://127.0.0.1:{port}"
        await own.turn_to_tls()
        assert load(folder / CLUSTER_FILE, Founding).has_peer_tls and own.has_peer_tls
        await wait_running(own)
        assert own.settings.peer_url == f"https://127.0.0.1:{port}"
        kept_running.cancel()


async def wait_running(own: OwnEtcd) -> None:
    """Wait until etcd answers."""
    async with asyncio.timeout(LIMIT_S):
        admin = OwnEtcdAdmin(own.endpoint)
        while True:
            try:
                await admin.voters()
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        await admin.close()


async def test_what_a_join_that_was_cut_short_left_is_no_data(folder: Path) -> None:
    port = quiet_port()
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port):
        pass
    save(folder / CLUSTER_FILE, Founding(is_joining=True))
    own, membership = own_etcd(folder, port)
    assert not own.has_begun and not membership.own.has_data
    assert not own.pid


async def test_data_without_memory_counts(folder: Path) -> None:
    port = quiet_port()
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    async with formed(folder, port):
        pass
    (folder / CLUSTER_FILE).unlink()
    own, membership = own_etcd(folder, port)
    assert own.has_begun and membership.own.has_data


async def test_a_founder_follows_which_others_have_begun(folder: Path) -> None:
    founders = {f"{name}.global": f"{name}:4649" for name in "abc"}
    save(folder / CLUSTER_FILE, Founding(founding=founders, awaited=("b.global", "c.global"), has_begun=False))
    _, membership = own_etcd(folder, quiet_port())
    assert membership.own.has_data and membership.update().awaited == ("b.global", "c.global")
    begun = member("b", has_data=True)
    other = Membership(begun, env=RealEnv())
    membership.merge_update(other.update())
    assert membership.update().awaited == ("c.global",)
    assert load(folder / CLUSTER_FILE, Founding).awaited == ("c.global",)


async def test_servers_are_remembered_and_those_that_left_are_not(folder: Path) -> None:
    _, membership = own_etcd(folder, quiet_port())
    memory = KnownServersRecord(folder, membership, RealEnv())
    assert memory.addresses == ()
    for name in ("b", "c"):
        other = Membership(member(name), env=RealEnv())
        membership.merge_update(other.update())
    assert memory.addresses == ("b:4648", "c:4648")
    other.change_own(status="left")
    membership.merge_update(other.update())
    assert load(folder / SERVERS_FILE, KnownServers).addresses == ("b:4648",)
    memory.forget()
    other.change_own(status="alive")
    membership.merge_update(other.update())
    assert load(folder / SERVERS_FILE, KnownServers).addresses == ()


@pytest.mark.parametrize("place", range(0, 140, 9))
async def test_a_damaged_record_of_the_cluster_founds_none(folder: Path, place: int) -> None:
    save(folder / CLUSTER_FILE, Founding(has_begun=True, met=("b", "c")))
    data = bytearray((folder / CLUSTER_FILE).read_bytes())
    data[place % len(data)] ^= 1
    (folder / CLUSTER_FILE).write_bytes(data)
    with pytest.raises(Invalid, match=r"cluster.json is damaged"):
        own_etcd(folder, quiet_port())


@pytest.mark.parametrize("content", ["", "{", "\0" * 50])
async def test_a_record_of_the_cluster_that_is_cut_off_founds_none(folder: Path, content: str) -> None:
    (folder / CLUSTER_FILE).write_text(content)
    with pytest.raises(Invalid, match=r"cluster.json is damaged"):
        own_etcd(folder, quiet_port())


async def test_a_member_whose_port_is_taken_is_tried_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = quiet_port()
    taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    save(folder / CLUSTER_FILE, Founding(founding={"a.global": f"127.0.0.1:{port}"}))
    own, membership = own_etcd(folder, port)
    caplog.set_level("INFO")
    async with asyncio.TaskGroup() as group:
        forming = group.create_task(own.form())
        async with asyncio.timeout(LIMIT_S):
            while "the etcd member cannot start yet" not in caplog.text:
                await membership.wait_change(0.1)
        taken.close()
        await taken.wait_closed()
        async with asyncio.timeout(LIMIT_S):
            await forming
    assert own.pid
    await own.stop()
    with pytest.raises(Unavailable):
        await OwnEtcdAdmin(own.endpoint).voters()
