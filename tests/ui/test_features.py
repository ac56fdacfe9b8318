"""Every feature of Nomad's UI has a row in the table of features, with a test that exists or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/web-ui-features.md").read_text()
INVENTORY = ROOT.parent / "shared/reference/ui.md"
ROW = re.compile(r"^\| ([A-Z]+\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
KINDS = {"G", "J", "R", "D", "A", "T", "L", "F", "X", "C", "S", "TP", "ST", "V", "E", "K", "U"}


def test_the_tests_that_are_named_exist() -> None:
    files = (*(ROOT / "e2e/ui").glob("test_*.py"), ROOT / "e2e/test_login.py")
    written = "".join(path.read_text() for path in files)

    assert sorted(set(re.findall(r"`(test_\w+)`", PAGE)) - set(re.findall(r"def (test_\w+)", written))) == []


def test_every_row_has_a_test_or_a_reason() -> None:
    rows = ROW.findall(PAGE)

    assert len(rows) == len({name for name, _, _ in rows}) > 80
    assert all(answer.startswith("`test_") or len(answer) > 30 for _, _, answer in rows)


@pytest.mark.skipif(not INVENTORY.exists(), reason="the inventory of Nomad's UI is not here")
def test_no_feature_of_the_inventory_is_missing() -> None:
    known = re.findall(r"^\| ([A-Z]+)(\d+) \|", INVENTORY.read_text(), re.MULTILINE)

    assert {f"{kind}{number}" for kind, number in known if kind in KINDS} == {name for name, _, _ in ROW.findall(PAGE)}
