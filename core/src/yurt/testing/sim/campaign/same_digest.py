"""`make sim-digests`: compares the digests of seeds between two interpreters, and keeps the record in the ledger.

The two have different hash seeds, and different versions of Python where another one is given. Each runs a batch of
seeds in one process, the second in reverse order: a run that depends on what its process did before differs, too.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

import yurt
from yurt.sdk.value import Value, replace
from yurt.testing.sim.campaign import ledger
from yurt.testing.sim.plan import Plan, draw
from yurt.testing.sim.run import run_plan

BATCH: Final = 10
"""How many seeds run in one process; the ledger is written after each batch."""
SHORT: Final[Mapping[str, object]] = {"servers": 3, "clients": 2, "users": 2, "active_s": 6.0, "rest_actions": 1}
"""The fixed parts of the plans: many short runs differ sooner than few long ones."""
BEGIN, END = "<!-- sim-digests: begin -->", "<!-- sim-digests: end -->"
ROW: Final = re.compile(r"^\| `([0-9a-f]{12})` \| ([\d., and]+) \| (\d+)-(\d+) \| (.*) \|$", re.MULTILINE)
HEAD: Final = "| state machines | versions of Python | seeds | seeds with two digests |\n|---|---|---|---|"
WORKER: Final = "from yurt.testing.sim.campaign.same_digest import work; work()"


class Digested(Value, rename=None):
    """The result of a run in a worker; `lines` is empty unless asked for."""

    seed: int
    digest: str
    problem: str = ""
    lines: tuple[str, ...] = ()


class Work(Value, rename=None):
    """The plans that a worker runs, in this order."""

    plans: tuple[Plan, ...]
    has_lines: bool = False


class Row(Value, rename=None):
    """Seeds that were compared on one version of the state machines, consecutive ones from `first` to `last`."""

    machines: str
    pythons: str
    first: int
    last: int
    differing: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The row as a line of the table."""
        differing = ", ".join(map(str, self.differing)) or "none"
        return f"| `{self.machines}` | {self.pythons} | {self.first}-{self.last} | {differing} |"


class Interpreter(Value, rename=None):
    """A Python with its hash seed."""

    path: str
    hash_seed: int

    def run(self, work: Work) -> dict[int, Digested]:
        """Run plans in a process of its own; raises RuntimeError when it ends without all results."""
        done = subprocess.run(
            [self.path, "-c", WORKER],
            input=msgspec.json.encode(work),
            env=os.environ | {"PYTHONHASHSEED": str(self.hash_seed)},
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.path} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        found = msgspec.json.decode(done.stdout.splitlines()[-1], type=tuple[Digested, ...])
        return {each.seed: each for each in found}

    def version(self) -> str:
        """Its version, as 3.12.1."""
        program = "import platform; print(platform.python_version())"
        return subprocess.run([self.path, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def work() -> None:
    """A worker's process: reads its work as JSON from standard input and writes the results as one line."""
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Work)
    found = []
    for plan in given.plans:
        report = run_plan(plan)
        lines = tuple(report.transcript) if given.has_lines else ()
        found.append(Digested(seed=plan.seed, digest=report.digest, problem=report.problem, lines=lines))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(found) + b"\n")


def compare(
    count: int,
    path: Path,
    *,
    other_python: str = "",
    tell: Callable[[str], None],
    fixed: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Compare `count` seeds after those of the ledger at `path`; returns 1 when a seed has two digests, else 0.

    `other_python` is the second interpreter, by default this one with another hash seed. `fixed` replaces drawn
    fields of the plans besides `SHORT`.
    """
    one, other = (
        Interpreter(path=sys.executable, hash_seed=1),
        Interpreter(path=other_python or sys.executable, hash_seed=2),
    )
    pythons = " and ".join(dict.fromkeys((platform.python_version(), other.version())))
    rows = read_rows(path.read_text("utf-8"))
    machines = ledger.fingerprint(Path(yurt.__file__).parent)
    if not rows or (rows[-1].machines, rows[-1].pythons) != (machines, pythons):
        first = rows[-1].last + 1 if rows else 1
        rows.append(Row(machines=machines, pythons=pythons, first=first, last=first - 1))
    end, has_differing = rows[-1].last + count, False
    while rows[-1].last < end:
        seeds = range(rows[-1].last + 1, min(rows[-1].last + BATCH, end) + 1)
        plans = tuple(draw(seed, **{**SHORT, **fixed}) for seed in seeds)
        differing = _differing(plans, one, other, tell)
        has_differing |= bool(differing)
        rows[-1] = replace(rows[-1], last=seeds[-1], differing=(*rows[-1].differing, *differing))
        path.write_text(with_rows(path.read_text("utf-8"), rows), "utf-8")
        tell(f"seeds {seeds[0]}-{seeds[-1]}: {len(seeds) - len(differing)} of {len(seeds)} have one digest")
    return 1 if has_differing else 0


def _differing(
    plans: Sequence[Plan], one: Interpreter, other: Interpreter, tell: Callable[[str], None]
) -> tuple[int, ...]:
    """The seeds with two digests; tells the first lines that differ."""
    ones, others = _both(one, other, tuple(plans))
    for plan in plans:
        if ones[plan.seed].problem:
            tell(f"seed {plan.seed} fails: {ones[plan.seed].problem.splitlines()[0]}\n  {_plan_text(plan)}")
    found = [plan for plan in plans if ones[plan.seed].digest != others[plan.seed].digest]
    for plan in found:
        pair = _both(one, other, (plan,), has_lines=True)
        first, second = (each[plan.seed].lines for each in pair)
        tell(f"seed {plan.seed} has two digests; {first_difference(first, second)}\n  {_plan_text(plan)}")
    return tuple(plan.seed for plan in found)


def _both(
    one: Interpreter, other: Interpreter, plans: tuple[Plan, ...], *, has_lines: bool = False
) -> tuple[dict[int, Digested], dict[int, Digested]]:
    """The results of both interpreters, which run side by side."""
    works = Work(plans=plans, has_lines=has_lines), Work(plans=plans[::-1], has_lines=has_lines)
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(each.run, work) for each, work in zip((one, other), works, strict=True)]
        first, second = (each.result() for each in running)
    return first, second


def first_difference(one: Sequence[str], other: Sequence[str]) -> str:
    """The first line in which two transcripts differ, or that they are equal."""
    for at in range(max(len(one), len(other))):
        pair = [each[at] if at < len(each) else "the end" for each in (one, other)]
        if pair[0] != pair[1]:
            return f"line {at + 1} is\n    {pair[0]}\n    {pair[1]}"
    return "alone in its process it has one: it depends on the runs before it"


def _plan_text(plan: Plan) -> str:
    return f"replay: python -m yurt.testing.sim --plan '{msgspec.json.encode(plan).decode()}'"


def read_rows(text: str) -> list[Row]:
    """The rows of a ledger, oldest first."""
    rows = []
    for machines, pythons, first, last, differing in ROW.findall(_between(text)):
        seeds = () if differing == "none" else tuple(map(int, differing.split(", ")))
        rows.append(Row(machines=machines, pythons=pythons, first=int(first), last=int(last), differing=seeds))
    return rows


def with_rows(text: str, rows: Sequence[Row]) -> str:
    """The ledger's text with these rows in its table."""
    table = "\n".join([HEAD, *(row.text for row in rows)])
    return text.replace(f"{BEGIN}{_between(text)}{END}", f"{BEGIN}\n{table}\n{END}")


def _between(text: str) -> str:
    begin = text.index(BEGIN) + len(BEGIN)
    return text[begin : text.index(END)]
