"""Servers and their etcd members are killed, frozen and started again at random.

Nothing acknowledged is ever lost (A1), and all servers come to the same state (A2).
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from yurt.runtime.env import RealEnv
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import KeyLayout
from yurt.storage.etcd.reading import Cursor, EntryReader
from yurt.testing.agent import wait_for
from yurt.testing.log_process import REGION, LogProcess, log_processes
from yurt.testing.log_server import number_of
from yurt.testing.nightly import cases
from yurt.testing.services.etcd import member_configs, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd")
ROUNDS = 6
PROGRESS = 12
CALM_LIMIT_S = 60.0


def leader_of(servers: list[LogProcess]) -> LogProcess:
    """Whose append was acknowledged last."""
    return max((server for server in servers if server.acks), key=lambda server: server.acks[-1].at)


def wait_progress(servers: list[LogProcess]) -> None:
    now = time.monotonic()
    wait_for("appends are acknowledged", lambda: count_since(servers, now) >= PROGRESS, CALM_LIMIT_S)


def count_since(servers: list[LogProcess], moment: float) -> int:
    return sum(ack.at > moment for server in servers for ack in list(server.acks))


def disturb(servers: list[LogProcess], chance: random.Random) -> None:
    """One fault, and its end; the cluster must go on afterwards."""
    victim = leader_of(servers) if chance.random() < 0.7 else chance.choice(servers)
    fault = chance.choice(("kill", "kill", "kill etcd", "freeze", "freeze etcd"))
    is_etcd = fault.endswith("etcd")
    if fault == "kill":
        victim.kill()
        wait_progress(servers)
        victim.start()
    elif fault == "kill etcd":
        victim.signal(signal.SIGKILL, to_etcd=True)
    else:
        victim.signal(signal.SIGSTOP, to_etcd=is_etcd)
        wait_progress([server for server in servers if server is not victim])
        victim.signal(signal.SIGCONT, to_etcd=is_etcd)
    wait_progress(servers)


async def whole_log(servers: list[LogProcess]) -> list[int]:
    client = EtcdClient([server.config.client_endpoint for server in servers])
    reader = EntryReader(client, KeyLayout(REGION), env=RealEnv(), closing=Interrupt())
    found = [number_of(one) async for entry in reader.read(Cursor(0)) for one in entry.commands]
    await client.close()
    return found


@pytest.mark.parametrize("seed", range(min(cases(1), 100)))
async def test_nothing_acknowledged_is_lost_and_all_states_agree(seed: int) -> None:
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as folder,
        log_processes(member_configs(3, Path(folder)), pause_s=0.01) as servers,
    ):
        wait_progress(servers)
        for _ in range(ROUNDS):
            disturb(servers, chance)
        acks = [ack for server in servers for ack in list(server.acks)]
        stored = await whole_log(servers)
        digests = {pair for server in servers for pair in list(server.digests)}

    assert len(acks) > 50
    lost = [ack for ack in acks if stored[ack.log_index - 1] != ack.number]
    assert not lost
    assert not [number for number, count in Counter(stored).items() if count > 1]
    assert len(digests) == len({index for index, _ in digests})
    assert len(digests) > 1
