"""The membership in the view of one server: a pure state into which received records are merged.

What a server says of itself is a record: addresses, and whether it stays (`alive`), goes (`leaving`) or has gone
(`left`). The record with the higher incarnation holds; of two with the same one, the one further on its way out, for
an operator may say of a server that is gone that it has left. Only a server itself raises its incarnation: at each
start, when something about it changes, and when it hears of its own leaving that it knows nothing of. So merging is
commutative, associative and idempotent, and all servers that exchange what they know come to the same records.

`failed` is not part of a record. It is the view of one server: it has not heard from another one for a while. Who hears
from a server says so to nobody; every server asks all the others itself.

A record that is forgotten leaves its incarnation behind, so that those who have not forgotten yet do not bring it
back. Times are seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.sdk.value import Value, no_entries, replace
from yurt.structs.member import ALIVE, FAILED, LEAVING, LEFT, Member, MemberStatus

FAILED_AFTER_S = 5.0
"""Silence after which a server counts as failed."""
FORGET_LEFT_S = 24 * 3600.0
FORGET_FAILED_S = 24 * 3600.0
FORGET_FAR_FAILED_S = 72 * 3600.0
"""How long a failed server of another region is remembered."""
FORGOTTEN_MAX = 1_000
"""Names of forgotten servers that are kept; those with the lowest incarnation are dropped first."""
NEVER = float("-inf")

_RANKS = {ALIVE: 0, LEAVING: 1, LEFT: 2}


class MembershipUpdate(Value):
    """The message of one server to another: all of its records, and its own progress."""

    sender: str
    """The name of the sending server."""
    run: str = ""
    """An id of this run of the agent, which distinguishes it from another agent of the same name."""
    members: tuple[Member, ...] = ()
    """With the statuses that the sender sees, `failed` included."""
    forgotten: Mapping[str, int] = no_entries()
    founding: Mapping[str, str] = no_entries()
    """The servers that found a cluster together, by name, with the address of each etcd member; empty: none."""
    awaited: tuple[str, ...] = ()
    """Those of them that have not begun yet."""
    met: tuple[str, ...] = ()
    """Servers that might have founded a cluster with the sender, which founds none without them."""
    index: int = 0
    """The last index that the sender has applied."""


class SeenMember(Value):
    """The record of a server at another one; its status is never `failed`."""

    member: Member
    heard_at: float
    """When it was last heard, or learned of; `NEVER` for one received as failed."""
    since: float
    """Since when the record has its status."""

    def status(self, now: float) -> MemberStatus:
        """Its status, with `failed` for one that has been silent."""
        if self.member.status == ALIVE and now - self.heard_at > FAILED_AFTER_S:
            return FAILED
        return self.member.status


class Records(Value):
    """One server's records of all servers, itself included."""

    own: Member
    others: Mapping[str, SeenMember] = no_entries()
    forgotten: Mapping[str, int] = no_entries()

    def members(self, now: float) -> tuple[Member, ...]:
        """The servers by name, each with the status that this server sees."""
        shown = [replace(seen.member, status=seen.status(now)) for seen in self.others.values()]
        return tuple(sorted([*shown, self.own], key=lambda member: member.name))

    def with_own(self, **changes: object) -> Records:
        """A copy with a change of the own record, with a new incarnation so that others adopt it."""
        changed = replace(self.own, **changes)
        if changed == self.own:
            return self
        return replace(self, own=replace(changed, incarnation=self.own.incarnation + 1))

    def merged(self, update: Iterable[Member], forgotten: Mapping[str, int], now: float) -> Records:
        """A copy with received records merged."""
        result = self._with_forgotten(forgotten, now)
        for member in update:
            result = (
                result._with_own_record(member) if member.name == self.own.name else result._with_member(member, now)
            )
        return result

    def heard(self, name: str, now: float) -> Records:
        """A copy in which the server was heard just now."""
        seen = self.others.get(name)
        if seen is None:
            return self
        return replace(self, others={**self.others, name: replace(seen, heard_at=now)})

    def forced_out(self, name: str, now: float, *, forget: bool) -> Records:
        """A copy in which an operator has forced a failed server out; it is forgotten at once. The name must exist."""
        seen = self.others[name]
        if forget:
            return self._with_forgotten({name: seen.member.incarnation}, now)
        return self._with_member(replace(seen.member, status=LEFT), now)

    def reaped(self, now: float) -> Records:
        """A copy without servers that left or failed long ago."""
        expired = {name: seen.member.incarnation for name, seen in self.others.items() if self._is_over(seen, now)}
        return self._with_forgotten(expired, now) if expired else self

    def _is_over(self, seen: SeenMember, now: float) -> bool:
        match seen.status(now):
            case "left":
                return now - seen.since > FORGET_LEFT_S
            case "failed":
                if seen.member.region == self.own.region and seen.member.rules < self.own.rules:
                    return False  # it holds the rules of the region back, so operators have to see it
                is_far = seen.member.region != self.own.region
                silent_s = now - max(seen.heard_at, seen.since)
                return silent_s > (FORGET_FAR_FAILED_S if is_far else FORGET_FAILED_S)
            case _:
                return False

    def _with_own_record(self, reported: Member) -> Records:
        """Contradict others' records of this server that are newer than its own but differ from it."""
        if _key(reported) <= _key(self.own) or _fact(reported) == self.own:
            return self
        return replace(self, own=replace(self.own, incarnation=reported.incarnation + 1))

    def _with_member(self, reported: Member, now: float) -> Records:
        fact, seen = _fact(reported), self.others.get(reported.name)
        if self.forgotten.get(reported.name, -1) >= fact.incarnation:
            return self
        if seen is None:
            fresh = SeenMember(member=fact, heard_at=NEVER if reported.status == FAILED else now, since=now)
            return replace(self, others={**self.others, reported.name: fresh})
        if _key(fact) <= _key(seen.member):
            return self
        is_back = fact.incarnation > seen.member.incarnation and reported.status != FAILED
        newer = SeenMember(
            member=fact,
            heard_at=now if is_back else seen.heard_at,
            since=seen.since if fact.status == seen.member.status else now,
        )
        return replace(self, others={**self.others, reported.name: newer})

    def _with_forgotten(self, reported: Mapping[str, int], now: float) -> Records:
        """Drop records that are not newer than their forgetting; this server itself publishes a newer one."""
        newer = {name: number for name, number in reported.items() if number > self.forgotten.get(name, -1)}
        if not newer:
            return self
        forgotten = {**self.forgotten, **newer}
        own = self.own
        if own.incarnation <= forgotten.get(own.name, -1):
            own = replace(own, incarnation=forgotten[own.name] + 1)
        others = {name: seen for name, seen in self.others.items() if seen.member.incarnation > forgotten.get(name, -1)}
        newest = sorted(forgotten.items(), key=lambda item: (item[1], item[0]))[-FORGOTTEN_MAX:]
        return replace(self, own=own, others=others, forgotten=dict(newest))


def _fact(reported: Member) -> Member:
    """The record without the sender's own observations."""
    return replace(reported, status=ALIVE) if reported.status == FAILED else reported


def _key(member: Member) -> tuple[object, ...]:
    """The order of two records of one server: the greater wins; the last parts distinguish servers of one name."""
    fact = _fact(member)
    return (fact.incarnation, _RANKS.get(fact.status, 0), repr(fact))
