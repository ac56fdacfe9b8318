"""Loopback ports and subnets that no other test process on this machine uses.

A port that is free now is anybody's a moment later: the system gives it to whatever socket asks for none, another
process of tests finds it free as well, and a client gives it to a task. So ports come from a range that the system
(32768 and above on Linux), clients (20000 to 32000) and plugins (14000 to 14512) leave alone, and each is claimed: its
byte of a file that all processes of tests share is locked until the process ends, however that happens.
"""

from __future__ import annotations

import fcntl
import functools
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import psutil

LOWEST_PORT, PORTS = 15_000, 5_000
SUBNETS = 50 * 256
STRIDE = 64
"""The distance between the first ports of processes with neighbouring pids, so that each finds its own range sooner."""
FOLDER = "/tmp"
"""Not the temporary folder, of which each run may have its own."""


@functools.cache
def _file(name: str) -> int:
    """The lock file of one kind of numbers; closing it would release all its locks (fcntl(2)), so it stays open."""
    path = f"{FOLDER}/yurt-test-{os.getuid()}-{name}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@functools.cache
def _numbers(name: str, count: int) -> Iterator[int]:
    """Yields numbers from 0 to `count` - 1, each claimed by this process only."""
    first = os.getpid() * STRIDE
    return (number % count for number in range(first, first + count) if _is_claimed(name, number % count))


def _is_claimed(name: str, number: int) -> bool:
    file = _file(name)
    with suppress(BlockingIOError, PermissionError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        return True
    return False


def quiet_port(address: str = "127.0.0.1") -> int:
    """A port without a listener that no other test gets, not even while its owner is stopped."""
    for number in _numbers("ports", PORTS):
        if _can_bind(address, LOWEST_PORT + number):
            return LOWEST_PORT + number
    raise AssertionError(f"all ports from {LOWEST_PORT} to {LOWEST_PORT + PORTS - 1} are claimed by tests")


def free_ports(count: int) -> list[int]:
    """`count` such ports."""
    return [quiet_port() for _ in range(count)]


def own_subnet() -> tuple[int, str]:
    """A number, and the first three bytes of a network `10.<x>.<y>.0/24`, for this process only."""
    for number in _numbers("subnets", SUBNETS):
        prefix = f"10.{200 + number // 256}.{number % 256}"
        if not _is_addressed(prefix):
            return number, prefix
    raise AssertionError("all subnets are claimed by tests, or there")


def _can_bind(address: str, port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        return True
    return False


def _is_addressed(prefix: str) -> bool:
    """Whether an interface of this machine has an address there: a killed run may have left its bridge."""
    addresses = (each.address for interface in psutil.net_if_addrs().values() for each in interface)
    return any(address.startswith(f"{prefix}.") for address in addresses)
