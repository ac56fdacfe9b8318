"""Where cgroups go on hosts of each kind; the hosts are folders here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.executor import ProcessExecutor, cgroups
from yurt.executor.cgroups import (
    Hierarchies,
    copy_cpuset,
    cpu_weight,
    missing_controllers,
    override,
    parse_cores,
    parse_mounts,
    plan,
    prepare,
    remove_left_behind,
    usage,
)
from yurt.executor.spec import CgroupSpec
from yurt.sdk.errors import DriverError

V2_LINE = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_LINES = """\
31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 24 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd"""
ASKED = CgroupSpec(memory_bytes=1024, memory_reserved_bytes=512, cpu_shares=500, cores=(1, 3))


def test_a_v2_host_is_recognised() -> None:
    found = parse_mounts(V2_LINE)
    assert (found.mode, found.unified) == ("v2", "/sys/fs/cgroup")


def test_a_hybrid_host_is_recognised() -> None:
    found = parse_mounts(V1_LINES)
    assert found.mode == "hybrid"
    assert found.v1["cpuacct"] == found.v1["cpu"] == "/sys/fs/cgroup/cpu,cpuacct"


def test_a_v1_host_is_recognised() -> None:
    assert parse_mounts("\n".join(V1_LINES.splitlines()[1:])).mode == "v1"


def test_a_host_without_cgroups_has_none(tmp_path: Path) -> None:
    found, parents = prepare("yurt.slice", str(tmp_path / "no-such-file"))
    assert (found.mode, parents) == ("none", ())
    assert plan(found, "yurt.slice", task_id="a/b/0", spec=ASKED).folders == ()


def test_on_v2_a_task_has_one_folder_with_every_limit() -> None:
    found = Hierarchies(unified="/cg", controllers=("cpu", "memory", "pids", "cpuset"))
    planned = plan(found, "yurt.slice", task_id="a/b/0", spec=ASKED)
    ((folder, settings),) = planned.folders
    assert folder == "/cg/yurt.slice/a%2Fb%2F0.scope"
    assert dict(settings) == {
        "memory.max": "1024", "memory.low": "512", "cpu.weight": str(cpu_weight(500)), "cpuset.cpus": "1,3",
    }  # fmt: skip
    assert planned.oom_file == f"{folder}/memory.events"


def test_memory_nodes_are_kept_to_with_all_cores_unless_some_are_reserved(tmp_path: Path) -> None:
    near = CgroupSpec(memory_nodes=(1,))
    two = Hierarchies(unified="/cg", controllers=("cpuset",))
    (tmp_path / "yurt.slice").mkdir()
    (tmp_path / "yurt.slice" / "cpuset.cpus").write_text("0-7\n")
    one = Hierarchies(v1={"cpuset": str(tmp_path)})

    assert plan(two, "yurt.slice", task_id="t", spec=near).folders[0][1] == (("cpuset.mems", "1"),)
    assert dict(plan(one, "yurt.slice", task_id="t", spec=near).folders[0][1]) == {
        "cpuset.cpus": "0-7", "cpuset.mems": "1",
    }  # fmt: skip


def test_on_hybrid_a_mount_of_two_controllers_is_joined_once() -> None:
    planned = plan(parse_mounts(V1_LINES), "yurt.slice", task_id="t", spec=CgroupSpec(memory_bytes=7, cpu_shares=1))
    assert [path for path in planned.join if "cpuacct" in path] == [
        "/sys/fs/cgroup/cpu,cpuacct/yurt.slice/t.scope/cgroup.procs"
    ]
    assert dict(dict(planned.folders)["/sys/fs/cgroup/memory/yurt.slice/t.scope"]) == {"memory.limit_in_bytes": "7"}
    assert dict(dict(planned.folders)["/sys/fs/cgroup/cpu,cpuacct/yurt.slice/t.scope"]) == {"cpu.shares": "2"}


def test_an_overridden_cgroup_is_joined_and_never_made() -> None:
    planned = override(Hierarchies(unified="/cg"), "yurt.slice", CgroupSpec(override_v2="/mine/here"))
    assert planned.folders == ()
    assert planned.must_join == ("/cg/mine/here/cgroup.procs",)


@pytest.mark.parametrize("asked", [CgroupSpec(override_v2="x"), CgroupSpec(override_v1={"no-such-controller": "x"})])
def test_an_override_that_this_host_cannot_have_is_refused(asked: CgroupSpec) -> None:
    with pytest.raises(DriverError, match="override"):
        override(Hierarchies(), "yurt.slice", asked)


@pytest.mark.parametrize(("shares", "weight"), [(0, 1), (2, 1), (1024, 39), (262_144, 10_000), (10**9, 10_000)])
def test_shares_become_weights(shares: int, weight: int) -> None:
    assert cpu_weight(shares) == weight


def test_use_is_read_from_the_cgroups_of_either_version(tmp_path: Path) -> None:
    v2, memory = tmp_path / "v2", tmp_path / "memory"
    for folder in (v2, memory):
        folder.mkdir()
        (folder / "cgroup.procs").write_text("10\n11\n")
    (v2 / "cpu.stat").write_text("usage_usec 30\nuser_usec 10\nsystem_usec 20\n")
    (memory / "memory.stat").write_text("cache 5\nrss 4096\nswap 1\n")
    (memory / "memory.usage_in_bytes").write_text("8192\n")
    pressure = "some avg10=46.94 avg60=20.58 avg300=5.21 total=77\nfull avg10=9.00 avg60=2.00 avg300=1.00 total=16\n"
    (v2 / "memory.pressure").write_text(pressure)
    counted = usage((str(v2), str(memory)))
    assert (counted.cpu_user_ns, counted.cpu_system_ns) == (10_000, 20_000)
    assert (counted.rss_bytes, counted.swap_bytes, counted.pids) == (4096, 1, 2)
    assert (counted.memory_stall_ns, counted.memory_charged_bytes) == (16_000, 8192)


def test_a_counter_is_read_once_and_not_sought_in_further_hierarchies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    v2, memory = tmp_path / "v2", tmp_path / "memory"
    for folder, file in ((v2, "cpu.stat"), (v2, "cgroup.procs"), (memory, "memory.stat")):
        folder.mkdir(exist_ok=True)
        (folder / file).write_text("1\n")
    read: list[str] = []
    monkeypatch.setattr(cgroups, "read_text", lambda path: (read.append(path), Path(path).exists() and "1")[1] or "")

    usage((str(v2), str(memory)))

    assert len(set(read)) == len(read)
    assert not {f"{memory}/cpu.stat", f"{memory}/cgroup.procs"} & set(read)


def test_what_no_cgroup_counts_is_unknown(tmp_path: Path) -> None:
    assert usage((str(tmp_path),)).rss_bytes is None


def test_empty_cgroups_of_dead_dev_runs_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    kept = [f"yurt-dev-{os.getpid()}.slice", "yurt.slice", "yurt-dev-x.slice", f"yurt-dev-{ended.pid}"]
    for name in (f"yurt-dev-{ended.pid}.slice", *kept):
        (tmp_path / name / "shims").mkdir(parents=True)
    remove_left_behind(Hierarchies(unified=str(tmp_path), v1={"cpu": str(tmp_path / "none")}))
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)


def test_the_operators_cpuset_of_a_parent_is_kept_and_inherited(tmp_path: Path) -> None:
    given = {"": "0-7", "own.slice": "2-3", "own.slice/yurt": "", "own.slice/yurt/shims": ""}
    for folder, cores in given.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "cpuset.cpus").write_text(cores)
    copy_cpuset(str(tmp_path), "own.slice/yurt")
    found = {folder: (tmp_path / folder / "cpuset.cpus").read_text() for folder in given}
    assert found == {"": "0-7", "own.slice": "2-3", "own.slice/yurt": "2-3", "own.slice/yurt/shims": "2-3"}


def test_lists_of_cores_are_read() -> None:
    assert parse_cores("0,2-4\n") == {0, 2, 3, 4}
    assert parse_cores("\n") == frozenset()


def test_controllers_that_do_not_reach_the_parent_are_missing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory")
    for folder, files in {"": ("cgroup.subtree_control",), "own": ("cgroup.procs", "cgroup.subtree_control")}.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        for file in files:
            (tmp_path / folder / file).touch()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert missing_controllers("own", str(mounts)) == ()
    (tmp_path / "own" / "cgroup.subtree_control").unlink()
    assert missing_controllers("own", str(mounts)) == ("cpu", "memory", "cpuset")


def test_a_closed_executor_leaves_the_operators_parent(tmp_path: Path) -> None:
    parent = f"yurt-test-own-{os.getpid()}.slice"
    if not prepare(parent)[1]:
        pytest.skip("no cgroup that may be written to on this host")
    for dev in (False, True):
        executor = ProcessExecutor(state_dir=str(tmp_path), dev=dev, cgroup_parent=parent)
        asyncio.run(executor.close())
        roots = [folder.split(parent)[0] + parent for folder in executor.cgroup_parents]
        assert not [name for root in roots for name in os.listdir(root) if os.path.isdir(f"{root}/{name}")]
    cgroups.remove(tuple(roots))
