"""etcd members on loopback for tests and benchmarks: start, kill, freeze and restart.

They are plain child processes, so that they may outlive an event loop, and die with the process that started them.
`missing` says why they cannot be had.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from yurt.storage.etcd.member_process import make_folders, member_command, member_environment
from yurt.storage.etcd.messages import method
from yurt.storage.etcd.settings import QUOTA_BYTES, EtcdMemberConfig
from yurt.testing.agent import wait_for
from yurt.testing.unique_ports import free_ports

END_LIMIT_S = 60.0
PROBE_LIMIT_S = 2.0
READY_LIMIT_S = 60.0


def missing() -> str:
    """The reason why no member can be started; "" when one can."""
    return "" if shutil.which("etcd") else "etcd is not installed (apt install etcd-server)"


class LocalMember:
    """One etcd process."""

    def __init__(self, config: EtcdMemberConfig) -> None:
        self.config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The name of the server that this member belongs to."""
        return self.config.name

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return self.config.client_endpoint

    @property
    def pid(self) -> int:
        """The pid of its process."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it over its existing data."""
        assert self._process is None, self.name
        make_folders(self.config)
        with (Path(self.config.data_dir) / "etcd.log").open("ab") as output:
            self._process = subprocess.Popen(
                member_command(self.config),
                cwd=self.config.socket_folder,
                env=member_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it (SIGSTOP) during the block."""
        self._send(signal.SIGSTOP)
        try:
            wait_for(f"all threads of {self.name} stand still", lambda: has_stopped(self.pid))
            yield
        finally:
            self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=END_LIMIT_S)
            self._process = None

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, self.name
        self._process.send_signal(number)

    def has_leader(self) -> bool:
        """Whether it answers and knows a leader."""
        described = method("KV", "Range")
        with grpc.insecure_channel(self.endpoint.replace("://", ":", 1)) as channel:
            call = channel.unary_unary(
                described.path,
                request_serializer=described.request.SerializeToString,
                response_deserializer=described.response.FromString,
            )
            try:
                call(described.request(key=b"ready"), timeout=PROBE_LIMIT_S)
            except grpc.RpcError:
                return False
        return True


def has_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped by SIGSTOP."""
    states = [
        (task / "stat").read_bytes().rpartition(b")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return set(states) == {b"T"}


class LocalEtcd:
    """The members of one cluster."""

    def __init__(self, members: tuple[LocalMember, ...]) -> None:
        self.members = members

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The URLs of all members for clients."""
        return tuple(member.endpoint for member in self.members)

    def member(self, name: str) -> LocalMember:
        """The member of a server."""
        return next(member for member in self.members if member.name == name)

    def wait_ready(self) -> None:
        """Wait until every member answers."""
        for member in self.members:
            wait_for(f"etcd member {member.name}", member.has_leader, READY_LIMIT_S)


def member_configs(count: int, folder: Path, *, quota_bytes: int = QUOTA_BYTES) -> tuple[EtcdMemberConfig, ...]:
    """Members srv1.global, srv2.global ... of a new cluster, on free ports."""
    urls = {f"srv{number}.global": f"http://127.0.0.1:{port}" for number, port in enumerate(free_ports(count), 1)}
    return tuple(
        EtcdMemberConfig(
            name=name,
            data_dir=str(folder / name),
            peer_url=url,
            initial_cluster=urls,
            token=f"test-{folder.name}",
            is_new_cluster=True,
            quota_bytes=quota_bytes,
        )
        for name, url in urls.items()
    )


@contextmanager
def local_etcd(count: int = 1, *, quota_bytes: int = QUOTA_BYTES) -> Iterator[LocalEtcd]:
    """Run a cluster during the block; its data is in a folder with a short path because of its sockets."""
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as folder:
        configs = member_configs(count, Path(folder), quota_bytes=quota_bytes)
        etcd = LocalEtcd(tuple(LocalMember(config) for config in configs))
        try:
            for member in etcd.members:
                member.start()
            etcd.wait_ready()
            yield etcd
        finally:
            for member in etcd.members:
                member.kill()
