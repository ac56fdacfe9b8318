"""Sprig's functions of texts, patterns, digests and encodings."""

from __future__ import annotations

import base64
import binascii
import hashlib
import posixpath
import re
import textwrap
import zlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from yurt.client.templates.functions import patterns
from yurt.client.templates.functions.arguments import bounded, items, mapping, raw, text, whole
from yurt.client.templates.functions.helpers import title
from yurt.gotemplate import EvaluationFailure
from yurt.gotemplate.values import text_of

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[A-Z]")


def repeat(count: object, value: object) -> str:
    """A text many times."""
    times, body = max(whole(count), 0), text(value)
    bounded(times * len(body))
    return body * times


def indent(spaces: object, value: object) -> str:
    """Every line moved to the right, empty ones too."""
    body = text(value)
    bounded(whole(spaces) * (body.count("\n") + 1) + len(body))
    pad = " " * whole(spaces)
    return pad + body.replace("\n", f"\n{pad}")


def truncated(length: object, value: object) -> str:
    """The first characters; a negative length gives the last ones."""
    size, body = whole(length), text(value)
    return body[size:] if size < 0 else body[:size]


def substring(start: object, end: object, value: object) -> str:
    """A part of a text; a negative end is its end."""
    first, last, body = whole(start), whole(end), text(value)
    if first < 0:
        return body[:last]
    return body[first:] if last < 0 or last > len(body) else body[first:last]


def abbreviated(width: object, value: object) -> str:
    """At most this many characters, with an ellipsis."""
    size, body = whole(width), text(value)
    return body if size < 4 or len(body) <= size else f"{body[: size - 3]}..."


def quoted(*values: object) -> str:
    """In double quotes, as Go writes a text."""
    escaped = (
        text(each).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for each in values if each is not None
    )
    return " ".join(f'"{each}"' for each in escaped)


def words(value: object, separator: str) -> str:
    """The words of a text in lower case, between a separator."""
    return separator.join(_WORD.findall(text(value))).lower()


def camel(value: object) -> str:
    """The words of a text, each with a capital."""
    return "".join(word.capitalize() for word in _WORD.findall(text(value).replace("_", " ")))


def wrapped(width: object, value: object, line_end: str = "\n") -> str:
    """Lines of at most this many characters."""
    lines = textwrap.wrap(text(value), max(whole(width), 1), break_long_words=False, break_on_hyphens=False)
    return line_end.join(lines)


def split_map(separator: object, value: object, limit: int = -1) -> dict[str, str]:
    """The pieces under the keys _0, _1 and so on."""
    return {f"_{at}": piece for at, piece in enumerate(text(value).split(text(separator), limit))}


def plural(one: object, many: object, count: object) -> str:
    """One form or the other."""
    return text(one) if whole(count) == 1 else text(many)


def digest(name: str) -> Callable[[object], str]:
    """A digest in hex."""
    return lambda value: hashlib.new(name, raw(value), usedforsecurity=False).hexdigest()


def url_parts(url: object) -> dict[str, Any]:
    """The parts of a URL."""
    parts = urlsplit(text(url))
    user, _, host = parts.netloc.rpartition("@")
    return {
        "scheme": parts.scheme, "host": host, "hostname": parts.hostname or "", "path": parts.path,
        "query": parts.query, "fragment": parts.fragment, "userinfo": user, "opaque": "",
    }  # fmt: skip


def url_joined(value: object) -> str:
    """The URL of its parts."""
    parts = mapping(value)
    host = f"{text(parts['userinfo'])}@{text(parts['host'])}" if parts.get("userinfo") else text(parts.get("host"))
    return urlunsplit(
        (text(parts.get("scheme")), host, *(text(parts.get(each)) for each in ("path", "query", "fragment")))
    )


def base32_decoded(encoded: object) -> str:
    """The text of a base32 text."""
    try:
        return base64.b32decode(raw(encoded)).decode("utf-8", "surrogateescape")
    except binascii.Error as error:
        raise EvaluationFailure(f"the text is not valid base32: {error}") from None


def base64_decoded(encoded: object) -> str:
    """The decoded base64 text; Sprig returns the error's text for invalid input."""
    try:
        return base64.b64decode(raw(encoded), validate=True).decode("utf-8", "surrogateescape")
    except binascii.Error as error:
        return str(error)


