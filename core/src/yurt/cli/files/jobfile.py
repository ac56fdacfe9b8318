"""Job files for the commands that read one: HCL or JSON, from a path or standard input, and errors shown at their
place in the file.

Errors of a server name a part of the job; with the positions that the parser kept, `places` leads from there to the
line that is to be changed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError, JobFileError
from yurt.cli.flags import TEXT, Flag, switch, text, texts, without_effect
from yurt.cli.json_object import Json

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic, JobspecError, Positions


SOURCE_BYTES_MAX = 8 * 1024 * 1024
_REMOTE = re.compile(r"^(?:[a-z0-9+.-]+::)?[a-z][a-z0-9+.-]*://|^[a-z]+::|^git@")

JOBFILE_FLAGS: tuple[Flag, ...] = (
    switch("json", "The file is an API job in JSON, also without the extension .json."),
    switch("hcl2-strict", "Refuse variables that the file does not declare.", default=True),
    texts("var", "key=value: the value of a variable; may be repeated."),
    texts("var-file", "A file with values of variables; may be repeated."),
    text(
        "file-access",
        "What file(), fileset() and the like may read: all (the user's files), folder (below the job file), or none; "
        "YURT_FILE_ACCESS, else all.",
    ),
)
FILE_ACCESS = ("all", "folder", "none")
VAULT_NAMESPACE = without_effect("vault-namespace", kind=TEXT)


class JobFile(NamedTuple):
    """A parsed job with its source and the positions of its parts."""

    job: Json
    source: str
    filename: str
    format: str
    variable_flags: dict[str, str]
    variables: str
    positions: Positions | None
    warnings: tuple[Diagnostic, ...] = ()

    def submission(self) -> Json:
        """The source in the form that the server stores."""
        return {
            "Source": self.source,
            "Format": self.format,
            "VariableFlags": self.variable_flags,
            "Variables": self.variables,
        }


def read_job(call: Invocation, path: str, *, asks_agent: bool = True) -> JobFile:
    """The job at a command's path; raises CliError with all findings, and prints warnings to standard error.

    `asks_agent`: in addition to errors of the file, report the servers' findings in the rest of the job.
    """
    try:
        file = load_job(call, path)
    except JobFileError as error:
        if not asks_agent:
            raise
        from yurt.cli.files.partial_job import with_server_findings

        raise with_server_findings(call, error) from None
    if file.warnings:
        from yurt_jobspec import render

        print(render(file.warnings, {file.filename: file.source}), file=sys.stderr)
    return file


def load_job(call: Invocation, path: str) -> JobFile:
    """Like read_job, and leaves the warnings to the caller."""
    source, filename = read_source(path)
    is_json = call.flags.is_on("json") or filename.endswith(".json")
    if is_json:
        from yurt_jobspec import json_positions

        positions = json_positions(source, filename=filename)
        return JobFile(parse_json_job(source, filename), source, filename, "json", {}, "", positions)
    return read_hcl(call, source, filename)


def read_source(path: str) -> tuple[str, str]:
    """The text of a path, or of standard input for -, and its name; raises CliError."""
    from pathlib import Path

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
    except UnicodeDecodeError as error:
        from yurt.runtime.file_kinds import not_text

        raise CliError(f"{path}: {not_text(error)}") from None


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


def read_hcl(call: Invocation, source: str, filename: str) -> JobFile:
    """The job of a file in HCL, or in HCL's JSON form, with the variables that the flags give."""
    from pathlib import Path

    from yurt_jobspec import IncompleteJob, Inputs, JobspecError, parse_job_with_findings

    settings, files = call.flags.texts("var"), [Path(name) for name in call.flags.texts("var-file")]
    access = _file_access(call)
    inputs = Inputs(settings, files, os.environ, call.flags.is_on("hcl2-strict"), leaves_folder=access == "all")
    folder = Path.cwd() if filename == "<stdin>" else Path(filename).parent
    base_dir = None if access == "none" else folder
    try:
        job, positions, warnings = parse_job_with_findings(source, filename=filename, inputs=inputs, base_dir=base_dir)
    except JobspecError as error:
        partial = error.partial if isinstance(error, IncompleteJob) else None
        raise JobFileError(error.diagnostics, {filename: source}, partial) from None
    flags = dict(setting.partition("=")[::2] for setting in settings)
    contents = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return JobFile(job, source, filename, "hcl2", flags, contents, positions, warnings)


def _file_access(call: Invocation) -> str:
    """What file functions of a job file may read: one of FILE_ACCESS."""
    flag = call.flags.text("file-access")
    access = flag or os.environ.get("YURT_FILE_ACCESS") or FILE_ACCESS[0]
    if access not in FILE_ACCESS:
        where = "-file-access" if flag else "YURT_FILE_ACCESS"
        raise CliError(f'{where} is one of {", ".join(FILE_ACCESS)}, not "{access}"')
    return access


def rendered(error: JobspecError, sources: dict[str, str]) -> str:
    """The findings with their source lines."""
    from yurt_jobspec import render

    return render(error.diagnostics, sources)


def server_findings(file: JobFile, text: str, *, is_warning: bool = False) -> list[Diagnostic]:
    """The findings of a server, each with its position in the file where known."""
    from yurt.cli.files.finding_positions import findings

    return findings(file.job, file.positions, text, is_warning=is_warning)


def explain(file: JobFile, message: str, *, is_warning: bool = False) -> str:
    """A server's message, with the line of the file for each part of the job that it names."""
    if file.positions is None:
        return message
    located = server_findings(file, message, is_warning=is_warning)
    if all(finding.line is None and finding.hint is None for finding in located):
        return message
    from yurt_jobspec import render

    return render(located, {file.filename: file.source})


def variable_settings(settings: Sequence[str]) -> None:
    """Reject a `-var` that is not key=value, before anything is read."""
    for setting in settings:
        if "=" not in setting:
            raise CliError(f'-var needs key=value, not "{setting}"')
