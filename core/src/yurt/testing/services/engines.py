"""Private container engines for tests and benchmarks, with one small image of busybox.

Folders, sockets, bridges and storage are private, so that they disturb no other engine of this machine. They need root
and Debian's packages (docker.io, podman, runc, busybox-static, containernetworking-plugins); `missing` says which.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from yurt.testing.unique_ports import own_subnet

START_LIMIT_S = 60.0
COMMAND_S = 60.0
APPLETS = (
    "sh", "sleep", "echo", "cat", "env", "id", "ls", "true", "printf", "seq", "dd", "httpd", "kill", "yes", "head",
    "df", "nc", "tail", "hostname", "mount", "grep", "sysctl", "readlink", "nproc", "trap", "date",
    "stat", "touch", "tr", "stty",
)  # fmt: skip
PODMAN_CONFIG = """
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
Done = subprocess.CompletedProcess[bytes]


def missing(*programs: str) -> str:
    """The reason why an engine cannot run here; "" when it can."""
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt install docker.io podman runc busybox-static)"
    return "" if os.geteuid() == 0 else "an engine with cgroups needs root"


def busybox_archive() -> bytes:
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


def podman_network(bridge: str, subnet: str) -> dict[str, object]:
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
    """A podman service with its own folders and socket; it runs runc, with limits that need no privileges.

    With `uid` it is the service of that user, without root, in a folder that the user can reach. It sees a /dev/net/tun
    that the user may open, as machines with slirp4netns have it.
    """

    image = "localhost/yurt-test/busybox:1"

    def __init__(self, folder: Path, *, uid: int = 0) -> None:
        self.folder = folder
        self.uid = uid
        self.socket = folder / "podman.sock"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "networks").mkdir()
        (folder / "containers.conf").write_text(PODMAN_CONFIG.format(folder=folder))
        number, prefix = own_subnet()
        self.bridge = f"ypd{number}"
        network = podman_network(self.bridge, f"{prefix}.0/24")
        (folder / "networks" / "87-podman.conflist").write_text(json.dumps(network))
        self.runroot = tempfile.mkdtemp(prefix="yurt-run-")  # podman takes no more than 50 characters
        self.command: tuple[str, ...] = (
            "podman", "--root", str(folder / "storage"), "--runroot", self.runroot,
            "--tmpdir", str(folder / "tmp"), "--cgroup-manager", "cgroupfs", "--runtime", "runc",
        )  # fmt: skip
        self.environ = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        if uid:
            self._become_rootless()

    def _become_rootless(self) -> None:
        """One user owns all, so that the image's other owners are dropped; the kernel's overlays are not for users."""
        (self.folder / "user").mkdir(mode=0o700)
        self.command += ("--storage-driver", "vfs", "--storage-opt", "vfs.ignore_chown_errors=true")
        self.environ |= {"HOME": str(self.folder / "user"), "XDG_RUNTIME_DIR": str(self.folder / "user")}
        for path in (self.folder, *self.folder.rglob("*"), Path(self.runroot)):
            os.chown(path, self.uid, self.uid)

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        self.socket.unlink(missing_ok=True)
        service = [*self.command, "system", "service", "--time", "0", f"unix://{self.socket}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._as_user(), *service], stdout=log, stderr=log, start_new_session=True, env=self.environ,
                cwd=self.folder,
            )  # fmt: skip
        limit = time.monotonic() + START_LIMIT_S
        while not is_listening(self.socket):
            assert self.process.poll() is None, (self.folder / "log").read_text()[-500:]
            assert time.monotonic() < limit, "podman does not listen"
            time.sleep(0.02)

    def _as_user(self) -> list[str]:
        """The command prefix that runs a program as the user, with a tun device for slirp4netns."""
        if not self.uid:
            return []
        tun = self.folder / "tun"
        if not tun.exists():
            os.mknod(tun, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
            tun.chmod(0o666)
        script = (
            f'mount --bind {tun} /dev/net/tun; exec setpriv --reuid {self.uid} --regid {self.uid} --clear-groups "$@"'
        )
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]

    def import_image(self, name: str = image) -> None:
        """Make an image of busybox."""
        done = self.run("import", "--change", 'CMD ["sleep", "1000"]', "-", name, data=busybox_archive())
        assert done.returncode == 0, done.stderr

    def run(self, *args: str, data: bytes | None = None) -> Done:
        """Run podman's command line on the same storage."""
        return subprocess.run(
            [*self.command, *args], input=data, capture_output=True, check=False, timeout=COMMAND_S, env=self.environ,
            user=self.uid, group=self.uid, extra_groups=() if self.uid else None, cwd=self.folder,
        )  # fmt: skip

    def containers(self) -> list[str]:
        """The ids of all containers, including exited ones."""
        return self.run("ps", "--all", "--quiet", "--no-trunc").stdout.decode().split()

    def monitors(self) -> list[int]:
        """The conmon processes: one for each container and for each command in one."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"conmon") and str(self.folder / "storage").encode() in words:
                    found.append(int(folder.name))
        return found

    def send(self, number: int) -> None:
        """Send a signal to the service process only."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the service with SIGKILL; containers keep running."""
        self.send(signal.SIGKILL)
        assert self.process
        self.process.wait(START_LIMIT_S)

    def stop(self) -> None:
        """Remove all containers and end the service."""
        self.run("rm", "--all", "--force", "--time", "0")
        if self.process:
            self.process.terminate()
            self.process.wait(START_LIMIT_S)
            with suppress(ProcessLookupError):  # a user's podman runs in a child of its own, which may outlive it
                os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(OSError, ValueError):  # what keeps a user's namespaces between podman's calls
            os.kill(int((self.folder / "tmp" / "pause.pid").read_text()), signal.SIGKILL)
        ip("link", "del", self.bridge)
        unmount_below(self.folder)
        unmount_below(Path(self.runroot))
        shutil.rmtree(self.runroot, ignore_errors=True)


