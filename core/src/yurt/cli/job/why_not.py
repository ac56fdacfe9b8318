"""`yurt job why-not`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yurt.cli.api.lookup import find_job
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.files.jobfile import JOBFILE_FLAGS, JobFile, explain, read_job, variable_settings
from yurt.cli.flags import Flags
from yurt.cli.job.run import show_warnings
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.reasons import WHY_NOT, lacks_room, show_group

Json = dict[str, Any]

_FILE_FLAGS = tuple(flag for flag in JOBFILE_FLAGS if flag.name != "json")
_ENDINGS = (".hcl", ".nomad", ".json")
PLACED, NOT_PLACED, FAILED = 0, 1, 255


def run(call: Invocation) -> int:
    """Show why not all of a job is placed; 0 all is, 1 something is not, 255 on errors."""
    is_json = wants_data(call)
    subject = call.args[0]
    if subject == "-" or subject.endswith(_ENDINGS) or Path(subject).is_file():
        found = _of_file(call, subject)
    else:
        stub = find_job(call, subject)
        found = call.api.put(WHY_NOT, {"JobID": stub["ID"], "Namespace": stub.get("Namespace") or "default"})
    if is_json:
        show_data(call, found)
    else:
        _show(call, found)
    return NOT_PLACED if any(map(lacks_room, found.get("Groups") or ())) else PLACED


def _of_file(call: Invocation, path: str) -> Json:
    variable_settings(call.flags.texts("var"))
    file = read_job(_as_file_call(call), path)
    query = {"namespace": file.job.get("Namespace"), "region": file.job.get("Region")}
    return _asked(call, file, query)


def _asked(call: Invocation, file: JobFile, query: Json) -> Json:
    try:
        found: Json = call.api.put(WHY_NOT, {"Job": file.job}, query)
    except ApiError as error:
        raise CliError(explain(file, str(error))) from None
    return found


def _as_file_call(call: Invocation) -> Invocation:
    """The call as the reader of job files takes it: there `-json` would say that the file is JSON."""
    names = [flag.name for flag in call.command.all_flags]
    values: Json = {name: call.flags.texts(name) if name in ("var", "var-file") else None for name in names}
    values |= {"json": False, "hcl2-strict": call.flags.is_on("hcl2-strict")}
    return Invocation(call.command, Flags(values, frozenset()), call.args)


def _show(call: Invocation, found: Json) -> None:
    warnings = found.get("Warnings") or []
    if warnings:
        show_warnings(call, "\n".join(warnings))
    call.screen.line(
        call.screen.style(f'Job "{found["JobID"]}" on the state at index {found.get("Index") or 0}', "bold")
    )
    for group in found.get("Groups") or ():
        show_group(call, group)


COMMAND = Command(
    "job why-not",
    "Explain what keeps a job, running or from a file, off the nodes, and the smallest change that would place it.",
    run,
    (VERBOSE, *JSON_FLAGS, *_FILE_FLAGS),
    (1, 1),
    "<path|job>",
    "one argument: <path|job>",
    details="Nothing is changed. The exit code is 0 when all is placed, 1 when something is not, 255 on errors.",
    failure_code=FAILED,
)
