"""Faults of servers on a shared log: leader changes, appends with unknown outcome, deaths, lag, partitions."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from yurt.server.server import Server
from yurt.testing.fakes import eventually
from yurt.testing.simulation.servers import NAMES, ServerGroup
from yurt.testing.simulation.shared_log import AppendOutcome


class ServerFaults:
    """Faults from a seed."""

    def __init__(self, group: ServerGroup, seed: int) -> None:
        self.group = group
        self.chance = random.Random(f"faults {seed}")
        self.seen: Counter[str] = Counter()

    async def strike(self) -> None:
        """Some of what can go wrong in one step, and some of it mended."""
        group, chance = self.group, self.chance
        for name in NAMES:
            if name not in group.servers:
                group.start(name)
            elif name in group.cut_off and chance.random() < 0.5:
                group.mend(name)
            group.view(name).news.set()
        if chance.random() < 0.5:
            await getattr(self, chance.choice(("cut", "kill", "lag", "lose", "trim", "flap")))()
        if group.log.leader not in group.servers or group.log.leader in group.cut_off:
            group.log.elect(chance.choice(self.there()) if chance.random() < 0.8 else "")

    def there(self) -> list[str]:
        """The servers that run and reach the log."""
        return sorted(set(self.group.servers) - self.group.cut_off)

    async def cut(self) -> None:
        """One server reaches nobody, while the others still are most."""
        if not self.group.cut_off:
            self.seen["cut"] += 1
            self.group.cut(self.chance.choice(NAMES))

    async def kill(self) -> None:
        """One server ends without a word."""
        name = self.chance.choice(NAMES)
        if not self.group.cut_off and len(self.group.servers) == len(NAMES):
            self.seen["kill"] += 1
            await self.group.kill(name)

    async def lag(self) -> None:
        """One server hears nothing for a while."""
        self.seen["lag"] += 1
        self.group.view(self.chance.choice(self.there())).news.clear()

    async def lose(self) -> None:
        """The next append tells nothing."""
        if self.group.log.leader:
            self.seen["lose"] += 1
            self.group.view(self.group.log.leader).outcomes.append(self.chance.choice(list(AppendOutcome)))

    async def trim(self) -> None:
        """Most servers store a snapshot, and the log before it goes."""
        self.seen["trim"] += 1
        for name in self.there()[:2]:
            await self.group[name].log.snapshotter.save()
        kept = [view.snapshot[0] for view in self.group.log.views.values() if view.snapshot]
        if len(kept) >= 2:
            self.group.log.trim(max(self.group.log.first_index, sorted(kept)[-2]))

    async def flap(self) -> None:
        """Leadership goes around faster than anybody can follow."""
        self.seen["flap"] += 1
        for _ in range(self.chance.randint(1, 5)):
            self.group.log.elect(self.chance.choice(("", *self.there())))
            for _ in range(self.chance.choice((0, 1, 7, 50))):
                await asyncio.sleep(0)


def leader_of(group: ServerGroup) -> Server:
    """The server that writes go to, as users find it."""
    found = group.servers.get(group.log.leader)
    return found or max(group.servers.values(), key=lambda server: server.state.index)


async def calm(group: ServerGroup) -> None:
    """All servers run, reach the log and know their leader."""
    for name in NAMES:
        if name not in group.servers:
            group.start(name)
        group.mend(name)
        group.view(name).news.set()
        group.view(name).outcomes.clear()
    group.log.elect(NAMES[1])
    await eventually(lambda: group[NAMES[1]].is_leader)
