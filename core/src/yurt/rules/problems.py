"""Helpers to check and word problems, shared by the modules that validate jobs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

INTERPOLATION = "${"
ALIKE: Final = 0.6
OPPOSITES: Final = (("start", "stop"), ("pre", "post"), ("enable", "disable"), ("allow", "deny"), ("read", "write"))
"""Parts of words of which one never stands for the other."""
DELAY_FUNCTIONS: Final = ("constant", "exponential", "fibonacci")
"""How the pauses between attempts grow."""
HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\Z"
)


def multi_error(errors: Iterable[str]) -> str:
    """Problems as one text, in the format that API clients expect."""
    lines = list(errors)
    count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
    return f"{count} occurred:\n" + "".join(f"\t* {line}\n" for line in lines) + "\n"


def nested(place: str, problems: Iterable[str], *, sep: str = " ") -> Iterator[str]:
    """A single problem that combines those of one place; None without any."""
    found = list(problems)
    if found:
        yield f"{place}{sep}validation failed: {multi_error(found)}"


def one_of(choices: Sequence[str]) -> str:
    """The words as an alternative: `service, batch or system`."""
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def near_hint(word: str, choices: Iterable[str]) -> str:
    """` (did you mean "x"?)` with the choice most like the word, whatever their case.

    "" when none is, when two are equally like it, and when the word means the opposite of the choice: `prestop` is no
    `prestart`.
    """
    from difflib import SequenceMatcher

    text = word[:64].casefold()
    candidates = dict.fromkeys(each for each in choices if each)
    rated = sorted(((SequenceMatcher(None, each.casefold(), text).ratio(), each) for each in candidates), reverse=True)
    if not rated or rated[0][0] < ALIKE or (len(rated) > 1 and rated[0][0] == rated[1][0]):
        return ""
    near = rated[0][1]
    return "" if are_opposite(text, near.casefold()) else f' (did you mean "{near}"?)'


def are_opposite(one: str, other: str) -> bool:
    """Whether a word has a part where the other has the opposite one."""
    pairs = (*OPPOSITES, *((second, first) for first, second in OPPOSITES))
    return any(first in one and second in other and first not in other for first, second in pairs)


def duplicates(names: Iterable[str]) -> Iterator[str]:
    """The names that occur more than once, each once."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        if seen[name] == 2:
            yield name


def is_signal(name: str) -> bool:
    """Whether the text names a signal, as in `SIGTERM`, `term`, `15` or `SIGRTMIN+3`."""
    text = name.upper()
    full = (text if text.startswith("SIG") else f"SIG{text}").partition("+")[0]
    return text.isdecimal() or full in signal.Signals.__members__


def is_open(text: str) -> bool:
    """Whether the text contains variables, so that its value is known only on a node."""
    return INTERPOLATION in text


def escapes(path: str, *, depth: int = 0) -> bool:
    """Whether a path, with `..` resolved, leaves the directory `depth` levels above its start."""
    level = depth
    for part in path.strip("/").split("/"):
        if part == "..":
            level -= 1
        elif part not in ("", "."):
            level += 1
        if level < 0:
            return True
    return False
