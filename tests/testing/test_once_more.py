"""What failed side by side runs once more alone: a race passes then, everything else stays a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RACE = "import os, pytest\n@pytest.mark.parametrize('word', ['a::b', 'c[d] \\xe9'])\ndef test_races(word): assert {}\n"
FIRST_TIME = "os.environ['TIME'] != '1'"


def run(folder: Path, *words: str, time: int) -> subprocess.CompletedProcess[str]:
    """Python in a folder of tests, which may ask how often they ran."""
    plugins = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    environment = {**os.environ, **plugins, "TIME": str(time)}
    argv = [sys.executable, *words]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def run_twice(folder: Path, *words: str, **modules: str) -> subprocess.CompletedProcess[str]:
    """These modules side by side, and what failed once more."""
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "test_good.py").write_text("def test_good(): pass\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    assert run(folder, "-m", "pytest", *words, time=1).returncode != 0
    return run(folder, str(ROOT / ".ci/failed.py"), time=2)


def test_what_passes_alone_is_noted_as_a_race(tmp_path: Path) -> None:
    again = run_twice(tmp_path, "-n", "2", test_race=RACE.format(FIRST_TIME))
    raced = (tmp_path / ".pytest_cache/raced").read_text().splitlines()
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 passed" in again.stdout
    assert set(raced) == {"test_race.py::test_races[a::b]", "test_race.py::test_races[c[d] \\xe9]"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (RACE.format("False"), "AssertionError"),
        ("import nothing_of_that_name\n", "nothing to run once more"),
        (RACE.format(f"{FIRST_TIME} or pytest.exit('the machine goes down')"), "nothing to run once more"),
        (RACE.replace("['a::b', 'c[d] \\xe9']", "range(31)").format(FIRST_TIME), "races make no more"),
    ],
    ids=["fails-again", "not-collected", "interrupted", "too-many"],
)
def test_what_is_no_race_stays_a_failure(tmp_path: Path, text: str, why: str) -> None:
    again = run_twice(tmp_path, test_fault=text)
    assert again.returncode != 0
    assert why in again.stdout + again.stderr
    assert not (tmp_path / ".pytest_cache/raced").exists()


def test_a_run_that_ended_at_its_first_failure_leaves_nothing_to_mend(tmp_path: Path) -> None:
    again = run_twice(tmp_path, "--exitfirst", test_race=RACE.format(FIRST_TIME))
    assert "the last run of pytest ended with 2" in again.stderr


def test_a_test_that_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    text = RACE.format(f"{FIRST_TIME} and pytest.skip('not here')")
    again = run_twice(tmp_path, test_fault=text)
    assert "did not pass when run once more: test_fault.py::test_races" in again.stderr


@pytest.mark.parametrize(
    ("environment", "is_same"), [({"CI": "true"}, True), ({}, False), ({"CI": "true", "YURT_NIGHTLY": "1"}, False)]
)
def test_only_ci_draws_the_same_cases_each_time(environment: dict[str, str], is_same: bool) -> None:
    code = "import conftest; from hypothesis import settings; print(settings().derandomize)"
    outside = {name: value for name, value in os.environ.items() if name not in ("CI", "YURT_NIGHTLY")}
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**outside, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{is_same}\n"
