"""consul-template's own functions of text, lists, numbers and digests."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Mapping
from typing import Any

from yurt.client.templates.functions import data, patterns
from yurt.client.templates.functions.arguments import bounded, items, mapping, numeric, plain, raw, text, whole
from yurt.gotemplate import EvaluationFailure, TemplateFunction
from yurt.gotemplate.printf import sprintf
from yurt.gotemplate.values import fields_of, kind_of, sorted_items

_TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}


def contains(element: object, holder: object) -> bool:
    """`contains v list`: whether a list, a map's values or a text holds it."""
    return has_element(holder, element)


def has_element(holder: object, element: object) -> bool:
    """`in list v`."""
    match holder:
        case None:
            return False
        case str():
            return text(element) in text(holder)
        case Mapping():
            return element in holder.values()
        case list() | tuple():
            return any(_same(each, element) for each in holder)
    raise EvaluationFailure(f"a list, map or text is needed, not {kind_of(holder)}")


def _same(first: object, second: object) -> bool:
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _many(rule: Callable[[list[bool]], bool]) -> Callable[..., object]:
    return lambda requested, holder: rule([has_element(holder, each) for each in items(requested)])


def parse_bool(value: object) -> bool:
    """Go's words for true and false."""
    word = text(value)
    if word.lower() not in _TRUTHS or (len(word) > 1 and word not in (word.lower(), word.upper(), word.title())):
        raise EvaluationFailure(f"parseBool: {word!r} is neither true nor false")
    return _TRUTHS[word.lower()]


def parse_int(value: object) -> int:
    """A decimal whole number; an empty value is 0."""
    try:
        return int(text(value) or "0", 10)
    except ValueError:
        raise EvaluationFailure(f"parseInt: {text(value)!r} is not a whole number") from None


def parse_uint(value: object) -> int:
    """A decimal whole number that is not negative."""
    found = parse_int(value)
    if found < 0:
        raise EvaluationFailure(f"parseUint: {found} is negative")
    return found


def parse_float(value: object) -> float:
    """A number; an empty value is 0."""
    try:
        return float(text(value) or "0")
    except ValueError:
        raise EvaluationFailure(f"parseFloat: {text(value)!r} is not a number") from None


def indent(spaces: object, value: object) -> str:
    """Each non-empty line, indented."""
    width = whole(spaces)
    if width < 0:
        raise EvaluationFailure(f"indent: {width} is negative")
    pad, body = " " * bounded(width), text(value)
    bounded(len(body) + width * (body.count("\n") + 1))
    return "\n".join(f"{pad}{line}" if line else line for line in body.split("\n"))


def loop(first: object, *end: object) -> range | list[int]:
    """The numbers from 0 up to one below a limit, or from one number to another."""
    start, stop = (whole(first), whole(end[0])) if end else (0, whole(first))
    bounded(stop - start)
    return list(range(start, stop))


def join(separator: object, elements: object) -> str:
    """The texts of a list, with a separator between them."""
    return text(separator).join(text(each) for each in items(elements))


def split(separator: object, value: object) -> list[str]:
    """The parts of a text; an empty text has none."""
    body, between = text(value).strip(), text(separator)
    if not body:
        return []
    return body.split(between) if between else list(body)


def split_to_map(separator: object, between: object, value: object) -> dict[str, str]:
    """`a:1,b:2` to a map."""
    pairs = (piece.split(text(between), 1) for piece in split(separator, value) if piece)
    return {pair[0].strip(): pair[1].strip() if len(pair) > 1 else "" for pair in pairs}


def title(value: object) -> str:
    """The text with each word capitalised."""
    made, is_start = [], True
    for character in text(value):
        made.append(character.upper() if is_start else character)
        is_start = not (character.isalnum() or character in "_'")
    return "".join(made)


