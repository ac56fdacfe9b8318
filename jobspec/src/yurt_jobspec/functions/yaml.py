"""A reader and writer for the YAML that job files hold.

Read: block mappings and sequences, flow collections, plain, quoted and block scalars, comments, anchors and aliases,
one document. Scalars resolve by YAML 1.1's core rules as far as they are in common use. Tags, complex keys and merge
keys are refused with a message. Aliases are resolved by reference and counted, so a small text cannot grow without
bound. Written is plain YAML in a fixed form with sorted keys.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

from yurt_jobspec.numbers import from_decimal, to_text
from yurt_jobspec.values import Value, entries_of, is_null, items_of

_MAX_DEPTH = 60
_MAX_ALIASES = 100
_NULLS = ("", "~", "null", "Null", "NULL")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_BOOLS = {form(word): value for word, value in _WORDS.items() for form in (str, str.capitalize, str.upper)}
_NUMBER_LENGTH = 400
"""A longer scalar is text, whatever it looks like."""
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_BASED = re.compile(r"([-+]?)0(?:x([0-9a-fA-F]+)|o([0-7]+)|b([01]+))")
_KEY_END = re.compile(r":(?=[ \t]|$)")
_COMMENT = re.compile(r"(?:^|[ \t])#")
_ESCAPES = dict(zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\033 "/\\\x85\xa0\u2028\u2029', strict=True))
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(\n[ \t]*)|(.))", re.DOTALL)
_PROPERTY = re.compile(r"([&!])([^\s,\[\]{}]*)[ \t]*")


class YamlError(Exception):
    """The text is not YAML that is understood; `line` starts at 1."""

    def __init__(self, detail: str, line: int) -> None:
        self.detail = detail
        self.line = line
        super().__init__(detail)


def read_yaml(text: str) -> Any:
    """The document as plain data. Raises YamlError."""
    return _YamlReader(text).document()


class _YamlLine:
    __slots__ = ("indent", "number", "text")

    def __init__(self, number: int, raw: str) -> None:
        self.number = number
        self.text = raw.lstrip(" ")
        self.indent = len(raw) - len(self.text)


class _YamlReader:
    def __init__(self, text: str) -> None:
        self.raw = text.replace("\r\n", "\n").split("\n")
        self.at = 0
        self.depth = 0
        self.anchors: dict[str, Any] = {}
        self.aliases = 0

    def fail(self, detail: str) -> NoReturn:
        raise YamlError(detail, min(self.at + 1, len(self.raw)))

    # Lines.

    def line(self) -> _YamlLine | None:
        """The next line with content; blank lines and comments are skipped."""
        while self.at < len(self.raw):
            raw = self.raw[self.at]
            stripped = raw.strip()
            if stripped and not stripped.startswith("#") and not stripped.startswith("%"):
                if raw.lstrip(" ").startswith("\t"):
                    self.fail("a tab must not be used for indentation")
                return _YamlLine(self.at, raw)
            self.at += 1
        return None

    def replace(self, line: _YamlLine, text: str, shift: int) -> None:
        """Go on within the same line, as if what came before were indentation."""
        self.raw[line.number] = " " * (line.indent + shift) + text

    def document(self) -> Any:
        line = self.line()
        if line is not None and line.text.split("#")[0].strip() == "---":
            self.at += 1
        elif line is not None and line.text.startswith("--- "):
            self.replace(line, line.text[4:], 4)
        value = self.node(0)
        line = self.line()
        if line is not None and line.text.strip() not in ("...", "---"):
            self.fail("unexpected content")
        return value

    # Block structure.

    def node(self, indent: int) -> Any:
        """The value whose lines are indented by at least so much."""
        line = self.line()
        if line is None or line.indent < indent or (line.indent == 0 and line.text.rstrip() in ("---", "...")):
            return None
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("nested too deeply")
        value = self.content(line, indent)
        self.depth -= 1
        return value

    def content(self, line: _YamlLine, indent: int) -> Any:
        text = line.text
        if text.startswith(("&", "!")):
            return self.with_property(line, indent)
        if text == "-" or text.startswith("- "):
            return self.sequence(line.indent)
        if text.startswith("? "):
            self.fail("complex keys are not supported")
        if self.key_of(text) is not None:
            return self.mapping(line.indent)
        return self.scalar(line, indent)

    def with_property(self, line: _YamlLine, indent: int) -> Any:
        found = _PROPERTY.match(line.text)
        assert found is not None
        if found[1] == "!" and found[2] not in ("!str", "!int", "!float", "!bool", "!seq", "!map"):
            self.fail(f"the tag !{found[2]} is not supported")
        rest = line.text[found.end() :]
        if rest and not rest.startswith("#"):
            if self.key_of(line.text) is not None and self.key_of(rest) is not None:
                self.fail("an anchor on a key is not supported")
            self.replace(line, rest, found.end())
        else:
            self.at += 1
        value = self.node(indent)
        if found[1] == "&":
            self.anchors[found[2]] = value
        elif found[2] == "!str" and not isinstance(value, str):
            self.fail("the tag !!str is only supported for quoted text")
        return value

    def sequence(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while (
            (line := self.line()) is not None
            and line.indent == indent
            and (line.text == "-" or line.text.startswith("- "))
        ):
            rest = line.text[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self.at += 1
                items.append(self.node(indent + 1))
            else:
                self.replace(line, rest, len(line.text) - len(rest))
                items.append(self.node(indent + 1))
        if line is not None and line.indent > indent:
            self.fail("this line is indented too far")
        return items

    def mapping(self, indent: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while (line := self.line()) is not None and line.indent == indent:
            found = self.key_of(line.text)
            if found is None:
                if line.text.rstrip() in ("---", "..."):
                    break
                self.fail("expected a key followed by a colon")
            key, rest = found
            if key == "<<" and line.text.startswith("<"):
                self.fail("merge keys are not supported")
            if key in entries:
                self.fail(f'the key "{key}" is set twice')
            entries[key] = self.entry(line, rest, indent)
        if line is not None and line.indent > indent:
            self.fail("this line is indented too far")
        return entries

    def entry(self, line: _YamlLine, rest: str, indent: int) -> Any:
        found = _PROPERTY.match(rest)
        bare = rest[found.end() :] if found and rest[0] == "&" else rest
        if bare and not bare.startswith("#"):
            self.replace(line, rest, len(line.text) - len(rest))
            return self.inline(indent + 1)
        self.at += 1
        following = self.line()
        sequence_here = (
            following is not None
            and following.indent == indent
            and (following.text == "-" or following.text.startswith("- "))
        )
        value = self.node(indent if sequence_here else indent + 1)
        if found and rest[0] == "&":
            self.anchors[found[2]] = value
        return value

    def inline(self, indent: int) -> Any:
        """A value that begins on the line of its key: no block collection."""
        line = self.line()
        assert line is not None
        if line.text.startswith(("&", "!")):
            return self.with_property(line, indent)
        return self.scalar(line, indent)

    def key_of(self, text: str) -> tuple[str, str] | None:
        """(key, what follows the colon) when the text begins with a key."""
        if text[0] in "\"'":
            end = self.quote_end(text)
            if end is None or not _KEY_END.match(text, end):
                return None
            return str(self.quoted(text[:end])), text[end + 1 :].strip()
        if text[0] in "[{|>*":
            return None
        found = _KEY_END.search(text)
        if found is None or _COMMENT.search(text[: found.start()]):
            return None
        return text[: found.start()].rstrip(), text[found.end() :].strip()

    # Scalars.

    def scalar(self, line: _YamlLine, indent: int) -> Any:
        text = line.text
        if text[0] in "|>":
            return self.block_scalar(text, indent)
        if text[0] in "[{\"'":
            return self.flow(line, indent)
        if text[0] == "*":
            self.at += 1
            return self.alias(_COMMENT.split(text)[0].strip()[1:])
        if text[0] in "@`%":
            self.fail(f"a plain scalar must not begin with {text[0]!r}")
        parts = [self.plain_line()]
        while not self.commented and (line_ := self.continuation(indent)):
            parts.append(line_)
        return resolve("\n".join(parts).replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n"))

    commented = False

    def plain_line(self) -> str:
        text = self.raw[self.at].strip()
        found = _COMMENT.search(text)
        self.commented = found is not None
        self.at += 1
        return text[: found.start()].rstrip() if found else text

    def continuation(self, indent: int) -> str | None:
        """The next line of a plain scalar of several lines."""
        if self.at >= len(self.raw) or not self.raw[self.at].strip():
            return None
        line = _YamlLine(self.at, self.raw[self.at])
        if (
            line.indent < max(indent, 1)
            or line.text.startswith("#")
            or self.key_of(line.text) is not None
            or line.text.startswith("- ")
        ):
            return None
        return self.plain_line()

    def alias(self, name: str) -> Any:
        self.aliases += 1
        if name not in self.anchors:
            self.fail(f'the alias "{name}" has no anchor before it')
        if self.aliases > _MAX_ALIASES:
            self.fail(f"more than {_MAX_ALIASES} aliases")
        return self.anchors[name]

    def block_scalar(self, header: str, indent: int) -> str:
        found = re.fullmatch(r"([|>])([-+]?)(\d?)([-+]?)[ \t]*(?:#.*)?", header.rstrip())
        if found is None:
            self.fail("invalid block scalar header")
        self.at += 1
        chomp = found[2] or found[4]
        lines: list[str] = []
        width = indent - 1 + int(found[3]) if found[3] else None
        while self.at < len(self.raw):
            raw = self.raw[self.at]
            own = len(raw) - len(raw.lstrip(" "))
            if raw.strip(" "):
                if own < (indent if width is None else width):
                    break
                width = own if width is None else width
            lines.append(raw[width:] if width is not None else "")
            self.at += 1
        return _chomp(lines, chomp, folded=found[1] == ">")

    # Flow collections.

    def quote_end(self, text: str) -> int | None:
        """Where the quoted scalar at the start of the text ends."""
        found = re.match(r'"(?:[^"\\]|\\.)*"' if text[0] == '"' else r"'(?:[^']|'')*'", text, re.DOTALL)
        return found.end() if found else None

    def quoted(self, text: str) -> str:
        inner = re.sub(r"[ \t]*\n(\n*)[ \t]*", lambda found: found[1] or " ", text[1:-1])
        if text[0] == "'":
            return inner.replace("''", "'")
        return _ESCAPE.sub(self.escape, text[1:-1] if "\\\n" in text else inner)

    def escape(self, found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code:
            number = int(code, 16)
            return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
        if found[4]:
            return ""
        if found[5] not in _ESCAPES:
            self.fail(f"unknown escape \\{found[5]}")
        return _ESCAPES[found[5]]

    def flow(self, line: _YamlLine, indent: int) -> Any:
        """A flow collection or quoted scalar; it may go on over the following lines."""
        text = line.text
        while not _closed(text):
            self.at += 1
            if self.at >= len(self.raw):
                self.fail("this quote or bracket is never closed")
            text += "\n" + self.raw[self.at].strip(" ")
            if len(text) > 1_000_000:
                self.fail("the flow collection is too long")
        value, end = self.flow_value(text, 0, 0)
        rest = text[end:].strip()
        if rest and not rest.startswith("#"):
            self.fail("unexpected content after the value")
        self.at += 1
        return value

    def flow_value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        at = _skip(text, at)
        char = text[at : at + 1]
        if depth > _MAX_DEPTH:
            self.fail("nested too deeply")
        if char == "[":
            return self.flow_list(text, at + 1, depth)
        if char == "{":
            return self.flow_map(text, at + 1, depth)
        if char in ('"', "'") and char:
            end = self.quote_end(text[at:])
            if end is None:
                self.fail("this quote is never closed")
            return self.quoted(text[at : at + end]), at + end
        found = re.compile(r"(?:[^,\[\]{}:\n#]|:(?=[^\s,\]}])|(?<!\s)#)*").match(text, at)
        assert found is not None
        plain = found[0].strip()
        return (self.alias(plain[1:]) if plain.startswith("*") else resolve(plain)), found.end()

    def flow_list(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            at = _skip(text, at)
            if text[at : at + 1] == "]":
                return items, at + 1
            value, at = self.flow_value(text, at, depth + 1)
            at = _skip(text, at)
            if text[at : at + 1] == ":":
                inner, at = self.flow_value(text, at + 1, depth + 1)
                value = {self.key(value): inner}
            items.append(value)
            at = self.flow_separator(text, at, "]")

    def flow_map(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}
        while True:
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                return entries, at + 1
            key, at = self.flow_value(text, at, depth + 1)
            at = _skip(text, at)
            value: Any = None
            if text[at : at + 1] == ":":
                value, at = self.flow_value(text, at + 1, depth + 1)
            entries[self.key(key)] = value
            at = self.flow_separator(text, at, "}")

    def key(self, value: Any) -> str:
        """A key inside brackets, as text."""
        if isinstance(value, (dict, list)):
            self.fail("a key must be a string, a number, a bool or null")
        return _key(value)

    def flow_separator(self, text: str, at: int, closer: str) -> int:
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            return at + 1
        if text[at : at + 1] != closer:
            self.fail(f"expected a comma or {closer!r}")
        return at


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else to_text(value)


def _skip(text: str, at: int) -> int:
    """Over white space and comments."""
    found = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*").match(text, at)
    assert found is not None
    return found.end()


def _closed(text: str) -> bool:
    """Are all quotes and brackets of the text closed?"""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\'', "", text, flags=re.DOTALL)
    if re.search(r"(?:^|[\s\[{,:])[\"']", bare):
        return False
    return bare.count("[") + bare.count("{") <= bare.count("]") + bare.count("}")


def _chomp(lines: list[str], chomp: str, *, folded: bool) -> str:
    trailing = 0
    while lines and not lines[-1]:
        lines.pop()
        trailing += 1
    text = _fold(lines) if folded else "\n".join(lines)
    if chomp == "-" or not lines:
        return text if chomp != "+" else "\n" * trailing
    return text + "\n" * (1 + trailing if chomp == "+" else 1)


def _fold(lines: list[str]) -> str:
    text = ""
    for index, line in enumerate(lines):
        if not index:
            text = line
        elif not line:
            text += "\n"
        elif line[0] in " \t" or lines[index - 1][:1] in (" ", "\t"):
            text += "\n" + line
        else:
            text += line if text.endswith("\n") and not lines[index - 1] else " " + line
    return text


def resolve(text: str) -> Any:
    """What a plain scalar means."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) > _NUMBER_LENGTH:
        return text
    based = _BASED.fullmatch(text)
    if based:
        digits, base = next((group, base) for group, base in zip(based.groups()[1:], (16, 8, 2), strict=True) if group)
        return int(digits, base) * (-1 if based[1] == "-" else 1)
    if _NUMBER.fullmatch(text):
        try:
            return from_decimal(Decimal(text.replace("_", "")))
        except ValueError:
            return text
    return text


