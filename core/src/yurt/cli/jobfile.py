"""Job files for the commands that read one: HCL or JSON, from a path or standard input, and errors shown at their
place in the file.

Errors of a server name a path (`Job.TaskGroups[0].Tasks[0].Config.comand`); with the positions that the parser kept,
the path leads to the line that is to be changed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import Flag, switch, text, texts

if TYPE_CHECKING:
    from yurt_jobspec import JobspecError, Positions

Json = dict[str, Any]

SOURCE_BYTES_MAX = 8 * 1024 * 1024
_PATH = re.compile(r"\bJob((?:\.[A-Za-z_]\w*|\[[^\]\[]+\])+)")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[([^\]\[]+)\]")
_NAMED = re.compile(r'Task group "?(?P<group>[^" ]+)"?(?: task "?(?P<task>[^" ]+)"?)? ', re.IGNORECASE)
_OPTION = re.compile(r"\bconfig\.([A-Za-z_][\w.\[\]]*)")
_COUNT = re.compile(r"\d+ errors? occurred:")
_REMOTE = re.compile(r"^(?:[a-z0-9+.-]+::)?[a-z][a-z0-9+.-]*://|^[a-z]+::|^git@")

JOBFILE_FLAGS: tuple[Flag, ...] = (
    switch("json", "The file is an API job in JSON, also without the extension .json."),
    switch("hcl2-strict", "Refuse variables that the file does not declare.", default=True),
    text("vault-namespace", "Accepted and without effect."),
    texts("var", "key=value: the value of a variable; may be repeated."),
    texts("var-file", "A file with values of variables; may be repeated."),
)


class JobFile(NamedTuple):
    """A job as it was read, with what is needed to submit it and to point at its parts."""

    job: Json
    source: str
    filename: str
    format: str
    variable_flags: dict[str, str]
    variables: str
    positions: Positions | None

    def submission(self) -> Json:
        """The source as the server keeps it."""
        return {
            "Source": self.source,
            "Format": self.format,
            "VariableFlags": self.variable_flags,
            "Variables": self.variables,
        }


def read_job(call: Invocation, path: str) -> JobFile:
    """The job that a command's path names; raises CliError with the findings."""
    source, filename = _read_source(path)
    is_json = call.flags.is_on("json") or filename.endswith(".json")
    if is_json:
        return JobFile(parse_json_job(source, filename), source, filename, "json", {}, "", None)
    return _read_hcl(call, source, filename)


def _read_source(path: str) -> tuple[str, str]:
    if path == "-":
        return sys.stdin.read(SOURCE_BYTES_MAX), "<stdin>"
    if _REMOTE.match(path):
        raise CliError(f"{path}: job files from remote places are not available in this version; fetch the file first")
    file = Path(path)
    try:
        if file.is_file() and file.stat().st_size > SOURCE_BYTES_MAX:
            raise CliError(f"{path}: larger than {SOURCE_BYTES_MAX} bytes")
        return file.read_text(encoding="utf-8"), path
    except FileNotFoundError:
        raise CliError(f"{path}: there is no such file. `yurt job init` writes an example.") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: not a UTF-8 text") from None


def parse_json_job(source: str, filename: str) -> Json:
    """An API job, alone or under the key Job."""
    try:
        data = json.loads(source)
    except ValueError as error:
        raise CliError(f"{filename}: not valid JSON: {error}") from None
    except RecursionError:
        raise CliError(f"{filename}: nested too deeply") from None
    job = data.get("Job", data) if isinstance(data, dict) else None
    if not isinstance(job, dict):
        raise CliError(f'{filename}: a job in JSON is an object, {{"Job": {{...}}}} or the job itself')
    return job


def _read_hcl(call: Invocation, source: str, filename: str) -> JobFile:
    from yurt_jobspec import JobspecError, parse_job_with_positions

    settings, files = call.flags.texts("var"), [Path(name) for name in call.flags.texts("var-file")]
    try:
        job, positions = parse_job_with_positions(
            source,
            filename=filename,
            variables=settings,
            var_files=files,
            environ=os.environ,
            strict=call.flags.is_on("hcl2-strict"),
            base_dir=Path.cwd() if filename == "<stdin>" else Path(filename).parent,
        )
    except JobspecError as error:
        raise CliError(rendered(error, {filename: source})) from None
    flags = dict(setting.partition("=")[::2] for setting in settings)
    contents = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return JobFile(job, source, filename, "hcl2", flags, contents, positions)


def rendered(error: JobspecError, sources: dict[str, str]) -> str:
    """The findings with their source lines."""
    from yurt_jobspec import render

    return render(error.diagnostics, sources)


def explain(file: JobFile, message: str) -> str:
    """A server's message, with the line of the file for each part of the job that it names."""
    if file.positions is None:
        return message
    lines = [line.strip().removeprefix("* ") for line in message.splitlines()]
    findings = [line for line in lines if line and not _COUNT.fullmatch(line)]
    if not any(named_path(file.job, line) for line in findings):
        return message
    return "\n".join(_explain_line(file, line) for line in findings)


def _explain_line(file: JobFile, line: str) -> str:
    from yurt_jobspec import Diagnostic, render

    path = named_path(file.job, line)
    place = file.positions.nearest(path) if path and file.positions is not None else None
    if place is None:
        return line
    finding = Diagnostic(
        "error",
        "The server refuses this part of the job",
        line,
        place.filename,
        place.line,
        place.column,
        place.end_line,
        place.end_column,
    )
    return render([finding], {file.filename: file.source})


def named_path(job: Json, line: str) -> tuple[str | int, ...]:
    """The part of the job that a message names, by path or by the names of group and task; () for none."""
    match = _PATH.search(line)
    if match is not None:
        return json_path(match[1])
    named = _NAMED.match(line)
    if named is None:
        return ()
    groups: list[Json] = job.get("TaskGroups") or []
    at = next((at for at, group in enumerate(groups) if group.get("Name") == named["group"]), -1)
    if at < 0:
        return ()
    tasks: list[Json] = groups[at].get("Tasks") or []
    task = next((number for number, each in enumerate(tasks) if each.get("Name") == named["task"]), -1)
    if task < 0:
        return ("TaskGroups", at)
    option = _OPTION.search(line)
    return (
        ("TaskGroups", at, "Tasks", task, "Config", *json_path("." + option[1]))
        if option
        else ("TaskGroups", at, "Tasks", task)
    )


def json_path(text_path: str) -> tuple[str | int, ...]:
    """`.TaskGroups[0].Config.comand` as a path."""
    steps: list[str | int] = []
    for name, index in _STEP.findall(text_path):
        step = name or index.strip("\"'")
        steps.append(int(step) if step.isdigit() else step)
    return tuple(steps)


def variable_settings(settings: Sequence[str]) -> None:
    """Refuse a `-var` that is no key=value, before anything is read."""
    for setting in settings:
        if "=" not in setting:
            raise CliError(f'-var needs key=value, not "{setting}"')
