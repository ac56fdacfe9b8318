"""Runs the fuzz targets for some CPU time each and adds it to docs/fuzz-ledger.md: `campaign.py SECONDS [TARGET ...]`.

SECONDS are of CPU time, so that a loaded machine fuzzes as much as an idle one. A row of the ledger belongs to one
version of the code that the target exercises, by a digest of its source: a change of that code begins a new row. The
first input that breaks something ends the campaign; its time counts, its row says so until somebody removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from harness import FOLDER, MAX_CPU_TIME, TARGETS

LEDGER: Final = FOLDER.parents[1] / "docs" / "fuzz-ledger.md"
SOURCE: Final = FOLDER.parent / "src"
BEGIN, END = "<!-- fuzz-ledger: begin -->", "<!-- fuzz-ledger: end -->"
HEAD: Final = "| target | code | inputs | CPU-hours | broken by |\n|---|---|---|---|---|"
ROW: Final = re.compile(r"^\| `(\w+)` \| `([0-9a-f]{12})` \| (\d+) \| ([\d.]+) \| (.*) \|$", re.MULTILINE)
INPUTS: Final = re.compile(r"^stat::number_of_executed_units: (\d+)$", re.MULTILINE)
FOUND: Final = re.compile(r"Test unit written to (\S+)")
WALL_FACTOR: Final = 20
"""The limit on wall-clock time, in multiples of the CPU time: a target that gets no CPU ends too."""
TAIL_CHARS: Final = 4_000


class Row(NamedTuple):
    """The runs of one target over one version of the code; `broken_by` names a saved input, "none" without one."""

    target: str
    code: str
    inputs: int = 0
    cpu_h: float = 0.0
    broken_by: str = "none"

    @property
    def text(self) -> str:
        """The row of the table."""
        return f"| `{self.target}` | `{self.code}` | {self.inputs} | {self.cpu_h:.3f} | {self.broken_by} |"


def read_rows(text: str) -> list[Row]:
    """The rows of a ledger."""
    begin, end = _place(text)
    found = ROW.findall(text, begin, end)
    return [Row(target, code, int(inputs), float(cpu_h), broken) for target, code, inputs, cpu_h, broken in found]


def with_run(text: str, run: Row) -> str:
    """The ledger with one more run; the text around the table stays."""
    rows = read_rows(text)
    before = next((row for row in rows if row[:2] == run[:2]), Row(run.target, run.code))
    broken_by = before.broken_by if run.broken_by == "none" else run.broken_by
    after = Row(run.target, run.code, before.inputs + run.inputs, before.cpu_h + run.cpu_h, broken_by)
    kept = [row for row in rows if row[:2] != run[:2]]
    table = "\n".join([HEAD, *(row.text for row in sorted([*kept, after]))])
    begin, end = _place(text)
    return f"{text[:begin]}\n{table}\n{text[end:]}"


def code_of(target: str) -> str:
    """A digest of what a target exercises: the packages that guide it, and the target itself."""
    expected = TARGETS[target]
    hasher = hashlib.blake2b((FOLDER / f"{expected.module}.py").read_bytes(), digest_size=6)
    for path in (each for name in expected.instrumented for each in sources_of(name)):
        hasher.update(path.relative_to(SOURCE).as_posix().encode() + path.read_bytes())
    return hasher.hexdigest()


def sources_of(name: str) -> list[Path]:
    """The files of a package or module of the core; none for one of the standard library."""
    at = SOURCE.joinpath(*name.split("."))
    found = sorted(at.rglob("*.py")) if at.is_dir() else [at.with_suffix(".py")]
    return [path for path in found if path.is_file()]


def run(target: str, seconds: float) -> tuple[Row, str]:
    """Fuzz one target for `seconds` of CPU time; its row for the ledger, and the last `TAIL_CHARS` of its output."""
    limits = [f"{MAX_CPU_TIME}{seconds}", f"-max_total_time={round(seconds * WALL_FACTOR)}", "-print_final_stats=1"]
    command = [sys.executable, str(FOLDER / "harness.py"), target, *limits]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert done.stdout is not None
    printed = done.stdout.read()
    _, status, usage = os.wait4(done.pid, 0)
    done.returncode = os.waitstatus_to_exitcode(status)
    counts, saved = INPUTS.findall(printed), FOUND.findall(printed)
    broken_by = "none" if done.returncode == 0 else (Path(saved[-1]).name if saved else f"exit code {done.returncode}")
    inputs = int(counts[-1]) if counts else 0
    cpu_h = (usage.ru_utime + usage.ru_stime) / 3600
    return Row(target, code_of(target), inputs, cpu_h, broken_by), printed[-TAIL_CHARS:]


def main(words: Sequence[str]) -> int:
    """Run the named targets, or all of them; the exit code."""
    unknown = sorted(set(words[1:]) - set(TARGETS))
    if not words or unknown:
        print(f"usage: campaign.py SECONDS [TARGET ...]; TARGET is one of {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    for target in words[1:] or list(TARGETS):
        found, tail = run(target, float(words[0]))
        LEDGER.write_text(with_run(LEDGER.read_text(), found))
        print(f"{target}: {found.inputs} inputs in {found.cpu_h * 3600:.0f} s of CPU time")
        if found.broken_by != "none":
            print(tail, f"{target} is broken by {found.broken_by}", sep="\n")
            return 1
    return 0


def _place(text: str) -> tuple[int, int]:
    """Where the table begins and ends."""
    return text.index(BEGIN) + len(BEGIN), text.index(END)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
