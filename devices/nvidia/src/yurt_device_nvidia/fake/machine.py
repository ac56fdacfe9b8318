"""The data of a fake: a JSON file, read again after a change.

A number may be a series, `{"series": [10, 20, 30], "step_s": 1}`: it moves on with the time since the file was read,
and stays at its last value, or begins again with `"loop": true`. Events have a number (`seq`) and are given out once,
those in the file at its first look too: `{"seq": 1, "gpu": "GPU-...", "kind": "xid", "data": 79}`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def write(path: Path, machine: Json) -> None:
    """Write the file atomically."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(machine, indent=1), encoding="utf-8")
    part.replace(path)


def change(path: Path, edit: Callable[[Json], None]) -> None:
    """Read, edit and write the file; one change at a time, also of several processes."""
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine: Json = json.loads(path.read_text(encoding="utf-8"))
        edit(machine)
        write(path, machine)


class FakeMachine:
    """A file, or a machine that never changes."""

    def __init__(self, source: Path | Json) -> None:
        self._path = source if isinstance(source, Path) else None
        self._content: Json = {} if isinstance(source, Path) else source
        self._stamp: tuple[int, int, int] | None = None
        self._read_s = time.monotonic()
        self._lock = threading.Lock()

    @property
    def content(self) -> Json:
        """The present content; an unreadable file leaves the previous one."""
        if self._path is None:
            return self._content
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._look(self._path)
        return self._content

    def change(self, edit: Callable[[Json], None]) -> None:
        """Change the file, or the machine itself without one."""
        if self._path is None:
            edit(self._content)
        else:
            change(self._path, edit)

    def load(self) -> None:
        """Read the file; raises OSError or ValueError."""
        if self._path is not None:
            self._look(self._path)

    def _look(self, path: Path) -> None:
        found = os.stat(path)
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            self._content = json.loads(path.read_text(encoding="utf-8"))
            self._stamp, self._read_s = stamp, time.monotonic()

    def number(self, value: Any) -> float:
        """A number, or the present value of a series."""
        if not isinstance(value, dict):
            return float(value)
        series, step_s = value["series"], float(value.get("step_s", 1.0))
        step = int((time.monotonic() - self._read_s) / step_s)
        return float(series[step % len(series) if value.get("loop") else min(step, len(series) - 1)])
