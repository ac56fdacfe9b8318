"""Converts a job in the API's JSON shape to a job file, and lists what the file cannot express.

The text is read back before anybody sees it: what does not come back as it was is named, so that nothing is lost in
silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from yurt.cli.errors import CliError
from yurt.cli.json_object import Json

LOSSES_MAX = 20


class HclFile(NamedTuple):
    """A job file, and the parts of the job that it cannot express."""

    text: str
    lost: tuple[str, ...]


def job_file(job: Json, *, trim: bool) -> HclFile:
    """The job file of a job; `trim` leaves out what equals the defaults. Raises CliError when there is none."""
    from yurt_jobspec import JobspecError, parse_job, write_job

    from yurt.rules.trim import trim_job

    try:
        written = write_job(trim_job(job) if trim else job)
        back = parse_job(written.text, filename="written")
    except JobspecError as error:
        raise CliError(f"The job cannot be written as a job file: {error.diagnostics[0]}") from None
    except (AttributeError, TypeError, ValueError, KeyError, RecursionError):
        raise CliError("The job cannot be written as a job file: it has not the shape of a job") from None
    return HclFile(written.text, tuple(dict.fromkeys([*written.lost, *_losses(job, back)]))[:LOSSES_MAX])


def _losses(job: Json, back: Json) -> Iterator[str]:
    """Differences of the job read back from the file, defaults aside."""
    from yurt_jobspec.write import BOOKKEEPING

    from yurt.rules.canonical import canonicalize_job
    from yurt.rules.trim import without_nulls

    wanted, got = (without_nulls(canonicalize_job(each)) for each in (job, back))
    for key in BOOKKEEPING:
        wanted.pop(key, None)
        got.pop(key, None)
    yield from _differences(wanted, got, "Job")


def _differences(wanted: Any, got: Any, path: str) -> Iterator[str]:
    wanted, got = _unlisted(wanted, got), _unlisted(got, wanted)
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in {**wanted, **got}:
            yield from _differences(wanted.get(key), got.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif wanted != got and (wanted or got):
        yield path


def _unlisted(value: Any, other: Any) -> Any:
    """An object of a driver's own is the same as a list of that one object."""
    is_single = isinstance(value, list) and len(value) == 1 and isinstance(other, dict)
    return value[0] if is_single else value
