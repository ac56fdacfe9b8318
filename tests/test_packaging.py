"""What a fresh installation resolves to is what was tested: dependencies have upper bounds, the constraints' own."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from yurt.agent.process.end_limit import END_LIMIT_S, LAST_WORDS_S
from yurt.agent.run import STOP_PARTS_LIMIT_S, STOP_TASKS_LIMIT_S

ROOT = Path(__file__).parent.parent
DISTRIBUTIONS = [
    ROOT / "core", ROOT / "jobspec",
    *(each.parent for folder in ("drivers", "devices") for each in sorted((ROOT / folder).glob("*/pyproject.toml"))),
]  # fmt: skip
REQUIREMENT = re.compile(r"([a-z0-9-]+)(?:\[[a-z]+\])?(.*)")


def required(folder: Path) -> list[tuple[str, str]]:
    """(name, specifier) of all dependencies of a distribution, optional ones too."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    texts = [*project.get("dependencies", ()), *chain.from_iterable(project.get("optional-dependencies", {}).values())]
    return [(found[1], found[2]) for text in texts if (found := REQUIREMENT.fullmatch(text))]


def upper(specifier: str) -> str:
    """The upper bound of `>=1,<2`, whatever marker follows it."""
    return next((part.strip() for part in specifier.partition(";")[0].split(",") if part.startswith("<")), "")


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_every_dependency_has_an_upper_bound_and_it_is_the_tested_one(folder: Path) -> None:
    tested = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    bounds = {found[1]: upper(found[2]) for text in tested if (found := REQUIREMENT.fullmatch(text))}
    for name, specifier in required(folder):
        assert upper(specifier), f"{name}{specifier} has no upper bound"
        if not name.startswith("yurt"):
            assert bounds.get(name) == upper(specifier), f"{name}: the constraints of the workspace say otherwise"


@pytest.fixture(scope="module")
def lists() -> ModuleType:
    """packaging/plugins.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("plugin_lists", ROOT / "packaging" / "plugins.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lists_of_plugins_follow_the_folders(lists: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in lists.texts(ROOT).items() if path.read_text() != text]
    assert not stale, f"run `make plugins`: {stale}"
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]
    brought = {found[1] for text in project["optional-dependencies"]["all"] if (found := REQUIREMENT.fullmatch(text))}
    assert brought == {
        tomllib.loads((each / "pyproject.toml").read_text())["project"]["name"] for each in DISTRIBUTIONS[2:]
    }


def test_a_new_driver_is_named_by_its_folder_alone(lists: ModuleType, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "core/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    folder = tmp_path / "drivers" / "dry_run"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "yurt-driver-dry-run"\nversion = "1.4.2"\n')

    texts = {path.parent.name: tomllib.loads(text) for path, text in lists.texts(tmp_path).items()}

    extras = texts["core"]["project"]["optional-dependencies"]
    assert extras["dry-run"] == extras["all"] == ["yurt-driver-dry-run>=1.4,<1.5"] and "testing" in extras
    sources = texts[tmp_path.name]["tool"]["uv"]["sources"]
    assert set(sources) == {"yurt", "yurt-jobspec", "yurt-driver-dry-run"}


def test_the_unit_waits_for_the_agent_and_lets_tasks_live() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "packaging" / "deb" / "yurt.service")
    service = dict(unit["Service"])
    assert (service["Type"], service["KillMode"]) == ("notify", "process")
    assert int(service["WatchdogSec"]) >= 60 and service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_the_configuration_of_the_package_is_valid() -> None:
    path = ROOT / "packaging" / "deb" / "yurt.hcl"
    command = [sys.executable, "-m", "yurt.cli.main", "config", "validate", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_waits_longer_than_an_agent_takes_to_stop() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "packaging/deb/yurt.service")
    longest_s = STOP_TASKS_LIMIT_S + STOP_PARTS_LIMIT_S + END_LIMIT_S + LAST_WORDS_S
    assert unit.getint("Service", "TimeoutStopSec") > longest_s
