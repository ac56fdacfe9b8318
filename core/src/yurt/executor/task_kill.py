"""Kills every process of a task: through its shim, or without one through its cgroups and relatives."""

from __future__ import annotations

import asyncio
import signal
import sys

from yurt.executor import cgroups, process_identity
from yurt.executor.exec_session import ProcessSession
from yurt.executor.polling import until
from yurt.executor.task_watch import EXIT_FILE_LIMIT_S, WatchedTask
from yurt.runtime.env import Env

KILL_LIMIT_S = 12.0
KILL_ROUNDS = 50


async def kill(task: WatchedTask, *, boot_id: str, env: Env) -> None:
    """Kill every process of a task, through its shim if it has one."""
    handle = task.handle
    await close_all(task.sessions)
    if handle.boot_id == boot_id:
        process_identity.send_signal(handle.shim_pid, handle.shim_start_time, signal.SIGTERM)
        await until(lambda: not process_identity.is_alive(handle.shim_pid, handle.shim_start_time), KILL_LIMIT_S)
        await _kill_without_shim(task, env)
    await asyncio.wait([task.ended], timeout=EXIT_FILE_LIMIT_S)


async def _kill_without_shim(task: WatchedTask, env: Env) -> None:
    """Kill what a killed shim, or a missing subreaper, has left behind."""
    handle = task.handle
    for _ in range(KILL_ROUNDS):
        strays = process_identity.by_pid(cgroups.processes(handle.cgroups))
        if task.ended.done() and not strays and not _needs_search(task):
            return
        strays += process_identity.relatives(handle.pid, handle.start_time, handle.shim_pid)
        if not strays:
            return
        process_identity.kill_all(strays)
        await env.sleep(0.02)


async def close_all(sessions: set[ProcessSession]) -> None:
    """End all sessions at once."""
    if sessions:
        await asyncio.gather(*(session.close() for session in tuple(sessions)))


def _needs_search(task: WatchedTask) -> bool:
    """Whether processes may remain outside the cgroups: the shim failed, or cannot adopt orphans."""
    return sys.platform != "linux" or bool(task.ended.result().error)
