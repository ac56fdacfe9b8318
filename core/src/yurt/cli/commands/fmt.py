"""`yurt fmt`: job files in the usual form."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.files.source import read_text
from yurt.cli.flags import switch
from yurt.cli.tree import NOUNS

SUFFIXES = (".hcl", ".nomad")
FILES_MAX = 10_000


def run(call: Invocation) -> int:
    """Format files in place and name those that change; 1 with -check when one would."""
    flags = call.flags
    paths = call.args or ["."]
    if paths == ["-"]:
        source = sys.stdin.read()
        sys.stdout.write(formatted(source, "<stdin>"))
        return 0
    changed = 0
    for path in list(_files(paths, recursive=flags.is_on("recursive"))):
        source = read_text(str(path))
        result = formatted(source, str(path))
        if result == source:
            continue
        changed += 1
        if flags.is_on("list"):
            call.screen.line(str(path))
        if flags.is_on("write") and not flags.is_on("check"):
            path.write_text(result, encoding="utf-8")
        elif not flags.is_on("check"):
            call.screen.stream.write(result)
    return 1 if changed and flags.is_on("check") else 0


def formatted(source: str, filename: str) -> str:
    """The text in canonical form; raises CliError for invalid HCL."""
    from dataclasses import replace

    from yurt_jobspec import JobspecError, format_source, render

    try:
        return format_source(source)
    except JobspecError as error:
        findings = [replace(finding, filename=filename) for finding in error.diagnostics]
        raise CliError(render(findings, {filename: source})) from None


def _files(paths: list[str], *, recursive: bool) -> Iterator[Path]:
    count = 0
    for name in paths:
        root = Path(name)
        if root.is_dir():
            found = root.rglob("*") if recursive else root.iterdir()
            files = sorted(file for file in found if file.suffix in SUFFIXES and file.is_file())
        elif root.exists():
            files = [root]
        else:
            raise CliError(f"{name}: there is no such file")
        for file in files:
            count += 1
            if count > FILES_MAX:
                raise CliError(f"More than {FILES_MAX} files; name fewer folders")
            yield file


COMMANDS = (
    CliCommand(
        "fmt",
        NOUNS["fmt"],
        run,
        (
            switch("check", "Change nothing; the exit code is 1 when a file would change."),
            switch("write", "Write the files.", default=True),
            switch("list", "Print the names of files that change.", default=True),
            switch("recursive", "Also the folders inside the named ones."),
        ),
        (0, -1),
        "[path ...]",
        "paths",
        details="Without a path: the .hcl and .nomad files of the present folder. - reads standard input.",
        is_client=False,
    ),
)
