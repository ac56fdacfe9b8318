r"""RE2's syntax as a tree: the syntax of Go's `regexp` without classes of scripts and the two-byte `\C`.

The parser descends by precedence: choice, sequence, repetition, atom. Flags (`(?i)`, `(?s)`, `(?m)`; `(?U)` means
nothing here) hold to the end of their group.
"""

from __future__ import annotations

import unicodedata

import msgspec

from yurt.sdk.value import replace

LENGTH_MAX, DEPTH_MAX, REPEAT_MAX = 2000, 100, 1000
CHAR_MAX = 0x10FFFF

Range = tuple[int, int]


class BadPattern(ValueError):
    """The text is not a regular expression that RE2 accepts."""


class Charset(msgspec.Struct, frozen=True):
    """Characters in ranges of code points or in general categories of Unicode; `folds` takes either case."""

    ranges: tuple[Range, ...] = ()
    is_negated: bool = False
    folds: bool = False
    categories: tuple[tuple[str, bool], ...] = ()

    def has(self, char: str) -> bool:
        """Whether a character belongs to the set."""
        chars = {char, char.lower(), char.upper()} if self.folds else (char,)
        return any(len(each) == 1 and self._has(each) for each in chars) != self.is_negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        category = unicodedata.category(char)
        return any(category.startswith(name) != is_negated for name, is_negated in self.categories)


class Empty(msgspec.Struct, frozen=True):
    """Matches the empty text at every place."""


class Assertion(msgspec.Struct, frozen=True):
    """A place in the text: text start, text end, line start, line end, word, no word."""

    kind: str


class Sequence(msgspec.Struct, frozen=True):
    """Nodes that match one after the other."""

    parts: tuple[Node, ...]


class Alternation(msgspec.Struct, frozen=True):
    """Nodes of which any may match."""

    parts: tuple[Node, ...]


class Repeat(msgspec.Struct, frozen=True):
    """A node that matches from `least` to `most` times; `most` is None for no upper bound."""

    part: Node
    least: int
    most: int | None


Node = Empty | Charset | Assertion | Sequence | Alternation | Repeat

ANY = Charset(((0, CHAR_MAX),))
ANY_BUT_NEWLINE = Charset(((10, 10),), is_negated=True)
_DIGIT, _SPACE = ((48, 57),), ((9, 10), (12, 13), (32, 32))
_UPPER, _LOWER = (65, 90), (97, 122)
_WORD = (*_DIGIT, _UPPER, (95, 95), _LOWER)
_CLASSES = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": (*_DIGIT, _UPPER, _LOWER), "alpha": (_UPPER, _LOWER), "ascii": ((0, 127),), "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)), "digit": _DIGIT, "graph": ((33, 126),), "lower": (_LOWER,), "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)), "upper": (_UPPER,),
    "word": _WORD, "xdigit": (*_DIGIT, (65, 70), (97, 102)),
}  # fmt: skip
_LOOKS = {"A": "text start", "z": "text end", "b": "word", "B": "no word"}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES = frozenset(
    ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi",
     "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cs"]
)  # fmt: skip
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def parse(pattern: str) -> Node:
    """The tree of a pattern; raises BadPattern."""
    if len(pattern) > LENGTH_MAX:
        raise BadPattern(f"expression is longer than {LENGTH_MAX} characters")
    parser = _PatternParser(pattern)
    found = parser.choice(frozenset(), 0)
    if not parser.is_over:
        raise BadPattern("unexpected )")
    return found


