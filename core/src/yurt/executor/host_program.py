"""Programs of the host that drivers need: their paths and versions."""

from __future__ import annotations

import os
import shutil

from yurt.executor.process_context import run_alongside
from yurt.sdk.errors import DriverError
from yurt.sdk.value import Value, seconds

ANSWER_LIMIT = seconds(20)


class FoundProgram(Value):
    """A program on PATH and the output of its version option; `problem` when it could not be run."""

    path: str = ""
    version_text: str = ""
    problem: str = ""


class Program:
    """A program by name; its version is queried once, and again when its file has changed."""

    def __init__(self, name: str, version_option: str) -> None:
        self.name = name
        self._version_option = version_option
        self._seen: tuple[str, int, int] | None = None
        self._found = FoundProgram()

    def find(self) -> str:
        """Its path; empty when it is not on PATH."""
        return shutil.which(self.name) or ""

    async def look(self) -> FoundProgram:
        """Its present path and version output."""
        path = self.find()
        if not path:
            self._seen, self._found = None, FoundProgram()
            return self._found
        status = os.stat(path)
        seen = (path, status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._found = await ask(path, self._version_option)
            self._seen = seen
        return self._found


async def ask(path: str, option: str) -> FoundProgram:
    """Run a program's version option, with its usual environment."""
    try:
        result = await run_alongside(
            (path, option), env=dict(os.environ), cwd="/", user=None, enter=(), timeout=ANSWER_LIMIT
        )
    except DriverError as error:
        return FoundProgram(path=path, problem=str(error))
    text = (result.stdout + result.stderr).decode(errors="replace")
    problem = f"`{path} {option}` ended with {result.exit_code}" if result.exit_code else ""
    return FoundProgram(path=path, version_text=text, problem=problem)
