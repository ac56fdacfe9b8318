"""Containers leave the cores that other tasks reserve; their cgroups are found by their first process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from yurt.sdk import core_partitions
from yurt.sdk.containers import cgroups
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.cgroups import ContainerCgroup, cgroup_of, paths_of
from yurt.sdk.containers.cgroups import cores as cores_module
from yurt.sdk.containers.cgroups.cores import ContainerCores
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.core_partitions import CorePartitions
from yurt.sdk.driver import LogRotation, TaskStats
from yurt.sdk.errors import Conflict, DriverError, RecoverableError
from yurt.sdk.value import UnixNano

ALL = frozenset(range(4))
PRESSURE = "some avg10=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n"


class Engine:
    """Takes lists of cores; raises the planned errors first."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self.before: Callable[[], None] = lambda: None
        """What happens during the first call."""
        self.open = self.open_max = 0

    async def set_cores(self, container_id: str, cores: str) -> None:
        """Remember the list."""
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        await asyncio.sleep(0)
        self.open -= 1
        before, self.before = self.before, lambda: None
        before()
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append((container_id, cores))


class Bench:
    """The containers of an engine in partitions of four cores."""

    def __init__(self, folder: Path, background: DriverTasks) -> None:
        self.folder = folder
        self.engine = Engine()
        self.background = background
        self.begin_again()
        (folder / "cpuset.cpus").write_text("0-3")

    def begin_again(self) -> None:
        """Forget all but the files, as the next agent does."""
        core_partitions.SHARED.clear()
        self.partitions = core_partitions.partitions_of("", dev=False)
        self.cores = ContainerCores(
            self.partitions, self.engine.set_cores, self.background, folder=str(self.folder / "first")
        )

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
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(core_partitions, "SHARED", {})
    monkeypatch.setattr(cores_module, "WIDEN_DELAY_S", 0.05)
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


async def test_a_container_that_is_not_seen_on_this_machine_is_left_alone(bench: Bench) -> None:
    bench.cores.add("unseen", "c1", ContainerCgroup(), frozenset())
    bench.cores.reserve("own", (0,))
    bench.cores.release("own")
    bench.cores.send_again()
    assert await bench.settled() == []


async def test_recovered_containers_keep_their_lists_until_all_tasks_are_counted(bench: Bench) -> None:
    with core_partitions.held():
        bench.cores.add("a", "c1", bench.cgroup("c1", "0-1"), frozenset())
        bench.cores.send_again()
        assert await bench.settled() == [], "the others may not be counted yet"
        bench.cores.reserve("own", (2, 3))
    assert await bench.settled() == []
    bench.cores.release("own")
    assert await bench.settled() == [("c1", "0,1,2,3")]


async def test_a_recovered_container_with_an_old_list_gets_the_present_one(bench: Bench) -> None:
    with core_partitions.held():
        bench.cores.add("a", "c1", bench.cgroup("c1", "0-1"), frozenset())
    assert await bench.settled() == [("c1", "0,1,2,3")]


async def test_a_list_of_a_later_reservation_survives_the_failure_of_an_earlier_call(bench: Bench) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.engine.before = lambda: bench.cores.reserve("second", (1,))
    bench.engine.errors = [RecoverableError("busy")]
    bench.cores.reserve("first", (0,))
    assert await bench.settled() == []
    bench.cores.send_again()
    assert await bench.settled() == [("c1", "2,3")]


async def test_a_newer_list_is_sent_after_the_refusal_of_an_older_one(bench: Bench) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.engine.before = lambda: bench.cores.reserve("second", (1,))
    bench.engine.errors = [DriverError("no")]
    bench.cores.reserve("first", (0,))
    assert await bench.settled() == [("c1", "2,3")]


@pytest.mark.parametrize("error", [RecoverableError("500"), Conflict("409"), EngineDown("away")])
async def test_what_may_succeed_later_is_sent_at_the_next_list_of_containers(bench: Bench, error: Exception) -> None:
    bench.cores.add("a", "c1", bench.cgroup("c1"), frozenset())
    bench.engine.errors = [error]
    bench.cores.reserve("own", (0,))
    assert await bench.settled() == []
    bench.cores.send_again()
    assert await bench.settled() == [("c1", "1,2,3")]


async def test_a_burst_of_short_tasks_makes_few_calls_of_which_few_are_open(bench: Bench) -> None:
    names = [f"c{number}" for number in range(50)]
    for name in names:
        bench.cores.add(name, name, bench.cgroup(name), frozenset())
    for _ in range(10):
        bench.cores.reserve("short", (0,))
        await asyncio.sleep(0)
        bench.cores.release("short")
        await asyncio.sleep(0)
    calls = await bench.settled()
    assert bench.engine.open_max <= cores_module.CALLS_MAX
    assert len(calls) <= 2 * len(names), "one call for the first list, and one for the last"
    assert set(dict(calls).values()) <= {"0,1,2,3"}, "the last list of each has all cores"


