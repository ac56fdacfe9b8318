"""Whose files of several names the agent reads: what tasks of each kind of driver could name."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest
from yurt.client.link_owners import link_owners
from yurt.sdk.driver import Capabilities
from yurt.sdk.errors import NotFound
from yurt.sdk.value import replace
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


@pytest.mark.parametrize("tasks", [(("docker", ""),), (("exec", USER), ("docker", "999"))])
def test_tasks_that_see_only_their_folders_name_files_of_anybody(tasks: tuple[tuple[str, str], ...]) -> None:
    assert link_owners(alloc_of(*tasks), DRIVERS) is None


def test_a_task_that_sees_the_host_without_a_user_names_files_of_the_agent() -> None:
    assert link_owners(alloc_of(("raw_exec", "")), DRIVERS) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as another user")
def test_a_task_that_sees_the_host_names_files_of_its_user_alone() -> None:
    uid = pwd.getpwnam(USER).pw_uid
    assert link_owners(alloc_of(("raw_exec", USER), ("docker", "")), DRIVERS) == {uid}
    assert link_owners(alloc_of(("raw_exec", USER), ("raw_exec", "")), DRIVERS) == {uid, 0}


def test_a_driver_that_is_not_there_counts_as_one_without_isolation() -> None:
    assert link_owners(alloc_of(("gone", "")), DRIVERS) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks users up")
def test_a_user_that_does_not_exist_owns_nothing() -> None:
    assert link_owners(alloc_of(("raw_exec", "nobody-of-this-name")), DRIVERS) == frozenset()