class DockerEngine:
    """A dockerd with its own folders, bridge and socket that does not change the firewall.

    containerd is a process of its own, as Debian's services have it, so that killing dockerd kills nothing else.
    """

    image = "yurt-test/busybox:1"

    def __init__(self, folder: Path, *, options: Sequence[str] = ("--live-restore",)) -> None:
        self.folder = folder
        self.options = options
        self.socket = folder / "docker.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self.containerd: subprocess.Popen[bytes] | None = None
        number, prefix = own_subnet()
        self.bridge = f"ydk{number}"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("link", "set", self.bridge, "up")
        ip("address", "add", f"{prefix}.1/24", "dev", self.bridge)

    @property
    def endpoint(self) -> str:
        """The engine's endpoint for the agent's configuration."""
        return f"unix://{self.socket}"

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program with its output in the log file."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
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
            "--host", self.endpoint, "--pidfile", str(self.folder / "pid"), "--containerd", address,
            "--bridge", self.bridge, "--iptables=false", "--ip-masq=false", *self.options,
        )  # fmt: skip
        limit = time.monotonic() + START_LIMIT_S
        while self.run("version").returncode != 0:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-500:]
            assert time.monotonic() < limit, "dockerd does not answer"
            time.sleep(0.05)

    def import_image(self, name: str = image) -> None:
        """Make an image of busybox."""
        done = self.run("import", "--change", 'CMD ["sleep", "1000"]', "-", name, data=busybox_archive())
        assert done.returncode == 0, done.stderr

    def run(self, *args: str, data: bytes | None = None) -> Done:
        """Run docker's command line."""
        command = ["docker", "--config", str(self.folder / "cli"), "--host", self.endpoint, *args]
        return subprocess.run(command, input=data, capture_output=True, check=False, timeout=COMMAND_S)

    def containers(self) -> list[str]:
        """The ids of all containers, including exited ones."""
        return self.run("ps", "--all", "--quiet", "--no-trunc").stdout.decode().split()

    def send(self, number: int) -> None:
        """Send a signal to dockerd only."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill dockerd with SIGKILL; containers keep running."""
        self.send(signal.SIGKILL)
        assert self.process
        self.process.wait(START_LIMIT_S)
        (self.folder / "pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Remove all containers and end dockerd."""
        found = self.containers()
        if found:
            self.run("rm", "--force", *found)
        for process in (self.process, self.containerd):
            if process:
                process.terminate()
                process.wait(START_LIMIT_S)
        ip("link", "del", self.bridge)
        unmount_below(self.folder)

    def save(self, image: str, path: str) -> None:
        """Save an image to an archive and remove it."""
        assert self.run("save", "-o", path, image).returncode == 0
        assert self.run("rmi", image).returncode == 0


def ip(*arguments: str) -> None:
    """Run one command of iproute2; "exists" and "does not exist" do not count as errors."""
    subprocess.run(["ip", *arguments], check=False, capture_output=True, timeout=10)


def is_listening(path: Path) -> bool:
    """Whether a Unix socket accepts connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, the latest mount first, after an engine was killed."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in reversed([each for each in mounts if each.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", path], check=False, capture_output=True, timeout=10)


AnyEngine = TypeVar("AnyEngine", bound=DockerEngine | PodmanEngine)


@contextmanager
def running_engine(engine: AnyEngine) -> Iterator[AnyEngine]:
    """A started engine with the small image; stopped in the end."""
    try:
        engine.start()
        engine.import_image()
        yield engine
    finally:
        engine.stop()
