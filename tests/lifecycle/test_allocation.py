"""The order of a group's tasks and the allocation's status that follows from them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.lifecycle import allocation
from yurt.lifecycle import task as machine
from yurt.lifecycle.allocation import Orders, Role, Stop, client_status, decide
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import UnixNano
from yurt.structs.alloc import TaskState
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import CLIENT_PENDING, CLIENT_RUNNING, CLIENT_TERMINAL, TASK_DEAD, TASK_PENDING, TASK_RUNNING
from yurt.testing.nightly import cases

NOW = UnixNano(1_700_000_000_000_000_000)
PENDING = TaskState(state=TASK_PENDING)
RUNNING = TaskState(state=TASK_RUNNING, started_at=NOW)
DONE = TaskState(state=TASK_DEAD, started_at=NOW, finished_at=NOW)
FAILED = TaskState(state=TASK_DEAD, failed=True, started_at=NOW, finished_at=NOW)

INIT = Role(name="init", hook="prestart")
PROXY = Role(name="proxy", hook="prestart", is_sidecar=True)
WEB = Role(name="web")
API = Role(name="api")
WARM = Role(name="warm", hook="poststart")
CLEAN = Role(name="clean", hook="poststop")
GROUP = (INIT, PROXY, WEB, API, WARM, CLEAN)


def states(**given_states: TaskState) -> dict[str, TaskState]:
    return {role.name: PENDING for role in GROUP} | given_states


def kills(orders: Orders) -> dict[str, str]:
    return {name: reason.type if reason else "" for name, reason in orders.kill}


def test_prestart_tasks_come_first():
    assert decide(GROUP, states(), stop=None) == Orders(begin=("init", "proxy"))


def test_main_tasks_wait_for_the_end_of_prestart_tasks_and_the_start_of_sidecars():
    assert decide(GROUP, states(init=DONE), stop=None).begin == ("proxy",)
    assert decide(GROUP, states(init=DONE, proxy=RUNNING), stop=None).begin == ("web", "api")


def test_poststart_tasks_wait_for_every_main_task():
    ready = states(init=DONE, proxy=RUNNING, web=RUNNING)

    assert "warm" not in decide(GROUP, ready, stop=None).begin
    assert decide(GROUP, ready | {"api": RUNNING}, stop=None).begin == ("warm",)


def test_sidecars_end_when_the_main_tasks_are_dead_and_poststop_tasks_follow():
    ended = states(init=DONE, proxy=RUNNING, web=DONE, api=DONE, warm=DONE)

    assert kills(decide(GROUP, ended, stop=None)) == {"proxy": "Main Tasks Dead"}
    assert decide(GROUP, ended | {"proxy": DONE}, stop=None).begin == ("clean",)


def test_a_failed_task_ends_its_siblings():
    broken = states(init=DONE, proxy=RUNNING, web=FAILED, api=RUNNING)

    assert kills(decide(GROUP, broken, stop=None)) == dict.fromkeys(("proxy", "api", "warm"), "Sibling Task Failed")


def test_a_failed_sidecar_ends_nobody_and_the_allocation_goes_on():
    broken = states(init=DONE, proxy=FAILED, web=RUNNING, api=RUNNING, warm=DONE)

    assert decide(GROUP, broken, stop=None).kill == ()
    assert client_status(GROUP, broken)[0] == CLIENT_RUNNING


def test_a_leaders_end_ends_the_others():
    group = (Role(name="web", is_leader=True), API)

    orders = decide(group, {"web": DONE, "api": RUNNING}, stop=None)

    assert kills(orders) == {"api": "Leader Task Dead"}


def test_stopping_takes_the_leader_then_the_others_then_sidecars_then_runs_poststop_tasks():
    group = (PROXY, Role(name="web", is_leader=True), API, CLEAN)
    live = {"proxy": RUNNING, "web": RUNNING, "api": RUNNING, "clean": PENDING}

    assert kills(decide(group, live, stop=Stop())) == {"web": ""}
    assert kills(decide(group, live | {"web": DONE}, stop=Stop())) == {"api": ""}
    assert kills(decide(group, live | {"web": DONE, "api": DONE}, stop=Stop())) == {"proxy": ""}
    over = live | {"web": DONE, "api": DONE, "proxy": DONE}
    assert decide(group, over, stop=Stop()) == Orders(begin=("clean",))


def test_when_the_run_time_is_over_poststop_tasks_do_not_run():
    over = {"web": DONE, "clean": PENDING}

    assert kills(decide((WEB, CLEAN), over, stop=Stop(is_expired=True))) == {"clean": ""}


def test_the_status_follows_from_the_tasks_in_nomads_order():
    assert client_status((WEB, API), {"web": RUNNING, "api": FAILED}) == ("failed", "Failed tasks")
    assert client_status((WEB, API), {"web": RUNNING, "api": PENDING}) == ("running", "Tasks are running")
    assert client_status((WEB, API), {"web": DONE, "api": PENDING}) == ("pending", "No tasks have started")
    assert client_status((WEB, API), {"web": DONE, "api": DONE}) == ("complete", "All tasks have completed")


ROLES = st.lists(
    st.builds(
        Role,
        name=st.sampled_from("abcde"),
        hook=st.sampled_from(["", "", "prestart", "poststart", "poststop"]),
        is_sidecar=st.booleans(),
        is_leader=st.booleans(),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda role: role.name,
).map(lambda found: tuple(r if r.hook else Role(name=r.name, is_leader=r.is_leader) for r in found))
STEPS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["ok", "fail", "end"])), max_size=60)


class Group:
    """Task machines in the order of a group, with a driver that does what the test says."""

    def __init__(self, all_roles: tuple[Role, ...]) -> None:
        self.roles = all_roles
        policy = machine.TaskPolicy(restart=RestartPolicy(attempts=1, interval=10**12, mode="fail"))
        self.tasks = {role.name: machine.new_task(policy, NOW) for role in all_roles}
        self.statuses: list[str] = []
        self.stop: Stop | None = None
        self.obey()

    @property
    def states(self) -> dict[str, TaskState]:
        return {name: task.state for name, task in self.tasks.items()}

    def post(self, name: str, event: machine.AnyTaskEvent) -> None:
        self.tasks[name] = machine.advance(self.tasks[name], event, now=NOW, chance=0.0).machine

    def obey(self) -> None:
        for _ in range(20):
            before = dict(self.tasks)
            orders = decide(self.roles, self.states, stop=self.stop)
            for name in orders.begin:
                self.post(name, machine.Begin())
            for name, reason in orders.kill:
                self.post(name, machine.Kill(reason=reason))
            if before == self.tasks:
                break
        self.statuses.append(client_status(self.roles, self.states)[0])

    def step(self, name: str, what: str) -> None:
        task = self.tasks[name]
        match task.phase:
            case machine.SETUP:
                self.post(name, machine.SetupDone())
            case machine.STARTING if what == "fail":
                self.post(name, machine.StartFailed(reason="x", is_recoverable=True))
            case machine.STARTING:
                self.post(name, machine.Started())
            case machine.BACKOFF:
                self.post(name, machine.RestartDue(run=task.run))
            case machine.RUNNING if what != "ok":
                self.post(name, machine.Exited(run=task.run, result=ExitResult(exit_code=int(what == "fail"))))
            case machine.STOPPING:
                self.post(name, machine.Exited(run=task.run, result=ExitResult(exit_code=130)))
                self.post(name, machine.Stopped(run=task.run))
        self.obey()


@settings(max_examples=cases(200), deadline=None)
@given(all_roles=ROLES, steps=STEPS, stop_at=st.integers(0, 80))
def test_the_status_moves_forward_and_an_end_is_final(all_roles, steps, stop_at):
    group = Group(all_roles)
    names = [role.name for role in all_roles]

    for number, (who, what) in enumerate(steps):
        if number == stop_at:
            group.stop = Stop()
            group.obey()
        group.step(names[who % len(names)], what)
        first_end = next((at for at, status in enumerate(group.statuses) if status in CLIENT_TERMINAL), None)
        if first_end is not None:
            assert len(set(group.statuses[first_end:])) == 1, group.statuses
        if len(group.statuses) > 1 and group.statuses[-2:] == [CLIENT_RUNNING, CLIENT_PENDING]:
            assert all(state.state != TASK_RUNNING for state in group.states.values())


@settings(max_examples=100, deadline=None)
@given(all_roles=ROLES, steps=STEPS)
def test_a_stopped_allocation_always_comes_to_its_end(all_roles, steps):
    group = Group(all_roles)
    names = [role.name for role in all_roles]
    for who, what in steps:
        group.step(names[who % len(names)], what)

    group.stop = Stop()
    group.obey()
    for _ in range(40):
        for name in names:
            group.step(name, "end")

    assert allocation.is_over(group.states), group.states


@settings(max_examples=100, deadline=None)
@given(all_roles=ROLES, steps=STEPS, last=st.sampled_from(["end", "fail"]))
def test_no_task_waits_for_ever_when_every_other_one_ends(all_roles, steps, last):
    group = Group(all_roles)
    names = [role.name for role in all_roles]
    for who, what in steps:
        group.step(names[who % len(names)], what)

    for _ in range(40):
        for name in names:
            group.step(name, last)

    assert allocation.is_over(group.states), group.states
