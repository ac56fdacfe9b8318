"""`make sim`: seeds that have not run yet, in processes of their own, recorded in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.testing.sim.campaign.coverage import Gaps, read_gaps
from yurt.testing.sim.campaign.ledger import read_rows
from yurt.testing.sim.campaign.search import search

SMALL = {
    "servers": 3, "clients": 1, "users": 1, "active_s": 3.0, "user_pause_s": 0.5, "features": ("service",),
    "has_acl": False, "has_devices": False,
}  # fmt: skip
LEDGER = """<!-- sim-ledger: begin -->
<!-- sim-ledger: end -->
<!-- sim-coverage: begin --><!-- sim-coverage: end -->
"""


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
