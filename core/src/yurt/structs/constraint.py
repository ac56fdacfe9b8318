"""Requirements of a job on nodes: hard constraints, soft affinities, spreads."""

from __future__ import annotations

from yurt.sdk.value import Value


class Constraint(Value):
    """A hard rule on nodes: `l_target operand r_target`, targets as in `${attr.cpu.arch}`."""

    l_target: str = ""
    r_target: str = ""
    operand: str = ""


class Affinity(Value):
    """A soft rule on nodes; `weight` is -100..100 and never 0."""

    l_target: str = ""
    r_target: str = ""
    operand: str = ""
    weight: int = 0


class SpreadTarget(Value):
    """The desired share of one attribute value, in percent of the group's count."""

    value: str = ""
    percent: int = 0


class Spread(Value):
    """Distribute allocations over the values of an attribute; without targets, evenly."""

    attribute: str = ""
    weight: int = 0
    spread_target: tuple[SpreadTarget, ...] = ()
