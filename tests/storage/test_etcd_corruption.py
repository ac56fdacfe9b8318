"""Damage at every region of every file of an etcd member: no acknowledged write is lost in silence.

A server alone with its member either starts with all that it had acknowledged and takes the next command, or refuses
and says what is damaged and what to do. 10 cases, 500 in `make nightly`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import YurtError
from yurt.sdk.value import replace
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.member_files.bolt_file import applied_index
from yurt.storage.etcd.member_files.check import DamagedMember, check_has_no_database, check_member_files
from yurt.storage.etcd.member_files.raft_log import crc32c, read_segment
from yurt.storage.etcd.member_process import EtcdMember
from yurt.storage.etcd.settings import EtcdMemberConfig
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AnyCommand, UpsertNamespaces
from yurt.testing.fakes import eventually
from yurt.testing.faults.corruption import FLIP, REMOVE, TRUNCATE, Damage, damages
from yurt.testing.nightly import is_nightly, seed
from yurt.testing.services.etcd import member_configs, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd")

CASES, DATABASE_CASES = (500, 5000) if is_nightly() else (10, 100)
COMMANDS = 120
SNAPSHOT_COUNT = 50
"""Raft entries between two snapshots of etcd, few, so that there are several."""
CASE_LIMIT_S = 60.0
WAL = "data/member/wal/0000000000000000-0000000000000000.wal"
DATABASE = "data/member/snap/db"


class Killed(NamedTuple):
    """What a killed server with an etcd member left; `config` is that of its copies in `copy_folder`."""

    folder: Path
    config: EtcdMemberConfig

    @property
    def copy_folder(self) -> Path:
        """Where a copy is damaged and started."""
        return Path(self.config.data_dir)

    def copy(self) -> Path:
        """A new copy; holes stay holes."""
        shutil.rmtree(self.copy_folder, ignore_errors=True)
        copy(self.folder, self.copy_folder)
        return self.copy_folder

    @property
    def names(self) -> list[str]:
        """The files of the member that hold something, those with the newest commands twice."""
        files = sorted(path for path in (self.folder / "data").rglob("*") if path.is_file())
        named = [str(path.relative_to(self.folder)) for path in files if not path.name.endswith(".tmp")]
        return [*named, WAL, DATABASE]


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)


def command(number: int) -> AnyCommand:
    return UpsertNamespaces(namespaces=(Namespace(name=f"n{number}", description="x" * (number * 37 % 900)),))


def log_of(config: EtcdMemberConfig) -> EtcdLog:
    return EtcdLog(
        endpoints=(config.client_endpoint,),
        folder=Path(config.data_dir) / "log",
        name=config.name,
        region="global",
        env=RealEnv(),
        own_endpoint=config.client_endpoint,
    )


async def lead(log: EtcdLog) -> None:
    async for level in log.campaign():
        if level.is_leader:
            return


async def write(config: EtcdMemberConfig, target: Path) -> None:
    """Acknowledge commands, then kill etcd and copy what it left."""
    member, log = EtcdMember(config, env=RealEnv()), log_of(config)
    await member.start()
    try:
        await log.open()
        await lead(log)
        for index in range(1, COMMANDS + 1):
            await log.append(index, [command(index)])
        # etcd writes its database ten times a second.
        await eventually(lambda: applied_index(Path(config.data_dir) / DATABASE) >= COMMANDS)
        os.kill(member.pid, signal.SIGKILL)
        await eventually(lambda: not member.pid)
        member.config.socket.unlink(missing_ok=True)
        copy(Path(config.data_dir), target)
    finally:
        await log.close()
        await member.stop()


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        (config,) = member_configs(1, folder)
        config = replace(config, snapshot_count=SNAPSHOT_COUNT)
        asyncio.run(write(config, folder / "killed"))
        yield Killed(folder / "killed", replace(config, is_new_cluster=False))


async def start_and_read(config: EtcdMemberConfig) -> list[AnyCommand]:
    """Start as an agent does, read all commands and append one; raises YurtError when that is refused."""
    member, log = EtcdMember(config, env=RealEnv()), log_of(config)
    try:
        async with asyncio.timeout(CASE_LIMIT_S):
            if not member.has_data:
                check_has_no_database(Path(config.data_dir))
            await member.start()
            return await while_kept_running(member, read_and_append(log))
    finally:
        await log.close()
        await member.stop()


async def read_and_append(log: EtcdLog) -> list[AnyCommand]:
    await log.open()
    found = [each async for entry in log.entries(0) for each in entry.commands]
    await lead(log)
    await log.append(len(found) + 1, [command(len(found) + 1)])
    return found


async def while_kept_running(member: EtcdMember, work: Coroutine[Any, Any, list[AnyCommand]]) -> list[AnyCommand]:
    """The result of the work; raises what ends it, or the supervision of the member."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(member.run())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result() or []
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


