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


def repeat(count: object, given: object) -> str:
    """A text many times."""
    times, body = max(whole(count), 0), text(given)
    bounded(times * len(body))
    return body * times


def indent(spaces: object, given: object) -> str:
    """Every line moved to the right, empty ones too."""
    body = text(given)
    bounded(whole(spaces) * (body.count("\n") + 1) + len(body))
    pad = " " * whole(spaces)
    return pad + body.replace("\n", f"\n{pad}")


def truncated(length: object, given: object) -> str:
    """The first characters; a negative length gives the last ones."""
    size, body = whole(length), text(given)
    return body[size:] if size < 0 else body[:size]


def substring(start: object, end: object, given: object) -> str:
    """A part of a text; a negative end is its end."""
    first, last, body = whole(start), whole(end), text(given)
    if first < 0:
        return body[:last]
    return body[first:] if last < 0 or last > len(body) else body[first:last]


def abbreviated(width: object, given: object) -> str:
    """At most this many characters, with an ellipsis."""
    size, body = whole(width), text(given)
    return body if size < 4 or len(body) <= size else f"{body[: size - 3]}..."


def quoted(*values: object) -> str:
    """In double quotes, as Go writes a text."""
    escaped = (
        text(each).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for each in values if each is not None
    )
    return " ".join(f'"{each}"' for each in escaped)


def words(given: object, separator: str) -> str:
    """The words of a text in lower case, between a separator."""
    return separator.join(_WORD.findall(text(given))).lower()


def camel(given: object) -> str:
    """The words of a text, each with a capital."""
    return "".join(word.capitalize() for word in _WORD.findall(text(given).replace("_", " ")))


def wrapped(width: object, given: object, line_end: str = "\n") -> str:
    """Lines of at most this many characters."""
    lines = textwrap.wrap(text(given), max(whole(width), 1), break_long_words=False, break_on_hyphens=False)
    return line_end.join(lines)


def split_map(separator: object, given: object, limit: int = -1) -> dict[str, str]:
    """The pieces under the keys _0, _1 and so on."""
    return {f"_{at}": piece for at, piece in enumerate(text(given).split(text(separator), limit))}


def plural(one: object, many: object, count: object) -> str:
    """One form or the other."""
    return text(one) if whole(count) == 1 else text(many)


def digest(name: str) -> Callable[[object], str]:
    """A digest in hex."""
    return lambda given: hashlib.new(name, raw(given), usedforsecurity=False).hexdigest()


def url_parts(given: object) -> dict[str, Any]:
    """The parts of a URL."""
    parts = urlsplit(text(given))
    user, _, host = parts.netloc.rpartition("@")
    return {
        "scheme": parts.scheme, "host": host, "hostname": parts.hostname or "", "path": parts.path,
        "query": parts.query, "fragment": parts.fragment, "userinfo": user, "opaque": "",
    }  # fmt: skip


def url_joined(given: object) -> str:
    """The URL of its parts."""
    parts = mapping(given)
    host = f"{text(parts['userinfo'])}@{text(parts['host'])}" if parts.get("userinfo") else text(parts.get("host"))
    return urlunsplit(
        (text(parts.get("scheme")), host, *(text(parts.get(each)) for each in ("path", "query", "fragment")))
    )


def base32_decoded(given: object) -> str:
    """The text of a base32 text."""
    try:
        return base64.b32decode(raw(given)).decode("utf-8", "surrogateescape")
    except binascii.Error as error:
        raise EvaluationFailure(f"the text is not valid base32: {error}") from None


def base64_decoded(given: object) -> str:
    """The decoded base64 text; Sprig returns the error's text for invalid input."""
    try:
        return base64.b64decode(raw(given), validate=True).decode("utf-8", "surrogateescape")
    except binascii.Error as error:
        return str(error)


def replace_literally(expression: object, given: object, replacement: object) -> str:
    """All matches replaced by a literal text."""
    return patterns.pattern(text(expression)).sub(lambda _: text(replacement), text(given))


