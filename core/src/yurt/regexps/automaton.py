"""The automaton of a pattern: RE2's syntax, matched in time linear in the text, whatever the pattern.

Python's `re` backtracks, so that a hostile pattern could hold up a server for hours; RE2 has neither
backreferences nor lookaround, and needs none. The pattern becomes a small program; the sets of places that the
program can be at are the states of an automaton that is built as texts are read, and its steps are kept. The
only question is whether a text holds a match, so captures and greediness mean nothing. The sizes of pattern, program,
text and cache are bounded. Linear time still has a factor, the size of the program: a caller who must answer soon
also bounds the work, counted in visited places of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from yurt.regexps.syntax import Alternation, Assertion, BadPattern, Charset, Empty, Node, Repeat, Sequence, parse

PATTERN_CACHE = 256
PROGRAM_MAX, TEXT_MAX, KEPT_MAX = 2000, 4096, 20_000
NO_CHAR = ""
OWN_END = 2
"""The number of last characters of a text that are read separately in `search_all`, since many texts differ only there:
`17` of `host-1717`."""


class _Step(NamedTuple):
    """One place of a program: reads a character of `chars`, or goes on to `ways` (if `look` holds); the end of the
    pattern has neither."""

    chars: Charset | None
    ways: tuple[int, ...]
    look: str = ""


class _State:
    """A set of places of a program after a character of the kind `before`, and the following states by character."""

    __slots__ = ("before", "is_match", "places", "ways")

    def __init__(self, places: frozenset[int], before: str, *, is_match: bool = False) -> None:
        self.places = places
        self.before = before
        self.is_match = is_match
        self.ways: dict[str, _State] = {}


class TooMuchWork(Exception):
    """Raised when a search needs more work than its budget has left."""


class SearchBudget:
    """A bound on the work of searches: `each` until the next `renew`, and `total` for all together."""

    def __init__(self, each: int, total: int) -> None:
        self._each, self._left, self._total = each, each, total

    def renew(self) -> None:
        """Restore the budget of one text, before the next one is searched."""
        self._left = self._each

    def spend(self, work: int) -> None:
        """Subtract work from the budget; raises TooMuchWork when it is used up."""
        self._left -= work
        self._total -= work
        if self._left < 0 or self._total < 0:
            raise TooMuchWork


MATCHED = _State(frozenset(), NO_CHAR, is_match=True)


class Regexp:
    """A pattern ready to search texts; the constructor raises BadPattern for an invalid one."""

    def __init__(self, pattern: str, *, budget: SearchBudget | None = None) -> None:
        """With a budget, a search may raise TooMuchWork."""
        self._budget = budget
        self._steps: list[_Step] = []
        end = self._emit(_Step(None, ()))
        self._start = self._compile(parse(pattern), end)
        self._end = end
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._kept = 0

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text; a text that is too long never does."""
        if len(text) > TEXT_MAX:
            return False
        return self.ends(self.after(text))

    def search_all(self, texts: Iterable[str | None]) -> list[bool]:
        """`search` for many texts, in their order; beginnings that several texts share are read once. None never
        matches."""
        openings = _Openings(self)
        return [text is not None and openings[text[:-OWN_END]][text[-OWN_END:]] for text in texts]

    def after(self, text: str, state: _State | None = None) -> _State:
        """The state after reading a text from a state (the start by default); MATCHED as soon as the text holds a
        match."""
        state = state or self._state(frozenset((self._start,)), NO_CHAR)
        for char in text:
            if state.is_match:
                break
            state = state.ways.get(char) or self._read(state, char)
        return state

    def ends(self, state: _State) -> bool:
        """Whether there is a match when the text ends here."""
        return state.is_match or (state.ways.get(NO_CHAR) or self._read(state, NO_CHAR)).is_match

    def _state(self, places: frozenset[int], before: str) -> _State:
        key = (places, before)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = _State(places, before)
        return found

    def _read(self, state: _State, char: str) -> _State:
        """The state after reading a character; MATCHED if there is a match before it."""
        is_match, places = self._move(state.places, state.before, char)
        found = state.ways[char] = MATCHED if is_match else self._state(places, _kind(char))
        self._kept += 1
        if self._kept > KEPT_MAX:
            self._states.clear()
            self._kept = 0
        return found

    def _move(self, places: frozenset[int], before: str, char: str) -> tuple[bool, frozenset[int]]:
        pending, seen, after = list(places), set(places), {self._start}
        while pending:
            place = pending.pop()
            step = self._steps[place]
            if place == self._end:
                return True, frozenset()
            if step.chars is not None:
                if char and step.chars.has(char):
                    after.update(step.ways)
                continue
            if step.look and not _holds(step.look, before, char):
                continue
            for way in step.ways:
                if way not in seen:
                    seen.add(way)
                    pending.append(way)
        if self._budget is not None:
            self._budget.spend(len(seen))
        return False, frozenset(after)

    # -- making the program --------------------------------------------------------------------------------------------

    def _emit(self, step: _Step) -> int:
        if len(self._steps) >= PROGRAM_MAX:
            raise BadPattern("expression is too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        """The number of the first place of the node's program, which continues at `then`."""
        match node:
            case Empty():
                return then
            case Charset():
                return self._emit(_Step(node, (then,)))
            case Assertion(kind=kind):
                return self._emit(_Step(None, (then,), kind))
            case Sequence(parts=parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Alternation(parts=parts):
                return self._emit(_Step(None, tuple(self._compile(part, then) for part in parts)))
            case Repeat():
                return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._emit(_Step(None, ()))
            body = self._compile(node.part, loop)
            self._steps[loop] = _Step(None, (body, then))
            then = loop
        else:
            last = then
            for _ in range(node.most - node.least):
                then = self._emit(_Step(None, (self._compile(node.part, then), last)))
        for _ in range(node.least):
            then = self._compile(node.part, then)
        return then


class _Openings(dict[str, "dict[str, bool]"]):
    """By the beginning of texts, their answers by ending; beginnings that lead to one state share an object."""

    def __init__(self, regexp: Regexp) -> None:
        self._regexp = regexp
        self._after: dict[_State, dict[str, bool]] = {}
        self._too_long: dict[str, bool] = defaultdict(bool)

    def __missing__(self, opening: str) -> dict[str, bool]:
        if len(opening) + OWN_END > TEXT_MAX:
            found = self._too_long
        else:
            state = self._regexp.after(opening)
            found = self._after.setdefault(state, _Ends(self._regexp, state))
        self[opening] = found
        return found


class _Ends(dict[str, bool]):
    """By ending, whether texts with it hold a match after a state."""

    def __init__(self, regexp: Regexp, state: _State) -> None:
        self._regexp = regexp
        self._state = state

    def __missing__(self, end: str) -> bool:
        found = self[end] = self._regexp.ends(self._regexp.after(end, self._state))
        return found


@lru_cache(maxsize=PATTERN_CACHE)
def compiled(pattern: str) -> Regexp | None:
    """The compiled pattern, or None if it is not a valid regular expression."""
    try:
        return Regexp(pattern)
    except BadPattern:
        return None


def problem(pattern: str) -> str:
    """The error of a pattern; "" for a valid one, which stays in the cache because it is used next."""
    if compiled(pattern) is not None:
        return ""
    try:
        Regexp(pattern)
    except BadPattern as error:
        return str(error)
    return ""


def _kind(char: str) -> str:
    """A character that represents all those that assertions about the preceding character treat alike."""
    if char in (NO_CHAR, "\n"):
        return char
    return "w" if _is_word(char) else "-"


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _holds(look: str, before: str, after: str) -> bool:
    match look:
        case "text start":
            return before == NO_CHAR
        case "text end":
            return after == NO_CHAR
        case "line start":
            return before in (NO_CHAR, "\n")
        case "line end":
            return after in (NO_CHAR, "\n")
        case "word":
            return _is_word(before) != _is_word(after)
        case _:
            return _is_word(before) == _is_word(after)
