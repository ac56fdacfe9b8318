"""The built wheels run an agent as root and as an ordinary user, and are installed, upgraded, rolled back and removed.

The commands are those of docs/howto/install.md, with other folders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, pid_is_alive, raw_exec_job, register, stop_jobs, wait_for

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
PAGE = ROOT / "docs" / "howto" / "install.md"
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
OLD, NEW = "0.1.0", "0.1.1"
QUICKLY = {"UV_LINK_MODE": "copy", "PIP_NO_COMPILE": "1"}
"""Settings of uv and pip."""


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
    everything = {**os.environ, **QUICKLY, **environment}
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


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """A folder with the same wheels as the next version."""
    folder = tmp_path_factory.mktemp("newer")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(folder / wheel.name.replace(OLD, NEW), "w") as new:
            for name in old.namelist():
                new.writestr(name.replace(f"{OLD}.dist-info", f"{NEW}.dist-info"), as_newer(name, old.read(name)))
    return folder


def as_newer(name: str, data: bytes) -> bytes:
    """A file of a wheel in the next version."""
    if name.endswith(("dist-info/METADATA", "yurt/__init__.py")):
        return data.replace(OLD.encode(), NEW.encode(), 1)
    if name.endswith("dist-info/RECORD"):
        named = data.replace(f"{OLD}.dist-info".encode(), f"{NEW}.dist-info".encode())
        return re.sub(rb",sha256=.*", b",,", named)
    return data


def commands(section: str, part: str) -> list[list[str]]:
    """The commands of the page's section that contain this part."""
    text = PAGE.read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip() for block in BLOCK.findall(text) for line in block.splitlines()]
    found = [shlex.split(line) for line in lines if part in line]
    assert found, f"no command with {part!r} in {section!r} of {PAGE}"
    return found


def follow(section: str, part: str, places: Mapping[str, str], **environment: str) -> str:
    """Run such commands with other places, and return what they print."""
    printed = ""
    for words in commands(section, part):
        moved = [places.get(word, word) for word in words]
        moved = [word.replace("/opt/yurt", places.get("/opt/yurt", "")) for word in moved]
        done = subprocess.run(
            moved,
            env={**os.environ, **QUICKLY, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{moved}: {done.stdout}{done.stderr}"
        printed += done.stdout
    return printed


def ask(agent: Agent, section: str, part: str) -> None:
    """Run the page's command against the agent."""
    ((program, *words),) = commands(section, part)
    assert program == "yurt"
    done = agent.cli(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def versions(python: Path) -> set[str]:
    """The versions of all of our packages in an environment."""
    code = (
        "from importlib.metadata import distributions; "
        "print(*{each.version for each in distributions() if each.name.startswith('yurt')})"
    )
    return set(subprocess.check_output([python, "-c", code], text=True, timeout=60).split())


@pytest.mark.timeout(600)
def test_an_environment_is_upgraded_and_rolled_back_below_running_tasks_and_removed(
    wheels: Path, newer: Path, tmp_path: Path
) -> None:
    venv, data_dir = tmp_path / "venv", tmp_path / "data"
    places = {"/opt/yurt": str(venv), "python3": sys.executable, "dist": str(wheels)}
    assert f"Yurt v{OLD}" in follow("From wheels", "/opt/yurt", places)
    agent = Agent(tmp_path, data_dir=data_dir, command=[str(venv / "bin" / "yurt")])
    try:
        agent.start()
        register(agent, raw_exec_job("stays", "/bin/sh", "-c", "echo $$; exec sleep 1000"))
        (alloc,) = agent.running("stays", 1)
        pid = int(wait_for("its pid", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout))
        ask(agent, "Upgrade", "snapshot save")

        follow("Upgrade", "/opt/yurt", {**places, "dist": str(newer)})
        agent.interrupt()
        agent.start()
        assert versions(venv / "bin" / "python") == {NEW} and pid_is_alive(pid)
        assert agent.running("stays", 1)[0]["ID"] == alloc["ID"]

        agent.interrupt()
        follow("Roll back", "/opt/yurt", places)
        agent.start()
        assert versions(venv / "bin" / "python") == {OLD} and pid_is_alive(pid)
        ask(agent, "Roll back", "snapshot restore")
        assert agent.running("stays", 1)[0]["ID"] == alloc["ID"]

        ask(agent, "Remove", "node drain")
        wait_for("the end of the task", lambda: not pid_is_alive(pid))
    finally:
        stop_jobs(agent)
        agent.interrupt()
    follow("Remove", "/opt/yurt", places)
    assert not venv.exists()


@pytest.mark.timeout(300)
def test_a_tool_with_all_packages_has_every_driver_is_upgraded_rolled_back_and_removed(
    wheels: Path, newer: Path, tmp_path: Path
) -> None:
    homes = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_PYTHON": sys.executable,
    }
    places = {"uv": uv(), "dist": str(wheels)}
    follow("From wheels", "uv tool", places, **homes)
    command, python = tmp_path / "bin" / "yurt", tmp_path / "tools" / "yurt" / "bin" / "python"
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
    follow("Upgrade", "uv tool", {**places, "dist": str(newer)}, **homes)
    assert versions(python) == {NEW}
    follow("Roll back", "uv tool", places, **homes)
    assert versions(python) == {OLD}
    follow("Remove", "uv tool", places, **homes)
    assert not command.exists()
