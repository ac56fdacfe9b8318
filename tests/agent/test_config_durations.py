"""Every duration of the configuration is read from HCL and JSON alike, and a wrong one is named with its key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from yurt.agent.config_check import check
from yurt.agent.config_files import read_files
from yurt.agent.config_keys import ROOT, ConfigBlock

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "agent-config.md"


def durations(table: ConfigBlock, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all durations; a labelled block has the label "x"."""
    for name, entry in table.entries.items():
        path = (*above, name)
        if isinstance(entry, ConfigBlock):
            yield from durations(entry, (*path, "x") if entry.is_labelled else path)
        elif entry.type == "duration":
            yield path


PATHS: Final = sorted(durations(ROOT))


def document(path: tuple[str, ...], value: object) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def hcl(path: tuple[str, ...], value: object) -> str:
    """The same in HCL; labels stand between quotes."""
    text = f"{path[-1]} = {json.dumps(value)}"
    for at, name in reversed(list(enumerate(path[:-1]))):
        if name != "x":
            label = ' "x"' if path[at + 1] == "x" else ""
            text = f"{name}{label} {{\n{text}\n}}"
    return text + "\n"


def test_the_walk_finds_the_durations_of_every_part() -> None:
    assert len(PATHS) > 60
    assert {path[0] for path in PATHS} >= {
        "acl",
        "audit",
        "autopilot",
        "client",
        "limits",
        "rpc",
        "server",
        "telemetry",
    }


@pytest.mark.parametrize("text", ["24h0m0s", "1h30m", "5400s", "5400000ms"])
@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_duration_is_read_from_hcl_and_json(path: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (tmp_path / "a.hcl").write_text(hcl(path, text))
    (tmp_path / "a.json").write_text(json.dumps(document(path, text)))

    from_hcl, from_json = (read_files([str(tmp_path / name)])[0] for name in ("a.hcl", "a.json"))

    found: Any = from_hcl
    for name in path:
        found = found[name]
    assert (found, from_hcl) == (text, from_json)


@pytest.mark.parametrize("value", ["soon", "10", 10, "-5s", True])
@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_wrong_duration_is_named_with_its_key(path: tuple[str, ...], value: object) -> None:
    _, (problem,) = check(document(path, value), ROOT)

    assert path[-1] in problem.text
    assert "must be" in problem.text


@pytest.mark.skipif(not REFERENCE.is_file(), reason="no reference in ../shared beside the checkout")
def test_every_duration_of_the_reference_is_one_here() -> None:
    """Keys with a default such as "30s" in its tables, but for those of a service that is not there."""
    found, block = set(), ""
    for line in REFERENCE.read_text().splitlines():
        if heading := re.match(r"### (\w+) \(", line):
            block = heading[1]
        elif row := re.match(r'\| (\w+) \| string \|\s*"?\d+(?:ms|s|m|h)"?\s*\|', line):
            found.add((block, row[1]))
    ours = {(parent(path), path[-1]) for path in PATHS}

    assert len(found) > 40
    assert found - ours == {("telemetry", "circonus_submission_interval")}


def parent(path: tuple[str, ...]) -> str:
    """The block of a key; the reference calls the outermost one agent."""
    above = [name for name in path[:-1] if name != "x"]
    return above[-1] if above else "agent"
