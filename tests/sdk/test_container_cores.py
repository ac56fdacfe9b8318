"""Containers leave the cores that other tasks reserve; their cgroups are found by their first process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yurt.sdk.containers import cgroups
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.cgroups import ContainerCgroup, cgroup_of, paths_of
from yurt.sdk.containers.cgroups.cores import ContainerCores
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.core_partitions import CorePartitions
from yurt.sdk.driver import LogRotation, TaskStats
from yurt.sdk.errors import DriverError
from yurt.sdk.value import UnixNano

ALL = frozenset(range(4))
PRESSURE = "some avg10=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n"


class Engine:
    """Takes lists of cores; raises the planned errors first."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.errors: list[Exception] = []

    async def set_cores(self, container_id: str, cores: str) -> None:
        """Remember the list."""
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append((container_id, cores))


class Bench:
    """The containers of an engine in partitions of four cores."""

    def __init__(self, folder: Path, background: DriverTasks) -> None:
        self.folder = folder
        self.engine = Engine()
        self.partitions = CorePartitions()
        self.cores = ContainerCores(self.partitions, self.engine.set_cores, background)
        self.background = background
        (folder / "cpuset.cpus").write_text("0-3")

    def cgroup(self, name: str, listed: str = "0-3") -> ContainerCgroup:
        """A container's cgroup, with these cores."""
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "cpuset.cpus").write_text(listed)
        return ContainerCgroup(cpuset=str(self.folder / name))

    async def settled(self) -> list[tuple[str, str]]:
        """The calls until now, once no work is left."""
        while self.background.tasks:
            await asyncio.gather(*self.background.tasks)
        calls, self.engine.calls = self.engine.calls, []
        return calls


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    background = DriverTasks("test")
    yield Bench(tmp_path, background)
    await background.close()


async def test_containers_leave_reserved_cores_and_come_back(bench: Bench) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.cores.add("chosen", "c2", bench.cgroup("c2"), frozenset({2, 3}))
    assert await bench.settled() == [("c2", "2,3")]
    bench.cores.reserve("own", (3,))
    assert sorted(await bench.settled()) == [("c1", "0,1,2"), ("c2", "2")]
    bench.cores.release("own")
    assert sorted(await bench.settled()) == [("c1", "0,1,2,3"), ("c2", "2,3")]


async def test_without_reserved_cores_the_engine_is_not_asked(bench: Bench) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.cores.add("unseen", "c2", ContainerCgroup(), frozenset())
    assert await bench.settled() == []


async def test_a_recovered_container_with_an_old_list_gets_the_present_one(bench: Bench) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1", "0-1"), frozenset(), is_new=False)
    assert await bench.settled() == [], "the others may not be counted yet"
    bench.cores.send_again()
    assert await bench.settled() == [("c1", "0,1,2,3")]


async def test_what_an_unreachable_engine_did_not_take_is_sent_when_it_is_back(bench: Bench) -> None:
    bench.engine.errors = [EngineDown("away")]
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.cores.reserve("own", (0,))
    assert await bench.settled() == []
    ContainerTasks(None, bench.background, lambda: UnixNano(0), bench.cores).on_list({})  # type: ignore[arg-type]
    assert await bench.settled() == [("c1", "1,2,3")]
    bench.cores.send_again()
    assert await bench.settled() == []


async def test_a_refusal_is_logged_once_and_tried_at_the_next_change(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.engine.errors = [DriverError("no cpuset"), DriverError("no cpuset")]
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    for cores in ((0,), (0, 1), (0, 1, 2)):
        bench.cores.reserve("own", cores)
        last = await bench.settled()
    assert last == [("c1", "3")]
    assert caplog.text.count("cores of a container cannot be set") == 1


async def test_a_container_of_an_older_version_reserves_the_cores_of_its_list(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup = bench.cgroup("c1", "1-2")
    monkeypatch.setattr("yurt.sdk.containers.tasks.cgroup_of", lambda pid, container_id: cgroup)
    tasks = ContainerTasks(None, bench.background, lambda: UnixNano(0), bench.cores)  # type: ignore[arg-type]
    old = Container(container_id="c1", image_id="i", logs_dir="", task_name="web", logs=LogRotation())
    tasks.add(ContainerTask("a", old), pid=2**30)
    assert bench.partitions.reserved == {1, 2}
    tasks.close()
    assert not bench.partitions.reserved and await bench.settled() == []


async def test_cores_of_a_failed_start_are_given_back(bench: Bench) -> None:
    tasks = ContainerTasks(None, bench.background, lambda: UnixNano(0), bench.cores)  # type: ignore[arg-type]
    tasks.reserve("a", (1,))
    assert bench.partitions.reserved == {1}
    tasks.give_up("a")
    assert not bench.partitions.reserved


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("0::/system.slice/docker-abc.scope", "/system.slice/docker-abc.scope"),
        ("0::/machine.slice/libpod-abc.scope/container", "/machine.slice/libpod-abc.scope"),
        ("3:cpuset:/docker/abc", "/docker/abc"),
        ("0::/system.slice/podman.service", None),
    ],
)
def test_a_container_is_found_by_the_component_with_its_id(line: str, path: str | None) -> None:
    assert [each for _, each in paths_of(f"{line}\n", "abc")] == ([path] if path else [])


def test_memory_stalls_are_read_where_they_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts, own = tmp_path / "mounts", tmp_path / "docker" / "abc"
    own.mkdir(parents=True)
    mounts.write_text(f"1 2 0:3 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (own / "memory.pressure").write_text(PRESSURE)
    (own / "memory.current").write_text("4096\n")
    real = cgroups.read_text
    monkeypatch.setattr(cgroups, "MOUNTS_FILE", str(mounts))
    monkeypatch.setattr(cgroups, "read_text", lambda path: "0::/docker/abc" if path == "/proc/7/cgroup" else real(path))
    found = cgroup_of(7, "abc").with_memory_stall(TaskStats(at=UnixNano(1)))
    assert (found.memory_stall_ns, found.memory_charged_bytes) == (1_500_000, 4096)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0,2-3\n", {0, 2, 3}), ("", set()), ("all", set()), ("3-1", set()), ("8190-99999999999", {8190, 8191})],
)
def test_lists_of_cores_are_read_within_bounds(text: str, cores: set[int]) -> None:
    assert cgroups.parse_cores(text) == cores
