"""Splits text into tokens.

The lexer is a machine with a stack of modes. The bottom mode reads ordinary code. A quote pushes the quoted-template
mode, `<<MARK` the heredoc mode, and `${` or `%{` inside either pushes code mode again until the matching `}`. Line
ends are tokens only where they mean something: directly in a file or between braces, not inside parentheses,
brackets, template sequences or `for` expressions.

A string that holds no escape and no sequence is one token (STRING); that is nearly every string of a real job file,
and it is why the lexer is fast. The lexer never raises: what it cannot read becomes a Problem, and the tokens before
it stand. What must never happen is an endless loop, so every step consumes at least one character, but for the few
times that a line is mended: a `${` that nobody closes turns the quotes behind it inside out, so a line that ends
within a string is read again from the quote that was meant to end the string of the `${`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

from yurt_jobspec.diagnostics import OffsetDiagnostic

MAX_NESTING = 100
"""Brackets, strings and sequences inside one another; far above any real file, far below Python's own limit."""

MENDED_MAX = 20
"""The maximum number of lines of one file that are repaired."""
MENDED_REACH = 10_000
"""The maximum number of characters that are read again."""

IDENT, NUMBER, STRING, NEWLINE, END = "identifier", "number", "string", "newline", "end of file"
OPEN_QUOTE, CLOSE_QUOTE, TEXT = "open quote", "close quote", "text"
OPEN_HEREDOC, CLOSE_HEREDOC, LINE = "open heredoc", "close heredoc", "heredoc text"
INTERPOLATION, DIRECTIVE, SEQUENCE_END = "${", "%{", "end of sequence"

_CODE = re.compile(
    r"""[ \t]*(?:
    ([^\W\d][\w\u0300-\u036f-]*)                          # 1 identifier
  | (\r?\n)(?:[ \t]*\r?\n)*                              # 2 line end; empty lines after it say nothing
  | ("[^"\\$%\n]*(?:[$%](?!\{)[^"\\$%\n]*)*")            # 3 plain string
  | (\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)                      # 4 number
  | (&&|\|\||==|!=|<=|>=|=>|\.\.\.|::|[=,.:?!>+*%]|/(?![/*])|<(?!<)|-)   # 5 operator
  | ([{(\[])                                              # 6 opening bracket
  | (~?\}|[)\]])                                          # 7 closing bracket
  | ((?:\#|//)[^\n]*(?:\n|\Z))                            # 8 comment to the end of the line
  | (/\*(?s:.*?)\*/)                                      # 9 comment within a line
  | (<<-?([^\W\d][\w-]*)[ \t]*\r?\n)                      # 10 heredoc introduction, 11 its mark
  | (")                                                   # 12 template
  | (\Z)                                                  # 13 end
  | ((?s:.))                                              # 14 nothing that may stand here
    )""",
    re.VERBOSE,
)
_WORD, _LINE_END, _LAST_PLAIN, _OPERATOR, _OPENING, _CLOSING = 1, 2, 4, 5, 6, 7
_PLAIN_KINDS = ("", IDENT, NEWLINE, STRING, NUMBER)
_QUOTED = re.compile(r"(?:[^\"\\$%\n]+|\\.|\$\$\{|%%\{|[$%](?!\{))+")
_BARE_TEXT = re.compile(r"(?:[^$%]+|\$\$\{|%%\{|[$%](?!\{))+")
_SEQUENCE = re.compile(r"[$%]\{~?")
_HEREDOC_LINE = re.compile(r"(?:[^$%\n]+|\$\$\{|%%\{|[$%](?!\{))*\n?")
_BRACKET = re.compile(r"[][(){}]")
_FOR = re.compile(r"[ \t\r\n]+[^\W\d]")
SURROGATE = re.compile("[\ud800-\udfff]")
OPEN_LINE = "Invalid multi-line string"
_CHARACTER_HINTS = {
    "&": "Write '&&' for a logical and.",
    "|": "Write '||' for a logical or.",
    "`": "Strings stand between double quotes.",
    ";": "Write each argument on a line of its own.",
    "^": "Write pow(a, b) to raise to a power.",
}
_CLOSER = {"(": ")", "[": "]", "{": "}", INTERPOLATION: "}", DIRECTIVE: "}"}
CLOSING_KIND = {
    "(": ")", "[": "]", "{": "}", INTERPOLATION: SEQUENCE_END, DIRECTIVE: SEQUENCE_END, OPEN_QUOTE: CLOSE_QUOTE,
    OPEN_HEREDOC: CLOSE_HEREDOC,
}  # fmt: skip
_OPERAND_ENDS = (IDENT, NUMBER, STRING, CLOSE_QUOTE, ")", "]", "}")
_BEFORE_STRING = ("in", "if", "else")
"""Words that a string may follow; no other one."""