class _PatternParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._text)

    def _next(self, expected: str) -> str:
        if self.is_over:
            raise BadPattern(f"missing {expected}")
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise BadPattern(f"missing {end}")
        found, self._at = self._text[self._at : stop], stop + len(end)
        return found

    def choice(self, flags: frozenset[str], depth: int) -> Node:
        """Parse alternatives up to the end of the group."""
        if depth > DEPTH_MAX:
            raise BadPattern("expression nests too deeply")
        parts, sequence = [], list[Node]()
        while not self.is_over and self._text[self._at] != ")":
            if self._takes("|"):
                parts.append(Sequence(tuple(sequence)))
                sequence = []
            elif self._text.startswith("(?", self._at) and (changed := self._flags_alone(flags)) is not None:
                flags = changed
            else:
                sequence.append(self._repeated(self._atom(flags, depth)))
        parts.append(Sequence(tuple(sequence)))
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def _flags_alone(self, flags: frozenset[str]) -> frozenset[str] | None:
        """Parse flags for the rest of the group, as in `(?i)`; None if they belong to a group of their own."""
        stop = self._at + 2
        while stop < len(self._text) and self._text[stop] in "imsU-":
            stop += 1
        if self._text[stop : stop + 1] != ")" or stop == self._at + 2:
            return None
        found = _with_flags(flags, self._text[self._at + 2 : stop])
        self._at = stop + 1
        return found

    def _atom(self, flags: frozenset[str], depth: int) -> Node:
        char = self._next("an expression")
        match char:
            case "(":
                return self._group(flags, depth)
            case "[":
                return self._set(flags)
            case ".":
                return ANY if "s" in flags else ANY_BUT_NEWLINE
            case "^":
                return Assertion("line start" if "m" in flags else "text start")
            case "$":
                return Assertion("line end" if "m" in flags else "text end")
            case "\\":
                return self._escape(flags)
            case "*" | "+" | "?":
                raise BadPattern(f"missing argument to repetition operator {char}")
            case _:
                return _one(ord(char), flags)

    def _group(self, flags: frozenset[str], depth: int) -> Node:
        if self._takes("?"):
            if self._takes("P<") or self._takes("<"):
                name = self._until(">")
                if not name or not _NAME_CHARS.issuperset(name):
                    raise BadPattern(f"invalid named capture {name!r}")
            else:
                given = self._until(":")
                flags = _with_flags(flags, given)
        found = self.choice(flags, depth + 1)
        if not self._takes(")"):
            raise BadPattern("missing closing )")
        return found

    def _repeated(self, atom: Node) -> Node:
        is_repeated = False
        while not self.is_over:
            bounds = self._bounds()
            if bounds is None:
                break
            if is_repeated:
                raise BadPattern("invalid nested repetition operator")
            self._takes("?")
            is_repeated = True
            atom = Repeat(atom, *bounds)
        return atom

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return bounds
        if not self._text.startswith("{", self._at):
            return None
        low, comma, high = self._text[self._at + 1 :].partition("}")[0].partition(",")
        if not _is_number(low) or (high and not _is_number(high)) or "}" not in self._text[self._at :]:
            return None
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise BadPattern("invalid repeat count")
        self._until("}")
        return least, most

    def _escape(self, flags: frozenset[str]) -> Node:
        if self._takes("Q"):
            stop = self._text.find("\\E", self._at)
            literal = self._text[self._at :] if stop < 0 else self._text[self._at : stop]
            self._at += len(literal) + (2 if stop >= 0 else 0)
            return Sequence(tuple(_one(ord(char), flags) for char in literal))
        char = self._next("a character after \\")
        if char in _LOOKS:
            return Assertion(_LOOKS[char])
        found = self._class(char)
        if found is not None:
            return replace(found, folds="i" in flags)
        return _one(self._code(char), flags)

    def _class(self, char: str) -> Charset | None:
        r"""Parse a class such as `\d`, `\W`, `\pL` or `\P{Lu}`."""
        if char.lower() in _CLASSES:
            return Charset(_CLASSES[char.lower()], is_negated=char.isupper())
        if char not in "pP":
            return None
        name = self._until("}") if self._takes("{") else self._next("a class of characters")
        is_negated = (char == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            return replace(ANY, is_negated=is_negated)
        if name not in _CATEGORIES:
            raise BadPattern(f"invalid character class range \\{char}{{{name}}}")
        return Charset(categories=((name, is_negated),))

    def _code(self, char: str) -> int:
        """The code point of an escaped character."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._until("}") if self._takes("{") else self._next("a digit") + self._next("a digit")
            if not digits or len(digits) > 6 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise BadPattern(f"invalid escape sequence \\x{digits}")
            code = int(digits, 16)
            if code > CHAR_MAX:
                raise BadPattern(f"invalid escape sequence \\x{digits}")
            return code
        if char in "01234567":
            digits = char
            while len(digits) < 3 and not self.is_over and self._text[self._at] in "01234567":
                digits += self._next("a digit")
            if char != "0" and len(digits) == 1:
                raise BadPattern(f"invalid escape sequence \\{char}")
            return int(digits, 8)
        if char.isascii() and char.isalnum():
            raise BadPattern(f"invalid escape sequence \\{char}")
        return ord(char)

    def _set(self, flags: frozenset[str]) -> Charset:
        is_negated = self._takes("^")
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            whole = self._set_class()
            if whole is not None:
                ranges.extend(_inverted(whole.ranges) if whole.is_negated else whole.ranges)
                categories.extend(whole.categories)
                continue
            low = self._set_char()
            high = low
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._set_char()
            if high < low:
                raise BadPattern(f"invalid character class range {chr(low)}-{chr(high)}")
            ranges.append((low, high))
        return Charset(tuple(ranges), is_negated, "i" in flags, tuple(categories))

    def _set_class(self) -> Charset | None:
        r"""Parse a class inside brackets: `[:alpha:]`, `\d`, `\pL`; None for a plain character."""
        if self._takes("[:"):
            name = self._until(":]")
            ranges = _POSIX.get(name.removeprefix("^"))
            if ranges is None:
                raise BadPattern(f"invalid character class range [:{name}:]")
            return Charset(ranges, is_negated=name.startswith("^"))
        if self._text.startswith("\\", self._at) and self._text[self._at + 1 : self._at + 2] in tuple("dDsSwWpP"):
            self._at += 1
            return self._class(self._next("a class of characters"))
        return None

    def _set_char(self) -> int:
        char = self._next("closing ]")
        return self._code(self._next("a character after \\")) if char == "\\" else ord(char)


def _with_flags(flags: frozenset[str], given: str) -> frozenset[str]:
    on, _, off = given.partition("-")
    if not set(on + off) <= set("imsU") or (given.endswith("-")):
        raise BadPattern(f"invalid or unsupported Perl syntax (?{given}")
    return (flags | set(on)) - set(off)


def _one(code: int, flags: frozenset[str]) -> Charset:
    return Charset(((code, code),), folds="i" in flags)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _inverted(ranges: tuple[Range, ...]) -> list[Range]:
    """The complement of the ranges."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= CHAR_MAX:
        found.append((start, CHAR_MAX))
    return found