def _must(name: str, call: Callable[..., object]) -> dict[str, Callable[..., object]]:
    return {name: call, f"must{name[0].upper()}{name[1:]}": call}


TEXTS: Mapping[str, Callable[..., object]] = {
    "abbrev": abbreviated,
    "trunc": truncated,
    "trim": lambda given: text(given).strip(),
    "upper": lambda given: text(given).upper(),
    "lower": lambda given: text(given).lower(),
    "title": title,
    "untitle": lambda given: re.sub(r"\b\w", lambda match: match[0].lower(), text(given)),
    "substr": substring,
    "repeat": repeat,
    "trimAll": lambda cut, given: text(given).strip(text(cut)),
    "trimall": lambda cut, given: text(given).strip(text(cut)),
    "trimPrefix": lambda cut, given: text(given).removeprefix(text(cut)),
    "trimSuffix": lambda cut, given: text(given).removesuffix(text(cut)),
    "nospace": lambda given: "".join(text(given).split()),
    "initials": lambda given: "".join(word[0] for word in text(given).split()),
    "swapcase": lambda given: text(given).swapcase(),
    "snakecase": lambda given: words(given, "_"),
    "kebabcase": lambda given: words(given, "-"),
    "camelcase": camel,
    "wrap": wrapped,
    "wrapWith": lambda width, end, given: wrapped(width, given, text(end)),
    "contains": lambda part, given: text(part) in text(given),
    "hasPrefix": lambda part, given: text(given).startswith(text(part)),
    "hasSuffix": lambda part, given: text(given).endswith(text(part)),
    "quote": quoted,
    "squote": lambda *values: " ".join(f"'{text(each)}'" for each in values if each is not None),
    "cat": lambda *values: " ".join(text(each) for each in values if each is not None),
    "indent": indent,
    "nindent": lambda spaces, given: "\n" + indent(spaces, given),
    "replace": lambda old, new, given: text(given).replace(text(old), text(new)),
    "plural": plural,
    "sha1sum": digest("sha1"),
    "sha256sum": digest("sha256"),
    "sha512sum": digest("sha512"),
    "adler32sum": lambda given: str(zlib.adler32(raw(given))),
    "toString": lambda value: text(value) if isinstance(value, str | bytes) else text_of(value),
    "split": split_map,
    "splitn": lambda separator, limit, given: split_map(separator, given, max(whole(limit) - 1, 0)),
    "splitList": lambda separator, given: text(given).split(text(separator)) if separator else list(text(given)),
    "toStrings": lambda given: [text(each) for each in items(given)],
    "join": lambda separator, given: text(separator).join(
        text(each) for each in (given if isinstance(given, list | tuple) else [given]) if each is not None
    ),
    "b64enc": lambda given: base64.b64encode(raw(given)).decode(),
    "b64dec": base64_decoded,
    "b32enc": lambda given: base64.b32encode(raw(given)).decode(),
    "b32dec": base32_decoded,
    "base": lambda given: posixpath.basename(text(given).rstrip("/")) or ("/" if text(given).startswith("/") else "."),
    "dir": lambda given: posixpath.normpath(posixpath.dirname(text(given)) or "."),
    "clean": lambda given: posixpath.normpath(text(given) or "."),
    "ext": lambda given: posixpath.splitext(text(given))[1],
    "isAbs": lambda given: text(given).startswith("/"),
    "urlParse": url_parts,
    "urlJoin": url_joined,
    **_must("regexMatch", patterns.regex_match),
    **_must("regexFind", patterns.find),
    **_must("regexFindAll", patterns.find_all),
    **_must("regexSplit", patterns.split),
    **_must("regexReplaceAll", lambda expression, given, new: patterns.replace_all(expression, new, given)),
    **_must("regexReplaceAllLiteral", replace_literally),
    "regexQuoteMeta": lambda given: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text(given)),
}