def explode_map(entries: object) -> dict[str, Any]:
    """Keys with slashes as maps in maps."""
    root: dict[str, Any] = {}
    for key, value in sorted_items(mapping(entries)):
        *path, last = text(key).split("/")
        here = root
        for part in path:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = here[part] = {}
            here = inner
        here[last] = plain(value)
    return root


def explode(entries: object) -> dict[str, Any]:
    """Pairs with a Key and a Value as maps in maps."""
    pairs = {text(_field(each, "Key")): _field(each, "Value") for each in items(entries)}
    return explode_map(pairs)


def _field(value: object, name: str) -> Any:
    fields = fields_of(value) or (value if isinstance(value, Mapping) else {})
    if name not in fields:
        raise EvaluationFailure(f"an element has no {name}")
    return fields[name]


def by_tag(instances: object) -> dict[str, list[Any]]:
    """Service instances by each of their tags."""
    found: dict[str, list[Any]] = {}
    for each in items(instances):
        for tag in items(_field(each, "Tags")):
            found.setdefault(text(tag), []).append(each)
    return found


def by_key(pairs: object) -> dict[str, dict[str, Any]]:
    """Pairs by the first part of their key."""
    found: dict[str, dict[str, Any]] = {}
    for each in items(pairs):
        head, _, rest = text(_field(each, "Key")).partition("/")
        if rest:
            found.setdefault(head, {})[rest] = each
    return found


def merge(first: object, second: object, *, is_override: bool = False) -> dict[Any, Any]:
    """Two maps as one; the first wins unless overridden."""
    merged = dict(mapping(first))
    for key, value in mapping(second).items():
        existing = merged.get(key)
        if isinstance(existing, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(existing, value, is_override=is_override)
        elif is_override or existing in (None, "", 0, False):
            merged[key] = value
    return merged


def divide(by: object, of: object) -> int | float:
    """`of / by`; whole numbers are cut towards zero."""
    one, two = numeric(of), numeric(by)
    if not two:
        raise EvaluationFailure("division by zero")
    if isinstance(one, float) or isinstance(two, float):
        return one / two
    return abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)


def modulo(by: object, of: object) -> int | float:
    """The remainder of `of / by`, with the sign of `of`."""
    one, two = numeric(of), numeric(by)
    if not two:
        raise EvaluationFailure("division by zero")
    return (
        math.fmod(one, two) if isinstance(one, float) or isinstance(two, float) else one - two * int(divide(two, one))
    )


def product(first: object, second: object) -> int | float:
    """Bounded, so that powers of powers end."""
    made = numeric(first) * numeric(second)
    if isinstance(made, int) and made.bit_length() > 64:
        raise EvaluationFailure("the product is larger than 64 bits")
    return made


def _hmac(message: object, key: object) -> str:
    return hmac.new(raw(key), raw(message), hashlib.sha256).hexdigest()


def _dump(*values: object) -> str:
    return "".join(f"{sprintf('(%T) %v', value)}\n" for value in values)


