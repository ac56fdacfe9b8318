"""Log indexes in the states of models, some of which no answer has shown.

The index of an operation of unknown outcome is known only to be greater than the one before it. It is written as a
negative number until an answer tells it: `-low - 1` stands for "some index greater than low".
"""

from __future__ import annotations

NEVER = 0
"""The index of what does not exist."""


def unknown_after(low: int) -> int:
    """An unknown index greater than `low`."""
    return -low - 1


def agrees(stored: int, answered: int) -> bool:
    """Whether an answer with this index is possible in a state with that one."""
    return stored == answered if stored >= 0 else answered > -stored - 1


def lowest(stored: int) -> int:
    """The lowest value that the index can have."""
    return stored if stored >= 0 else -stored - 1
