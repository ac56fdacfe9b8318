"""The usage of a container is read from its cgroup, of either version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from yurt.sdk.containers.cgroups import ContainerCgroup
from yurt.sdk.containers.cgroups.usage import TICK_NS, usage_of
from yurt.sdk.driver import TaskStats
from yurt.sdk.value import UnixNano

AT = UnixNano(7)
UNIFIED = {
    "cpu.stat": "usage_usec 30\nuser_usec 20\nsystem_usec 10\n",
    "memory.stat": "anon 5000\nfile 90000\n",
    "memory.swap.current": "40\n",
    "pids.current": "3\n",
}
CONTROLLERS = {
    "cpuacct.usage_user": "20000\n",
    "cpuacct.usage_sys": "10000\n",
    "memory.stat": "rss 1\nswap 2\ntotal_rss 5000\ntotal_swap 40\n",
    "pids.current": "3\n",
}
OLD_LINUX = {"cpuacct.stat": "user 2\nsystem 1\n", "memory.stat": "rss 5000\n", "memory.usage_in_bytes": "1\n"}
EXPECTED = TaskStats(at=AT, rss_bytes=5000, swap_bytes=40, cpu_user_ns=20_000, cpu_system_ns=10_000, pids=3)


def cgroup(folder: Path, files: Mapping[str, str]) -> ContainerCgroup:
    """A cgroup whose controllers all have one folder, behind one that counts nothing."""
    for name, text in files.items():
        (folder / name).write_text(text)
    folders = (str(folder / "unified"), str(folder))
    return ContainerCgroup(memory=folders, cpu=folders, pids=folders)


@pytest.mark.parametrize("files", [UNIFIED, CONTROLLERS], ids=["v2", "v1"])
def test_both_versions_count_the_same(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert usage_of(cgroup(tmp_path, files), AT) == EXPECTED


def test_old_kernels_count_in_ticks(tmp_path: Path) -> None:
    found = usage_of(cgroup(tmp_path, OLD_LINUX), AT)
    assert found == TaskStats(at=AT, rss_bytes=5000, cpu_user_ns=2 * TICK_NS, cpu_system_ns=TICK_NS)


def test_a_container_without_memory_of_its_own_is_charged_for_its_files(tmp_path: Path) -> None:
    files = UNIFIED | {"memory.stat": "anon 0\n", "memory.current": "9000\n"}
    found = usage_of(cgroup(tmp_path, files), AT)
    assert found is not None and found.rss_bytes == 9000


@pytest.mark.parametrize("missing", ["cpu.stat", "memory.stat"])
def test_a_container_that_is_not_counted_has_no_sample(tmp_path: Path, missing: str) -> None:
    assert usage_of(cgroup(tmp_path, {name: text for name, text in UNIFIED.items() if name != missing}), AT) is None


def test_an_unknown_cgroup_has_no_sample() -> None:
    assert usage_of(ContainerCgroup(), AT) is None
