"""The ledger of clean cluster-hours in docs/sim-ledger.md: which seeds ran on which version of the state machines.

The count belongs to the code: a change to a state machine resets it. `MACHINES` are the folders whose content
makes up the fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from yurt.sdk.value import Value, replace

MACHINES: Final = ("broker", "client", "duties", "fsm", "lifecycle", "scheduler", "server", "state", "storage/etcd")
BEGIN, END = "<!-- sim-ledger: begin -->", "<!-- sim-ledger: end -->"
ROW: Final = re.compile(r"^\| `([0-9a-f]{12})` \| (\d+)-(\d+) \| ([\d.]+) \| ([\d.]+) \| (.*) \|$", re.MULTILINE)
HEAD: Final = "| state machines | seeds | clean cluster-hours | CPU-hours | failing seeds |\n|---|---|---|---|---|"


class Row(Value, rename=None):
    """Runs of one version of the state machines, with the first and last of their consecutive seeds."""

    machines: str
    first: int
    last: int
    clean_h: float = 0.0
    cpu_h: float = 0.0
    failing: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The row as a line of the table."""
        failing = ", ".join(map(str, self.failing)) or "none"
        return f"| `{self.machines}` | {self.first}-{self.last} | {self.clean_h:.2f} | {self.cpu_h:.2f} | {failing} |"


def fingerprint(source: Path) -> str:
    """A digest of the state machines below `src/yurt`."""
    hasher = hashlib.blake2b(digest_size=6)
    for folder in MACHINES:
        for path in sorted((source / folder).rglob("*.py")):
            hasher.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    return hasher.hexdigest()


def read_rows(text: str) -> list[Row]:
    """The rows of a ledger, oldest first."""
    rows = []
    for machines, first, last, clean_h, cpu_h, failing in ROW.findall(_between(text)):
        seeds = () if failing == "none" else tuple(map(int, failing.split(", ")))
        rows.append(
            Row(
                machines=machines, first=int(first), last=int(last), clean_h=float(clean_h), cpu_h=float(cpu_h),
                failing=seeds,
            )
        )  # fmt: skip
    return rows


def with_rows(text: str, rows: Sequence[Row]) -> str:
    """The ledger's text with these rows in its table."""
    table = "\n".join([HEAD, *(row.text for row in rows)])
    return text.replace(_between(text), f"\n{table}\n")


def with_run(row: Row, seed: int, *, virtual_s: float, cpu_s: float, is_clean: bool) -> Row:
    """The row, extended by one run."""
    return replace(
        row,
        last=seed,
        clean_h=row.clean_h + (virtual_s / 3600 if is_clean else 0.0),
        cpu_h=row.cpu_h + cpu_s / 3600,
        failing=row.failing if is_clean else (*row.failing, seed),
    )


def _between(text: str) -> str:
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[begin:end]
