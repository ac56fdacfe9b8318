"""Replaces, for one run, the parts of the machine that agents use besides `Env` and the event loop.

Each of these is an edge that has no parameter: mounts, the folder of network records, the collector of garbage, RSA
keys, and the system's randomness, which makes nonces and secrets.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from yurt import scheduler
from yurt.api.decode import prepare_jobs
from yurt.client.allocations import migration
from yurt.client.files.alloc_dir import alloc_path
from yurt.client.files.safe_files import Owners
from yurt.client.networks.detection import Offered
from yurt.client.networks.settings import NetworkSettings
from yurt.http.route_table import ROUTES
from yurt.http.routes import NamedHandler, import_handlers
from yurt.runtime.turns import Turns
from yurt.server.keys import ciphers
from yurt.testing.sim.csi.plugin import CsiNodes


class NoHeapKeeper:
    """Leaves CPython's cyclic collector alone, which all servers of the run share."""

    def start(self) -> None:
        """Do nothing."""

    freeze = pause = restore_defaults = start

    def note_writes(self, count: int) -> None:
        """Do nothing."""

    async def run(self) -> None:
        """Do nothing."""


RSA_KEYS = 0.1
"""The share of seeds whose servers sign identities with an RSA key."""
UNCHANGED_S = 600.0
"""How often clients look for changed networks, which do not exist: each look is work in a thread."""


def _no_folders(_: NetworkSettings) -> tuple[tuple[str, int, int], ...]:
    """No folders of CNI plugins, whatever this machine has."""
    return ()


async def no_networks(_: NetworkSettings) -> Offered:
    """A network manager that supports no group networks."""
    return Offered()


async def _packed(root: str, alloc_id: str, tasks: Iterable[str], *, owners: Owners = None) -> AsyncGenerator[bytes]:
    """As `migration.pack`, without its pipe: its two threads would wait for each other on the loop."""
    file = os.memfd_create("packed")
    try:
        await asyncio.to_thread(
            migration._pack, alloc_path(root, alloc_id), migration.folders_of(tasks), os.dup(file), owners
        )
        os.lseek(file, 0, os.SEEK_SET)
        while piece := os.read(file, migration.PIECE_BYTES):
            yield piece
    finally:
        os.close(file)


async def _unpacked(
    pieces: AsyncIterator[bytes], root: str, alloc_id: str, *, tasks: Iterable[str], limit: int
) -> None:
    """As `migration.unpack`, without its pipe."""
    file = os.memfd_create("unpacked")
    try:
        async for piece in pieces:
            os.write(file, piece)
        os.lseek(file, 0, os.SEEK_SET)
        folders = migration.folders_of(tasks)
        await asyncio.to_thread(migration._unpack, alloc_path(root, alloc_id), folders, os.dup(file), limit)
    finally:
        os.close(file)


_new_pem = ciphers.new_pem


@functools.cache
def _rsa_key() -> bytes:
    """One RSA key for all runs of this process: generating a key costs as much as simulating seconds."""
    return _new_pem()


def _no_rsa_key() -> bytes:
    """A root key without an RSA key, which signs by EdDSA, eight times as fast."""
    return b""


def _slow_turn(turn_s: float) -> Callable[[Turns], Awaitable[None]]:
    """`Turns.next` where each slice takes some time, in which timers are due and answers arrive."""

    async def wait(turns: Turns) -> None:
        async with turns._asking:
            await asyncio.sleep(turn_s)

    return wait


@functools.cache
def load_deferred_code() -> None:
    """Load what agents import in threads when it is first needed.

    Such a thread takes virtual time, and exists only in the first run of a process: the same seed would give another
    digest in the next one.
    """
    scheduler.load()
    prepare_jobs()
    for route in ROUTES:
        if isinstance(route.handler, NamedHandler):
            import_handlers(route.handler.home)


@contextmanager
def simulated_machine(folder: Path, seed: int, *, turn_s: float, csi: CsiNodes) -> Iterator[None]:
    """Replace the machine's parts; `turn_s` is the virtual time of a slice of long work, `csi` has the mounts."""
    chance = random.Random(f"system {seed}")
    has_rsa_key = random.Random(f"root key {seed}").random() < RSA_KEYS
    load_deferred_code()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    with ExitStack() as stack:
        for target, new in {
            "yurt.client.files.alloc_dir.mount_secrets": lambda *_: False,
            "yurt.client.files.alloc_dir.unmount_secrets": lambda *_: None,
            "yurt.client.allocations.alloc_runner.unmount_secrets": lambda *_: None,
            "yurt.client.allocations.migration.pack": _packed,
            "yurt.client.allocations.migration.unpack": _unpacked,
            "yurt.client.networks.records.RUN_FOLDER": folder / "networks",
            "yurt.client.networks.offers.folders_mark": _no_folders,
            "yurt.client.networks.offers.LOOK_EVERY_S": UNCHANGED_S,
            "yurt.server.keys.ciphers.new_pem": _rsa_key if has_rsa_key else _no_rsa_key,
            "yurt.client.csi.volumes.is_mounted": csi.is_mounted,
            "yurt.client.csi.volumes.unmount": csi.unmount,
            "grpc.aio.insecure_channel": csi.channel,
            "os.urandom": chance.randbytes,
        }.items():
            stack.enter_context(mock.patch(target, new))
        if turn_s:
            stack.enter_context(mock.patch("yurt.server.log.log_writer.TURN_BYTES", 1))
            stack.enter_context(mock.patch("yurt.runtime.turns.Turns.next", _slow_turn(turn_s)))
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()
