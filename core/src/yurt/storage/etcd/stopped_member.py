"""Reads the log of a stopped server from the files of its etcd member.

Only etcd reads its files, and a member alone answers nothing while its cluster needs a majority. So etcd runs on a copy
of the files, as the only member of a cluster (`--force-new-cluster`); it then drops what this member did not know to be
agreed. Where its raft log is damaged, `etcdutl` (or
etcdctl before 3.6) first makes a member of the database alone, which holds all that was applied. The server's own files
stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import REGIONS, KeyLayout, end_of
from yurt.storage.etcd.member_files.check import DamagedMember
from yurt.storage.etcd.member_process import EtcdMember, member_environment
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.etcd.settings import EtcdMemberConfig

NAME: Final = "recovery"
ANY_PORT: Final = "http://127.0.0.1:0"
"""An arbitrary address: no other member calls this one."""
RESTORE_TOOLS: Final = ("etcdutl", "etcdctl")
RESTORE_LIMIT_S: Final = 300.0
ANSWER_LIMIT_S: Final = 60.0
ANSWER_PAUSE_S: Final = 0.1


class StoppedLog(NamedTuple):
    """The log of a stopped server, and the damage found in its member's files ("": none)."""

    reader: EntryReader
    damage: str


@asynccontextmanager
async def read_stopped(member_folder: Path, *, env: Env) -> AsyncIterator[StoppedLog]:
    """The log in a stopped member's folder, `server/etcd` of a data_dir; TMPDIR needs space for a copy of it.

    Raises Conflict when etcd can use neither the raft log nor the database, Invalid when etcd is not installed,
    Unavailable when it does not answer.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yurt-", ignore_cleanup_errors=True)))
        config = _config(folder)
        member = EtcdMember(config, env=env)
        stack.push_async_callback(member.stop)
        await env.in_thread(shutil.copytree, member_folder / "data", config.etcd_folder)
        damage = ""
        try:
            await member.start()
        except DamagedMember as error:
            damage = _on_the_original(error, folder, member_folder)
            await _restore_database(config, damage, env=env)
            try:
                await member.start()
            except DamagedMember as second:
                found = _on_the_original(second, folder, member_folder)
                raise Conflict(f"{damage}. Its database cannot be used either: {found}") from None
        client = EtcdClient((config.client_endpoint,))
        stack.push_async_callback(client.close)
        keys = await _find_keys(client, env=env)
        yield StoppedLog(EntryReader(client, keys, env=env, closing=Interrupt()), damage)


def _config(folder: Path) -> EtcdMemberConfig:
    return EtcdMemberConfig(
        name=NAME,
        data_dir=str(folder),
        peer_url=ANY_PORT,
        initial_cluster={NAME: ANY_PORT},
        token=NAME,
        is_new_cluster=True,
        is_alone=True,
    )


def _on_the_original(error: DamagedMember, folder: Path, member_folder: Path) -> str:
    """The damage, with the paths of the server's own files, and without the remedies for a starting server."""
    return error.what.replace(str(folder), str(member_folder))


async def _restore_database(config: EtcdMemberConfig, damage: str, *, env: Env) -> None:
    """Form a new member from the copied database; raises Conflict when that is not possible."""
    tool = next((found for name in RESTORE_TOOLS if (found := shutil.which(name))), None)
    if tool is None:
        raise Conflict(
            f"{damage}. Its database may hold what the raft log lacks; etcdutl reads it, or etcdctl before 3.6 "
            "(apt install etcd-client)"
        )
    database = Path(config.data_dir) / "db"
    await env.in_thread(shutil.move, config.etcd_folder / "member" / "snap" / "db", database)
    await env.in_thread(shutil.rmtree, config.etcd_folder)
    command = [
        tool, "snapshot", "restore", str(database), "--skip-hash-check", "--name", NAME,
        "--initial-cluster", f"{NAME}={ANY_PORT}", "--initial-advertise-peer-urls", ANY_PORT,
        "--data-dir", str(config.etcd_folder),
    ]  # fmt: skip
    problem = await env.in_thread(_run, command)
    if problem:
        raise Conflict(f"{damage}. Its database is damaged too: {tool} says: {problem}")


def _run(command: list[str]) -> str:
    """Run a program; the text of its failure, or "" when it succeeds. Blocks."""
    environment = {**member_environment(), "ETCDCTL_API": "3"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RESTORE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {RESTORE_LIMIT_S:g} s"
    lines = (done.stdout + done.stderr).decode("utf-8", "replace").split("\n")
    reason = next((line for line in lines if "rror" in line or "panic" in line), "").strip()[:200]
    return reason or f"exit code {done.returncode}" if done.returncode else ""


async def _find_keys(client: EtcdClient, *, env: Env) -> KeyLayout:
    """The keys of the only region, once etcd answers; raises Conflict when there is none, or more than one."""
    first = await _first_key(client, REGIONS, env=env)
    if not first:
        raise Conflict("etcd's files hold no log of Yurt: this server had not begun, or had not joined, a cluster")
    region = first.removeprefix(REGIONS).partition(b"/")[0]
    other = await _first_key(client, end_of(REGIONS + region + b"/"), env=env)
    if other:
        raise Conflict(f"etcd's files hold keys of more than one region, damaged ones perhaps: {first!r}, {other!r}")
    return KeyLayout(region.decode("utf-8", "replace"))


async def _first_key(client: EtcdClient, start: bytes, *, env: Env) -> bytes:
    """The first of Yurt's keys from `start` on, b"" for none; retries while etcd does not answer yet."""
    deadline = env.monotonic() + ANSWER_LIMIT_S
    while True:
        try:
            found = await client.range(start, end_of(REGIONS), limit=1, keys_only=True)
            return bytes(found.kvs[0].key) if found.kvs else b""
        except Unavailable:
            if env.monotonic() > deadline:
                raise
            await env.sleep(ANSWER_PAUSE_S)
