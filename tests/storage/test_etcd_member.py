"""etcd as a child of the agent: versions, restarts, what is left when either of the two dies, TLS between peers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from yurt.rpc.certificates import CertificatePair, Wish, make_authority, make_certificate, role_name
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.value import replace
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.member_process import DAMAGE, EtcdMember, check_version, renew_limit_s
from yurt.storage.etcd.membership import (
    add_member,
    keeps_promotions,
    list_members,
    member_status,
    recorded_peer_urls,
    remove_member,
    update_member,
)
from yurt.storage.etcd.settings import EtcdMemberConfig, EtcdSecurity, etcd_arguments, has_member_data
from yurt.testing.agent import wait_for
from yurt.testing.log_server import LogServer, wait_leader
from yurt.testing.log_server import running as log_running
from yurt.testing.services.etcd import member_configs, missing

needs_etcd = pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one, for the sake of sockets."""
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def config(folder: Path) -> EtcdMemberConfig:
    (made,) = member_configs(1, folder)
    return made


@asynccontextmanager
async def running(*configs: EtcdMemberConfig) -> AsyncIterator[list[EtcdMember]]:
    """Members that are kept running."""
    members = [EtcdMember(config, env=RealEnv()) for config in configs]
    async with asyncio.TaskGroup() as group:
        tasks = []
        try:
            for member in members:
                await member.start()
                tasks.append(group.create_task(member.run()))
            yield members
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(member.stop() for member in members))


def has_folder(config: EtcdMemberConfig) -> bool:
    return Path(config.data_dir).exists()


async def wait_answer(config: EtcdMemberConfig, key: bytes = b"a") -> None:
    client = EtcdClient((config.client_endpoint,))
    async with asyncio.timeout(60):
        while True:
            try:
                await client.range(key)
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    await client.close()


@pytest.mark.parametrize("version", [(3, 4, 22), (3, 4, 23), (3, 5, 6), (3, 5, 17), (3, 6, 1), (4, 0, 0)])
def test_versions_that_are_safe(version: tuple[int, int, int]) -> None:
    check_version(version)


@pytest.mark.parametrize("version", [(3, 3, 25), (3, 4, 21), (3, 5, 0), (3, 5, 1), (3, 5, 5), (2, 3, 8)])
def test_versions_that_may_lose_data_are_refused(version: tuple[int, int, int]) -> None:
    with pytest.raises(Invalid, match=r"not safe to run with.*install 3\.4\.22 or newer of 3\.4, or 3\.5\.6 or newer"):
        check_version(version)


def test_versions_that_keep_the_promotion_of_a_learner() -> None:
    safe = {"3.4.22", "3.4.30", "3.5.26", "3.6.5", "3.7.0"}
    for version in (*safe, "3.5.6", "3.5.25", "3.6.0", "3.6.4", "", "3.6.0-rc.1"):
        assert keeps_promotions(version) is (version in safe), version


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("etcd Version: 3.5.1\nGit SHA: e8732fb5f\n", r"etcd 3\.5\.1 is not safe"),
        ("hello\n", 'does not look like etcd: --version answers "hello"'),
        ("", "does not look like etcd"),
    ],
)
async def test_the_binary_is_looked_at_before_it_runs(
    config: EtcdMemberConfig, folder: Path, text: str, told: str
) -> None:
    binary = folder / "etcd"
    binary.write_text(f"#!/bin/sh\nprintf '{text}'\n")
    binary.chmod(0o755)
    with pytest.raises(Invalid, match=told):
        await EtcdMember(replace(config, binary=str(binary)), env=RealEnv()).start()
    assert not has_folder(config)


async def test_a_missing_binary_is_told_with_what_to_do(config: EtcdMemberConfig) -> None:
    with pytest.raises(Invalid, match="not on PATH; several servers need etcd"):
        await EtcdMember(replace(config, binary="no-etcd"), env=RealEnv()).start()


def test_a_data_dir_too_long_for_a_socket_is_refused(config: EtcdMemberConfig) -> None:
    with pytest.raises(Invalid, match="choose a shorter data_dir"):
        etcd_arguments(replace(config, data_dir="/" + "d" * 100))


def test_a_member_that_its_cluster_does_not_name_is_refused(config: EtcdMemberConfig) -> None:
    with pytest.raises(Invalid, match='"srv9" is not in its initial cluster'):
        etcd_arguments(replace(config, name="srv9"))


