"""Faults of the leader while clients go on: killed with its etcd, or frozen and thawed when another one leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from yurt.testing.real_cluster import RealCluster, ServerAgent

FROZEN_S: Final = 4.0


class LeaderFaults:
    """Kills and freezes the leader in turn, one fault each `every_s` seconds."""

    def __init__(self, cluster: RealCluster, every_s: float) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._stop = threading.Event()
        self.done: list[str] = []
        """What was done to whom."""

    def run(self) -> None:
        """Go on until `stop`; afterwards every server runs."""
        while not self._stop.wait(self._every_s if self.done else self._every_s / 3):
            leader = self._leader()
            if leader is None:
                continue
            if len(self.done) % 2:
                self._freeze(leader)
            else:
                self._kill(leader)

    def stop(self) -> None:
        """No fault begins any more."""
        self._stop.set()

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


@contextmanager
def leader_faults(cluster: RealCluster, *, every_s: float) -> Iterator[LeaderFaults]:
    """Faults during the block."""
    faults = LeaderFaults(cluster, every_s)
    thread = threading.Thread(target=faults.run, daemon=True)
    thread.start()
    try:
        yield faults
    finally:
        faults.stop()
        thread.join()
