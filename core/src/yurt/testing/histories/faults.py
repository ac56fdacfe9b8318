"""Faults of servers while clients send requests.

In turn it is killed with its etcd and started again, frozen with its etcd and thawed when another one leads, and frozen
while its etcd goes on. A thawed server finds requests that were sent to it as the leader.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from yurt.testing.real_cluster import RealCluster, ServerAgent

FROZEN_S: Final = 4.0


class LeaderFaults:
    """Alternately kills and freezes the leader, one fault every `every_s` seconds."""

    def __init__(self, cluster: RealCluster, every_s: float) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done: list[str] = []
        """The fault and its target."""

    def start(self) -> None:
        """Begin; the first fault follows after a third of the interval."""
        self._thread.start()

    def settle(self) -> None:
        """Begin no more faults; return when every server runs and has applied the leader's index."""
        self._stop.set()
        self._thread.join()
        applied = self._cluster.wait_leader().answer("/v1/agent/self")["stats"]["raft"]["applied_index"]
        self._cluster.wait_index(int(applied))

    def close(self) -> None:
        """Begin no more faults and start every server that is down."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s if self.done else self._every_s / 3):
            self._strike()

    def _strike(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        faults = (self._kill, self._freeze, self._freeze_agent)
        faults[len(self.done) % len(faults)](leader)

    def _leader(self) -> ServerAgent | None:
        with suppress(AssertionError):
            return self._cluster.wait_leader(limit_s=self._every_s)
        return None

    def _kill(self, leader: ServerAgent) -> None:
        self.done.append(f"kill {leader.name}")
        leader.kill()
        leader.start()

    def _freeze(self, leader: ServerAgent) -> None:
        self.done.append(f"freeze {leader.name}")
        leader.freeze()
        try:
            self._stop.wait(FROZEN_S)
        finally:
            leader.thaw()

    def _freeze_agent(self, leader: ServerAgent) -> None:
        self.done.append(f"freeze {leader.name} without its etcd")
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            self._stop.wait(FROZEN_S)
        finally:
            os.kill(leader.pid, signal.SIGCONT)


class ServerKills(LeaderFaults):
    """Kills every server with its etcd member (SIGKILL) in turn and restarts it, leader or not."""

    def _strike(self) -> None:
        servers = self._cluster.servers
        self._kill(servers[len(self.done) % len(servers)])


@contextmanager
def server_kills(cluster: RealCluster, *, every_s: float) -> Iterator[ServerKills]:
    """Kill servers in turn during the block."""
    kills = ServerKills(cluster, every_s)
    kills.start()
    try:
        yield kills
    finally:
        kills.close()


@contextmanager
def leader_faults(cluster: RealCluster, *, every_s: float) -> Iterator[LeaderFaults]:
    """Inject faults of the leader during the block."""
    faults = LeaderFaults(cluster, every_s)
    faults.start()
    try:
        yield faults
    finally:
        faults.close()
