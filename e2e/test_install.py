"""The built wheels, installed into an empty environment, run an agent: as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534


def uv() -> str:
    """The uv that set this checkout up."""
    private = ROOT / ".uv" / "bin" / "uv"
    found = shutil.which("uv") or (str(private) if private.exists() else None)
    assert found, "uv is neither on PATH nor in .uv: run `make setup` first"
    return found


def python_for_everyone() -> str | None:
    """A Python 3.11 or newer that an ordinary user may execute."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            user = NOBODY if os.geteuid() == 0 else None
            if subprocess.run(probe, user=user, capture_output=True, timeout=20, check=False, cwd="/").returncode == 0:
                return name
        except OSError:
            continue
    return None


def open_to_everyone(folder: Path) -> None:
    """Let every user reach a folder of pytest's, which are for their owner only."""
    for path in (folder, *folder.parents):
        path.chmod(0o755)
        if path.name.startswith("pytest-of-"):
            return


def run(*arguments: str, **environment: str) -> None:
    """Run uv in the checkout."""
    everything = {**os.environ, "UV_LINK_MODE": "copy", **environment}
    subprocess.run([uv(), *arguments], cwd=ROOT, env=everything, check=True, timeout=300, capture_output=True)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of all packages."""
    folder = tmp_path_factory.mktemp("wheels")
    run("build", "--all-packages", "--wheel", "--out-dir", str(folder))
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Path]:
    """The `yurt` command of an environment that holds nothing but our wheels and what they need."""
    folder = tmp_path_factory.mktemp("install")
    open_to_everyone(folder)
    venv = folder / "venv"
    run("venv", "--python", python_for_everyone() or sys.executable, str(venv))
    constraints = folder / "constraints.txt"
    constraints.write_text("immutables<0.22\n")
    files = [str(path) for path in wheels.glob("*.whl")]
    assert len(files) >= 4
    run("pip", "install", "--python", str(venv / "bin" / "python"), "-c", str(constraints), *files)
    yield venv / "bin" / "yurt"


@pytest.mark.parametrize("user", [None, NOBODY], ids=["this user", "an ordinary user"])
def test_an_agent_of_the_wheels_runs_a_job(installed: Path, tmp_path: Path, user: int | None) -> None:
    if user is not None and (os.geteuid() != 0 or python_for_everyone() is None):
        pytest.skip("needs root to become another user, and a Python that every user may execute")
    folder = tmp_path / "run"
    folder.mkdir()
    open_to_everyone(folder)
    folder.chmod(0o777)
    agent = Agent(folder, data_dir=None, command=[str(installed)], user=user)

    agent.start()
    try:
        register(agent, raw_exec_job("hello", "/bin/sleep", "1000"))
        agent.running("hello", 1)
        status = agent.cli("job", "status", "hello")
    finally:
        code = agent.interrupt()

    assert status.returncode == 0
    assert "running" in status.stdout
    assert code == 0


def test_a_tool_with_all_packages_has_every_driver_and_is_removed_again(wheels: Path, tmp_path: Path) -> None:
    """The two commands of docs/howto/install.md for a user's own tool."""
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    run("tool", "install", "--python", sys.executable, "--find-links", str(wheels), "yurt[all]", **places)
    command = tmp_path / "bin" / "yurt"
    agent = Agent(tmp_path, data_dir=None, command=[str(command)])

    agent.start()
    try:
        listed = agent.cli("plugin", "list", "-json")
    finally:
        agent.interrupt()

    plugins = {each["Name"] for each in json.loads(listed.stdout)}
    drivers = {
        path.name.replace("-", "_") for path in (ROOT / "drivers").iterdir() if (path / "pyproject.toml").exists()
    }
    assert drivers <= plugins and "nvidia" in plugins
    run("tool", "uninstall", "yurt", **places)
    assert not command.exists()
