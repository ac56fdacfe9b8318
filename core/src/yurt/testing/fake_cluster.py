"""A `Cluster` with fixed members that records what operators ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from yurt.http.cluster import Joined, LogPeer, ServerView
from yurt.sdk.errors import NotFound
from yurt.sdk.value import replace
from yurt.structs.member import LEFT, Member
from yurt.structs.rules import RULES_VERSION


def member(name: str = "srv1", region: str = "global", **changes: object) -> Member:
    """An alive server whose addresses follow from its name."""
    base = Member(
        name=f"{name}.{region}",
        region=region,
        datacenter="dc1",
        version="0.1.0",
        address=f"{name}:4648",
        rpc_addr=f"{name}:4647",
        http_addr=f"{name}:4646",
        etcd_addr=f"{name}:4649",
        expect=3,
        incarnation=1,
        rules=RULES_VERSION,
    )
    return replace(base, **changes)


class FakeCluster:
    """A `Cluster` of fixed servers; those of region `global` that have not left are peers of the log."""

    def __init__(self, *members: Member) -> None:
        self.fixed = members
        self.asked: list[tuple[object, ...]] = []
        self.joined = Joined(count=1)
        self.learners: tuple[str, ...] = ()
        """The names of the peers that are still learners."""

    def members(self) -> tuple[Member, ...]:
        """The servers that the test gave."""
        return self.fixed

    shown_members = members

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Nothing changes."""

    def published_rules(self) -> Mapping[str, int]:
        """The rules of the servers of region `global`."""
        return {each.name: each.rules for each in self.fixed if each.region == "global"}

    def views(self) -> tuple[ServerView, ...]:
        """Every server of region `global` at index 7 and stable for 60 s."""
        return tuple(ServerView(member=each, index=7, stable_s=60.0) for each in self.fixed if each.region == "global")

    async def join(self, addresses: tuple[str, ...]) -> Joined:
        """The answer that the test set."""
        self.asked.append(("join", *addresses))
        return self.joined

    async def force_leave(self, name: str, *, forget: bool) -> None:
        """Record the removal; raises for a name that is not a member."""
        self._need(name)
        self.asked.append(("force_leave", name, forget))

    async def log_peers(self) -> tuple[LogPeer, ...]:
        """The servers of the region that have not left."""
        return tuple(
            LogPeer(
                id=f"id-{each.name}", name=each.name, address=each.rpc_addr, is_voter=each.name not in self.learners
            )
            for each in self.fixed
            if each.region == "global" and each.status != LEFT
        )

    async def remove_log_peer(self, requested: str) -> None:
        """Remove a peer by name or id."""
        self._need(requested.removeprefix("id-"))
        self.asked.append(("remove", requested))

    async def transfer_leadership(self, requested: str) -> tuple[LogPeer, LogPeer]:
        """The first peer and the requested one; raises NotFound for an unknown id."""
        peers = {peer.id: peer for peer in await self.log_peers()}
        if requested not in peers:
            raise NotFound(f'no server "{requested}" is part of the cluster')
        return next(iter(peers.values())), peers[requested]

    async def gauges(self) -> dict[str, float]:
        """One fixed value."""
        return {"members.alive": float(len(self.fixed))}

    def _need(self, name: str) -> None:
        if name not in {each.name for each in self.fixed}:
            raise NotFound(f'no server "{name}" is known')
