"""Sprig's functions of lists, maps, numbers and kinds."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from yurt.client.templates.functions import data
from yurt.client.templates.functions.arguments import bounded, items, mapping, plain, real, text, whole
from yurt.client.templates.functions.helpers import has_element, merge, product
from yurt.gotemplate import EvaluationFailure
from yurt.gotemplate.printf import sprintf
from yurt.gotemplate.values import is_true, kind_of


def until(start: int, stop: int, step: int) -> list[int]:
    """Numbers from one up to below another, by a step."""
    if not step or (stop > start) != (step > 0):
        return []
    bounded(abs(stop - start) // abs(step))
    return list(range(start, stop, step))


def sequence(*bounds: object) -> str:
    """Numbers as the command `seq` writes them, on one line."""
    numbers = [whole(each) for each in bounds]
    if not 1 <= len(numbers) <= 3:
        return ""
    start = numbers[0] if len(numbers) > 1 else 1
    stop = numbers[-1]
    step = numbers[1] if len(numbers) == 3 else (1 if stop >= start else -1)
    return " ".join(map(str, until(start, stop + (1 if step > 0 else -1), step)))


def total(*values: object) -> int:
    """The sum."""
    return sum(whole(each) for each in values)


def multiplied(*values: object) -> int:
    """The product."""
    made = 1
    for each in values:
        made = int(product(made, whole(each)))
    return made


def quotient(first: object, second: object) -> int:
    """Cut towards zero."""
    if not whole(second):
        raise EvaluationFailure("division by zero")
    one, two = whole(first), whole(second)
    return abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)


def remainder(first: object, second: object) -> int:
    """With the sign of the first."""
    return whole(first) - whole(second) * quotient(first, second)


def rounded(value: object, places: object, *at: object) -> float:
    """Rounded to this many places; halves go up."""
    scale = 10.0 ** min(max(whole(places), 0), 15)
    scaled = real(value) * scale
    fraction = abs(scaled) % 1
    away = math.ceil(abs(scaled)) if fraction >= (real(at[0]) if at else 0.5) else math.floor(abs(scaled))
    return math.copysign(away, scaled) / scale


def pairs(*values: object) -> dict[str, Any]:
    """`dict "a" 1 "b" 2`."""
    keys = [text(each) for each in values[::2]]
    return dict(zip(keys, [*values[1::2], ""], strict=False))


def dig(*values: Any) -> Any:
    """A value deep in maps, or the default before the map."""
    if len(values) < 3:
        raise EvaluationFailure("dig wants keys, a default and a map")
    *keys, default, holder = values
    for key in keys:
        if not isinstance(holder, Mapping) or text(key) not in holder:
            return default
        holder = holder[text(key)]
    return holder


def changed(holder: object, key: object, value: object) -> dict[Any, Any]:
    """`set`: sets a key of the map in place, as Sprig does, and returns the map."""
    if not isinstance(holder, dict):
        raise EvaluationFailure(f"set wants a map, not {kind_of(holder)}")
    holder[text(key)] = value
    return holder


def removed(holder: object, key: object) -> dict[Any, Any]:
    """`unset`: the map without a key."""
    if not isinstance(holder, dict):
        raise EvaluationFailure(f"unset wants a map, not {kind_of(holder)}")
    holder.pop(text(key), None)
    return holder


def merged(*values: object, is_override: bool = False) -> dict[Any, Any]:
    """Maps as one; the first wins unless overridden."""
    made: dict[Any, Any] = {}
    for each in values:
        made = merge(made, each, is_override=is_override)
    return made


def unique(elements: object) -> list[Any]:
    """Each element once."""
    made: list[Any] = []
    for each in items(elements)[:10_000]:
        if not has_element(made, each):
            made.append(each)
    return made


def chunks(size: object, elements: object) -> list[list[Any]]:
    """Lists of at most this many elements."""
    width = max(whole(size), 1)
    whole_list = list(items(elements))
    return [whole_list[at : at + width] for at in range(0, len(whole_list), width)]


def part(elements: object, *bounds: object) -> list[Any]:
    """`slice`: elements from one index up to another."""
    whole_list = list(items(elements))
    start = whole(bounds[0]) if bounds else 0
    return whole_list[start : whole(bounds[1]) if len(bounds) > 1 else len(whole_list)]


def failed(message: object) -> object:
    """`fail`: the rendering fails."""
    raise EvaluationFailure(text(message))


def from_json(document: object) -> Any:
    """The data of a JSON text."""
    try:
        return json.loads(text(document))
    except (ValueError, RecursionError) as error:
        raise EvaluationFailure(f"the text is not valid JSON: {error}") from None


def default(fallback: object, *value: object) -> object:
    """The value, or the fallback for an empty one."""
    return value[0] if value and is_true(value[0]) else fallback


def _lists(lists: tuple[object, ...]) -> list[Any]:
    bounded(sum(len(items(each)) for each in lists))
    return [element for each in lists for element in items(each)]


def _must(calls: Mapping[str, Callable[..., object]]) -> dict[str, Callable[..., object]]:
    return {**calls, **{f"must{name[0].upper()}{name[1:]}": call for name, call in calls.items()}}


DATA: Mapping[str, Callable[..., object]] = {
    "until": lambda count: until(0, whole(count), 1 if whole(count) >= 0 else -1),
    "untilStep": lambda start, stop, step: until(whole(start), whole(stop), whole(step)),
    "seq": sequence,
    "atoi": lambda value: int(text(value)) if text(value).lstrip("+-").isdecimal() else 0,
    "int": whole,
    "int64": whole,
    "float64": real,
    "toDecimal": lambda value: int(text(value) or "0", 8),
    "add": total,
    "add1": lambda value: whole(value) + 1,
    "sub": lambda first, second: whole(first) - whole(second),
    "mul": multiplied,
    "div": quotient,
    "mod": remainder,
    "max": lambda *values: max(whole(each) for each in values),
    "biggest": lambda *values: max(whole(each) for each in values),
    "min": lambda *values: min(whole(each) for each in values),
    "addf": lambda *values: math.fsum(real(each) for each in values),
    "add1f": lambda value: real(value) + 1,
    "subf": lambda first, *others: real(first) - math.fsum(real(each) for each in others),
    "mulf": lambda *values: math.prod(real(each) for each in values),
    "divf": lambda first, second: real(first) / real(second),
    "maxf": lambda *values: max(real(each) for each in values),
    "minf": lambda *values: min(real(each) for each in values),
    "floor": lambda value: float(math.floor(real(value))),
    "ceil": lambda value: float(math.ceil(real(value))),
    "round": rounded,
    "default": default,
    "empty": lambda value: not is_true(value),
    "coalesce": lambda *values: next((each for each in values if is_true(each)), None),
    "all": lambda *values: all(map(is_true, values)),
    "any": lambda *values: any(map(is_true, values)),
    "ternary": lambda first, second, test: first if is_true(test) else second,
    "typeOf": lambda value: sprintf("%T", value),
    "typeIs": lambda name, value: sprintf("%T", value) == text(name),
    "kindOf": kind_of,
    "kindIs": lambda name, value: kind_of(value) == text(name),
    "deepEqual": lambda first, second: plain(first) == plain(second),
    "tuple": lambda *values: list(values),
    "list": lambda *values: list(values),
    "dict": pairs,
    "get": lambda holder, key: mapping(holder).get(text(key), ""),
    "set": changed,
    "unset": removed,
    "hasKey": lambda holder, key: text(key) in mapping(holder),
    "pluck": lambda key, *holders: [mapping(each)[text(key)] for each in holders if text(key) in mapping(each)],
    "keys": lambda *holders: sorted(text(key) for each in holders for key in mapping(each)),
    "values": lambda holder: [mapping(holder)[key] for key in sorted(mapping(holder))],
    "pick": lambda holder, *keys: {
        text(key): mapping(holder)[text(key)] for key in keys if text(key) in mapping(holder)
    },
    "omit": lambda holder, *keys: {
        key: each for key, each in mapping(holder).items() if key not in set(map(text, keys))
    },
    "dig": dig,
    "concat": lambda *lists: _lists(lists),
    "sortAlpha": lambda elements: sorted(text(each) for each in items(elements)),
    "fail": failed,
    "deepCopy": lambda value: copy.deepcopy(plain(value)),
    **_must(
        {
            "merge": merged,
            "mergeOverwrite": lambda *values: merged(*values, is_override=True),
            "append": lambda elements, value: [*items(elements), value],
            "push": lambda elements, value: [*items(elements), value],
            "prepend": lambda elements, value: [value, *items(elements)],
            "first": lambda elements: next(iter(items(elements)), None),
            "rest": lambda elements: list(items(elements)[1:]),
            "last": lambda elements: items(elements)[-1] if items(elements) else None,
            "initial": lambda elements: list(items(elements)[:-1]),
            "reverse": lambda elements: list(reversed(items(elements))),
            "uniq": unique,
            "compact": lambda elements: [each for each in items(elements) if is_true(each)],
            "without": lambda elements, *values: [each for each in items(elements) if not has_element(values, each)],
            "has": lambda value, elements: has_element(elements, value),
            "slice": part,
            "chunk": chunks,
            "fromJson": from_json,
            "toJson": data.to_json,
            "toPrettyJson": lambda value: data.to_json(value, indent=2),
            "toRawJson": lambda value: data.to_json(value, is_escaped=False),
        }
    ),
}
