"""A podman engine of its own for the tests, with one small image made of busybox.

Its storage, its socket and its events are private, so that it disturbs no other engine of this machine. It runs runc,
with limits that need no rights beyond those of a container.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "localhost/yurt-test/busybox:1"
START_LIMIT_S = 30.0
APPLETS = (
    "sh", "sleep", "echo", "cat", "env", "id", "ls", "true", "printf", "seq", "dd", "httpd", "kill", "yes", "head",
    "df", "nc", "tail", "hostname", "mount", "grep", "sysctl", "readlink", "nproc", "trap", "date",
    "stat", "touch", "tr",
)  # fmt: skip
CONFIG = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "cni"
network_config_dir = "{folder}/networks"
"""


def network(bridge: str, subnet: str) -> dict[str, object]:
    """podman's default network, on a bridge of its own."""
    return {
        "cniVersion": "0.4.0",
        "name": "podman",
        "plugins": [
            {
                "type": "bridge", "bridge": bridge, "isGateway": True, "ipMasq": True, "hairpinMode": True,
                "ipam": {
                    "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": subnet}]],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "tuning"},
        ],
    }  # fmt: skip


class PodmanEngine:
    """A podman service that this test session started, with folders and a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "podman.sock"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "networks").mkdir()
        (folder / "containers.conf").write_text(CONFIG.format(folder=folder))
        self.bridge = f"ypd{os.getpid() % 100_000}"
        subnet = f"10.{150 + os.getpid() % 50}.{os.getpid() // 50 % 256}.0/24"
        (folder / "networks" / "87-podman.conflist").write_text(json.dumps(network(self.bridge, subnet)))
        self.command = (
            "podman", "--root", str(folder / "storage"), "--runroot", str(folder / "run"),
            "--tmpdir", str(folder / "tmp"), "--cgroup-manager", "cgroupfs", "--runtime", "runc",
        )  # fmt: skip
        self.environ = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "system", "service", "--time", "0", f"unix://{self.socket}"],
                stdout=log, stderr=log, start_new_session=True, env=self.environ,
            )  # fmt: skip
        limit = time.monotonic() + START_LIMIT_S
        while self.process.poll() is None and time.monotonic() < limit:
            if self.socket.exists():
                return
            time.sleep(0.02)
        pytest.skip("podman does not start here: " + (self.folder / "log").read_text()[-500:])

    def podman(self, *args: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """The engine's own command line, on the same storage."""
        return subprocess.run(
            [*self.command, *args], input=data, capture_output=True, check=False, timeout=60, env=self.environ
        )

    def send(self, number: int) -> None:
        """A signal to the service alone."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the service as a crash would; what runs in containers goes on."""
        self.send(signal.SIGKILL)
        assert self.process
        self.process.wait(START_LIMIT_S)

    def stop(self) -> None:
        """Remove all containers, and end."""
        self.podman("rm", "--all", "--force", "--time", "0")
        if self.process:
            self.process.terminate()
            self.process.wait(START_LIMIT_S)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True, timeout=10)


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
def engine() -> Iterator[PodmanEngine]:
    """A running engine with the image `IMAGE`."""
    for program in ("podman", "runc", "conmon", "busybox"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt install podman runc busybox-static)")
    if os.geteuid() != 0:
        pytest.skip("a podman engine with cgroups needs root")
    folder = Path(tempfile.mkdtemp(prefix="yurt-podman-"))
    made = PodmanEngine(folder)
    try:
        made.start()
        imported = made.podman("import", "--change", 'CMD ["sleep", "1000"]', "-", IMAGE, data=image_archive())
        assert imported.returncode == 0, imported.stderr
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
