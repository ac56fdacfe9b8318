"""Waiting jobs and usage, drawn."""

from __future__ import annotations

from hypothesis import strategies as st
from yurt.queue.amounts import Amounts
from yurt.queue.turns import TurnRules, turn_of
from yurt.queue.waiting_job import Waiting
from yurt.sdk.value import Duration, UnixNano

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
TENANTS = tuple((team, user) for team in ("vision", "speech", "robots") for user in ("", "ann", "bob"))
RULES = TurnRules(stretch=1000, reach=24 * HOUR)
POOL = Amounts(gpu=16_000, cpu=64_000, memory=512_000)


def amounts(gpus: int) -> Amounts:
    """Of whole cards with their part of a machine."""
    return Amounts(gpu=gpus * 1000, cpu=gpus * 4000, memory=gpus * 32_000)


def job(
    number: int, *, gpus: int = 1, hours: float = 1, tenant: tuple[str, ...] = ("vision", ""), **fields: int
) -> Waiting:
    """A waiting job; its number says when it came."""
    since, limit = fields.get("since", number * SECOND), round(hours * HOUR)
    return Waiting(
        key=(tenant[0], f"job-{number}"),
        tenant=tenant,
        priority=fields.get("priority", 50),
        create_index=number,
        since=UnixNano(since),
        asked=amounts(gpus),
        limit=Duration(limit),
        turn=turn_of(since, limit, gpus, RULES),
    )


@st.composite
def jobs(draw: st.DrawFn, *, most: int = 25, priorities: tuple[int, ...] = (50, 55, 70)) -> list[Waiting]:
    """Different jobs in any order."""
    count = draw(st.integers(1, most))
    found = [
        job(
            number,
            gpus=draw(st.integers(1, 16)),
            hours=draw(st.sampled_from((0.25, 1, 8, 48))),
            tenant=draw(st.sampled_from(TENANTS)),
            priority=draw(st.sampled_from(priorities)),
        )
        for number in range(count)
    ]
    return draw(st.permutations(found))


usages = st.dictionaries(
    st.sampled_from(TENANTS), st.integers(0, 100).map(lambda gpus: amounts(gpus).times(HOUR)), max_size=len(TENANTS)
)