@needs_etcd
async def test_a_member_runs_and_leaves_nothing_but_its_data(config: EtcdMemberConfig) -> None:
    member = EtcdMember(config, env=RealEnv())
    assert not member.has_data
    await member.start()
    await wait_answer(config)
    socket = config.socket
    assert member.has_data
    assert (socket.parent.stat().st_mode & 0o777, socket.is_socket()) == (0o700, True)
    pid = member.pid
    await member.stop()
    assert not psutil.pid_exists(pid)
    assert (member.pid, socket.exists(), has_member_data(config.data_dir)) == (0, False, True)
    await member.stop()


@needs_etcd
async def test_a_member_that_dies_is_started_again_with_its_data(
    config: EtcdMemberConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config) as (member,):
        await wait_answer(config)
        client = EtcdClient((config.client_endpoint,))
        await client.put(b"a", b"1")
        for _ in range(2):
            pid = member.pid
            os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(wait_for, "another etcd", lambda pid=pid: member.pid not in (0, pid))  # type: ignore[misc]
            await wait_answer(config)
        assert (await client.range(b"a")).kvs[0].value == b"1"
        await client.close()
    assert "etcd ended (signal 9), it is started again" in caplog.text


@needs_etcd
async def test_of_a_crash_the_first_line_is_a_warning_and_the_stacks_are_for_debugging(
    config: EtcdMemberConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "yurt.storage.etcd.member_process")
    async with running(config) as (member,):
        os.kill(member.pid, signal.SIGQUIT)
        await asyncio.to_thread(wait_for, "etcd's end", lambda: "it is started again" in caplog.text, 30.0)
    warned = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert any("SIGQUIT: quit" in text for text in warned)
    assert not any("goroutine" in text for text in warned)
    assert "goroutine" in caplog.text


@needs_etcd
@pytest.mark.parametrize(
    ("line", "is_damage"),
    [
        ("panic: runtime error: index out of range [5] with length 5", True),
        ("panic: failed to find local ID in cluster members", False),
    ],
)
def test_the_crash_of_a_member_that_is_being_removed_is_no_damage(line: str, is_damage: bool) -> None:
    assert (DAMAGE.search(line) is not None) is is_damage


async def test_a_member_that_cannot_start_says_why(config: EtcdMemberConfig, caplog: pytest.LogCaptureFixture) -> None:
    async with running(config):
        other = replace(config, data_dir=config.data_dir + "2")
        with pytest.raises(Unavailable, match=r"etcd ended at its start \(exit code 1\).*address already in use"):
            await EtcdMember(other, env=RealEnv()).start()


@needs_etcd
async def test_etcds_warnings_reach_our_log_and_its_chatter_does_not(
    config: EtcdMemberConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "yurt.storage.etcd.member_process")
    other = {"srv2.global": "http://127.0.0.1:9"}
    cluster = {**config.initial_cluster, **other}
    async with running(replace(config, initial_cluster=cluster)):
        expected = "prober detected unhealthy status"
        await asyncio.to_thread(wait_for, "a warning", lambda: expected in caplog.text, 30.0)
    levels = {record.levelno for record in caplog.records if expected in record.getMessage()}
    assert levels == {logging.WARNING}
    assert any(record.levelno == logging.DEBUG for record in caplog.records)
    assert "simple token" not in "".join(r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG)


def test_what_starts_etcd_needs_no_grpc() -> None:
    code = "import sys, yurt.storage.etcd.member_process; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


AGENT = """
import asyncio, sys
import msgspec
from yurt.runtime.env import RealEnv
from yurt.storage.etcd.member_process import EtcdMember
from yurt.storage.etcd.settings import EtcdMemberConfig

async def main():
    member = EtcdMember(msgspec.json.decode(sys.argv[1], type=EtcdMemberConfig), env=RealEnv())
    await member.start()
    print(member.pid, flush=True)
    await member.run()

asyncio.run(main())
"""


@needs_etcd
def test_killing_the_agent_ends_etcd_and_the_next_agent_starts_it_again(config: EtcdMemberConfig) -> None:
    for _ in range(3):
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, msgspec.json.encode(config).decode()], stdout=subprocess.PIPE, text=True
        )
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert psutil.Process(pid).name() == "etcd"
        agent.kill()
        agent.wait(timeout=10)
        agent.stdout.close()
        wait_for("etcd is gone", lambda pid=pid: not _lives(pid))  # type: ignore[misc]


