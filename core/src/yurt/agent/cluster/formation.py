"""The pure decision whether a server bootstraps a cluster, joins one, or waits.

A cluster begins when `bootstrap_expect` servers see each other, none of them has ever been part of a cluster, and each
has reported the same set of servers to this one. The first that sees this founds: from then on it publishes the names
and etcd addresses of the founders, and a founder that receives them begins with exactly these, whichever servers it has
met since. So all founders start etcd alike. A server that has data never founds, nor does one that sees a server of its
region with data: that one admits it. Nor does one that has met a server, in this run or an earlier one, that it does
not reach now: that one may have founded in its last moment, with this server among the founders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from yurt.agent.cluster.records import MembershipUpdate
from yurt.sdk.value import Value
from yurt.structs.member import ALIVE, FAILED, LEFT, Member


class Waits(Value):
    """The server waits; `reason` is for the operator."""

    reason: str


class Founds(Value):
    """Found a cluster of these servers: names and etcd addresses, sorted by name."""

    founders: Mapping[str, str]


class Joins(Value):
    """Join through one of these servers: the first that can admit this one."""

    through: tuple[Member, ...]


Decision = Waits | Founds | Joins


def decide(
    own: Member, members: Sequence[Member], reports: Mapping[str, MembershipUpdate], met: Collection[str] = ()
) -> Decision:
    """The next step of the server `own`, which has no data.

    `reports` are the last news of each server itself, `met` the servers that were candidates like this one.
    """
    peers = tuple(each for each in members if each.region == own.region and each.name != own.name)
    founding = _founding_of(own, peers, reports)
    if founding:
        return Founds(founders=founding)
    others = tuple(each for each in peers if each.status != LEFT)
    settled = tuple(each for each in others if each.has_data)
    if settled:
        return _joins(settled)
    if own.expect == 0:
        return Waits(
            reason=f"waiting for a server of region {own.region} that is part of a cluster: {_names_text(others)}; to "
            "begin a cluster with them, set bootstrap_expect here too"
        )
    candidates = _candidates(own.region, (own, *peers))
    expected = {each.name: each.expect for each in candidates if each.expect}
    if len(set(expected.values())) > 1:
        values = ", ".join(f"{name} says {number}" for name, number in sorted(expected.items()))
        return Waits(reason=f"bootstrap_expect must be the same on all servers of a region: {values}")
    away = _away(candidates, others, met)
    if len(candidates) >= own.expect and away:
        return Waits(
            reason=f"waiting for {', '.join(away)}, who may have begun a cluster and cannot be reached; one that is "
            "gone for good is put out with `yurt server force-leave`, or forgotten with an empty data_dir here"
        )
    problem = _clash(candidates) or _mixed_tls(candidates)
    if problem:
        return Waits(reason=problem)
    if len(candidates) < own.expect:
        return Waits(reason=f"waiting for {own.expect} servers: {_names_text(candidates)}{_without_expect(others)}")
    differing = _differing(own, candidates, reports)
    if differing:
        return Waits(reason=f"waiting for the servers to know each other: {', '.join(differing)} not yet")
    return Founds(founders={each.name: each.etcd_addr for each in candidates})


def lost_majority(own: Member, members: Iterable[Member], awaited: Collection[str] = ()) -> str:
    """Advice for an operator when too many servers have lost their data for the rest to admit members.

    "" while enough servers have data, while nobody is there who has none (who is away may come back with its own), and
    while founders are `awaited`, who begin by themselves.
    """
    alive = [each for each in (own, *members) if each.region == own.region and each.status == ALIVE and each.etcd_addr]
    settled = sorted({each.name for each in alive if each.has_data})
    lost = {each.name for each in alive if not each.has_data} - set(awaited)
    expected = max(each.expect for each in (own, *alive))
    if not settled or not lost or len(settled) > expected // 2:
        return ""
    first, needed = settled[0], expected // 2 + 1
    return (
        f"of those that are there only {', '.join(settled)} has data of the cluster, and {needed} of {expected} "
        "servers must have it before anybody is taken in: start the servers that still have their data_dir. If those "
        f"are gone for good, save what {first} knows (`yurt operator snapshot save -stale FILE`, asked of {first} "
        "itself), stop the agent of each server that has data, empty its data_dir (keep server/keystore) and start it "
        "again: "
        f"{expected} servers without data begin a new cluster, which takes the state with "
        "`yurt operator snapshot restore FILE`"
    )


def token_of(founders: Mapping[str, str]) -> str:
    """The token that distinguishes the etcd members of these founders from those of another cluster."""
    text = "\n".join(f"{name} {address}" for name, address in sorted(founders.items()))
    return f"yurt-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _founding_of(own: Member, peers: Iterable[Member], reports: Mapping[str, MembershipUpdate]) -> Mapping[str, str]:
    """The founders that another server lists, if they include this one, it is new, and no other list disagrees."""
    updates = [reports[each.name] for each in peers if each.status == ALIVE and each.has_data and each.name in reports]
    if any(own.name not in each.awaited for each in updates):
        return {}
    return next((each.founding for each in updates if own.name in each.founding), {})


def _joins(settled: Sequence[Member]) -> Decision:
    reachable = tuple(each for each in settled if each.status == ALIVE)
    through = tuple(each for each in reachable if each.etcd_addr)
    if through:
        return Joins(through=through)
    names = ", ".join(each.name for each in reachable or settled)
    if reachable:
        return Waits(
            reason=f"{names} keeps the state of this region by itself and takes no other servers in: "
            "it runs with bootstrap_expect = 1, or with an etcd that stands by itself"
        )
    return Waits(reason=f"waiting for {names}, who has the cluster's data and cannot be reached")


def _candidates(region: str, members: Iterable[Member]) -> tuple[Member, ...]:
    """The servers that could begin together, by name."""
    found = [
        each
        for each in members
        if each.region == region and each.status == ALIVE and each.expect > 1 and each.etcd_addr and not each.has_data
    ]
    return tuple(sorted(found, key=lambda each: each.name))


def _without_expect(others: Iterable[Member]) -> str:
    """Names the servers that are there and do not count, because they only join."""
    names = [each.name for each in others if each.status == ALIVE and not each.expect]
    return f"; not counted, as they have no bootstrap_expect: {', '.join(sorted(names))}" if names else ""


def _clash(candidates: Iterable[Member]) -> str:
    """Two servers whose etcd members would have one address."""
    name_by_address: dict[str, str] = {}
    for each in candidates:
        other = name_by_address.setdefault(each.etcd_addr, each.name)
        if other != each.name:
            return (
                f"{other} and {each.name} both have their etcd member at {each.etcd_addr}: give one of them another "
                "port with `ports { serf = ... }` (etcd takes the next one) or `ports { etcd = ... }`, or another "
                "address with `advertise { serf = ... }`"
            )
    return ""


def _mixed_tls(candidates: Iterable[Member]) -> str:
    """Founding servers must agree on TLS: all use it or none does."""
    by_tls: dict[bool, list[str]] = {True: [], False: []}
    for each in candidates:
        if each.has_tls is not None:
            by_tls[each.has_tls].append(each.name)
    if not by_tls[True] or not by_tls[False]:
        return ""
    return (
        f"`tls {{ rpc = true }}` must be set on all servers that begin a cluster or on none: {', '.join(by_tls[True])} "
        f"with it, {', '.join(by_tls[False])} without"
    )


def _away(candidates: Iterable[Member], others: Iterable[Member], met: Collection[str]) -> list[str]:
    """Servers that might have begun and are not among the candidates."""
    failed = {each.name for each in others if each.status == FAILED and each.expect > 1}
    return sorted((failed | set(met)) - {each.name for each in candidates})


def _differing(own: Member, candidates: Sequence[Member], reports: Mapping[str, MembershipUpdate]) -> list[str]:
    """The servers that have not reported the same set of servers."""
    expected = [(each.name, each.etcd_addr) for each in candidates]
    found = []
    for each in candidates:
        update = reports.get(each.name)
        seen = _candidates(own.region, update.members) if update is not None else ()
        misses = set(update.met) - {one.name for one in candidates} if update is not None else ()
        if each.name != own.name and (misses or [(one.name, one.etcd_addr) for one in seen] != expected):
            found.append(each.name)
    return found


def _names_text(members: Iterable[Member]) -> str:
    names = ", ".join(each.name for each in members)
    return f"know {names}" if names else "none is known"
