"""The membership of one server: all servers, their statuses, and merging of received records.

Every server asks every other one each second (`exchange`); few machines are servers, so nothing cleverer is needed.
A change is sent at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from yurt.agent.cluster.cluster_files import Founding
from yurt.agent.cluster.records import MembershipUpdate, Records
from yurt.runtime.env import Env
from yurt.sdk.errors import NotFound
from yurt.sdk.value import Value, replace
from yurt.structs.member import ALIVE, FAILED, LEAVING, LEFT, Member

log = logging.getLogger(__name__)

LEAVING_S = 5.0
"""How long a server that was forced out while it was alive is shown so, if its agent runs on."""


class ForcedLeave(Value):
    """An operator's order to force out a server that counted as alive."""

    at: float
    """When it was given, in seconds of the clock that never goes back."""
    forget: bool
    """Whether the server is forgotten when it turns out to be gone."""


class Membership:
    """The servers that this one has met; the `Directory` of other parts."""

    def __init__(self, own: Member, *, env: Env, applied_index: Callable[[], int] = lambda: 0) -> None:
        """`applied_index` returns the index of the last command applied here; other servers receive it."""
        self.run_id = env.uuid()
        self.reports: dict[str, MembershipUpdate] = {}
        self.trailing: dict[str, int] = {}
        """How many commands each server was behind this one when it reported its index."""
        self.version = 0
        """Grows with everything that is news for the others."""
        self._origin = Founding()
        self._applied_index = applied_index
        self._records = Records(own=replace(own, incarnation=env.now() // 1_000_000))
        self._env = env
        self._listeners: list[Callable[[], None]] = []
        self._shown: tuple[Member, ...] = self.members()
        self._status_since: dict[str, float] = {own.name: env.monotonic()}
        self._leaving: dict[str, ForcedLeave] = {}
        self._pulse = asyncio.Event()

    # What the other parts read.

    @property
    def own(self) -> Member:
        """This server's own record."""
        return self._records.own

    def members(self) -> tuple[Member, ...]:
        """All servers by name, with the statuses that this one sees."""
        return self._records.members(self._env.monotonic())

    def shown_members(self) -> tuple[Member, ...]:
        """`members` for operators: one that was forced out while it was alive is leaving or missing (`force_leave`)."""
        return tuple(
            replace(each, status=LEAVING) if each.name in self._leaving else each
            for each in self.members()
            if each.name not in self._leaving or not self._leaving[each.name].forget
        )

    @property
    def forgotten(self) -> frozenset[str]:
        """The names of servers that left or failed long ago."""
        return frozenset(self._records.forgotten)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Register a callback for changes of `members`."""
        self._listeners.append(on_change)

    def run_of(self, name: str) -> str:
        """The run identifier that a server sent over the serf port; "" when it has sent none."""
        return self.reports[name].run if name in self.reports else ""

    def silent_s(self, name: str) -> float:
        """Seconds since a server was last heard; 0 for this one."""
        seen = self._records.others.get(name)
        return 0.0 if seen is None else self._env.monotonic() - seen.heard_at

    def index_of(self, name: str) -> int:
        """The last index that a server reported."""
        if name == self.own.name:
            return self._applied_index()
        return self.reports[name].index if name in self.reports else 0

    def status_age_s(self, name: str) -> float:
        """Seconds since a server's status last changed, as seen by this server."""
        now = self._env.monotonic()
        return now - self._status_since.get(name, now)

    async def wait_change(self, limit_s: float) -> None:
        """Wait until something about the servers changes, or the time is over."""
        with suppress(TimeoutError):
            async with self._env.timeout(limit_s):
                await self._pulse.wait()

    # Changes from this server.

    def change_own(self, **changes: object) -> None:
        """Publish a changed own record."""
        self._take(self._records.with_own(**changes))

    def publish(self) -> None:
        """Publish at once the start of a cluster, which is not part of the records."""
        self.version += 1
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def force_leave(self, name: str, *, forget: bool) -> None:
        """Mark a server as left, or with `forget` forget it; raises NotFound.

        One that counts as alive may have ended a moment ago. It is shown as leaving here, or with `forget` not at all,
        and nothing else changes: others go on to use it. It has left once it fails; one that is still heard after
        `LEAVING_S`, as this one always is, is shown as alive again.
        """
        found = next((each for each in self.members() if each.name == name), None)
        if found is None:
            raise NotFound(f'no server "{name}" is known; `yurt server members` lists them')
        now = self._env.monotonic()
        if found.status in (FAILED, LEFT) and name != self.own.name:
            self._take(self._records.forced_out(name, forget=forget, now=now))
        else:
            self._leaving[name] = ForcedLeave(at=now, forget=forget)

    def mark_left(self) -> None:
        """Mark this server as left from now on."""
        self._records = self._records.with_own(status=LEFT)

    def found(self, origin: Founding) -> None:
        """Record the progress of this server's etcd member: its founders, and the servers that it has met."""
        self._origin = origin

    @property
    def awaited(self) -> tuple[str, ...]:
        """The founders that had not begun yet."""
        return self._origin.awaited

    def update(self) -> MembershipUpdate:
        """The update that this server sends to others."""
        return MembershipUpdate(
            sender=self.own.name,
            run=self.run_id,
            members=self.members(),
            forgotten=self._records.forgotten,
            founding=self._origin.founding,
            awaited=self._origin.awaited,
            met=self._origin.met,
            index=self._applied_index(),
        )

    def merge_update(self, update: MembershipUpdate) -> None:
        """Merge the update of another server."""
        now = self._env.monotonic()
        merged = self._records.merged(*self._believed(update), now)
        if update.sender != self.own.name:
            previous, self.reports[update.sender] = self.reports.get(update.sender), update
            if not self.own.has_data and (previous is None or previous.members != update.members):
                self.publish()
            self.trailing[update.sender] = max(0, self._applied_index() - update.index)
            merged = merged.heard(update.sender, now)
        self._take(merged)

    def _believed(self, update: MembershipUpdate) -> tuple[tuple[Member, ...], Mapping[str, int]]:
        """The part of received records that is trusted: a server of the own region only introduces unknown servers."""
        ours = f".{self.own.region}"
        if update.sender.endswith(ours):
            return update.members, update.forgotten
        names = {each.name for each in self.members()}
        members = tuple(
            each
            for each in update.members
            if each.region != self.own.region or (each.status == ALIVE and each.name not in names)
        )
        return members, {name: number for name, number in update.forgotten.items() if not name.endswith(ours)}

    def _take(self, records: Records) -> None:
        before, self._records = self._records, records
        facts = {name: seen.member for name, seen in records.others.items()}
        if records.own != before.own or facts != {name: seen.member for name, seen in before.others.items()}:
            self.publish()
        self._look()

    def _look(self) -> None:
        """Notify the other parts of changes."""
        shown = self.members()
        if shown == self._shown:
            return
        before, self._shown = {each.name: each for each in self._shown}, shown
        for each in shown:
            previous = before.pop(each.name, None)
            if previous is None or previous.status != each.status:
                _log_status(each, is_new=previous is None)
                self._status_since[each.name] = self._env.monotonic()
        for name in before:
            log.info("server forgotten: name=%s", name)
            self.reports.pop(name, None)
            self.trailing.pop(name, None)
            self._status_since.pop(name, None)
        for on_change in self._listeners:
            on_change()

    def reap(self) -> None:
        """Forget servers that have been gone for long, and find those that have become silent."""
        self._records = self._records.reaped(self._env.monotonic())
        self._look()
        self._settle_leaving()

    def _settle_leaving(self) -> None:
        """Carry out or drop the orders to force out a server, as soon as it is known whether it is gone."""
        statuses = {each.name: each.status for each in self.members()}
        for name, order in tuple(self._leaving.items()):
            status = statuses.get(name, LEFT)
            is_gone = status in (FAILED, LEFT) and name != self.own.name
            if is_gone or self._env.monotonic() - self.silent_s(name) >= order.at + LEAVING_S:
                del self._leaving[name]
            if is_gone and name in statuses:
                self.force_leave(name, forget=order.forget)


def _log_status(member: Member, *, is_new: bool) -> None:
    level = logging.WARNING if member.status == FAILED else logging.INFO
    log.log(
        level, "server status: name=%s address=%s status=%s new=%s", member.name, member.address, member.status, is_new
    )
