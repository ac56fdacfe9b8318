"""A Docker engine of its own for the tests, with one small image made of busybox.

containerd is a process of its own, as Debian's services have it, so that killing dockerd kills nothing else. The bridge
is its own too, and it leaves the firewall alone, so that it disturbs no other engine of this machine.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "yurt-test/busybox:1"
APPLETS = (
    "sh", "sleep", "echo", "cat", "env", "id", "ls", "true", "printf", "seq", "dd", "httpd", "kill", "yes", "head",
    "df", "nc", "tail", "hostname", "mount", "grep", "sysctl", "readlink", "nproc", "trap", "date",
    "stat", "stty", "touch", "tr",
)  # fmt: skip
START_LIMIT_S = 60.0
USERS = "user:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
"""One user, whose password is `secret`, as htpasswd writes it."""


class DockerEngine:
    """A dockerd that this test session started, with folders and a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self.containerd: subprocess.Popen[bytes] | None = None
        self.bridge = f"ydk{os.getpid() % 100_000}"
        subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 256}.1/24"
        for command in (
            ("add", self.bridge, "type", "bridge"), ("set", self.bridge, "up"),
        ):  # fmt: skip
            subprocess.run(["ip", "link", *command], check=True, timeout=10)
        subprocess.run(["ip", "address", "add", subnet, "dev", self.bridge], check=True, timeout=10)

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program whose output goes to the log."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        address = str(self.folder / "containerd.sock")
        if self.containerd is None:
            config = self.folder / "containerd.toml"
            config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
            self.containerd = self.spawn(
                "containerd", "--config", str(config), "--root", str(self.folder / "containerd"),
                "--state", str(self.folder / "containerd-state"), "--address", address,
            )  # fmt: skip
        self.process = self.spawn(
            "dockerd", "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
            "--host", self.endpoint, "--pidfile", str(self.folder / "pid"), "--containerd", address, "--live-restore",
            "--bridge", self.bridge, "--iptables=false", "--ip-masq=false",
        )  # fmt: skip
        limit = time.monotonic() + START_LIMIT_S
        while self.process.poll() is None and time.monotonic() < limit:
            if self.docker("version").returncode == 0:
                return
            time.sleep(0.05)
        pytest.skip("dockerd does not start here: " + (self.folder / "log").read_text()[-500:])

    def docker(self, *args: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """The engine's own command line."""
        return subprocess.run(
            ["docker", "--config", str(self.folder / "cli"), "--host", self.endpoint, *args],
            input=data,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def send(self, number: int) -> None:
        """A signal to dockerd alone."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill dockerd as a crash would; what runs in containers goes on."""
        self.send(signal.SIGKILL)
        assert self.process
        self.process.wait(START_LIMIT_S)
        (self.folder / "pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Remove all containers, and end."""
        found = self.docker("ps", "-aq").stdout.decode().split()
        if found:
            self.docker("rm", "-f", *found)
        for process in (self.process, self.containerd):
            if process:
                process.terminate()
                process.wait(START_LIMIT_S)
        subprocess.run(["ip", "link", "del", self.bridge], check=True, timeout=10)

    def save(self, image: str, path: str) -> None:
        """Write an image to an archive, and forget it."""
        assert self.docker("save", "-o", path, image).returncode == 0
        assert self.docker("rmi", image).returncode == 0


def image_archive() -> bytes:
    """A root file system with busybox and nothing else."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder in ("bin", "tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(str(shutil.which("busybox")), "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return made.getvalue()


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """A running engine with the image `IMAGE`."""
    for program in ("dockerd", "containerd", "docker", "busybox", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt install docker.io busybox-static iproute2)")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    folder = Path(tempfile.mkdtemp(prefix="yurt-docker-"))
    made = DockerEngine(folder)
    try:
        made.start()
        imported = made.docker("import", "--change", 'CMD ["sleep", "1000"]', "-", IMAGE, data=image_archive())
        assert imported.returncode == 0, imported.stderr
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Registry:
    """A registry on loopback that lets `user` in with `secret`, or everybody."""

    def __init__(self, folder: Path, *, is_open: bool) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        users = folder / "users"
        users.write_text(USERS)
        auth = f"auth: {{htpasswd: {{realm: test, path: {users}}}}}" if not is_open else ""
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'store'}}}}}\n"
            f"http: {{addr: {self.address}}}\n{auth}\n"
        )
        with (folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)

    def push(self, engine: DockerEngine, name: str) -> str:
        """Put a new image there under a name, and forget it here; the name to pull."""
        full = f"{self.address}/{name}"
        imported = engine.docker("import", "--change", f"LABEL name={full}", "-", full, data=image_archive())
        assert imported.returncode == 0, imported.stderr
        limit = time.monotonic() + START_LIMIT_S
        engine.docker("login", "-u", "user", "-p", "secret", self.address)
        while engine.docker("push", full).returncode != 0:
            assert time.monotonic() < limit, "the registry takes nothing"
            engine.docker("login", "-u", "user", "-p", "secret", self.address)
        assert engine.docker("rmi", full).returncode == 0
        return full

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(START_LIMIT_S)


def running_registry(folder: Path, *, is_open: bool) -> Iterator[Registry]:
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (apt install docker-registry)")
    made = Registry(folder, is_open=is_open)
    yield made
    made.stop()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that everybody may use."""
    yield from running_registry(tmp_path, is_open=True)


@pytest.fixture
def closed_registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that asks who is there."""
    yield from running_registry(tmp_path, is_open=False)
