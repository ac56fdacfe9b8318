"""Measures the files, processes and memory that ended allocations leave behind (invariant E9)."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from yurt.cli.api.client import AgentAddress, ApiClient
from yurt.testing.agent import Agent, wait_for

EXEC_LIMIT_S = 60.0
END_LIMIT_S = 150.0
DISK_BYTES = 512

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "raw_exec": {"command": "/bin/sleep", "args": ["3600"]},
    "exec": {"command": "/bin/sleep", "args": ["3600"]},
    "mock_driver": {
        "run_for": "1h", "stdout_string": "hello", "exec_command": {"run_for": "1ms", "stdout_string": "inside"},
    },
    "docker": {"image": "busybox:1", "command": "sleep", "args": ["3600"], "init": True},
    "podman": {"image": "busybox:1", "command": "sh", "args": ["-c", "trap exit TERM; sleep 3600 & wait"]},
    "java": {
        "class": "sun.rmi.registry.RegistryImpl", "args": ["0"],
        "jvm_options": ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx16m"],
    },
    "qemu": {"image_path": "local/disk", "accelerator": "tcg"},
}  # fmt: skip
"""Tasks that run until they are stopped; Java's is a server that every Java comes with."""
WITHOUT_COMMANDS = ("qemu",)
WITHOUT_NETWORKS = ("mock_driver",)
BIG_TASK_MB = {"qemu": 128, "java": 128}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Holdings(NamedTuple):
    """Resources of an agent and its helpers: counts of descriptors and threads, memory in MB, the rest by name.

    Memory is the anonymous part of PSS: the other part, pages of program files, is divided by how many processes of
    the machine have mapped them, and changes when others of them start and end.
    """

    descriptors: int
    threads: int
    processes: int
    cgroups: int
    mounts: int
    namespaces: int
    rules: int
    files: int
    memory_mb: float

    def more_than(self, before: Holdings) -> dict[str, tuple[float, float]]:
        """The resources that have grown since `before`, memory excluded."""
        pairs = zip(self._fields[:-1], before, self, strict=False)
        return {name: (was, now) for name, was, now in pairs if now > was}


def holdings(agent: Agent, data_dir: Path, alloc_ids: Collection[str] = ()) -> Holdings:
    """The resources that an agent uses now: its files, and the namespaces, cgroups and rules of these allocations."""
    assert agent.process is not None
    own = psutil.Process(agent.process.pid)
    family = [own, *own.children(recursive=True)]
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    known, slice_name = frozenset(alloc_ids), f"yurt-dev-{agent.process.pid}.slice"
    return Holdings(
        descriptors=own.num_fds(),
        threads=own.num_threads(),
        processes=len(family),
        cgroups=sum(slice_name in each or names_one(each, known) for each in folders_below("/sys/fs/cgroup", 5)),
        mounts=mounts.count(str(data_dir)),
        namespaces=sum(names_one(name, known) for name in names),
        rules=sum(names_one(line, known) for line in firewall()),
        files=sum(len(names) for _, _, names in os.walk(data_dir)),
        memory_mb=sum(anonymous_mb(process.pid) for process in family),
    )


def names_one(text: str, alloc_ids: Collection[str]) -> bool:
    """Whether a text contains one of these ids."""
    return any(found in alloc_ids for found in UUID.findall(text))


def firewall() -> list[str]:
    """The rules of the host's firewall, as far as iptables shows them."""
    program = shutil.which("iptables-save")
    if program is None:
        return []
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=END_LIMIT_S)
    return done.stdout.splitlines()


def anonymous_mb(pid: int) -> float:
    """The proportional anonymous memory of one process in MB."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1000
    return 0.0


def folders_below(root: str, depth: int) -> list[str]:
    """The folders below a root, to a depth."""
    found: list[str] = []
    with suppress(OSError):
        for entry in os.scandir(root):
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
                found += folders_below(entry.path, depth - 1) if depth > 1 else []
    return found


def usable_drivers(agent: Agent, drivers: Sequence[str] = tuple(CONFIGS)) -> list[str]:
    """The drivers that are healthy on the agent's node."""
    node = agent.get(f"/v1/node/{agent.get('/v1/nodes')[0]['ID']}")
    return [name for name in drivers if (node["Drivers"].get(name) or {}).get("Healthy")]


def has_bridge(agent: Agent) -> bool:
    """Whether the agent's node offers bridge networks."""
    node = agent.get(f"/v1/node/{agent.get('/v1/nodes')[0]['ID']}")
    return any(network["Mode"] == "bridge" for network in node["NodeResources"]["NodeNetworks"] or ())