async def test_an_ended_container_is_forgotten(bench: Bench) -> None:
    bench.engine.errors = [DriverError("no"), EngineDown("away")]
    for name in ("c1", "c2"):
        bench.cores.add(name, name, bench.cgroup(name), frozenset())
    bench.cores.reserve("own", (0,))
    await bench.settled()
    for name in ("c1", "c2"):
        bench.cores.release(name)
    bench.cores.send_again()
    assert await bench.settled() == [] and not bench.cores._sharing


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


class Restarts:
    """Agents that find the container of an older version, one after another."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.cgroup = bench.cgroup("c1")
        monkeypatch.setattr("yurt.sdk.containers.tasks.cgroup_of", lambda pid, container_id: self.cgroup)
        monkeypatch.setattr("yurt.sdk.containers.tasks.OomWatch", lambda pid: None)

    def restart(self, allocated: tuple[int, ...] = ()) -> CorePartitions:
        """The partitions of the next agent, which knows the container and the cores of its allocation."""
        self.bench.begin_again()
        made = ContainerTasks(None, self.bench.background, lambda: UnixNano(0), self.bench.cores)  # type: ignore[arg-type]
        old = Container(container_id="c1", image_id="i", logs_dir="", task_name="web", logs=LogRotation())
        made.add(ContainerTask("a", old, allocated), pid=2**30)
        return self.bench.partitions

    def listed(self, text: str) -> None:
        """The engine sets the container's list."""
        self.bench.cgroup("c1", text)


@pytest.fixture
def restarts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Restarts:
    return Restarts(bench, monkeypatch)


async def test_a_container_of_an_older_version_never_counts_as_one_with_reserved_cores(restarts: Restarts) -> None:
    bench = restarts.bench
    assert not restarts.restart().reserved
    bench.cores.reserve("own", (3,))
    assert await bench.settled() == [("c1", "0,1,2")]
    restarts.listed("0-2")

    with core_partitions.held():
        assert not restarts.restart().reserved, "its short list is that of an earlier agent"
        bench.cores.reserve("own", (3,))
    assert await bench.settled() == []
    bench.cores.release("own")
    assert await bench.settled() == [("c1", "0,1,2,3")]


async def test_a_container_of_an_older_version_keeps_to_the_cores_of_its_job(restarts: Restarts) -> None:
    bench = restarts.bench
    restarts.listed("0-1")
    assert not restarts.restart().reserved
    bench.cores.reserve("own", (1,))
    assert await bench.settled() == [("c1", "0")]
    restarts.listed("0")

    assert not restarts.restart().reserved
    assert await bench.settled() == [("c1", "0,1")]


async def test_a_container_of_an_older_version_reserves_the_cores_of_its_allocation(restarts: Restarts) -> None:
    restarts.listed("1-2")
    for _ in range(2):
        assert restarts.restart(allocated=(1, 2)).reserved == {1, 2}
        assert await restarts.bench.settled() == []


async def test_a_container_is_seen_once_its_engine_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup = bench.cgroup("c1", "0-1")
    monkeypatch.setattr("yurt.sdk.containers.tasks.cgroup_of", lambda pid, container_id: cgroup)
    monkeypatch.setattr("yurt.sdk.containers.tasks.OomWatch", lambda pid: None)

    class Calls:
        """An engine that is up again."""

        async def inspect(self, container_id: str) -> dict[str, object]:
            return {"State": {"Pid": 2**30}}

    tasks = ContainerTasks(Calls(), bench.background, lambda: UnixNano(0), bench.cores)  # type: ignore[arg-type]
    found = Container(container_id="c1", image_id="i", logs_dir="", task_name="web", logs=LogRotation(), cores=())
    tasks.add(ContainerTask("a", found), pid=0)
    assert await bench.settled() == []
    tasks.on_list({"c1": "running"})
    assert await bench.settled() == [("c1", "0,1,2,3")]


async def test_a_start_whose_container_cannot_be_taken_up_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(pid: int, container_id: str) -> ContainerCgroup:
        raise ValueError("a defect")

    monkeypatch.setattr("yurt.sdk.containers.tasks.cgroup_of", broken)
    monkeypatch.setattr("yurt.sdk.containers.tasks.OomWatch", lambda pid: None)
    tasks = ContainerTasks(None, bench.background, lambda: UnixNano(0), bench.cores)  # type: ignore[arg-type]
    made = Container(container_id="c1", image_id="i", logs_dir="", task_name="web", logs=LogRotation(), cores=(1,))
    tasks.reserve("a")
    with pytest.raises(ValueError, match="a defect"):
        tasks.add(ContainerTask("a", made), pid=2**30)
    tasks.give_up("a")
    assert not tasks.has("a") and not tasks.is_running("c1") and not bench.partitions.reserved


async def test_cores_of_a_failed_start_are_given_back(bench: Bench) -> None:
    tasks = ContainerTasks(None, bench.background, lambda: UnixNano(0), bench.cores)  # type: ignore[arg-type]
    tasks.reserve("a")
    assert not bench.partitions.reserved, "an image may have to be pulled first"
    tasks.reserve_cores("a", (1,))
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
    with mounts.open("ab") as file:
        file.write(b"2 1 0:4 / /mnt/caf\xe9 rw - tmpfs tmpfs rw\n")
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
