"""JSON of Nomad's HTTP API as domain values.

Keys match whatever their case, null means absent, and a key that the type does not know is dropped and reported as
a warning with the nearest known name. Keys are looked up as written first; only one that fails is looked up in
lower case. What has no type (a driver's `Config`) is left as it was sent. Bounds come first: nesting, and
integers that fit 64 bits, so that nothing accepted here can fail later when it is written to the log.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from yurt.rules.admission import admitted
from yurt.rules.canonical import fill_in
from yurt.sdk.errors import Invalid
from yurt.sdk.value import parse_duration
from yurt.structs.job import Job

DEPTH_MAX = 64
WARNINGS_MAX = 20
BLOCKS_MAX = 25_000
"""Objects that a document may have where a type has structs; a job at its bounds (`api.bounds`) has 20,000."""
DURATIONS_MAX = 1_000
"""Durations that a list may have."""
VALUES_MAX = 500_000
"""The limit of commas in a body, so that decoding blocks its thread for at most about 30 ms."""
DEFAULT_NODE_POOL = "default"
"""The pool of a job without one; Nomad's servers fill it in, its clients do not."""
INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
_LONG_NUMBER: Final = b"0" * 19
"""The number of digits of every integer beyond 64 bits; numbers with a point or an exponent are not integers."""
_ZEROS_FOR_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
"""With it a search for digits runs in C, in a tenth of the time of a regular expression: every body is searched."""

RETIRED_KEYS = frozenset({"consultoken", "vaulttoken", "nomadtokenid", "authtoken", "secretid"})
"""Keys of older clients that are dropped without a warning."""

T = TypeVar("T", bound=msgspec.Struct)
Json = dict[str, Any]


class _ValueShape(NamedTuple):
    """A field's content: `kind` is struct, list or map (of structs `held`), texts (of strings), duration, durations (a
    list of them) or leaf."""

    key: str
    kind: str
    held: type | None


class _KeyTable(msgspec.Struct, frozen=True):
    exact: dict[str, _ValueShape]
    folded: dict[str, _ValueShape]


