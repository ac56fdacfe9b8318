"""The turn of a waiting job: a time fixed when the job arrives, by which jobs are compared.

    turn = since + min(stretch x cards x limit, reach)

Jobs go by their turns, so those of little work pass those of much that came shortly before: few wait, and short ones
hardly. A job is passed only by such as come within `reach` after it, so each turn comes. A job without a limit counts
as the longest; one that declares less than it needs is ended at that limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STRETCH_ONE: Final = 1000


class TurnRules(NamedTuple):
    """Times in nanoseconds, `stretch` in thousandths."""

    stretch: int = STRETCH_ONE
    reach: int = 0
    boost_after: int = 0
    """The wait in nanoseconds after which a job is boosted; 0: never."""


def turn_of(since: int, limit: int, cards: int, rules: TurnRules) -> int:
    """The turn of a job with this number of cards and this time limit (0: unlimited)."""
    assert cards > 0, cards
    return since + (min(rules.stretch * cards * limit // STRETCH_ONE, rules.reach) if limit else rules.reach)


def boost_time(since: int, rules: TurnRules) -> int:
    """The time from which a job is boosted; 0: never."""
    return since + rules.boost_after if rules.boost_after else 0
