"""`make sim`: seeds that have not run yet, in processes of their own, recorded in the ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from yurt.testing.sim.campaign.coverage import Gaps, read_gaps
from yurt.testing.sim.campaign.ledger import read_rows
from yurt.testing.sim.campaign.search import search
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.run import Report

SMALL = {
    "servers": 3, "clients": 1, "users": 1, "active_s": 3.0, "user_pause_s": 0.5, "features": ("service",),
    "has_acl": False, "has_devices": False,
}  # fmt: skip
LEDGER = """<!-- sim-ledger: begin -->
<!-- sim-ledger: end -->
<!-- sim-coverage: begin --><!-- sim-coverage: end -->
"""


class InProcess:
    """A pool whose runs are empty reports, made at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""

    def apply_async(self, _run: object, plans: tuple[Plan]) -> InProcess:
        made = InProcess()
        made.plan = plans[0]
        return made

    def get(self) -> Report:
        return Report(self.plan, problem="", digest="", virtual_s=1.0, cpu_s=10.0, index=1, counts=Counter())


def test_a_search_without_fixed_fields_runs_drawn_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = tmp_path / "ledger.md", list[str]()
    path.write_text(LEDGER, "utf-8")
    pools = SimpleNamespace(Pool=lambda *_, **__: InProcess())
    monkeypatch.setattr("yurt.testing.sim.campaign.search.get_context", lambda _: pools)

    assert search(25 / 3600, path, tell=told.append) == 0

    (row,) = read_rows(path.read_text("utf-8"))
    assert (row.first, row.last - row.first + 1, len(told)) == (1, 3, 3)


@pytest.mark.keeps_processes  # multiprocessing's tracker of resources lives as long as its interpreter
@pytest.mark.timeout(300)
def test_a_search_records_its_seeds_and_what_they_exercised(tmp_path: Path) -> None:
    path, told = tmp_path / "ledger.md", list[str]()
    path.write_text(LEDGER, "utf-8")

    exit_code = search(1e-9, path, tell=told.append, fixed=SMALL)

    (row,) = read_rows(path.read_text("utf-8"))
    assert (row.first, row.last, exit_code) == (1, 1, int(bool(row.failing)))
    assert len(told) == 1 and told[0].startswith("seed 1: ")
    assert "RegisterNode" in Gaps().commands - read_gaps(path.read_text("utf-8")).commands
