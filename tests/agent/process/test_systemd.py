"""What systemd is told, and what a reload takes over."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.agent.process.notify import Notifier
from yurt.agent.process.reloading import Reload, reload_of
from yurt.runtime.env import RealEnv


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The end of the socket that systemd reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        yield manager


def test_the_life_of_an_agent(systemd: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": systemd.getsockname(), "PATH": "/bin"}
    notifier = Notifier(environ, RealEnv())
    assert environ == {"PATH": "/bin"}, "no task may speak for the agent"
    notifier.ready("running")
    notifier.reloading()
    notifier.stopping("stopping:\nterm")
    told = [systemd.recv(4096).decode() for _ in range(3)]
    assert told[0] == "READY=1\nSTATUS=running"
    assert told[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert told[2] == "STOPPING=1\nSTATUS=stopping: term"


async def test_signs_of_life_come_twice_in_each_period(systemd: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(environ, RealEnv())
    assert notifier.watchdog_s == 0.02
    async with asyncio.TaskGroup() as group:
        watchdog = group.create_task(notifier.run_watchdog())
        for _ in range(3):
            assert await asyncio.to_thread(systemd.recv, 4096) == b"WATCHDOG=1"
        watchdog.cancel()


async def test_a_long_stop_asks_for_more_time(systemd: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.getsockname()}, RealEnv())
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(notifier.keep_waiting())
        assert await asyncio.to_thread(systemd.recv, 4096) == b"EXTEND_TIMEOUT_USEC=30000000"
        waiting.cancel()


async def test_nothing_is_sent_where_nobody_asks() -> None:
    other = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
    for environ in ({}, other):
        notifier = Notifier(dict(environ), RealEnv())
        notifier.ready("running")  # a socket that is gone harms nothing
        await notifier.run_watchdog()


def test_a_reload_says_what_it_takes_and_what_waits() -> None:
    old = {"log_level": "INFO", "client": {"meta": {"a": "1"}, "node_class": "x"}, "tls": {"cert_file": "a"}}
    new = {
        "log_level": "DEBUG",
        "client": {"meta": {"a": "2"}, "node_class": "x"},
        "tls": {"cert_file": "b"},
        "acl": {"enabled": True},
    }
    found = reload_of(old, new)
    assert found.taken == ("log_level", "tls.cert_file")
    assert found.waiting == ("acl.enabled", "client.meta")
    assert reload_of(old, old) == Reload(taken=(), waiting=())
