"""Explanations: why an allocation is on its node, why a group is not placed, and the least change that would place it.

`why` and `why_not` are the entry points. Nothing that places imports this package.
"""

from yurt.scheduler.explain.answers import why, why_not

__all__ = ["why", "why_not"]