def replace_literally(expression: object, subject: object, replacement: object) -> str:
    """All matches replaced by a literal text."""
    return patterns.pattern(text(expression)).sub(lambda _: text(replacement), text(subject))


def _must(name: str, call: Callable[..., object]) -> dict[str, Callable[..., object]]:
    return {name: call, f"must{name[0].upper()}{name[1:]}": call}


TEXTS: Mapping[str, Callable[..., object]] = {
    "abbrev": abbreviated,
    "trunc": truncated,
    "trim": lambda value: text(value).strip(),
    "upper": lambda value: text(value).upper(),
    "lower": lambda value: text(value).lower(),
    "title": title,
    "untitle": lambda value: re.sub(r"\b\w", lambda match: match[0].lower(), text(value)),
    "substr": substring,
    "repeat": repeat,
    "trimAll": lambda cut, value: text(value).strip(text(cut)),
    "trimall": lambda cut, value: text(value).strip(text(cut)),
    "trimPrefix": lambda cut, value: text(value).removeprefix(text(cut)),
    "trimSuffix": lambda cut, value: text(value).removesuffix(text(cut)),
    "nospace": lambda value: "".join(text(value).split()),
    "initials": lambda value: "".join(word[0] for word in text(value).split()),
    "swapcase": lambda value: text(value).swapcase(),
    "snakecase": lambda value: words(value, "_"),
    "kebabcase": lambda value: words(value, "-"),
    "camelcase": camel,
    "wrap": wrapped,
    "wrapWith": lambda width, end, value: wrapped(width, value, text(end)),
    "contains": lambda part, value: text(part) in text(value),
    "hasPrefix": lambda part, value: text(value).startswith(text(part)),
    "hasSuffix": lambda part, value: text(value).endswith(text(part)),
    "quote": quoted,
    "squote": lambda *values: " ".join(f"'{text(each)}'" for each in values if each is not None),
    "cat": lambda *values: " ".join(text(each) for each in values if each is not None),
    "indent": indent,
    "nindent": lambda spaces, value: "\n" + indent(spaces, value),
    "replace": lambda old, new, value: text(value).replace(text(old), text(new)),
    "plural": plural,
    "sha1sum": digest("sha1"),
    "sha256sum": digest("sha256"),
    "sha512sum": digest("sha512"),
    "adler32sum": lambda value: str(zlib.adler32(raw(value))),
    "toString": lambda value: text(value) if isinstance(value, str | bytes) else text_of(value),
    "split": split_map,
    "splitn": lambda separator, limit, value: split_map(separator, value, max(whole(limit) - 1, 0)),
    "splitList": lambda separator, value: text(value).split(text(separator)) if separator else list(text(value)),
    "toStrings": lambda value: [text(each) for each in items(value)],
    "join": lambda separator, value: text(separator).join(
        text(each) for each in (value if isinstance(value, list | tuple) else [value]) if each is not None
    ),
    "b64enc": lambda elements: base64.b64encode(raw(elements)).decode(),
    "b64dec": base64_decoded,
    "b32enc": lambda value: base64.b32encode(raw(value)).decode(),
    "b32dec": base32_decoded,
    "base": lambda value: posixpath.basename(text(value).rstrip("/")) or ("/" if text(value).startswith("/") else "."),
    "dir": lambda value: posixpath.normpath(posixpath.dirname(text(value)) or "."),
    "clean": lambda value: posixpath.normpath(text(value) or "."),
    "ext": lambda value: posixpath.splitext(text(value))[1],
    "isAbs": lambda value: text(value).startswith("/"),
    "urlParse": url_parts,
    "urlJoin": url_joined,
    **_must("regexMatch", patterns.regex_match),
    **_must("regexFind", patterns.find),
    **_must("regexFindAll", patterns.find_all),
    **_must("regexSplit", patterns.split),
    **_must("regexReplaceAll", lambda expression, subject, new: patterns.replace_all(expression, new, subject)),
    **_must("regexReplaceAllLiteral", replace_literally),
    "regexQuoteMeta": lambda value: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text(value)),
}
