"""The Debian package, below a root of its own: installed, run, upgraded, rolled back, removed and purged."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs, wait_for
from yurt.testing.nightly import is_nightly
from yurt.testing.unique_ports import quiet_port

from e2e.test_install import commands

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_PYTHON = Path("/usr/bin/python3")
INSTALLED_MAX_MB = 400
BOOTSTRAP_LIMIT_S = 500
FETCH_ERRORS = ("Failed getting release", "Couldn't download", "Invalid Release", "wget", "Unable to fetch")
"""What debootstrap says when the archive cannot be reached."""

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


def archive() -> str:
    """The archive of Debian from which this machine installs its packages; "" for debootstrap's own."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(file.read_text() for file in files if file.is_file() and file.suffix in (".list", ".sources"))
    found = re.search(r"^(?:deb (?:\[[^]]*\] )?|URIs: )(https?://\S*/debian)/?(?:\s|$)", text, re.MULTILINE)
    return found[1] if found else ""


def bootstrap(release: str, root: Path) -> None:
    """Make a Debian in a folder; ends with all that debootstrap has started."""
    command = ["debootstrap", "--variant=minbase", "--include=python3,adduser", release, str(root), archive()]
    with subprocess.Popen(
        list(filter(None, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as made:
        try:
            said, _ = made.communicate(timeout=BOOTSTRAP_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)
    if made.returncode and "CI" not in os.environ and any(each in said for each in FETCH_ERRORS):
        pytest.skip(f"debootstrap cannot fetch Debian here: {said[-200:]}")
    assert made.returncode == 0, said[-2000:]


def unmount_below(root: Path) -> None:
    """Unmount what is mounted below a folder, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    places = [place for line in lines if (place := line.split()[4]).startswith(f"{root}/")]
    for place in reversed(places):
        subprocess.run(["umount", place], capture_output=True, check=False, timeout=60)


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Path]:
    """A new Debian of this machine's release, with the package's dependencies."""
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed (apt install debootstrap)")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if release.get("ID") != "debian":
        pytest.skip("this machine does not run Debian, whose Python the package is made for")
    root = tmp_path / "debian"
    try:
        bootstrap(release["VERSION_CODENAME"], root)
        mounted = subprocess.run(
            ["mount", "-t", "proc", "proc", root / "proc"], capture_output=True, text=True, check=False, timeout=60
        )
        if mounted.returncode:
            pytest.skip(f"/proc cannot be mounted here: {mounted.stderr.strip()}")
        yield root
    finally:
        unmount_below(root)
        # Should a mount remain, what lies behind it is the host's.
        subprocess.run(["rm", "-rf", "--one-file-system", root], check=False, timeout=120)


@pytest.mark.skipif(not is_nightly(), reason="debootstrap takes minutes: make nightly runs it")
@pytest.mark.timeout(BOOTSTRAP_LIMIT_S + 300)
def test_the_package_goes_through_its_life_in_a_debian_of_its_own(package: Path, newer: Path, debian: Path) -> None:
    def inside(*command: str) -> str:
        return run("chroot", debian, *command, PATH="/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND="noninteractive")

    def follow(section: str, part: str, file: str = "") -> str:
        ((apt, *words),) = commands(section, part)
        inside(apt, "-y", *(f"/tmp/{file}" if word.endswith(".deb") else word for word in words))
        return inside("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "yurt")

    shutil.copy(package, debian / "tmp" / "old.deb")
    shutil.copy(newer, debian / "tmp" / "new.deb")
    assert follow("As a Debian package", "apt install", "old.deb") == "0.1.0 installed"
    assert inside("getent", "passwd", "yurt").startswith("yurt:")
    shown = inside("stat", "-c", "%G %a", "/etc/yurt.d/yurt.hcl", "/var/lib/yurt")
    assert shown.splitlines() == ["yurt 640", "root 700"]
    assert "is valid" in inside("yurt", "config", "validate", "/etc/yurt.d")
    assert "yurt" in inside("su", "-s", "/bin/sh", "nobody", "-c", "yurt version").lower()

    ports = [quiet_port() for _ in range(3)]
    names = dict(zip(("http", "rpc", "serf"), ports, strict=True))
    (debian / "tmp" / "ports.json").write_text(json.dumps({"ports": names}))
    agent = subprocess.Popen(["chroot", debian, "yurt", "agent", "-dev", "-config", "/tmp/ports.json"])
    try:
        address = f"http://127.0.0.1:{ports[0]}"
        wait_for("the agent's node", lambda: "ready" in ask_nodes(debian, address))
    finally:
        agent.send_signal(signal.SIGINT)
        assert agent.wait(60) == 0

    assert follow("Upgrade", "apt install", "new.deb") == "0.1.1 installed"
    assert follow("Roll back", "apt install", "old.deb") == "0.1.0 installed"
    assert follow("Remove", "apt remove") == "0.1.0 config-files"
    ((apt, *words),) = commands("Remove", "apt purge")
    inside(apt, "-y", *words)
    assert not (debian / "var/lib/yurt").exists() and not (debian / "etc/yurt.d").exists()
    assert "yurt:" not in (debian / "etc/passwd").read_text()


def ask_nodes(root: Path, address: str) -> str:
    """What the command of the package says about the nodes; empty while no agent answers."""
    command = ["chroot", root, "yurt", "node", "status", f"-address={address}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