@needs_etcd
@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")
async def test_an_etcd_that_cannot_write_ends_and_acknowledges_nothing_more(config: EtcdMemberConfig) -> None:
    """Its files may grow no more: it ends, as at every failed write (A10), and starts again with all it had said."""
    log = EtcdLog(
        endpoints=(config.client_endpoint,),
        folder=Path(config.data_dir) / "log",
        name=config.name,
        region="global",
        env=RealEnv(),
        own_endpoint=config.client_endpoint,
    )
    async with running(config) as (member,), log_running(LogServer(config.name, log)) as server:
        await wait_leader([server])
        broken = member.pid
        psutil.Process(broken).rlimit(psutil.RLIMIT_FSIZE, (4096, 4096))
        number = 0
        with pytest.raises((Unavailable, Conflict)):
            while number < 5_000:
                await server.append([number + 1], size=100_000)
                number += 1
        assert not server.is_ready
        await asyncio.to_thread(wait_for, "another etcd", lambda: member.pid not in (0, broken), 30.0)
        await wait_leader([server])
        assert server.applied[:number] == server.acknowledged == list(range(1, number + 1))
        assert len(server.applied) <= number + 1
        await server.append([0])


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@needs_etcd
async def test_a_member_joins_and_one_that_is_removed_says_so(folder: Path) -> None:
    first, second = member_configs(2, folder)
    only = {first.name: first.peer_url}
    async with running(replace(first, initial_cluster=only)) as (leader,):
        await wait_answer(first)
        client = EtcdClient((first.client_endpoint,))
        added = await add_member(client, second.peer_url)
        joining = EtcdMember(replace(second, is_new_cluster=False), env=RealEnv())
        await joining.start()
        await wait_answer(second)
        assert [peer.name for peer in await list_members(client)] == [first.name, second.name]

        keeping = asyncio.ensure_future(joining.run())
        await _remove(client, added.id)
        with pytest.raises(Conflict, match=r"srv2\.global was removed from its cluster; move .* away to join"):
            await asyncio.wait_for(keeping, 60)
        await joining.stop()
        assert [peer.name for peer in await list_members(client)] == [first.name]
        assert (await member_status(client)).is_leader
        assert leader.pid
        await client.close()


async def _remove(client: EtcdClient, member_id: int) -> None:
    """etcd refuses for some seconds after a member has joined."""
    async with asyncio.timeout(60):
        while True:
            try:
                await remove_member(client, member_id)
                return
            except (Conflict, Unavailable):
                await asyncio.sleep(0.2)


def certificates(
    folder: Path, role: str, addresses: tuple[str, ...] = ("127.0.0.1",), names: tuple[str, ...] = ("localhost",)
) -> EtcdSecurity:
    """A pair for a role, from the authority of the folder."""
    now = RealEnv().now()
    authority_file, key_file = folder / "ca.pem", folder / "ca.key"
    if not authority_file.exists():
        made = make_authority(Wish(common_name="authority", days=1), now)
        authority_file.write_bytes(made.certificate)
        key_file.write_bytes(made.key)
    authority = CertificatePair(certificate=authority_file.read_bytes(), key=key_file.read_bytes())
    wish = Wish(common_name=role_name(role, "global"), days=1, names=names, addresses=addresses, is_server=True)
    pair = make_certificate(wish, authority, now)
    for name, data in (("pem", pair.certificate), ("key", pair.key)):
        (folder / f"{role}.{name}").write_bytes(data)
    return EtcdSecurity(
        ca_file=str(authority_file), cert_file=str(folder / f"{role}.pem"), key_file=str(folder / f"{role}.key")
    )


def encrypted(config: EtcdMemberConfig, security: EtcdSecurity) -> EtcdMemberConfig:
    """The same member with TLS between peers; only certificates of servers are members."""
    return replace(
        config,
        peer_url=config.peer_url.replace("http:", "https:"),
        initial_cluster={name: url.replace("http:", "https:") for name, url in config.initial_cluster.items()},
        peer_security=security,
        peer_name=role_name("server", "global"),
    )


async def test_the_list_of_members_is_read_from_a_connection_that_etcd_keeps_open() -> None:
    """etcd 3.4 often closes it only 5 s after its answer, which is longer than the limit of the question."""

    is_closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in (b"HTTP/1.0 200 OK\r\n\r\n[{", b'"name": "a", "peerURLs": ["http://a:1", "https://a:1"]}]\n'):
            writer.write(part)
            await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_closed.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        assert await recorded_peer_urls(f"{host}:{port}") == {"a": ("http://a:1", "https://a:1")}
        async with asyncio.timeout(60):
            await is_closed.wait()


