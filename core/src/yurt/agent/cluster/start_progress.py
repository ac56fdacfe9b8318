"""Waits until a started etcd member can go on from its files after a kill, and is a voter; it listens before that."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from yurt.agent.cluster.promotion import Promotion
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable
from yurt.storage.etcd.member_files.check import holds_entries
from yurt.storage.etcd.member_files.joining import join_progress
from yurt.storage.etcd.member_process import EtcdMember

DATA_LOOK_S: Final = 0.05
JOIN_SILENCE_S: Final = 15.0
"""How long a joining member may receive nothing from the others."""


async def wait_founded(member: EtcdMember, folder: Path, env: Env) -> None:
    """Wait for a founder's first entries; raises Unavailable when etcd ends before."""
    while not await env.in_thread(holds_entries, folder):
        await _sleep_while_running(member, env)


async def wait_joined(member: EtcdMember, folder: Path, env: Env) -> None:
    """Wait until a joining member knows that it is one; raises Unavailable when the others send nothing more."""
    received, changed_at = -1, env.monotonic()
    while not (progress := await env.in_thread(join_progress, folder)).is_member:
        if progress.received != received:
            received, changed_at = progress.received, env.monotonic()
        if env.monotonic() - changed_at > JOIN_SILENCE_S:
            await member.stop()
            raise Unavailable(f"the other etcd members have sent nothing for {JOIN_SILENCE_S:g} s")
        await _sleep_while_running(member, env)


async def wait_promoted(member: EtcdMember, promotion: Promotion, learner_id: str) -> None:
    """Wait until a joined learner is a voter; raises Unavailable at the limit, or when etcd ends before."""
    try:
        await promotion.wait(learner_id, lambda: bool(member.pid))
    except Unavailable:
        await member.stop()  # it has the port and the data that the next attempt needs
        raise


async def _sleep_while_running(member: EtcdMember, env: Env) -> None:
    await env.sleep(DATA_LOOK_S)
    if not member.pid:
        raise Unavailable("etcd ended before it had begun")