class _Walk:
    """One pass over a document; gathers warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._blocks = 0

    def struct(self, data: Any, cls: type, path: str) -> Any:
        """The object with its keys spelled as the type spells them."""
        if type(data) is not dict and not isinstance(data, Mapping):
            return data
        self._blocks += 1
        if self._blocks > BLOCKS_MAX:
            raise Invalid(f"{path.partition('.')[0]} has more than {BLOCKS_MAX} blocks: split it into several")
        table = _tables.get(cls) or _table(cls)
        exact, known = table.exact, {}
        for key, value in data.items():
            shape = exact.get(key) or table.folded.get(key.lower())
            if shape is None:
                self._unknown(key, table, path)
            elif value is not None and (shape.key == key or data.get(shape.key) is None):
                name, kind, held = shape
                if held is not None:
                    known[name] = self._field(value, shape, held, f"{path}.{name}")
                elif kind == "duration":
                    known |= _duration(name, value, f"{path}.{name}")
                elif kind == "durations":
                    known[name] = _all_nanoseconds(value, f"{path}.{name}")
                else:
                    known[name] = _without_nulls(value) if kind == "texts" else value
        return known

    def _field(self, value: Any, shape: _ValueShape, cls: type, path: str) -> Any:
        if shape.kind == "list" and isinstance(value, list):
            return [self.struct(item, cls, f"{path}[{n}]") for n, item in enumerate(value) if item is not None]
        if shape.kind == "map" and isinstance(value, Mapping):
            return {k: self.struct(v, cls, f"{path}[{k}]") for k, v in value.items() if v is not None}
        return self.struct(value, cls, path) if shape.kind == "struct" else value

    def _unknown(self, key: str, table: _KeyTable, path: str) -> None:
        if key.lower() in RETIRED_KEYS or len(self.warnings) >= WARNINGS_MAX:
            return
        import difflib

        near = difflib.get_close_matches(key.lower()[:64], table.folded, n=1, cutoff=0.75)
        hint = f'; did you mean "{table.folded[near[0]].key}"?' if near else ""
        self.warnings.append(f'unknown key "{path}.{key[:64]}" is ignored{hint}')


def decode_json(raw: bytes) -> Any:
    """The document; raises Invalid for invalid JSON, excessive nesting, or integers beyond 64 bits."""
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"Failed to decode body: {error}") from None
    except RecursionError:
        raise Invalid(_too_deep()) from None
    if not is_plainly_bounded(raw):
        check_bounds(data)
    return data


def check_size(raw: bytes) -> None:
    """Raises Invalid for a body whose number of values would block a server while it decodes them."""
    count = raw.count(b",")
    if count > VALUES_MAX:
        raise Invalid(f"Failed to decode body: it has {count} commas, at most {VALUES_MAX} are possible")


def decode_value(data: Any, cls: type[T], *, name: str) -> tuple[T, tuple[str, ...]]:
    """`data` as a struct of this type, and warnings; `name` opens the paths in messages."""
    walk = _Walk()
    return _convert(walk.struct(data, cls, name), cls, name), tuple(walk.warnings)


def decode_job(data: Any, *, node_pool: str = DEFAULT_NODE_POOL) -> tuple[Job, tuple[str, ...]]:
    """An API job with every default filled in, and warnings; raises Invalid with the paths of the problems.

    `node_pool` is that of a job that names none.
    """
    walk = _Walk()
    spelled = walk.struct(need_object(data, "Job"), Job, "Job")
    _convert(spelled, Job, "Job")
    canonical = admitted(fill_in(spelled))
    canonical["NodePool"] = canonical.get("NodePool") or node_pool
    return _job_of(canonical), tuple(walk.warnings)


def prepare_jobs() -> None:
    """Describe the types of a job for those that follow, for 20 to 40 ms; for threads, of which one does it."""
    with _preparing:
        if not are_jobs_prepared():
            decode_job({"ID": "job", "TaskGroups": [{"Tasks": [{}]}]})
            _prepared.set()


def are_jobs_prepared() -> bool:
    """Whether `decode_job` finds all that it needs."""
    return _prepared.is_set()


def _job_of(canonical: Json) -> Job:
    """The job, also where an empty collection became null; null and absent mean the same for all that may be null."""
    try:
        return msgspec.convert(canonical, Job)
    except msgspec.ValidationError:
        return _convert(_Walk().struct(canonical, Job, "Job"), Job, "Job")


def is_plainly_bounded(raw: bytes) -> bool:
    """Whether the text alone shows that `check_bounds` finds nothing: few brackets, short numbers, ASCII throughout."""
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX or not raw.isascii():
        return False
    return b"\\u" not in raw and _LONG_NUMBER not in raw.translate(_ZEROS_FOR_DIGITS)


def check_bounds(data: Any, depth: int = 0) -> None:
    """Raises Invalid for nesting beyond DEPTH_MAX, integers beyond 64 bits and broken text."""
    if depth > DEPTH_MAX:
        raise Invalid(_too_deep())
    if isinstance(data, dict):
        for key, value in data.items():
            if not key.isascii():
                _check_text(key)
            check_bounds(value, depth + 1)
    elif isinstance(data, list):
        for value in data:
            check_bounds(value, depth + 1)
    elif type(data) is int and not INT_MIN <= data <= INT_MAX:
        raise Invalid("Failed to decode body: an integer does not fit 64 bits")
    elif type(data) is str and not data.isascii():
        _check_text(data)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid("Failed to decode body: a string is not valid UTF-8") from None


def _too_deep() -> str:
    return f"Failed to decode body: nested deeper than {DEPTH_MAX} levels"


def _convert(data: Any, cls: type[T], name: str) -> T:
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError as error:
        raise Invalid(_plain_text(str(error), name)) from None


_WORDS = {
    "int": "integer",
    "str": "string",
    "bool": "boolean",
    "array": "list",
    "float": "number",
    "bytes": "base64 text",
}
_DURATION = re.compile(r"\bDuration\b")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")


def _plain_text(text: str, name: str) -> str:
    """msgspec's message as `Job.TaskGroups[0].Count: expected integer, got string`."""
    message, _, path = text.rpartition(" - at `$")
    if not message:
        message, path = text, "`"
    found = _EXPECTED.match(message)
    if found is not None:
        expected, got = (
            " or ".join(_WORDS.get(w.strip(), w.strip()) for w in part.split("|")) for part in found.groups()
        )
        message = f"expected {expected.removesuffix(' or null')}, got {got}"
    return f"{name}{path.removesuffix('`')}: {message}"


