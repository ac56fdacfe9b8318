"""Periodic checks from outside the cluster: event readers, the trimmed log, and leaks.

A6 a reader of events gets each one in order, or the gap is reported; A1 what was deleted of the log is in the
snapshots of most servers; A4 the leader's duties run once; E9 agents at rest have no more tasks and open files than
their work explains.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from yurt.server.log.event_buffer import Event
from yurt.state import Snapshot
from yurt.storage.etcd.key_layout import Epoch, KeyLayout
from yurt.structs import status
from yurt.testing.sim.agents import REGION, ClientAgent, ServerAgent, SimServer
from yurt.testing.sim.checks import Violation
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.etcd_store import FOREVER, is_within

TASKS_OF_CLIENT, TASKS_OF_RUN, TASKS_OF_SERVER, TASKS_OF_CONNECTION = 60, 12, 150, 6
"""How many tasks an agent at rest may have, a client for each allocation that runs besides, and a server for each
client, all of which may be connected to it."""
FILES_OF_AGENT = 12
"""How many files an agent may have open below its folder."""
READY_S = 15.0
"""How long a client that is in contact may take until its node is ready; a report that failed is repeated each 5 s."""
LIST_S = 1.0
"""How often the folders of snapshots are listed while nothing is trimmed."""


class EventReaders:
    """The events that the readers of all servers have received."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def got(self, server: SimServer, event: Event, is_first: bool) -> str:
        """Check one more event; returns the problem, "" when it is the next event."""
        last = self._last.get(id(server), 0)
        self._last[id(server)] = event.index
        if is_first or event.index == last + 1:
            return ""
        return f"A6 a reader of {server.config.name} got the event of index {event.index} after that of {last}"


class TrimmedLog:
    """Compares the remaining log with the servers' snapshots."""

    def __init__(self, etcd: SimEtcd, servers: list[ServerAgent]) -> None:
        self._etcd = etcd
        self._servers = servers
        self._keys = KeyLayout(REGION)
        self._first = 1
        self._saved = Counter[str]()
        """The newest snapshot that each server ever had."""
        self._listed_s = 0.0

    def problem(self, now_s: float) -> str:
        """The entries that were trimmed too early; "" for none."""
        key = self._etcd.store.first_key(self._keys.log, self._keys.log_end)
        first = self._keys.first_index(key) if key else self._first
        is_trimmed = first != self._first
        if is_trimmed or now_s - self._listed_s >= LIST_S:
            self._listed_s = now_s
            self._list_snapshots()
        if not is_trimmed:
            return ""
        self._first = first
        covering = sum(saved >= first - 1 for saved in self._saved.values())
        if covering > len(self._servers) // 2:
            return ""
        return f"A1 the log begins at index {first}, and {covering} servers have a snapshot of what was before"

    def _list_snapshots(self) -> None:
        for server in self._servers:
            found = server.snapshots
            self._saved[server.name] = max(self._saved[server.name], int(found[-1].stem) if found else 0)


class WaitingNodes:
    """E1: a client that nothing hinders is ready within `READY_S`: it reports its allocations when it has to."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._nodes: object = None
        """The table of which `_initializing` was made: it changes much less often than it is looked at."""
        self._initializing: frozenset[str] = frozenset()
        """The ids of nodes that are not ready yet."""

    def problem(self, state: Snapshot, unhindered: Callable[[], Iterable[ClientAgent]], now_s: float) -> str:
        """The clients that have waited for too long; "" for none."""
        if state.nodes is not self._nodes:
            self._nodes = state.nodes
            self._initializing = frozenset(node.id for node in state.nodes.values() if node.status == status.NODE_INIT)
        if not self._initializing:
            self._since.clear()
            return ""
        waiting = [each.name for each in unhindered() if each.is_up and each.node_id in self._initializing]
        self._since = {name: self._since.get(name, now_s) for name in waiting}
        late = [name for name, since_s in self._since.items() if now_s - since_s > READY_S]
        return f"E1 {late} have been initializing for {READY_S:g} s, and nothing hinders them" if late else ""


class Terms:
    """A3, of the writes that etcd stores: a term is of one server, and only the server of the newest term appends."""

    def __init__(self) -> None:
        self._keys = KeyLayout(REGION)
        self._newest = Epoch()

    def wrote(self, etcd: SimEtcd, host: str, before: int) -> None:
        """Check the writes after a revision, which the server on a host has made; raises Violation."""
        for key, event in etcd.store.events_after(before, self._keys.root, FOREVER):
            if event.type != 0:
                continue
            if key == self._keys.epoch:
                self._check_epoch(msgspec.json.decode(event.kv.value, type=Epoch))
            elif is_within(key, self._keys.log, self._keys.log_end):
                self._check_writer(etcd.names[host], self._keys.first_index(key))

    def _check_epoch(self, epoch: Epoch) -> None:
        last, self._newest = self._newest, epoch
        is_next = epoch.number == last.number + 1 if epoch.server else epoch.number == last.number
        if not is_next:
            raise Violation(
                f"A3 {epoch.server or 'nobody'} begins term {epoch.number} after term {last.number} of {last.server}"
            )

    def _check_writer(self, writer: str, index: int) -> None:
        epoch = self._newest
        if writer != epoch.server:
            raise Violation(
                f"A3 {writer} appends at index {index} in term {epoch.number} of {epoch.server or 'nobody'}"
            )


def leaks_of(servers: list[ServerAgent], clients: list[ClientAgent], folder: Path) -> list[str]:
    """Agents with more tasks or open files than their work explains."""
    found = []
    for server in servers:
        count = len(server.process.tasks) if server.process is not None else 0
        if count > TASKS_OF_SERVER + TASKS_OF_CONNECTION * len(clients):
            found.append(f"E9 {server.name} has {count} tasks at rest")
    names = Counter(task.get_name() for each in servers if each.process is not None for task in each.process.tasks)
    duties = {name: names[name] for name in ("leader", "follower", "plan applier")}
    if duties != {"leader": 1, "follower": len(servers) - 1, "plan applier": 1}:
        found.append(f"A4 duties run {duties} times on {len(servers)} servers")
    for client in clients:
        count = len(client.process.tasks) if client.process is not None else 0
        most = TASKS_OF_CLIENT + TASKS_OF_RUN * len(client.machine.live())
        if count > most:
            found.append(f"E9 {client.name} has {count} tasks at rest, for {len(client.machine.live())} allocations")
    count = len(open_files(folder))
    if count > FILES_OF_AGENT * (len(servers) + len(clients)):
        found.append(f"E9 {count} files are open below the agents' folders")
    return found


def open_files(folder: Path) -> list[str]:
    """The files below a folder that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return found
