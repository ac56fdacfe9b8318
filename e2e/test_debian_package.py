"""The Debian package, below a root of its own: installed, run, upgraded, rolled back, removed and purged."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_PYTHON = Path("/usr/bin/python3")
INSTALLED_MAX_MB = 400

pytestmark = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None or os.geteuid() != 0 or not SYSTEM_PYTHON.exists(),
    reason="needs dpkg, root, and Debian's python3",
)


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout."""
    private = ROOT / ".uv" / "bin" / "uv"
    uv = shutil.which("uv") or (str(private) if private.exists() else None)
    assert uv, "uv is neither on PATH nor in .uv: run `make setup` first"
    dist = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", dist)
    python = ROOT / ".venv" / "bin" / "python"
    return Path(run(ROOT / "packaging" / "deb" / "build.sh", dist, UV=uv, PYTHON=str(python)).strip())


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package as the next version, not compressed."""
    folder = tmp_path_factory.mktemp("newer")
    run("dpkg-deb", "-R", package, folder / "tree")
    control = folder / "tree" / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("Version: 0.1.0", "Version: 0.1.1"))
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", folder / "tree", folder / "yurt.deb")
    return folder / "yurt.deb"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty root with dpkg's own folders."""
    root = tmp_path_factory.mktemp("machine")
    for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    yield root


def dpkg(root: Path, *arguments: str | Path) -> str:
    return run("dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", *arguments)


def version(root: Path) -> str:
    return run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Version} ${db:Status-Status}", "yurt")


def test_the_package_goes_through_its_life(package: Path, newer: Path, machine: Path, tmp_path: Path) -> None:
    dpkg(machine, "-i", package)
    assert version(machine) == "0.1.0 installed"
    for name in (
        "usr/bin/yurt", "lib/systemd/system/yurt.service", "etc/yurt.d/yurt.hcl", "usr/share/man/man1/yurt-job.1.gz",
        "usr/share/bash-completion/completions/yurt", "usr/share/yurt/monitoring/alerts.yml",
    ):  # fmt: skip
        assert (machine / name).is_file(), name
    size_mb = sum(file.lstat().st_size for file in (machine / "usr").rglob("*")) / 1e6
    assert size_mb < INSTALLED_MAX_MB
    if shutil.which("systemd-analyze"):
        unit = machine / "lib/systemd/system/yurt.service"
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert "Unknown" not in verified.stderr, verified.stderr  # the program that it names is not on this machine

    command = [str(machine / "usr/lib/yurt/bin/python3"), "-P", "-m", "yurt.cli.main"]
    agent = Agent(tmp_path, data_dir=tmp_path / "data", command=command)
    agent.start()
    try:
        register(agent, raw_exec_job("packaged", "/bin/sleep", "1000"))
        agent.running("packaged", 1)
    finally:
        stop_jobs(agent)
        agent.interrupt()

    config = machine / "etc/yurt.d/yurt.hcl"
    config.write_text(config.read_text().replace('"127.0.0.1"', '"10.0.0.1"'))
    state = machine / "var/lib/yurt/server"
    state.mkdir()
    dpkg(machine, "-i", newer)
    assert version(machine) == "0.1.1 installed" and '"10.0.0.1"' in config.read_text()
    dpkg(machine, "--force-downgrade", "-i", package)
    assert version(machine) == "0.1.0 installed" and '"10.0.0.1"' in config.read_text() and state.is_dir()

    dpkg(machine, "-r", "yurt")
    assert config.is_file() and state.is_dir() and not (machine / "usr/bin/yurt").exists()
    dpkg(machine, "-P", "yurt")
    assert not config.exists() and not state.exists() and not (machine / "usr/lib/yurt").exists()
