"""Traces of submissions: CSV with a header, JSON lines and the Standard Workload Format, plain or compressed.

The format is known by the file's name without `.gz`, `.bz2`, `.xz` or `.zst`: `.swf`, `.json` and `.jsonl`, else CSV.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from yurt.cli.errors import CliError
from yurt.cli.suggest import did_you_mean
from yurt.sdk.value import NANOSECONDS

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "submit": ("timestamp", "submit", "submit_time", "submitted", "creation_time"),
    "end": ("deletion_time",),
    "duration": ("duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu"),
    "cores": ("cores",),
    "cpu": ("cpu",),
    "cpu_milli": ("cpu_milli",),
    "memory_mb": ("memory_mb", "memory_mib"),
    "tenant": ("tenant", "namespace", "cluster", "vc"),
    "user": ("user",),
    "limit": ("limit", "time_limit", "timeout", "max_run_duration"),
    "priority": ("priority",),
    "device": ("device",),
}
"""What a trace tells of a job, and the names of the columns that tell it."""
IGNORED: Final = frozenset(
    {"id", "job_id", "jobid", "name", "gpu_time", "status", "attempts", "scheduled_time", "pod_phase", "qos"}
)
"""Columns of published traces that say nothing about what a job asks."""
SWF_FIELDS: Final = 18
LINES_MAX: Final = 2_000_000
"""Lines of a file, those without a submission included."""
LINE_MAX: Final = 64 * 1024
"""Characters of a line."""
TEXT_MAX: Final = 1 << 30
"""Characters of a file, after decompression."""
SHOWN_MAX: Final = 64
"""Characters of a file that an error quotes."""
PRIORITY_DEFAULT, PRIORITY_MAX = 50, 100
SECONDS_MAX: Final = 10 * 366 * 86_400
"""The longest duration that a trace may state."""
UNITS_MAX: Final = 1_000_000
TIME_MAX_S: Final = 1e10
_PATTERNS: Final = {
    "tenant": re.compile(r"[a-zA-Z0-9-]{1,128}"),
    "user": re.compile(r"[^\x00-\x1f]{1,128}"),
    "device": re.compile(r"[\w./ -]{1,128}"),
}
_OF_COLUMN: Final = {name: field for field, names in COLUMNS.items() for name in names}


class TraceRow(NamedTuple):
    """One submission; times in nanoseconds, the submission since the epoch or since the start of the trace."""

    submit: int
    duration: int
    limit: int
    gpus: int
    cores: int
    cpu: int
    memory_mb: int
    tenant: str
    user: str
    priority: int
    device: str


class TraceFile(NamedTuple):
    """The rows of a file in the order of their submission, and how many say that nothing ran or nothing was asked."""

    rows: tuple[TraceRow, ...]
    skipped: int


def read_trace(path: str, *, ignored: Collection[str] = (), part: tuple[int, int] = (0, 0)) -> TraceFile:
    """The rows of a file; raises CliError with the line of the first problem.

    `ignored` names columns to leave out; `part`: how many of the earliest rows to leave out, and how many of the others
    to keep (0: all).
    """
    try:
        with _opened(path) as lines:
            found = list(_reader(path)(path, _bounded(path, lines), frozenset(map(str.lower, ignored))))
    except FileNotFoundError:
        raise CliError(f"{path}: there is no such file") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise CliError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError as error:
        from yurt.runtime.file_kinds import not_text

        raise CliError(f"{path}: {not_text(error)}") from None
    every = sorted((row for row in found if row is not None), key=lambda row: row.submit)
    skip, keep = part
    rows = every[skip : skip + keep if keep else None]
    if not rows:
        raise CliError(f"{path}: no submission is left to play")
    return TraceFile(tuple(rows), len(found) - len(every))


Reader = Callable[[str, Iterator[str], Collection[str]], Iterator[TraceRow | None]]


def _bounded(path: str, lines: IO[str]) -> Iterator[str]:
    """The lines of a file; a small compressed file may hold a text without end, or one endless line."""
    left = TEXT_MAX
    for number in range(1, LINES_MAX + 2):
        line = lines.readline(LINE_MAX + 1)
        if not line:
            return
        left -= len(line)
        if number > LINES_MAX:
            raise CliError(f"{path}: more than {LINES_MAX} lines; split the trace")
        if len(line) > LINE_MAX:
            raise CliError(f"{path}:{number}: the line has more than {LINE_MAX} characters")
        if left < 0:
            raise CliError(f"{path}:{number}: more than {TEXT_MAX >> 20} MiB of text; split the trace")
        yield line


def _quoted(value: object) -> str:
    """A value of the file as an error shows it: without control characters, and not longer than a line."""
    text = repr(value if isinstance(value, str | int | float | bool) else str(value))
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def _reader(path: str) -> Reader:
    plain = Path(path).name.lower()
    for ending in (".gz", ".bz2", ".xz", ".zst"):
        plain = plain.removesuffix(ending)
    if plain.endswith(".swf"):
        return _swf
    return _json_lines if plain.endswith((".jsonl", ".json", ".ndjson")) else _csv


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    """The text of a file, decompressed by the ending of its name."""
    openers: dict[str, Callable[[str], Any]] = {
        ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zstd,
    }  # fmt: skip
    opener = openers.get(Path(path).suffix.lower(), _open_plain)
    with opener(path) as binary, TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
        yield text


def _open_plain(path: str) -> IO[bytes]:
    return Path(path).open("rb")


@contextmanager
def _open_zstd(path: str) -> Iterator[Any]:
    from backports import zstd

    try:
        with zstd.open(path) as file:
            yield file
    except zstd.ZstdError as error:
        raise OSError(str(error)) from None


def _csv(path: str, lines: Iterator[str], ignored: Collection[str]) -> Iterator[TraceRow | None]:
    reader = csv.reader(lines)
    try:
        header = next(reader, None)
        if not header:
            raise CliError(f"{path}: the file is empty; the first line names the columns")
        fields = _fields(f"{path}:1", header, ignored)
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise CliError(f"{where}: {len(cells)} cells, but {len(header)} columns")
            yield _row(where, {field: cell for field, cell in zip(fields, cells, strict=True) if field})
    except csv.Error as error:
        raise CliError(f"{path}:{reader.line_num}: not valid CSV: {error}") from None


def _json_lines(path: str, lines: Iterator[str], ignored: Collection[str]) -> Iterator[TraceRow | None]:
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CliError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise CliError(f"{where}: a line is one JSON object")
        fields = _fields(where, found, ignored)
        yield _row(where, {field: value for field, value in zip(fields, found.values(), strict=True) if field})


def _swf(path: str, lines: Iterator[str], ignored: Collection[str]) -> Iterator[TraceRow | None]:
    """The Standard Workload Format of the Parallel Workloads Archive: processors are cores, groups are tenants."""
    del ignored
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        cells = line.split()
        if not cells or line.lstrip().startswith(";"):
            continue
        if len(cells) != SWF_FIELDS:
            raise CliError(f"{where}: {len(cells)} fields; a line of the Standard Workload Format has {SWF_FIELDS}")
        limit, processors = cells[8], cells[7] if cells[7] != "-1" else cells[4]
        if cells[3].startswith("-") or processors.startswith("-"):
            # -1 is "not known" in this format: there is nothing to play.
            yield None
            continue
        yield _row(
            where,
            {
                "submit": cells[1],
                "duration": cells[3],
                "cores": processors,
                "limit": "0" if limit.startswith("-") else limit,
                "user": "" if cells[11] == "-1" else f"user-{cells[11]}",
                "tenant": "" if cells[12] == "-1" else f"group-{cells[12]}",
            },
        )


def _fields(where: str, names: Iterable[str], ignored: Collection[str]) -> list[str]:
    """The field that each column tells; "" for those left out."""
    found: list[str] = []
    for name in names:
        plain = name.strip().lower()
        field = _OF_COLUMN.get(plain, "")
        if plain in ignored or plain in IGNORED:
            field = ""
        elif not field:
            raise CliError(
                f"{where}: unknown column {_quoted(name)}{did_you_mean(plain, _OF_COLUMN)}; known are "
                f"{', '.join(sorted(_OF_COLUMN))}; leave others out with -ignore"
            )
        elif field in found:
            raise CliError(f"{where}: column {_quoted(name)} tells the {field} once more; leave it out with -ignore")
        found.append(field)
    if "submit" not in found or not ("duration" in found or "end" in found):
        raise CliError(f"{where}: a trace has the columns timestamp and duration (or deletion_time) at least")
    return found


def _row(where: str, cells: Mapping[str, Any]) -> TraceRow | None:
    """A submission; None when it ran for no time or asked for nothing."""
    submit = _time(where, "timestamp", cells["submit"])
    if "duration" in cells:
        if cells["duration"] in (None, ""):
            raise CliError(f"{where}: duration is empty; leave the line out if the job did not run")
        duration = _seconds(where, "duration", cells["duration"])
    else:
        duration = _time(where, "deletion_time", cells["end"]) - submit
        if duration < 0:
            raise CliError(f"{where}: deletion_time is before the submission")
        if duration > SECONDS_MAX * NANOSECONDS:
            raise CliError(f"{where}: deletion_time is more than 10 years after the submission")
    gpus, cores = (_count(where, name, cells.get(name), UNITS_MAX) for name in ("gpus", "cores"))
    cpu = _count(where, "cpu", cells.get("cpu"), UNITS_MAX * 1000) or _count(
        where, "cpu_milli", cells.get("cpu_milli"), UNITS_MAX * 1000
    )
    priority = _count(where, "priority", cells.get("priority"), PRIORITY_MAX) or PRIORITY_DEFAULT
    if duration <= 0 or not (gpus or cores or cpu):
        return None
    return TraceRow(
        submit=submit,
        duration=duration,
        limit=_seconds(where, "limit", cells.get("limit")),
        gpus=gpus,
        cores=cores,
        cpu=cpu,
        memory_mb=_count(where, "memory_mb", cells.get("memory_mb"), UNITS_MAX * 1000),
        tenant=_name(where, "tenant", cells.get("tenant")) or "default",
        user=_name(where, "user", cells.get("user")),
        priority=priority,
        device=_name(where, "device", cells.get("device")) or "gpu",
    )


def _number(where: str, name: str, value: object) -> float:
    if value is None or value == "":
        return 0.0
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise CliError(f"{where}: {name} {_quoted(value)} is not a number")
    if number < 0:
        raise CliError(f"{where}: {name} is negative ({_quoted(value)})")
    return number


def _seconds(where: str, name: str, value: object) -> int:
    number = _number(where, name, value)
    if number > SECONDS_MAX:
        raise CliError(f"{where}: {name} of {_quoted(value)} s is more than 10 years; it is in seconds")
    return round(number * NANOSECONDS)


def _count(where: str, name: str, value: object, most: int) -> int:
    number = _number(where, name, value)
    if number != int(number):
        raise CliError(f"{where}: {name} {_quoted(value)} is not a whole number")
    if number > most:
        raise CliError(f"{where}: {name} {_quoted(value)} is more than {most}")
    return int(number)


def _time(where: str, name: str, value: object) -> int:
    """Seconds, or a time like 2017-10-09 07:01:55, UTC unless it says otherwise; in nanoseconds."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise CliError(f"{where}: {name} is empty; leave the line out if the job did not run")
    number = _iso_seconds(where, name, value) if _is_iso(value) else _number(where, name, value)
    if not 0 <= number <= TIME_MAX_S:
        raise CliError(f"{where}: {name} {_quoted(value)} is not a time between 1970 and 2286")
    return round(number * NANOSECONDS)


def _is_iso(value: object) -> bool:
    return isinstance(value, str) and not value.strip().lstrip("-").replace(".", "", 1).isdigit()


def _iso_seconds(where: str, name: str, value: object) -> float:
    try:
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise CliError(
            f"{where}: {name} {_quoted(value)} is neither a time like 2017-10-09T07:01:55 nor a number of seconds"
        ) from None


def _name(where: str, name: str, value: object) -> str:
    text = "" if value is None else str(value).strip()
    if text and not _PATTERNS[name].fullmatch(text):
        raise CliError(f"{where}: {name} {_quoted(text)} must match {_PATTERNS[name].pattern}")
    return text
