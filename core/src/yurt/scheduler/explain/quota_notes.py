"""Notes on exhausted quotas: their usage, and the namespaces that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from yurt.scheduler.capacity.quotas import Dimension, QuotaPart, amount_text, parts_of, scale_of
from yurt.state.quota_totals import chain_of, members_of, used_by
from yurt.state.store import Snapshot
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.quota import QuotaSpec

NAMES_MAX = 5


def quota_notes(
    snapshot: Snapshot, group: GroupExplanation, *, namespace: str, region: str, sees: Callable[[str], bool]
) -> Iterator[str]:
    """`quota "team" allows 2000 MHz of cpu; 1900 are used by namespaces a, b`, for each exhausted dimension.

    `sees` says which namespaces the reader may know; the rest are "others".
    """
    texts = [blocker.text for blocker in group.blockers if blocker.kind == "quota"]
    row = snapshot.namespaces.get(namespace)
    for spec in chain_of(snapshot, row.quota) if row is not None and texts else ():
        members = members_of(snapshot, spec.name)
        for part, dimension in _dimensions(snapshot, spec, members, region):
            place = f' in node pool "{part.pool}"' if part.pool else ""
            shown = f'node pool "{part.pool}": {dimension.name}' if part.pool else dimension.name
            if any(text.startswith(f"quota {spec.name}: {shown} exhausted") for text in texts):
                users = _users(snapshot, members, part, dimension.name)
                yield f'quota "{spec.name}" allows {_allowed(dimension)}{place}; {_used(dimension, users, sees)}'


def _dimensions(
    snapshot: Snapshot, spec: QuotaSpec, members: Sequence[str], region: str
) -> Iterator[tuple[QuotaPart, Dimension]]:
    for part in parts_of(spec, region):
        yield from ((part, dimension) for dimension in part.dimensions(used_by(snapshot, members, part.pool)))


def _users(snapshot: Snapshot, members: Sequence[str], part: QuotaPart, dimension: str) -> list[str]:
    """The namespaces with usage of a dimension."""
    users = []
    for name in members:
        amounts = part.dimensions(used_by(snapshot, (name,), part.pool))
        if any(each.used > 0 for each in amounts if each.name == dimension):
            users.append(name)
    return users


def _allowed(dimension: Dimension) -> str:
    amount = amount_text(dimension.allowed, scale_of(dimension)) if dimension.allowed else "no"
    unit = f"{dimension.unit} of " if dimension.allowed and dimension.unit not in ("", dimension.name) else ""
    return f"{amount} {unit}{dimension.name}"


def _used(dimension: Dimension, users: list[str], sees: Callable[[str], bool]) -> str:
    used = amount_text(dimension.used, scale_of(dimension))
    if not users:
        return f"{used} are used"
    visible = [name for name in users if sees(name)][:NAMES_MAX]
    names = [*visible, *(["others"] if len(visible) < len(users) else [])]
    noun = "namespace" if users == visible and len(visible) == 1 else "namespaces"
    return f"{used} are used by {noun} {', '.join(names)}"
