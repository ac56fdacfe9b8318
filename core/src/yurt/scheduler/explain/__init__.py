"""Explanations: the reasons why an allocation is on its node or a group is unplaced, and the smallest change that would
help.

`why` and `why_not` are the entry points. Nothing that places imports this package.
"""

from yurt.scheduler.explain.answers import why, why_not

__all__ = ["why", "why_not"]
