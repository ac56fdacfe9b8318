"""Jobs that are too large, and jobs that are looked at in a thread."""

from __future__ import annotations

import pytest
from yurt.rules.bounds import (
    CHECKS_MAX,
    CONSTRAINTS_MAX,
    CRON_LINES_MAX,
    GROUPS_MAX,
    META_MAX,
    PORT_PART,
    PORTS_MAX,
    REGEXPS_MAX,
    SERVICES_MAX,
    TASKS_MAX,
    TEMPLATES_MAX,
    THREAD_PARTS,
    VALUE_PART,
    bound_problems,
    is_costly,
)
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job, PeriodicConfig, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.service import Service, ServiceCheck
from yurt.structs.task import Task, Template

REGEXP = Constraint(operand="regexp")


def with_task(task: Task) -> Job:
    return Job(task_groups=(TaskGroup(tasks=(task,)),))


def with_device(constraints: int) -> Job:
    device = RequestedDevice(name="gpu", constraints=(Constraint(operand="="),) * constraints)
    return with_task(Task(resources=Resources(devices=(device,))))


def with_ports(count: int) -> NetworkResource:
    return NetworkResource(dynamic_ports=(Port(label="p"),) * count)


CASES = {
    "task groups": (GROUPS_MAX, lambda count: Job(task_groups=(TaskGroup(),) * count)),
    "tasks": (TASKS_MAX, lambda count: Job(task_groups=(TaskGroup(tasks=(Task(),) * count),))),
    "constraints, affinities and spreads": (CONSTRAINTS_MAX, with_device),
    "constraints and affinities with a regexp": (REGEXPS_MAX, lambda count: Job(constraints=(REGEXP,) * count)),
    "templates": (TEMPLATES_MAX, lambda count: with_task(Task(templates=(Template(),) * count))),
    "services": (SERVICES_MAX, lambda count: with_task(Task(services=(Service(),) * count))),
    "checks of services": (CHECKS_MAX, lambda n: with_task(Task(services=(Service(checks=(ServiceCheck(),) * n),)))),
    "meta entries": (META_MAX, lambda count: Job(meta={f"{number}": "" for number in range(count)})),
    "ports": (PORTS_MAX, lambda count: Job(task_groups=(TaskGroup(networks=(with_ports(count),)),))),
    "cron expressions": (CRON_LINES_MAX, lambda n: Job(periodic=PeriodicConfig(specs=("@daily",) * n))),
}


@pytest.mark.parametrize("what", CASES)
def test_a_job_at_its_bound_is_taken_and_one_beyond_it_is_told_the_bound(what: str) -> None:
    most, make = CASES[what]
    assert bound_problems(make(most)) == ()
    (problem,) = bound_problems(make(most + 1))
    assert is_costly(make(most + 1)), "admission counts what exceeds a bound in costly jobs alone"
    assert problem == f"the job has {most + 1} {what}, at most {most} are possible: split it into several jobs"


@pytest.mark.parametrize(
    "job",
    [
        Job(constraints=(REGEXP,) * 7),
        with_task(Task(templates=(Template(embedded_tmpl="x" * 16_000),) * 2)),
        Job(task_groups=(TaskGroup(),) * 61),
    ],
)
def test_a_job_whose_parts_cost_much_is_looked_at_in_a_thread(job: Job) -> None:
    assert is_costly(job)


def test_an_ordinary_job_is_looked_at_at_once() -> None:
    task = Task(services=(Service(),), templates=(Template(embedded_tmpl="x" * 2000),) * 2, constraints=(REGEXP,))
    assert not is_costly(Job(task_groups=(TaskGroup(tasks=(task, task)),)))


def test_many_options_of_a_driver_are_checked_in_a_thread() -> None:
    values = VALUE_PART * THREAD_PARTS
    assert is_costly(with_task(Task(config={"args": ["x"] * values})))
    assert is_costly(with_task(Task(config={f"option{number}": 1 for number in range(values)})))
    assert is_costly(with_task(Task(env={f"E{number}": "x" for number in range(values)})))
    assert not is_costly(with_task(Task(config={"args": ["x"] * 500}, env={"A": "b"})))


def test_many_ports_of_groups_and_tasks_are_checked_in_a_thread() -> None:
    half = PORT_PART * THREAD_PARTS // 2
    task = Task(resources=Resources(networks=(with_ports(half),)))
    assert is_costly(Job(task_groups=(TaskGroup(tasks=(task,), networks=(with_ports(half),)),)))
    assert not is_costly(Job(task_groups=(TaskGroup(tasks=(task,)),)))
