"""The alert rules and the dashboard name metrics that exist, and the dashboard is what its table makes."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

from docs.generator.metrics import all_names

SHIPPED = Path(__file__).parents[2] / "packaging" / "monitoring"


def test_the_dashboard_and_the_alerts_name_metrics_that_exist() -> None:
    texts = "".join((SHIPPED / name).read_text() for name in ("alerts.yml", "grafana-dashboard.json"))
    asked = {re.sub("_(sum|count)$", "", name) for name in re.findall(r"\bnomad_[A-Za-z_]+", texts)}
    known = {re.sub(r"[.-]", "_", name) for name in all_names()}
    patterns = [re.sub("<[a-z]+>", "[a-z_]+", name) for name in known if "<" in name]
    assert [name for name in asked - known if not any(re.fullmatch(each, name) for each in patterns)] == []


def test_the_dashboard_is_what_its_table_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_dashboard", SHIPPED / "make_dashboard.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert json.loads(made.FILE.read_text()) == made.dashboard()