# Writing.


def write_yaml(value: Value) -> str:
    """The value as a YAML document, strings quoted and keys sorted."""
    return "".join(_write(value, 0)) if items_of(value) or entries_of(value) else _write_scalar(value) + "\n"


def _write(value: Value, indent: int) -> list[str]:
    pad = "  " * indent
    entries = entries_of(value)
    lines: list[str] = []
    if entries is not None:
        for key in sorted(entries):
            lines.extend(_write_entry(f"{pad}{_quote(key)}:", entries[key], indent))
        return lines
    for item in items_of(value) or ():
        nested = _write(item, indent + 1) if items_of(item) or entries_of(item) else [f"{pad}  {_write_scalar(item)}\n"]
        lines.append(f"{pad}- {nested[0][len(pad) + 2 :]}")
        lines.extend(nested[1:])
    return lines


def _write_entry(head: str, value: Value, indent: int) -> list[str]:
    if entries_of(value):
        return [f"{head}\n", *_write(value, indent + 1)]
    if items_of(value):
        return [f"{head}\n", *_write(value, indent)]
    if (
        isinstance(value, str)
        and "\n" in value
        and value.strip()
        and not value[0].isspace()
        and value.isprintable() is False
    ):
        return _write_block(head, value, indent)
    return [f"{head} {_write_scalar(value)}\n"]


def _write_block(head: str, text: str, indent: int) -> list[str]:
    if any(char not in "\n\t" and not char.isprintable() for char in text):
        return [f"{head} {_quote_text(text)}\n"]
    body = text.removesuffix("\n")
    if body.endswith("\n"):
        return [f"{head} {_quote_text(text)}\n"]
    pad = "  " * (indent + 1)
    return [
        f"{head} |{'' if text.endswith(chr(10)) else '-'}\n",
        *(f"{pad}{line}\n" if line else "\n" for line in body.split("\n")),
    ]


def _write_scalar(value: Value) -> str:
    if is_null(value):
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, Decimal):
        return to_text(value)
    if type(value) is str:
        return _quote_text(value)
    return "{}" if entries_of(value) is not None else "[]"


def _quote(key: str) -> str:
    return _quote_text(key)


def _quote_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
