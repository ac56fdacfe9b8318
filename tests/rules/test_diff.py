"""The difference of two job versions."""

from __future__ import annotations

from typing import Any

from yurt.rules.diff import job_diff
from yurt.sdk.value import replace
from yurt.structs.constraint import Constraint
from yurt.structs.explain.diff import JobDiff
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.policies import UpdateStrategy
from yurt.structs.resources import RequestedDevice
from yurt.structs.service import Service, ServiceCheck
from yurt.structs.task import Task

TASK = Task(name="main", driver="raw_exec", config={"command": "a", "args": ["x"]}, env={"A": "1"})
GROUP = TaskGroup(name="web", count=1, tasks=(TASK,))
JOB = Job(id="job", name="job", task_groups=(GROUP,), meta={"owner": "me"})


def with_group(**changes: Any) -> Job:
    """The job with a changed group."""
    return replace(JOB, task_groups=(replace(GROUP, **changes),))


def fields(diff: Any) -> list[tuple[str, str, str, str]]:
    """The fields of a diff in short."""
    return [(field.type, field.name, field.old, field.new) for field in diff.fields]


def test_equal_jobs_differ_in_nothing_but_list_their_groups() -> None:
    diff = job_diff(JOB, replace(JOB, version=3, modify_index=9, status="running"))
    assert (diff.type, diff.fields, diff.objects) == ("None", (), ())
    assert [(group.type, group.name, [task.type for task in group.tasks]) for group in diff.task_groups] == [
        ("None", "web", ["None"])
    ]


def test_a_new_job_is_added_with_all_its_fields() -> None:
    diff = job_diff(None, JOB)
    assert (diff.type, diff.id, diff.task_groups[0].type, diff.task_groups[0].tasks[0].type) == (
        "Added", "job", "Added", "Added",
    )  # fmt: skip
    assert ("Added", "Meta[owner]", "", "me") in fields(diff)
    assert job_diff(JOB, None).type == "Deleted"
    assert job_diff(None, None) == JobDiff(type="None")


def test_changed_fields_are_edited_and_maps_are_flat() -> None:
    diff = job_diff(JOB, replace(JOB, priority=70, meta={"owner": "you", "team": "x"}))
    assert diff.type == "Edited"
    assert fields(diff) == [
        ("Edited", "Meta[owner]", "me", "you"),
        ("Added", "Meta[team]", "", "x"),
        ("Edited", "Priority", "50", "70"),
    ]


def test_a_count_is_a_field_of_the_group() -> None:
    (group,) = job_diff(JOB, with_group(count=3)).task_groups
    assert (group.type, fields(group)) == ("Edited", [("Edited", "Count", "1", "3")])


def test_a_drivers_config_is_an_object_with_its_unchanged_fields() -> None:
    task = replace(TASK, config={"command": "a", "args": ["y"]}, env={"A": "2"})
    (found,) = job_diff(JOB, with_group(tasks=(task,))).task_groups[0].tasks
    assert fields(found) == [("Edited", "Env[A]", "1", "2")]
    (config,) = found.objects
    assert (config.name, config.type) == ("Config", "Edited")
    assert fields(config) == [("Edited", "args[0]", "x", "y"), ("None", "command", "a", "a")]


def test_repeated_blocks_without_a_name_are_deleted_and_added() -> None:
    old = replace(JOB, constraints=(Constraint(l_target="a", operand="=", r_target="b"),))
    new = replace(JOB, constraints=(Constraint(l_target="a", operand="=", r_target="c"),))
    assert [(diff.type, diff.name) for diff in job_diff(old, new).objects] == [
        ("Added", "Constraint"), ("Deleted", "Constraint"),
    ]  # fmt: skip


def test_a_block_that_appears_is_added_whole() -> None:
    (group,) = job_diff(JOB, with_group(update=UpdateStrategy(max_parallel=2))).task_groups
    (update,) = group.objects
    assert (update.type, update.name) == ("Added", "Update")
    assert ("Added", "MaxParallel", "", "2") in fields(update)


def test_ports_lie_inside_their_network() -> None:
    old = with_group(networks=(NetworkResource(dynamic_ports=(Port(label="http"),)),))
    new = with_group(networks=(NetworkResource(dynamic_ports=(Port(label="http", to=80),)),))
    networks = job_diff(old, new).task_groups[0].objects
    assert {(network.type, network.objects[0].name) for network in networks} == {
        ("Added", "Dynamic Port"), ("Deleted", "Dynamic Port"),
    }  # fmt: skip


def test_words_are_an_object_with_a_field_for_each() -> None:
    (found,) = job_diff(replace(JOB, datacenters=("a", "b")), replace(JOB, datacenters=("b", "c"))).objects
    assert (found.name, found.type) == ("Datacenters", "Edited")
    assert [field[0] for field in fields(found)] == ["Added", "Deleted", "None"]


def test_renamed_groups_are_deleted_and_added() -> None:
    diff = job_diff(JOB, with_group(name="api"))
    assert [(group.type, group.name) for group in diff.task_groups] == [("Added", "api"), ("Deleted", "web")]


def test_fields_that_nomad_has_not_got_are_told_only_where_they_are_set() -> None:
    def asking(device: RequestedDevice) -> Job:
        return with_group(tasks=(replace(TASK, resources=replace(TASK.resources, devices=(device,))),))

    plain = RequestedDevice(name="gpu")
    (task,) = job_diff(asking(plain), asking(replace(plain, count=2))).task_groups[0].tasks
    device = task.objects[0].objects[0]
    assert [field[1] for field in fields(device)] == ["Count", "Name"]
    (task,) = job_diff(asking(plain), asking(replace(plain, share="mps", memory_mb=4))).task_groups[0].tasks
    device = task.objects[0].objects[0]
    assert ("Added", "Share", "", "mps") in fields(device) and ("Added", "MemoryMB", "", "4") in fields(device)


def test_a_check_header_without_values_differs_in_nothing() -> None:
    with_header = Service(name="web", checks=(ServiceCheck(name="up", header={"k": ()}),))
    without = Service(name="web", checks=(ServiceCheck(name="up"),))
    old, new = (
        Job(id="web", task_groups=(TaskGroup(name="app", services=(service,)),)) for service in (with_header, without)
    )
    for before, after in ((old, new), (new, old)):
        assert job_diff(before, after).task_groups[0].objects == ()
