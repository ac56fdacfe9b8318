"""YAML 1.1 for job files and templates: PyYAML's events, with scalars resolved by the job language's rules.

Read is one document. Plain scalars are null, bools, numbers, times (written as RFC 3339) or text; all others are text.
Of tags, only YAML's own simple ones are known. `<<` merges a mapping. Keys become strings. Aliases are resolved by
reference and counted, so a small text cannot grow without bound. Written is a fixed form: quoted strings, sorted keys,
literal blocks for text of several lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

from yurt_jobspec.numbers import from_decimal, to_text
from yurt_jobspec.values import Value, entries_of, is_null, items_of

if TYPE_CHECKING:
    from yaml import events as ev

_MAX_DEPTH = 60
_MAX_ALIASES = 100
_MAX_LENGTH = 1_000_000
_NUMBER_LENGTH = 400
"""A longer scalar is text, whatever it looks like."""
_NULLS = ("", "~", "null", "Null", "NULL")
_WORDS = {"true": True, "yes": True, "on": True, "y": True, "false": False, "no": False, "off": False, "n": False}
_BOOLS = {form(word): value for word, value in _WORDS.items() for form in (str, str.capitalize, str.upper)}
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_BASED = re.compile(r"0(?:x([0-9a-fA-F]+)|o([0-7]+))")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:(?:[Tt]|\s+)(\d{1,2}):(\d\d):(\d\d)(?:\.\d*)?([Zz]|[-+]\d\d:\d\d)?)?"
)
_TAG_HEAD: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = ("str", "int", "float", "bool", "null", "binary", "timestamp")
_PLAIN_STYLES: Final = (None, "")


class YamlError(Exception):
    """The text is not supported YAML; `line` counts from 1."""

    def __init__(self, detail: str, line: int) -> None:
        self.detail = detail
        self.line = line
        super().__init__(detail)


def read_yaml(text: str) -> Any:
    """The document as plain data; raises YamlError."""
    import yaml

    if len(text) > _MAX_LENGTH:
        raise YamlError(f"a document may have {_MAX_LENGTH} characters at most", 1)
    try:
        return _YamlReader(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(problem, mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError("control characters are not allowed", line) from None


class _YamlReader:
    """Composes values from events."""

    def __init__(self, events: Iterator[ev.Event]) -> None:
        self.events = events
        self.line = 1
        self.depth = 0
        self.aliases = 0
        self.anchors: dict[str, Any] = {}
        self.open: set[str] = set()

    def fail(self, detail: str) -> NoReturn:
        raise YamlError(detail, self.line)

    def next(self) -> ev.Event:
        event = next(self.events)
        if event.start_mark is not None:
            self.line = event.start_mark.line + 1
        return event

    def document(self) -> Any:
        from yaml import events as ev

        self.next()
        start = self.next()
        if not isinstance(start, ev.DocumentStartEvent):
            self.fail("there is no document")
        if start.version not in (None, (1, 1)):
            self.fail("only YAML 1.1 is read")
        value = self.node(self.next())
        self.next()
        if not isinstance(self.next(), ev.StreamEndEvent):
            self.fail("only one document is read, and this is a second one")
        return value

    def node(self, event: ev.Event) -> Any:
        from yaml import events as ev

        if isinstance(event, ev.AliasEvent):
            return self.alias(event.anchor)
        assert isinstance(event, ev.NodeEvent)
        if event.anchor:
            self.open.add(event.anchor)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("nested too deeply")
        value = self.content(event)
        self.depth -= 1
        if event.anchor:
            self.open.discard(event.anchor)
            self.anchors[event.anchor] = value
        return value

    def content(self, event: ev.Event) -> Any:
        from yaml import events as ev

        if isinstance(event, ev.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, ev.SequenceStartEvent):
            self.check_tag(event.tag, "seq")
            return list(self.items(ev.SequenceEndEvent))
        assert isinstance(event, ev.MappingStartEvent)
        self.check_tag(event.tag, "map")
        return self.mapping()

    def items(self, end: type[ev.Event]) -> Iterator[Any]:
        while not isinstance(event := self.next(), end):
            yield self.node(event)

    def mapping(self) -> dict[str, Any]:
        from yaml import events as ev

        entries: dict[str, Any] = {}
        while not isinstance(event := self.next(), ev.MappingEndEvent):
            if isinstance(event, ev.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                merged = self.node(self.next())
                if not isinstance(merged, dict):
                    self.fail('only a mapping can be merged with "<<"')
                entries.update(merged)
                continue
            if not isinstance(event, ev.ScalarEvent):
                self.fail("a key must be a string, a number or a bool")
            key = self.node(event)
            if key is None:
                self.fail("a key must not be null")
            entries[_key(key)] = self.node(self.next())
        return entries

    def alias(self, name: str | None) -> Any:
        assert name is not None
        self.aliases += 1
        if name in self.open:
            self.fail(f'the alias "{name}" is within its own anchor')
        if name not in self.anchors:
            self.fail(f'the alias "{name}" has no anchor before it')
        if self.aliases > _MAX_ALIASES:
            self.fail(f"more than {_MAX_ALIASES} aliases")
        return self.anchors[name]

    # Scalars and tags.

    def check_tag(self, tag: str | None, expected: str) -> None:
        if tag is not None and tag != _TAG_HEAD + expected:
            self.fail(f"the tag {_shown(tag)} is not supported here")

    def scalar(self, event: ev.ScalarEvent) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            is_plain = event.style in _PLAIN_STYLES or (not text and event.style in "|>")
            return self.finite(resolve(text) if is_plain else text)
        kind = tag.removeprefix(_TAG_HEAD)
        if tag == kind or kind not in _SCALAR_TAGS:
            self.fail(f"the tag {_shown(tag)} is not supported")
        if kind == "null" and event.style in _PLAIN_STYLES:
            return None
        if kind in ("str", "binary", "null"):
            return text
        value = self.finite(resolve(text))
        if _kind(text, value) != ("float" if kind == "int" else kind):
            self.fail(f'"{text}" is not a value for the tag {_shown(tag)}')
        return value if event.style in _PLAIN_STYLES else text

    def finite(self, value: Any) -> Any:
        if isinstance(value, _NotFinite):
            self.fail(f"the number {value.text} is not supported")
        return value


class _NotFinite:
    """Infinity or NaN, which the job language does not have."""

    def __init__(self, text: str) -> None:
        self.text = text


def _kind(text: str, value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, Decimal)):
        return "float"
    return "timestamp" if isinstance(value, str) and _TIME.fullmatch(text) else "str"


def _shown(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG_HEAD) if tag.startswith(_TAG_HEAD) else tag


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else to_text(value)


def resolve(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) > _NUMBER_LENGTH:
        return text
    if based := _BASED.fullmatch(text):
        return int(based[1], 16) if based[1] else int(based[2], 8)
    if _NUMBER.fullmatch(text):
        try:
            return from_decimal(Decimal(text))
        except ValueError:
            return text
    if _NOT_FINITE.fullmatch(text):
        return _NotFinite(text)
    found = _TIME.fullmatch(text)
    return (_time(found) if found else None) or text


def _time(found: re.Match[str]) -> str | None:
    """The RFC 3339 time in whole seconds; None when it is not one."""
    year, month, day, hour, minute, second, zone = found.groups()
    if zone and found[0][10:11] not in "Tt":
        return None
    try:
        time = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (zone if zone and zone not in "zZ" else "Z")


# Writing.


def write_yaml(value: Value) -> str:
    """The value as a YAML document."""
    from yaml import events as ev

    from .yaml_writer import YamlWriter

    stream = io.StringIO()
    emitter = YamlWriter(stream, allow_unicode=True)
    emitter.emit(ev.StreamStartEvent())
    emitter.emit(ev.DocumentStartEvent(explicit=False))
    for event in _events(value):
        emitter.emit(event)
    emitter.emit(ev.DocumentEndEvent(explicit=False))
    emitter.emit(ev.StreamEndEvent())
    return stream.getvalue()


def _events(value: Value) -> Iterator[ev.Event]:
    from yaml import events as ev

    entries, items = entries_of(value), items_of(value)
    if is_null(value):
        yield _plain("null")
    elif entries is not None:
        yield ev.MappingStartEvent(None, None, implicit=True, flow_style=False)
        for key in sorted(entries):
            yield _text(key)
            yield from _events(entries[key])
        yield ev.MappingEndEvent()
    elif items is not None:
        yield ev.SequenceStartEvent(None, None, implicit=True, flow_style=False)
        for item in items:
            yield from _events(item)
        yield ev.SequenceEndEvent()
    elif isinstance(value, bool):
        yield _plain("true" if value else "false")
    elif isinstance(value, str):
        yield _text(value)
    else:
        yield _plain(to_text(value))


def _plain(text: str) -> ev.ScalarEvent:
    from yaml import events as ev

    return ev.ScalarEvent(None, None, (True, False), text)


def _text(text: str) -> ev.ScalarEvent:
    from yaml import events as ev

    return ev.ScalarEvent(None, None, (False, True), text, style="|" if "\n" in text else '"')