def need_object(data: Any, name: str) -> Mapping[str, Any]:
    """The document, if it is an object; raises Invalid for anything else."""
    if type(data) is not dict and not isinstance(data, Mapping):
        raise Invalid(f"{name}: expected object, got {_type_word(data)}")
    return data


def _type_word(value: Any) -> str:
    words = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "object"}
    return "null" if value is None else words.get(type(value), type(value).__name__)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [item for item in value if item is not None]
    if isinstance(value, Mapping):
        return {key: "" if item is None else item for key, item in value.items()}
    return value


_preparing: Final = threading.Lock()
_prepared: Final = threading.Event()
_tables: dict[type, _KeyTable] = {}


def _table(cls: type) -> _KeyTable:
    """The table of a type, made once. Those of the types that it holds are made along: the description of a type
    describes them too, which takes milliseconds, and hundreds of kilobytes if it were kept."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), cls
    pending = [info]
    while pending:
        each = pending.pop()
        if each.cls not in _tables:
            spans = _durations(each.cls)
            shapes = [
                _ValueShape(field.encode_name, spans[field.name], None)
                if field.name in spans
                else _shape(field.encode_name, field.type, pending)
                for field in each.fields
            ]
            _tables[each.cls] = _KeyTable(
                {shape.key: shape for shape in shapes}, {shape.key.lower(): shape for shape in shapes}
            )
    return _tables[cls]


def _durations(cls: type) -> dict[str, str]:
    """The kinds of the fields that hold durations, which the type's description shows as integers.

    Annotations are texts. They are read as such, because evaluating them would take longer than all else here.
    """
    annotations = {
        name: str(text) for base in reversed(cls.__mro__) for name, text in getattr(base, "__annotations__", {}).items()
    }
    return {
        name: "durations" if text.startswith("tuple[") else "duration"
        for name, text in annotations.items()
        if _DURATION.search(text)
    }


def _duration(name: str, value: Any, path: str) -> Json:
    """The field with its duration; nothing for an empty text, which Go's clients write where nobody set one."""
    return {} if value == "" else {name: _nanoseconds(value, path)}


def _all_nanoseconds(value: Any, path: str) -> Any:
    """Each duration of a list as `_nanoseconds` gives it; raises Invalid for more than DURATIONS_MAX."""
    if type(value) is not list:
        return value
    if len(value) > DURATIONS_MAX:
        raise Invalid(f"{path} has {len(value)} durations, at most {DURATIONS_MAX} are possible")
    return [_nanoseconds(item, f"{path}[{n}]") for n, item in enumerate(value)]


def _nanoseconds(value: Any, path: str) -> Any:
    """A duration as an integer where it was sent as Go's text, or as a whole number with a point or an exponent.

    Encoders that know only floating-point numbers write 24 hours as `8.64e13`.
    """
    if type(value) is not str:
        return int(value) if type(value) is float and value.is_integer() and abs(value) < INT_MAX else value
    try:
        return parse_duration(value)
    except ValueError:
        raise Invalid(
            f'{path}: "{value[:64]}" is not a valid duration; use a number and a unit, such as "30s"'
        ) from None


def _shape(key: str, kind: inspect.Type, pending: list[inspect.StructType]) -> _ValueShape:
    """The field's content; the type that it holds is added to those whose tables are to be made."""
    match kind:
        case inspect.Metadata():
            return _shape(key, kind.type, pending)
        case inspect.UnionType():
            inner = [item for item in kind.types if not isinstance(item, inspect.NoneType)]
            return _shape(key, inner[0], pending) if len(inner) == 1 else _ValueShape(key, "leaf", None)
        case inspect.StructType():
            pending.append(kind)
            return _ValueShape(key, "struct", kind.cls)
        case inspect.VarTupleType(item_type=inspect.StructType() as item):
            pending.append(item)
            return _ValueShape(key, "list", item.cls)
        case inspect.DictType(value_type=inspect.StructType() as item):
            pending.append(item)
            return _ValueShape(key, "map", item.cls)
        case inspect.VarTupleType(item_type=inspect.StrType()) | inspect.DictType(value_type=inspect.StrType()):
            return _ValueShape(key, "texts", None)
        case _:
            return _ValueShape(key, "leaf", None)
