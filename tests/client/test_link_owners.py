"""Whose files of several names the agent reads: what tasks of each kind of driver could name."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from yurt.client.allocations.alloc_table import AllocTable, EndedAlloc
from yurt.client.files.alloc_dir import build_alloc_dir
from yurt.client.files.alloc_files import AllocFiles
from yurt.client.files.link_owners import TaskUser, link_owners, task_users
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import Capabilities
from yurt.sdk.errors import NotFound, PermissionDenied
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import Allocation
from yurt.testing import factories

USER = "daemon"


class Drivers(dict[str, Any]):
    """Drivers of which only the capabilities are asked."""

    def __init__(self, **isolation: str) -> None:
        super().__init__()
        for name, kind in isolation.items():
            self[name] = type("Fake", (), {"capabilities": Capabilities(fs_isolation=kind)})()

    def get(self, name: str, default: Any = None) -> Any:
        """As the table of a client has it."""
        if name not in self:
            raise NotFound(name)
        return self[name]


DRIVERS: Any = Drivers(raw_exec="none", exec="chroot", docker="image")


def alloc_of(*tasks: tuple[str, str]) -> Allocation:
    """An allocation whose tasks are of a driver and a user."""
    job = factories.job()
    group = job.task_groups[0]
    made = tuple(
        replace(group.tasks[0], name=f"t{at}", driver=driver, user=user) for at, (driver, user) in enumerate(tasks)
    )
    job = replace(job, task_groups=(replace(group, tasks=made),))
    return replace(factories.alloc(job=job), task_group=group.name)


def users_of(*tasks: tuple[str, str]) -> tuple[TaskUser, ...]:
    """The same tasks."""
    return task_users(alloc_of(*tasks))


@pytest.mark.parametrize("tasks", [(("docker", ""),), (("exec", USER), ("docker", "999"))])
def test_tasks_that_see_only_their_folders_name_files_of_anybody(tasks: tuple[tuple[str, str], ...]) -> None:
    assert link_owners(users_of(*tasks), DRIVERS) is None


def test_a_task_that_sees_the_host_without_a_user_names_files_of_the_agent() -> None:
    assert link_owners(users_of(("raw_exec", "")), DRIVERS) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as another user")
def test_a_task_that_sees_the_host_names_files_of_its_user_alone() -> None:
    uid = pwd.getpwnam(USER).pw_uid
    assert link_owners(users_of(("raw_exec", USER), ("docker", "")), DRIVERS) == {uid}
    assert link_owners(users_of(("raw_exec", USER), ("raw_exec", "")), DRIVERS) == {uid, 0}


def test_a_driver_that_is_not_there_counts_as_one_without_isolation() -> None:
    assert link_owners(users_of(("gone", "")), DRIVERS) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks users up")
def test_a_user_that_does_not_exist_owns_nothing() -> None:
    assert link_owners(users_of(("raw_exec", "nobody-of-this-name")), DRIVERS) == frozenset()


async def test_files_of_a_client_are_read_by_this_rule(tmp_path: Path) -> None:
    alloc = alloc_of(("raw_exec", "nobody-of-this-name" if os.geteuid() == 0 else ""))
    build_alloc_dir(str(tmp_path), alloc.id)
    data = tmp_path / alloc.id / "alloc/data"
    (data / "file").write_text("1")
    env = RealEnv()

    table = AllocTable(env)
    table.ended[alloc.id] = EndedAlloc(
        id=alloc.id, namespace=alloc.namespace, finished_at=UnixNano(1), users=task_users(alloc)
    )

    own = AllocFiles(str(tmp_path), env, allocs=table, drivers=DRIVERS)
    assert (await own.stat_file(alloc.id, "alloc/data/file")).size == 1
    os.link(data / "file", data / "second")
    for reading in (
        own.stat_file(alloc.id, "alloc/data/second"),
        anext(own.read_file(alloc.id, "alloc/data/second", offset=0, limit=0)),
        anext(own.stream_file(alloc.id, "alloc/data/second", offset=0, origin="start", follow=False)),
    ):
        if os.geteuid() == 0:
            with pytest.raises(PermissionDenied, match="2 names"):
                await reading
        else:
            await reading
