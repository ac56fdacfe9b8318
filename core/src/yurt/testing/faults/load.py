"""Writes that continue while servers die: which were acknowledged, when, and whether all of them survive."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from yurt.testing.agent import ApiFailure, wait_for
from yurt.testing.real_cluster import ClusterAgent

REQUEST_LIMIT_S = 8.0
"""A writer gives one request up after this and goes on with the next one."""


RESUME_LIMIT_S = 30.0


class AcknowledgedWrite(NamedTuple):
    """An acknowledged write: the variable's path, and when it was asked for and answered (monotonic seconds)."""

    path: str
    asked: float
    answered: float


class Load:
    """One writer for each server, each storing small variables one after another until it is stopped."""

    def __init__(self, servers: Sequence[ClusterAgent], *, pause_s: float = 0.02, writes_max: int = 20_000) -> None:
        self._acknowledged: list[AcknowledgedWrite] = []
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._pause_s = pause_s
        self._writes_max = writes_max
        self._threads = [
            threading.Thread(target=self._write, args=(agent.host, agent.port), daemon=True) for agent in servers
        ]
        self.refused: list[str] = []
        """What servers answered instead, the last ones."""

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * REQUEST_LIMIT_S)

    @property
    def acknowledged(self) -> tuple[AcknowledgedWrite, ...]:
        """The acknowledged writes so far, in the order of the answers."""
        return tuple(self._acknowledged)

    def longest_gap(self, since: float) -> float:
        """The longest time without an acknowledgement from `since` to the last one, in seconds."""
        moments = sorted(each.answered for each in self.acknowledged if each.answered >= since)
        return max(later - earlier for earlier, later in itertools.pairwise([since, *moments]))

    def wait_resumed(self, moment: float) -> float:
        """Wait until something that was asked for after a moment is acknowledged; the longest gap since then."""
        wait_for(
            "writes to go on", lambda: any(each.asked > moment for each in self.acknowledged[-100:]), RESUME_LIMIT_S
        )
        return self.longest_gap(moment)

    def missing(self, agent: ClusterAgent) -> list[str]:
        """Acknowledged paths that a server no longer knows."""
        known = {row["Path"] for row in agent.answer("/v1/vars?prefix=load/")}
        return sorted({each.path for each in self.acknowledged} - known)

    def _write(self, host: str, port: int) -> None:
        for number in itertools.takewhile(lambda number: number < self._writes_max, self._numbers):
            if self._stop.is_set():
                return
            path, asked = f"load/{number:06d}", time.monotonic()
            try:
                put(host, port, f"/v1/var/{path}", {"Path": path, "Items": {"number": str(number)}})
            except (OSError, http.client.HTTPException, ApiFailure) as error:
                self.refused[-20:] = [*self.refused[-19:], f"{host}:{port}: {error}"]
            else:
                self._acknowledged.append(AcknowledgedWrite(path, asked, time.monotonic()))
            self._stop.wait(self._pause_s)


def put(host: str, port: int, path: str, body: Any, *, limit_s: float = REQUEST_LIMIT_S) -> Any:
    """Send one write to a server on loopback within a time limit; raises OSError or ApiFailure."""
    connection = http.client.HTTPConnection(host, port, timeout=limit_s)
    try:
        connection.request("PUT", path, body=json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise ApiFailure(answer.status, data.decode(errors="replace"))
    return json.loads(data) if data else None
