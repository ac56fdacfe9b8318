"""The simulator's checks of terms in etcd, of placements and disconnects, of waiting clients and of stopped tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from yurt.sdk.driver import TaskHandle
from yurt.sdk.value import UnixNano, replace
from yurt.state import Change, Snapshot, Tables
from yurt.storage.etcd.key_layout import Epoch, KeyLayout, put
from yurt.storage.etcd.messages import message
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import LaunchPeriodicJob
from yurt.structs.job import Job, PeriodicConfig
from yurt.structs.node import Node
from yurt.structs.task import TaskCSIPluginConfig
from yurt.testing import factories
from yurt.testing.sim.agents import REGION
from yurt.testing.sim.change_checks import _of_disconnects, _of_launch, _of_placements, _of_preemptions
from yurt.testing.sim.checks import Checks, Violation
from yurt.testing.sim.driver import SimHost, SimTaskRun
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.loop import SimLoop
from yurt.testing.sim.network import SimNetwork
from yurt.testing.sim.transcript import Transcript
from yurt.testing.sim.watchers import READY_S, Terms, WaitingNodes

KEYS = KeyLayout(REGION)
NODE = factories.node(factories.number_id(0, kind=1))
JOB = factories.job()


class Writes:
    """Writes of servers `a` and `b` to a simulated etcd, checked by `Terms`."""

    def __init__(self) -> None:
        loop = SimLoop(1)
        self.etcd = SimEtcd(SimNetwork(loop, 1), ("a", "b"), 1)
        loop.close()
        self.etcd.names = {"a": "a", "b": "b"}
        self.terms = Terms()

    def write(self, host: str, key: bytes, value: bytes) -> None:
        """Put a key as a server does."""
        before = self.etcd.store.revision
        self.etcd.store.call("Txn", message("TxnRequest", success=[put(key, value)]))
        self.terms.wrote(self.etcd, host, before)

    def begin(self, host: str, number: int, server: str) -> None:
        """Begin a term."""
        self.write(host, KEYS.epoch, msgspec.json.encode(Epoch(number=number, server=server)))


def test_only_the_server_of_the_newest_term_appends() -> None:
    etcd = Writes()
    etcd.begin("a", 1, "a")
    etcd.write("a", KEYS.entry(1), b"")
    etcd.begin("b", 2, "b")
    with pytest.raises(Violation, match="A3 a appends at index 2 in term 2 of b"):
        etcd.write("a", KEYS.entry(2), b"")


def test_two_servers_that_begin_one_term_are_a_problem_and_a_resignation_is_none() -> None:
    etcd = Writes()
    etcd.begin("a", 1, "a")
    etcd.begin("a", 1, "")
    etcd.begin("b", 2, "b")
    with pytest.raises(Violation, match="A3 a begins term 2 after term 2 of b"):
        etcd.begin("a", 2, "a")


def _state(node: Node, *allocs: Allocation) -> Snapshot:
    edit = Snapshot.empty().edit(9)
    edit.put(Tables.nodes, node.id, node)
    for alloc in allocs:
        edit.put(Tables.allocs, alloc.id, alloc)
    return edit.commit()


def test_a_placement_on_a_node_that_is_not_ready_and_an_unlinked_replacement_are_problems() -> None:
    old, new = (factories.alloc(JOB, on=NODE, id=name) for name in ("old", "new"))
    new = replace(new, previous_allocation="old")
    change = [Change("allocs", "new", None, new)]
    assert _of_placements(_state(replace(NODE, status="down"), old, new), change).startswith("C3 new")
    assert _of_placements(_state(NODE, old, new), change).startswith("D3 new")
    assert _of_placements(_state(NODE, replace(old, next_allocation="new"), new), change) == ""


def test_an_allocation_of_a_connected_client_is_not_unknown() -> None:
    old = factories.alloc(JOB, on=NODE, id="web", client_status="running")
    change = [Change("allocs", "web", old, replace(old, client_status=status.CLIENT_UNKNOWN))]
    assert _of_disconnects(_state(NODE), change).startswith("D3 web")
    assert _of_disconnects(_state(replace(NODE, status="disconnected")), change) == ""


@pytest.mark.parametrize(("priority", "problem"), [(60, ""), (59, "C5 low of web with priority 50")])
def test_a_victim_is_less_urgent_by_ten_at_least(priority: int, problem: str) -> None:
    urgent = factories.alloc(factories.job("urgent", priority=priority), on=NODE, id="high")
    victim = factories.alloc(JOB, on=NODE, id="low")
    change = [Change("allocs", "low", victim, replace(victim, preempted_by_allocation="high"))]
    assert _of_preemptions(_state(NODE, urgent), change)[:30] == problem
    assert _of_preemptions(_state(NODE), change).endswith("for nothing")


@pytest.mark.parametrize(("first", "index", "problem"), [("running", 5, "D8"), ("dead", 5, ""), ("running", 0, "")])
def test_a_scheduled_launch_does_not_overlap_with_the_one_before(first: str, index: int, problem: str) -> None:
    parent = factories.job("cron", periodic=PeriodicConfig(spec="@daily", prohibit_overlap=True))
    children = [
        factories.job(f"cron/{name}", parent_id="cron", status=each) for name, each in (("1", first), ("2", "pending"))
    ]
    edit = Snapshot.empty().edit(1)
    for job in (parent, children[0]):
        edit.put(Tables.jobs, job.key, job)
    before = edit.commit()
    edit = before.edit(2)
    edit.put(Tables.jobs, children[1].key, children[1])
    command = LaunchPeriodicJob(namespace="default", job_id="cron", launched_at=UnixNano(1), specification_index=index)
    assert _of_launch(before, edit.commit(), command)[:2] == problem


def test_a_client_that_nothing_hinders_becomes_ready_in_time() -> None:
    waiting, state = WaitingNodes(), _state(replace(NODE, status="initializing"))
    client = cast("Any", SimpleNamespace(name="node1", node_id=NODE.id, is_up=True))
    assert waiting.problem(state, lambda: [client], 1.0) == ""
    assert waiting.problem(state, list, 2.0) == "", "a fault begins its time again"
    assert (
        waiting.problem(state, lambda: [client], 3.0) == waiting.problem(state, lambda: [client], 3.0 + READY_S) == ""
    )
    assert waiting.problem(state, lambda: [client], 3.5 + READY_S).startswith("E1 ['node1']")


@pytest.mark.parametrize(("desired", "is_problem"), [("run", True), ("stop", False)])
def test_an_agent_stops_only_tasks_that_the_servers_do_not_want(desired: str, is_problem: bool) -> None:
    loop = SimLoop(1)
    checks, host = Checks(Transcript(loop), are_hosts_sound=True), SimHost(loop, "10.0.1.1", 1)
    loop.close()
    alloc = factories.alloc(JOB, on=NODE, id="web", client_status="running", desired_status=desired)
    checks._states[0] = _state(NODE, alloc)
    run = SimTaskRun("web", "main", "default", JOB.id, TaskHandle(driver="sim", task_id="t", pid=1), 0.0)
    if not is_problem:
        return checks.stopped(host, run)
    with pytest.raises(Violation, match="E2"):
        checks.stopped(host, run)


@pytest.mark.parametrize("are_plugins_sound", [True, False])
def test_an_agent_restarts_a_csi_plugin_that_fails_to_become_ready(are_plugins_sound: bool) -> None:
    loop = SimLoop(1)
    checks = Checks(Transcript(loop), are_hosts_sound=True, are_plugins_sound=are_plugins_sound)
    host = SimHost(loop, "10.0.1.1", 1)
    loop.close()
    task = factories.task(csi_plugin_config=TaskCSIPluginConfig(id="sim", type="node"))
    job = factories.job("plugin", type="system", task_groups=(factories.group(tasks=(task,)),))
    alloc = factories.alloc(job, on=NODE, id="plugin", client_status="running")
    checks._states[0] = _state(NODE, alloc)
    run = SimTaskRun("plugin", task.name, "default", job.id, TaskHandle(driver="sim", task_id="t", pid=1), 0.0)
    if not are_plugins_sound:
        return checks.stopped(host, run)
    with pytest.raises(Violation, match="E2"):
        checks.stopped(host, run)


@pytest.mark.parametrize(("desired", "is_problem"), [("run", True), ("stop", False)])
def test_what_completed_before_a_plan_replaced_it_is_not_run_again(desired: str, is_problem: bool) -> None:
    """D4, also where the plan asks it to stop."""
    loop = SimLoop(1)
    checks, job = Checks(Transcript(loop)), factories.job(type="batch")
    loop.close()
    done = factories.alloc(job, on=NODE, client_status="complete", desired_status=desired)
    before, state = _state(NODE, done), _state(NODE, replace(done, desired_status="stop"))
    checks.completed.add(done.id)
    new = Change("allocs", "new", None, factories.alloc(job, on=NODE, id="new", previous_allocation=done.id))
    if not is_problem:
        return checks._check_run_once(before, new.after)
    with pytest.raises(Violation, match="D4"):
        checks._check_alloc(before, _with_job(state, job), new)


def _with_job(state: Snapshot, job: Job) -> Snapshot:
    edit = state.edit(state.index + 1)
    edit.put(Tables.jobs, job.key, job)
    return edit.commit()