HELPERS: Mapping[str, TemplateFunction] = {
    "add": TemplateFunction(lambda b, a: numeric(a) + numeric(b), 2, 2),
    "subtract": TemplateFunction(lambda b, a: numeric(a) - numeric(b), 2, 2),
    "multiply": TemplateFunction(product, 2, 2),
    "divide": TemplateFunction(divide, 2, 2),
    "modulo": TemplateFunction(modulo, 2, 2),
    "minimum": TemplateFunction(lambda b, a: min(numeric(a), numeric(b)), 2, 2),
    "maximum": TemplateFunction(lambda b, a: max(numeric(a), numeric(b)), 2, 2),
    "base64Decode": TemplateFunction(data.base64_decode, 1, 1),
    "base64Encode": TemplateFunction(data.base64_encode, 1, 1),
    "base64URLDecode": TemplateFunction(lambda value: data.base64_decode(value, is_url=True), 1, 1),
    "base64URLEncode": TemplateFunction(lambda value: data.base64_encode(value, is_url=True), 1, 1),
    "byKey": TemplateFunction(by_key, 1, 1),
    "byTag": TemplateFunction(by_tag, 1, 1),
    "contains": TemplateFunction(contains, 2, 2),
    "containsAll": TemplateFunction(_many(all), 2, 2),
    "containsAny": TemplateFunction(_many(any), 2, 2),
    "containsNone": TemplateFunction(_many(lambda found: not any(found)), 2, 2),
    "containsNotAll": TemplateFunction(_many(lambda found: not all(found)), 2, 2),
    "explode": TemplateFunction(explode, 1, 1),
    "explodeMap": TemplateFunction(explode_map, 1, 1),
    "hmacSHA256Hex": TemplateFunction(_hmac, 2, 2),
    "in": TemplateFunction(has_element, 2, 2),
    "indent": TemplateFunction(indent, 2, 2),
    "join": TemplateFunction(join, 2, 2),
    "loop": TemplateFunction(loop, 1, 2),
    "md5sum": TemplateFunction(lambda value: hashlib.md5(raw(value), usedforsecurity=False).hexdigest(), 1, 1),
    "mergeMap": TemplateFunction(merge, 2, 2),
    "mergeMapWithOverride": TemplateFunction(lambda first, second: merge(first, second, is_override=True), 2, 2),
    "parseBool": TemplateFunction(parse_bool, 1, 1),
    "parseFloat": TemplateFunction(parse_float, 1, 1),
    "parseInt": TemplateFunction(parse_int, 1, 1),
    "parseJSON": TemplateFunction(data.parse_json, 1, 1),
    "parseUint": TemplateFunction(parse_uint, 1, 1),
    "parseYAML": TemplateFunction(data.parse_yaml, 1, 1),
    "regexMatch": TemplateFunction(patterns.regex_match, 2, 2),
    "regexReplaceAll": TemplateFunction(patterns.replace_all, 3, 3),
    "replaceAll": TemplateFunction(lambda old, new, value: text(value).replace(text(old), text(new)), 3, 3),
    "sha256Hex": TemplateFunction(lambda value: hashlib.sha256(raw(value)).hexdigest(), 1, 1),
    "split": TemplateFunction(split, 2, 2),
    "splitToMap": TemplateFunction(split_to_map, 3, 3),
    "spew_dump": TemplateFunction(_dump),
    "spew_sdump": TemplateFunction(_dump),
    "spew_printf": TemplateFunction(lambda form, *values: sprintf(text(form), *values), 1),
    "spew_sprintf": TemplateFunction(lambda form, *values: sprintf(text(form), *values), 1),
    "toJSON": TemplateFunction(data.to_json, 1, 1),
    "toJSONPretty": TemplateFunction(lambda value: data.to_json(value, indent=2), 1, 1),
    "toUnescapedJSON": TemplateFunction(lambda value: data.to_json(value, is_escaped=False), 1, 1),
    "toUnescapedJSONPretty": TemplateFunction(lambda value: data.to_json(value, indent=2, is_escaped=False), 1, 1),
    "toLower": TemplateFunction(lambda value: text(value).lower(), 1, 1),
    "toTitle": TemplateFunction(title, 1, 1),
    "toTOML": TemplateFunction(data.to_toml, 1, 1),
    "toUpper": TemplateFunction(lambda value: text(value).upper(), 1, 1),
    "toYAML": TemplateFunction(data.to_yaml, 1, 1),
    "trim": TemplateFunction(lambda cut, value: text(value).strip(text(cut)), 2, 2),
    "trimPrefix": TemplateFunction(lambda cut, value: text(value).removeprefix(text(cut)), 2, 2),
    "trimSuffix": TemplateFunction(lambda cut, value: text(value).removesuffix(text(cut)), 2, 2),
    "trimSpace": TemplateFunction(lambda value: text(value).strip(), 1, 1),
}