async def outcome(killed: Killed, damage: Damage) -> str:
    """ "refused", "whole", "unchanged"; anything else is a loss in silence."""
    if not damage.do(killed.copy()):
        return "unchanged"
    try:
        found = await start_and_read(killed.config)
    except TimeoutError:
        return "neither starts nor refuses"
    except YurtError as error:
        assert "server/etcd of its data_dir" in str(error) or str(killed.copy_folder) in str(error), (
            f"{damage}: {error}"
        )
        return "refused"
    return "whole" if found == [command(number) for number in range(1, COMMANDS + 1)] else f"{len(found)} commands"


@pytest.mark.timeout(7200)
async def test_a_server_starts_with_all_that_it_acknowledged_or_not_at_all(killed: Killed) -> None:
    killed.copy()
    assert len(await start_and_read(killed.config)) == COMMANDS

    found = {str(damage): await outcome(killed, damage) for damage in damages(killed.names, CASES, seed=seed(29))}

    bad = {damage: told for damage, told in found.items() if told not in ("refused", "whole", "unchanged")}
    assert not bad
    assert {"refused", "whole"} <= set(found.values())


def test_a_raft_log_that_lost_acknowledged_entries_is_refused_before_etcd_cuts_it_off(killed: Killed) -> None:
    folder = killed.copy()
    whole = read_segment(folder / WAL)
    check_member_files(folder)
    Damage(kind=TRUNCATE, name=WAL, region=8).do(folder)

    with pytest.raises(DamagedMember, match=r"has lost its end.*ends at raft index.*joins again") as refused:
        check_member_files(folder)

    assert str(folder / WAL) in str(refused.value)
    cut = read_segment(folder / WAL)
    assert 0 < cut.last_index < whole.last_index


async def test_an_end_that_a_crash_tore_off_is_recovered(killed: Killed, caplog: pytest.LogCaptureFixture) -> None:
    folder = killed.copy()
    end = read_segment(folder / WAL).end
    with (folder / WAL).open("r+b") as file:
        file.seek(end)
        file.write(struct.pack("<q", 600) + b"\x08\x02\x10\x07\x1a\xd0\x04")  # only the beginning of a record

    assert len(await start_and_read(killed.config)) == COMMANDS
    assert f"torn end, which etcd cuts off: path={folder / WAL} byte={end}" in caplog.text


def test_a_zeroed_sector_inside_a_record_is_a_loss_and_no_torn_end(killed: Killed) -> None:
    folder = killed.copy()
    whole = read_segment(folder / WAL)
    data = (folder / WAL).read_bytes()[: whole.end]
    inside = data.index(b"x" * 700) + 180  # the text of a command that fills more than a sector
    sector = inside - inside % 512
    with (folder / WAL).open("r+b") as file:
        file.seek(sector)
        file.write(bytes(512))
    cut = read_segment(folder / WAL)
    assert cut.is_torn and cut.end < sector and cut.last_index < whole.last_index
    with pytest.raises(DamagedMember, match="has lost its end"):
        check_member_files(folder)


def test_a_new_segment_without_entries_continues_the_one_before(killed: Killed) -> None:
    folder = killed.copy()
    record = b"\x08\x05\x1a\x04\x08\x01\x10\x02"  # a snapshot at raft index 1
    new = (folder / WAL).with_name(f"{1:016x}-{read_segment(folder / WAL).entry_index + 1:016x}.wal")
    new.write_bytes(struct.pack("<q", len(record)) + record + bytes(4096))
    assert read_segment(new)[:2] == (0, 1)
    check_member_files(folder)


def test_checksums_are_those_of_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


async def test_a_record_that_does_not_fit_its_checksum_is_refused_with_etcds_words(killed: Killed) -> None:
    Damage(kind=FLIP, name=WAL, region=9).do(killed.copy())
    with pytest.raises(DamagedMember, match=r"it said: .*crc mismatch.*move .* away and start the agent again"):
        await start_and_read(killed.config)


def test_a_missing_segment_or_raft_log_is_named(killed: Killed) -> None:
    folder = killed.copy()
    shutil.copy(folder / WAL, (folder / WAL).with_name(f"{2:016x}-{900:016x}.wal"))
    with pytest.raises(DamagedMember, match=r"lacks the segments between 0+-0+.wal and 0+2-"):
        check_member_files(folder)
    Damage(kind=REMOVE, name=WAL).do(killed.copy())
    with pytest.raises(DamagedMember, match="the raft log of this server's etcd member is gone"):
        check_has_no_database(killed.copy_folder)


def test_the_applied_index_is_read_or_refused_whatever_the_database_holds(killed: Killed) -> None:
    folder = killed.copy()
    data, whole = (folder / DATABASE).read_bytes(), applied_index(folder / DATABASE)
    refusals = 0
    for damage in damages([DATABASE], DATABASE_CASES, seed=seed(30)):
        if damage.kind == REMOVE:
            continue
        (folder / DATABASE).write_bytes(data)
        damage.do(folder)
        try:
            assert applied_index(folder / DATABASE) <= whole or damage.kind == FLIP
        except ValueError:
            refusals += 1
    assert refusals
