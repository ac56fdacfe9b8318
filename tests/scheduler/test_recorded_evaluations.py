"""The recorded evaluations of Nomad's own scenarios reduce to the same shape, save for the differences that are
named.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.rows.recorded_evaluations import load, run

KNOWN = Path(__file__).parents[3] / "shared/corpus/scheduler"
CASES = Path(os.environ.get("YURT_SCHEDULER_CASES", KNOWN))
"""A folder with `cases.jsonl.gz`, or such a file; `shape.py` is the one beside it, or the known one."""
ROLLS_BY_DEPLOYMENT = "a system job is updated by a deployment since 1.11; 1.1.2 made an evaluation for its next step"
WAITS_FOR_CLIENT = "no placement for a group while a lost client may not have stopped its allocation yet"
TRIES_AGAIN = "a system job's evaluation that ends after too many refused plans leaves one that tries again"
DIFFERENT: Mapping[str, str] = {
    "TestSystemSched_JobModify_Rolling": ROLLS_BY_DEPLOYMENT,
    "TestServiceSched_StopAfterClientDisconnect/#00": WAITS_FOR_CLIENT,
    "TestSystemSched_RetryLimit": TRIES_AGAIN,
}
"""Cases whose shape differs, by the name of their test, and the rule that explains it."""

FOLDER, FILE = (CASES.parent, CASES) if CASES.is_file() else (CASES, CASES / "cases.jsonl.gz")
RECORDS = load(FILE)


def _shape_of(record: dict[str, Any]) -> Any:
    path = next(folder / "shape.py" for folder in (FOLDER, KNOWN) if (folder / "shape.py").exists())
    spec = importlib.util.spec_from_file_location("recorded_shape", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return json.loads(module.shape(record))


def _numbers() -> Iterator[Any]:
    if not RECORDS:
        yield pytest.param(-1, marks=pytest.mark.skip(reason="the recorded evaluations are not on this machine"))
    for number, record in enumerate(RECORDS):
        yield pytest.param(number, id=f"{number}-{record['test']}")


@pytest.mark.parametrize("number", list(_numbers()))
def test_a_recorded_evaluation_reduces_to_the_same_shape(number: int) -> None:
    record = RECORDS[number]
    answer = _shape_of(run(record))
    if answer != record["shape"] and record["test"] in DIFFERENT:
        pytest.xfail(DIFFERENT[record["test"]])
    assert answer == record["shape"]


@pytest.mark.parametrize("number", [n for n, one in enumerate(RECORDS) if "Spread/" in one["test"]] or [-1])
def test_a_recorded_spread_puts_as_many_in_each_datacenter(number: int) -> None:
    if number < 0:
        pytest.skip("no recorded spread is on this machine")
    record = RECORDS[number]
    assert _by_datacenter(record, run(record)) == _by_datacenter(record, record)


def _by_datacenter(record: dict[str, Any], answer: dict[str, Any]) -> Counter[str]:
    datacenters = {node["ID"]: node["Datacenter"] for node in record["state"]["tables"]["nodes"]}
    found: Counter[str] = Counter()
    for plan in answer["plans"]:
        for node_id, allocs in plan["NodeAllocation"].items():
            found[datacenters[node_id]] += len(allocs)
    return found