@needs_etcd
async def test_peers_show_the_certificates_of_servers(folder: Path) -> None:
    servers = certificates(folder, "server")
    async with running(*(encrypted(config, servers) for config in member_configs(2, folder))) as members:
        await wait_answer(members[1].config)
        client = EtcdClient((members[0].config.client_endpoint,))
        await client.put(b"a", b"1")
        await client.close()


@needs_etcd
async def test_members_recorded_with_two_urls_reach_each_other_and_admit_a_third(folder: Path) -> None:
    """So it is while a cluster turns to TLS: one takes plain connections, the other those of TLS alone."""
    plain, other, third = (
        replace(each, peer_security=certificates(folder, "server")) for each in member_configs(3, folder)
    )
    both = {each.name: f"{each.peer_url},{each.peer_url.replace('http:', 'https:')}" for each in (plain, other)}
    first = {each.name: each.peer_url for each in (plain, other)}
    async with running(*(replace(each, initial_cluster=first) for each in (plain, other))) as (_, turned):
        client = EtcdClient((plain.client_endpoint,))
        await wait_answer(plain)
        for member in await list_members(client):
            await update_member(client, member.id, *both[member.name].split(","))
        assert await turned.renew(encrypted(turned.config, certificates(folder, "server")))
        await wait_answer(turned.config)
        await client.put(b"a", b"1")
        await admitted(client, third.peer_url)
        await wait_members(turned.config, 3)
        await wait_members(plain, 3)
        joining = replace(third, initial_cluster={**both, third.name: third.peer_url}, is_new_cluster=False)
        async with running(joining):
            await wait_answer(joining)
        await client.close()


async def wait_members(config: EtcdMemberConfig, count: int) -> None:
    """Wait until a member lists `count` members. A new one asks any of them, and fails if that list lacks it."""
    client = EtcdClient((config.client_endpoint,))
    async with asyncio.timeout(60):
        while True:
            if len(await list_members(client)) == count:
                break
            await asyncio.sleep(0.05)
    await client.close()


async def admitted(client: EtcdClient, url: str) -> None:
    """Add a member; etcd refuses for some seconds after another change."""
    async with asyncio.timeout(60):
        while True:
            try:
                await add_member(client, url)
                return
            except (Conflict, Unavailable):
                await asyncio.sleep(0.2)


def test_a_slow_member_has_the_time_that_etcd_takes_to_end_in_order(config: EtcdMemberConfig) -> None:
    """It waits 5 s and two elections for its clients, then as long for a leader: 30 s with `raft_multiplier = 10`."""
    assert renew_limit_s(replace(config, election_ms=10 * config.election_ms)) > 2 * (5 + 2 * 5)


@needs_etcd
async def test_a_member_that_was_killed_keeps_its_settings(
    config: EtcdMemberConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have lost its last commits, on which the other settings rely."""
    caplog.set_level(logging.INFO)
    async with running(config) as (member,):
        await wait_answer(config)
        os.kill(member.pid, signal.SIGKILL)
        assert not await member.renew(replace(config, heartbeat_ms=60))
        assert member.config == config
        await wait_answer(config)
        assert "other settings" not in caplog.text
        assert await member.renew(replace(config, heartbeat_ms=60))
        assert member.config.heartbeat_ms == 60
        assert "etcd is started again with other settings" in caplog.text


@needs_etcd
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
async def test_a_peer_may_call_from_an_address_that_its_certificate_does_not_name(folder: Path) -> None:
    """Connections from 127.0.0.1 reach members that are known at two other addresses of this machine."""
    places = ("127.0.0.2", "127.0.0.3")
    servers = certificates(folder, "server", addresses=places, names=())
    plain = member_configs(2, folder)
    urls = {
        name: url.replace("127.0.0.1", place)
        for (name, url), place in zip(sorted(plain[0].initial_cluster.items()), places, strict=True)
    }
    moved = [replace(each, peer_url=urls[each.name], initial_cluster=urls) for each in plain]
    async with running(*(encrypted(config, servers) for config in moved)) as members:
        await wait_answer(members[1].config)
        client = EtcdClient((members[0].config.client_endpoint,))
        await client.put(b"a", b"1")
        await client.close()


@needs_etcd
async def test_a_member_with_the_certificate_of_a_client_is_not_let_in(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = member_configs(2, folder)
    configs = (encrypted(one, certificates(folder, "server")), encrypted(two, certificates(folder, "client")))
    async with running(*configs):
        await asyncio.to_thread(wait_for, "a refusal", lambda: "rejected connection" in caplog.text, 30.0)
        client = EtcdClient((configs[0].client_endpoint,))
        with pytest.raises(Unavailable):
            await client.range(b"a", timeout_s=2)
        await client.close()