def data_dir_of(agent: Agent) -> Path:
    """The agent's data directory; a dev agent prints it when it starts."""
    if agent.data_dir is not None:
        return agent.data_dir
    found = re.search(r"Data Dir: (\S+)", agent.log.read_text(encoding="utf-8", errors="replace"))
    assert found is not None, agent.log
    return Path(found.group(1))


class Lives:
    """Runs allocations on an agent from placement to garbage collection, with work in them.

    With `networks` every second round is one of groups with a bridge and a mapped port of their own.
    """

    def __init__(self, agent: Agent, drivers: Sequence[str], *, networks: bool = False) -> None:
        self.agent = agent
        self.drivers = drivers
        self.networks = networks
        self.data_dir = data_dir_of(agent)
        self._rounds = 0
        self._alloc_ids: set[str] = set()
        self._api = ApiClient(AgentAddress(address=agent.address))

    def round(self, count: int) -> int:
        """Run `count` allocations for each driver; returns their number."""
        self._rounds += 1
        jobs = {f"life-{driver.replace('_', '-')}-{self._rounds}": driver for driver in self.drivers}
        for job_id, driver in jobs.items():
            self.agent.call("PUT", "/v1/jobs", {"Job": self._job(job_id, driver, count)})
        for job_id, driver in jobs.items():
            for alloc in self.agent.running(job_id, count):
                self._alloc_ids.add(alloc["ID"])
                self._use(alloc["ID"], driver)
        for job_id in jobs:
            self.agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
        wait_for("the ends", lambda: not self._live(jobs), END_LIMIT_S)
        self.agent.call("PUT", "/v1/system/gc")
        wait_for("an empty folder", lambda: not self._folders(), END_LIMIT_S)
        return count * len(jobs)

    def holdings(self) -> Holdings:
        """The resources that the agent uses now, whichever allocation they belong to."""
        return holdings(self.agent, self.data_dir, self._alloc_ids)

    def _job(self, job_id: str, driver: str, count: int) -> dict[str, Any]:
        task: dict[str, Any] = {
            "Name": "main", "Driver": driver, "Config": CONFIGS[driver],
            "Resources": {"CPU": 10, "MemoryMB": BIG_TASK_MB.get(driver, 60)},
            "Templates": [{"EmbeddedTmpl": "x" * DISK_BYTES, "DestPath": "local/disk"}],
        }  # fmt: skip
        group: dict[str, Any] = {"Name": "g", "Count": count, "Tasks": [task]}
        if self.networks and self._rounds % 2 == 0 and driver not in WITHOUT_NETWORKS:
            group["Networks"] = [{"Mode": "bridge", "DynamicPorts": [{"Label": "www", "To": 80}]}]
        return {"ID": job_id, "Name": job_id, "Type": "service", "TaskGroups": [group]}

    def _use(self, alloc_id: str, driver: str) -> None:
        """Read files, read statistics and run a command in one allocation."""
        self.agent.get(f"/v1/client/fs/ls/{alloc_id}?path=/")
        self.agent.get(f"/v1/client/allocation/{alloc_id}/stats")
        if driver not in WITHOUT_COMMANDS:
            assert self._said(alloc_id) == b"inside", (driver, alloc_id)

    def _said(self, alloc_id: str) -> bytes:
        """The output of a command in the task."""
        query: dict[str, str | int | bool | None] = {"task": "main", "command": json.dumps(["printf", "inside"])}
        socket = self._api.websocket(f"/v1/client/allocation/{alloc_id}/exec", query)
        said = b""
        try:
            while (texts := socket.receive()) is not None:
                for text in texts:
                    said += base64.b64decode(json.loads(text).get("stdout", {}).get("data", ""))
                if not texts and not socket.has_more:
                    readable, _, _ = select.select([socket.fileno()], [], [], EXEC_LIMIT_S)
                    assert readable, "the command says nothing"
        finally:
            socket.close()
        return said

    def _live(self, jobs: Mapping[str, str]) -> list[str]:
        return [
            alloc["ID"]
            for job_id in jobs
            for alloc in self.agent.allocs(job_id)
            if alloc["ClientStatus"] in ("running", "pending")
        ]

    def _folders(self) -> list[str]:
        """The names of the allocation folders that exist."""
        return [folder.name for folder in (self.data_dir / "alloc").glob("*-*-*-*-*")]
