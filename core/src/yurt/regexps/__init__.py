"""Regular expressions of users: RE2's syntax, in time linear in the text, for constraints and filters.

Python's `re` backtracks, so a pattern of a stranger must never reach it.
"""

from __future__ import annotations

from yurt.regexps.automaton import TEXT_MAX, Regexp, SearchBudget, TooMuchWork, compiled, problem
from yurt.regexps.syntax import BadPattern

__all__ = ["TEXT_MAX", "BadPattern", "Regexp", "SearchBudget", "TooMuchWork", "compiled", "problem"]