class Comment(NamedTuple):
    """A comment, and the index of the token after it."""

    before: int
    start: int
    end: int


class Tokens(NamedTuple):
    """The tokens of a text as parallel tuples of kind, start and end offset."""

    kinds: list[str]
    starts: list[int]
    ends: list[int]
    comments: list[Comment]
    problems: list[OffsetDiagnostic]
    mended: dict[OffsetDiagnostic, tuple[int, int]]
    """Those of the problems that may be mere consequences, with the stretch in which the parser then finds the cause;
    behind it the tokens can be trusted again.
    """
    contained: frozenset[OffsetDiagnostic] = frozenset()
    """Those of the problems behind whose line the tokens can be trusted again."""


class _Mode(NamedTuple):
    kind: str
    start: int
    newlines: bool
    mark: str = ""


_FILE = _Mode("file", 0, True)


@lru_cache(maxsize=64)
def _closing(mark: str) -> re.Pattern[str]:
    return re.compile(r"[ \t]*" + re.escape(mark) + r"(?=[ \t]*\r?(?:\n|\Z))")


class _Lexer:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.kinds: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.comments: list[Comment] = []
        self.problems: list[OffsetDiagnostic] = []
        self.mended: dict[OffsetDiagnostic, tuple[int, int]] = {}
        self.contained: set[OffsetDiagnostic] = set()
        self.modes: list[_Mode] = [_FILE]
        self.outermost = 0
        """The number of open modes at which the next line end is the last token to read; none for a whole file."""
        self.done = False

    def run(self) -> Tokens:
        while not self.done:
            self.step()
        return self.tokens()

    def tokens(self) -> Tokens:
        """The tokens read so far."""
        return Tokens(self.kinds, self.starts, self.ends, self.comments, self.problems, self.mended, self._contained())

    def _contained(self) -> frozenset[OffsetDiagnostic]:
        """The problems that concern one line; text between two open quotes may span lines."""
        open_quotes = [problem for problem in self.contained if problem.summary == OPEN_LINE]
        return frozenset(self.contained.difference(open_quotes) if len(open_quotes) > 1 else self.contained)

    def step(self) -> None:
        """Read until the mode changes or the text ends."""
        mode = self.modes[-1].kind
        if mode == OPEN_QUOTE:
            self._quoted()
        elif mode == OPEN_HEREDOC:
            self._heredoc()
        else:
            self._code()

    def check_encoding(self) -> None:
        """Report the first byte that is not UTF-8, which arrives as a lone surrogate."""
        bad = SURROGATE.search(self.text)
        if bad:
            self.problems.append(
                OffsetDiagnostic("Invalid character encoding", "The file must be UTF-8 throughout.", *bad.span())
            )

    def _emit(self, kind: str, start: int, end: int) -> None:
        self.kinds.append(kind)
        self.starts.append(start)
        self.ends.append(end)

    def _push(self, kind: str, start: int, *, newlines: bool = False, mark: str = "") -> None:
        self.modes.append(_Mode(kind, start, newlines, mark))
        if len(self.modes) > MAX_NESTING:
            detail = f"Brackets and strings may be nested {MAX_NESTING} deep at most."
            self.problems.append(OffsetDiagnostic("Nested too deeply", detail, start, start + 1))
            self._stop()

    def _stop(self, end: int | None = None) -> None:
        end = len(self.text) if end is None else end
        self._emit(END, end, end)
        self.done = True

    def _code(self) -> None:
        """Read tokens up to a string, a heredoc or the end of a sequence; the lexer's hot loop."""
        text = self.text
        kinds, starts, ends = self.kinds, self.starts, self.ends
        newlines = self.modes[-1].newlines
        for found in _CODE.finditer(text, self.at):
            group = found.lastindex
            assert group is not None
            start, end = found.span(group)
            if group == _LINE_END and not newlines:
                continue
            if group > _CLOSING:
                self.at = end
                self._other(group, start, end, newlines)
                return
            if group == _CLOSING:
                self.at = end
                if not self._close(text[start:end], start, end):
                    return
                newlines = self.modes[-1].newlines
                continue
            kind = _PLAIN_KINDS[group] if group <= _LAST_PLAIN else text[start:end]
            kinds.append(kind)
            starts.append(start)
            ends.append(end)
            if group == _OPENING:
                newlines = kind == "{"
                self._push(kind, start, newlines=newlines)
                if self.done:
                    return
            elif group == _WORD and end - start == 3 and text[start:end] == "for":
                newlines = self._maybe_for(end, newlines)
            elif group == _LINE_END and len(self.modes) == self.outermost:
                self._stop(end)
                return

    def _other(self, group: int, start: int, end: int, newlines: bool) -> None:
        if group == 8:
            self.comments.append(Comment(len(self.kinds), start, end))
            if newlines and self.text[end - 1] == "\n":
                self._emit(NEWLINE, end - 1, end)
                if len(self.modes) == self.outermost:
                    self._stop(end)
        elif group == 9:
            self.comments.append(Comment(len(self.kinds), start, end))
        elif group in (10, 11):
            mark = self.text[start:end].strip("<- \t\r\n")
            self._emit(OPEN_HEREDOC, start, end)
            self._push(OPEN_HEREDOC, start, mark=mark)
        elif group == 12:
            self._emit(OPEN_QUOTE, start, end)
            self._push(OPEN_QUOTE, start)
        elif group == 13:
            self._stop()
        else:
            self.at = start
            self._invalid()

    def _maybe_for(self, end: int, newlines: bool) -> bool:
        """Handle a `for` directly after a brace: line ends are insignificant in its expression."""
        mode = self.modes[-1]
        if mode.kind != "{" or not newlines or not _FOR.match(self.text, end):
            return newlines
        index = len(self.kinds) - 2
        while index >= 0 and self.kinds[index] == NEWLINE:
            index -= 1
        if index < 0 or self.starts[index] != mode.start:
            return newlines
        del self.kinds[index + 1 : -1], self.starts[index + 1 : -1], self.ends[index + 1 : -1]
        self.modes[-1] = mode._replace(newlines=False)
        return False

    def _close(self, bracket: str, start: int, end: int) -> bool:
        """Handle a closing bracket; returns whether code follows, and not the rest of a template."""
        mode = self.modes[-1].kind
        if bracket[-1] == "}" and mode in (INTERPOLATION, DIRECTIVE):
            self._emit(SEQUENCE_END, start, end)
            self.modes.pop()
            return False
        if bracket == "~}":
            detail = "A '~' may only stand at the edge of a template sequence."
            self.problems.append(OffsetDiagnostic("Invalid character", detail, start, start + 1))
            self.at = start + 1
            return False
        self._emit(bracket, start, end)
        if _CLOSER.get(mode) == bracket:
            self.modes.pop()
        return True

    def _invalid(self) -> None:
        text = self.text
        while self.at < len(text) and text[self.at] in " \t":
            self.at += 1
        start, char = self.at, text[self.at]
        self.at += 1
        if text.startswith("/*", start):
            self.problems.append(
                OffsetDiagnostic("Unterminated comment", "This comment is never closed with '*/'.", start, start + 2)
            )
            self._stop()
        elif text.startswith("<<", start):
            self.at += 1
            detail = "A heredoc starts with '<<' or '<<-', a word, and a line end right after the word."
            self.problems.append(OffsetDiagnostic("Invalid heredoc", detail, start, start + 2))
        elif SURROGATE.match(char):
            return
        elif char == "'":
            self._invalid_character(start, "Strings stand between double quotes.", "Write \"text\" instead of 'text'.")
        else:
            detail = "This character is not used within the language."
            self._invalid_character(start, detail, _CHARACTER_HINTS.get(char))

    def _invalid_character(self, start: int, detail: str, hint: str | None) -> None:
        problem = OffsetDiagnostic("Invalid character", detail, start, start + 1, hint)
        self.problems.append(problem)
        self.contained.add(problem)

    def _quoted(self) -> None:
        found = _QUOTED.match(self.text, self.at)
        if found:
            self._emit(TEXT, self.at, found.end())
            self.at = found.end()
        at, text = self.at, self.text
        if at >= len(text) or text[at] in "\n\\":
            self._unclosed_quote()
        elif text[at] == '"':
            self._emit(CLOSE_QUOTE, at, at + 1)
            self.at = at + 1
            self.modes.pop()
        else:
            self._sequence()

    def _unclosed_quote(self) -> None:
        at, text = self.at, self.text
        if at < len(text):
            detail = "A quoted string ends on its line. Write \\n for a line end, or use a heredoc for several lines."
            problem = OffsetDiagnostic(OPEN_LINE, detail, at, at + 1)
        else:
            start = self.modes[-1].start
            problem = OffsetDiagnostic(
                "Unterminated string", "The closing quote of this string is missing.", start, start + 1
            )
        if text[at : at + 1] == "\\":
            self.at = at + 1
        elif self._mend(problem):
            return
        if self.at == at < len(text) and not _BRACKET.search(text, self.modes[-1].start, at):
            self.contained.add(problem)
        self.problems.append(problem)
        self._emit(CLOSE_QUOTE, self.at, self.at)
        self.modes.pop()

    def _mend(self, problem: OffsetDiagnostic) -> bool:
        """Whether to read again from the quote that was probably meant to end the string."""
        line = self.text.rfind("\n", 0, self.at) + 1
        quotes = [number for number, mode in enumerate(self.modes) if mode.kind == OPEN_QUOTE]
        outer = next((number for number in quotes[:-1] if self.modes[number].start >= line), quotes[0])
        start = self.modes[outer].start
        is_bounded = len(self.mended) < MENDED_MAX and self.at - start <= MENDED_REACH
        if not is_bounded or (len(quotes) == 1 and start >= line):
            return False
        if len(quotes) == 1:
            self.mended[problem] = (start, self.at + 1)
            return False
        index, opened, is_plain = self._meant_end(self.modes[outer + 1])
        if start < line and not is_plain:
            return False
        self._read_again_from(self.starts[index])
        for kind in (OPEN_QUOTE, *reversed(opened), OPEN_QUOTE):
            self._emit(CLOSING_KIND[kind], self.at, self.at)
        self.problems.append(problem)
        self.mended[problem] = (start, problem.end)
        del self.modes[outer:]
        return True

    def _meant_end(self, sequence: _Mode) -> tuple[int, list[str], bool]:
        """The token of the quote where only the end of a sequence or an operator may stand, else of the last quote;
        what is open there, from the sequence on; and whether it is the former.
        """
        first = bisect_left(self.starts, sequence.start)
        opened: list[tuple[str, int]] = []
        for index in range(first, len(self.kinds)):
            kind = self.kinds[index]
            if len(opened) == 1 and kind in (STRING, OPEN_QUOTE) and self._is_operand_end(index - 1):
                return index, [sequence.kind], True
            if kind in CLOSING_KIND:
                opened.append((kind, index))
            elif opened and CLOSING_KIND[opened[-1][0]] == kind:
                opened.pop()
        return opened[-1][1], [kind for kind, _ in opened[:-1]], False

    def _read_again_from(self, quote: int) -> None:
        """Drop the tokens from a quote on; the parser sees an empty string there."""
        index = bisect_left(self.starts, quote)
        while self.kinds[index] not in (STRING, OPEN_QUOTE):
            index += 1
        for column in (self.kinds, self.starts, self.ends):
            del column[index:]
        self.comments = [comment for comment in self.comments if comment.start < quote]
        self.problems = [problem for problem in self.problems if problem.start < quote]
        self.mended = {problem: place for problem, place in self.mended.items() if problem.start < quote}
        self._emit(OPEN_QUOTE, quote, quote + 1)
        self.at = quote + 1

    def _is_operand_end(self, index: int) -> bool:
        word = self.text[self.starts[index] : self.ends[index]]
        return self.kinds[index] in _OPERAND_ENDS and word not in _BEFORE_STRING

    def _sequence(self) -> None:
        found = _SEQUENCE.match(self.text, self.at)
        assert found is not None
        kind = INTERPOLATION if self.text[self.at] == "$" else DIRECTIVE
        self._emit(kind, self.at, found.end())
        self.at = found.end()
        self._push(kind, found.start())

    def _heredoc(self) -> None:
        text, mode = self.text, self.modes[-1]
        closing = _closing(mode.mark)
        at_line_start = text[self.at - 1] == "\n"
        while True:
            closed = closing.match(text, self.at) if at_line_start else None
            if closed:
                self._emit(CLOSE_HEREDOC, self.at, closed.end())
                self.at = closed.end()
                self.modes.pop()
                return
            if self.at >= len(text):
                self._unclosed_heredoc(mode)
                return
            found = _HEREDOC_LINE.match(text, self.at)
            assert found is not None
            begin, end = found.span()
            if end > begin:
                self._emit(LINE, begin, end)
            self.at = end
            at_line_start = text[end - 1] == "\n"
            if end < len(text) and (end == begin or not at_line_start):
                self._sequence()
                return

    def _unclosed_heredoc(self, mode: _Mode) -> None:
        end = len(self.text)
        hint = f"The line with {mode.mark} must hold nothing else."
        self.problems.append(
            OffsetDiagnostic(
                "Unterminated template string", "No closing marker was found for the string.", end, end, hint
            )
        )
        self._emit(CLOSE_HEREDOC, end, end)
        self.modes.pop()


def tokenize(text: str) -> Tokens:
    """The tokens of a text, ending with END."""
    lexer = _Lexer(text, at=start_of(text))
    tokens = lexer.run()
    if not text.isascii():
        lexer.check_encoding()
    return tokens


def tokenize_item(text: str, at: int, depth: int) -> Tokens:
    """The tokens of one argument or block at an offset and nesting depth: up to its line end, then END."""
    lexer = _Lexer(text, at)
    lexer.modes = [_FILE] * (depth + 1)
    lexer.outermost = depth + 1
    return lexer.run()


def start_of(text: str) -> int:
    """The offset at which a file begins: after a byte order mark, if any."""
    return 1 if text.startswith("\ufeff") else 0


def tokenize_template(text: str) -> Tokens:
    """The tokens of a bare template, as in JSON strings."""
    lexer = _Lexer(text, at=start_of(text))
    while lexer.at < len(text) and not lexer.done:
        if len(lexer.modes) > 1:
            lexer.step()
            continue
        found = _BARE_TEXT.match(text, lexer.at)
        if found:
            lexer._emit(LINE, lexer.at, found.end())
            lexer.at = found.end()
        else:
            lexer._sequence()
    lexer._stop()
    return lexer.tokens()
