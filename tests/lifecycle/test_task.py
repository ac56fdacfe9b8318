"""The task machine: what leads where, and what never happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.lifecycle.restarts import RestartWindow
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import UnixNano, seconds
from yurt.structs.alloc import TaskState
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import TASK_DEAD, TASK_PENDING, TASK_RUNNING
from yurt.testing.nightly import cases

T0 = UnixNano(1_700_000_000_000_000_000)
POLICY = machine.TaskPolicy(
    restart=RestartPolicy(attempts=1, interval=seconds(60), delay=seconds(1), mode="fail"), restart_on_success=True
)


class Driven:
    """A machine with its time and what it has asked for so far."""

    def __init__(self, policy: machine.TaskPolicy = POLICY) -> None:
        self.now = T0
        self.machine = machine.new_task(policy, self.now)
        self.actions: list[machine.AnyAction] = []

    def post(self, *posted: machine.AnyTaskEvent) -> Driven:
        for event in posted:
            self.now = UnixNano(self.now + 1)
            step = machine.advance(self.machine, event, now=self.now, chance=0.0)
            self.machine = step.machine
            self.actions += step.actions
        return self

    @property
    def messages(self) -> list[str]:
        return [f"{event.type}: {event.display_message}" for event in self.machine.state.events]


def running(policy: machine.TaskPolicy = POLICY) -> Driven:
    return Driven(policy).post(machine.Begin(), machine.SetupDone(), machine.Started())


def test_a_batch_task_that_ends_well_is_complete():
    batch = machine.TaskPolicy(restart=POLICY.restart, restart_on_success=False)

    driven = running(batch).post(machine.Exited(run=0, result=ExitResult()))

    assert driven.machine.state.state == TASK_DEAD and not driven.machine.state.failed
    assert driven.messages == [
        "Received: Task received by client",
        "Task Setup: Building Task Directory",
        "Started: Task started by client",
        "Terminated: Exit Code: 0",
    ]


def test_a_failed_task_waits_its_delay_and_starts_again_as_the_next_run():
    driven = running().post(machine.Exited(run=0, result=ExitResult(exit_code=1)))

    assert driven.machine.state.state == TASK_PENDING and driven.machine.state.restarts == 1
    assert driven.actions[-1] == machine.SetTimer(run=1, delay=seconds(1))
    driven.post(machine.RestartDue(run=1))
    assert driven.actions[-1] == machine.RunSetup(run=1)


def test_a_task_beyond_its_attempts_is_failed():
    driven = running().post(
        machine.Exited(run=0, result=ExitResult(exit_code=1)),
        machine.RestartDue(run=1),
        machine.SetupDone(),
        machine.Started(),
        machine.Exited(run=1, result=ExitResult(exit_code=2)),
    )

    assert driven.machine.state.failed and driven.machine.phase == machine.DEAD
    assert driven.messages[-1].startswith("Not Restarting: Exceeded allowed attempts 1 in interval 1m0s")


def test_a_kill_while_a_start_is_in_flight_stops_what_was_started():
    driven = Driven().post(machine.Begin(), machine.SetupDone(), machine.Kill(), machine.Started())

    assert driven.actions[-2:] == [machine.WatchTask(run=0), machine.StopTask(run=0)]
    driven.post(machine.Stopped(run=0), machine.Exited(run=0, result=ExitResult(exit_code=130)))
    assert driven.machine.phase == machine.DEAD and not driven.machine.state.failed
    assert driven.messages[-3:] == [
        "Killing: Sent interrupt. Waiting 5s before force killing",
        "Terminated: Exit Code: 130",
        "Killed: Task successfully killed",
    ]


def test_a_users_restart_does_not_count_against_the_policy():
    driven = running().post(
        machine.AskRestart(reason="User requested task to restart"),
        machine.Exited(run=0, result=ExitResult(exit_code=130)),
        machine.Stopped(run=0),
    )

    assert driven.machine.window == RestartWindow() and driven.machine.run == 1
    assert driven.actions[-1] == machine.RunSetup(run=1)
    assert "Restart Signaled: User requested task to restart" in driven.messages


def test_a_kill_during_a_restart_wins():
    driven = running().post(
        machine.AskRestart(reason="now"),
        machine.Kill(),
        machine.Exited(run=0, result=ExitResult(exit_code=130)),
        machine.Stopped(run=0),
    )

    assert driven.machine.phase == machine.DEAD


def test_a_restart_from_the_start_waits_for_its_turn_again():
    ended = running(machine.TaskPolicy()).post(machine.Exited(run=0, result=ExitResult()))

    ended.post(machine.AskRestart(reason="all", from_start=True))

    assert ended.machine.phase == machine.WAITING and ended.machine.state.state == TASK_PENDING
    assert ended.machine.state.started_at == 0 and ended.machine.run == 1


def stopped(driven: Driven, run: int) -> Driven:
    return driven.post(machine.Exited(run=run, result=ExitResult(exit_code=130)), machine.Stopped(run=run))


def test_a_paused_task_ends_and_starts_again_when_it_is_resumed():
    driven = stopped(running().post(machine.Pause()), 0)

    assert driven.machine.phase == machine.PAUSED
    assert (driven.machine.state.state, driven.machine.state.paused) == (TASK_PENDING, "pause")
    driven.post(machine.Begin(), machine.AskRestart(reason="now"))
    assert driven.machine.phase == machine.PAUSED
    driven.post(machine.Resume())
    assert driven.actions[-1] == machine.RunSetup(run=1)
    assert (driven.machine.state.restarts, driven.machine.state.paused) == (0, "")
    assert driven.messages[-1] == "Resuming: Task is resumed by user request"


def test_a_pause_while_a_start_is_in_flight_stops_what_was_started():
    driven = Driven().post(machine.Begin(), machine.SetupDone(), machine.Pause(), machine.Started())

    assert driven.actions[-2:] == [machine.WatchTask(run=0), machine.StopTask(run=0)]
    assert stopped(driven, 0).machine.phase == machine.PAUSED


def test_a_task_resumed_before_it_has_stopped_starts_again():
    driven = stopped(running().post(machine.Pause(), machine.Resume()), 0)

    assert driven.actions[-1] == machine.RunSetup(run=1)


def test_an_agent_that_comes_back_keeps_a_task_paused():
    state = TaskState(state=TASK_PENDING, paused="pause")
    driven = Driven()
    driven.machine = machine.restored_task(POLICY, state, 3, RestartWindow())

    driven.post(machine.Begin())

    assert driven.machine.phase == machine.PAUSED
    driven.post(machine.Kill())
    assert (driven.machine.phase, driven.machine.state.paused) == (machine.DEAD, "")


def test_a_run_that_ended_with_the_agent_while_it_was_paused_stays_paused():
    policy = machine.TaskPolicy(restart=RestartPolicy(attempts=0, mode="fail"))
    driven = Driven(policy)
    state = TaskState(state=TASK_RUNNING, paused="pause", restarts=2)
    driven.machine = machine.restored_task(policy, state, 3, RestartWindow())

    driven.post(machine.Lost(), machine.Begin())

    assert (driven.machine.phase, driven.machine.state.restarts) == (machine.PAUSED, 2)
    driven.post(machine.Resume())
    assert driven.actions == [machine.RunSetup(run=4)]


SCHEDULED = machine.TaskPolicy(has_schedule=True)


def test_a_task_runs_while_the_window_of_its_schedule_is_open():
    driven = Driven(SCHEDULED).post(machine.ScheduleEdge(is_open=False), machine.Begin())

    assert (driven.machine.phase, driven.machine.state.paused) == (machine.PAUSED, "scheduled_pause")
    assert driven.actions == [] and driven.messages[-1] == "Pausing: Task is being paused by its schedule"
    driven.post(machine.ScheduleEdge(is_open=True))
    assert driven.actions == [machine.RunSetup(run=0)]
    assert driven.messages[-1] == "Resuming: Task is resumed by its schedule"
    driven.post(
        machine.SetupDone(), machine.Started(), machine.ScheduleEdge(is_open=True), machine.ScheduleEdge(is_open=False)
    )
    assert driven.actions[-1] == machine.StopTask(run=0)
    assert (stopped(driven, 0).machine.phase, driven.machine.state.restarts) == (machine.PAUSED, 0)


@pytest.mark.parametrize(
    ("wishes", "outside", "inside"),
    [
        ([], "scheduled_pause", ""),
        ([machine.Resume()], "run", "run"),
        ([machine.Pause()], "pause", "pause"),
        ([machine.Pause(), machine.FollowSchedule()], "scheduled_pause", ""),
        ([machine.Resume(), machine.FollowSchedule()], "scheduled_pause", ""),
        ([machine.Resume(), machine.Pause(), machine.Resume()], "run", "run"),
    ],
)
def test_the_decision_of_a_user_stands_until_it_is_given_back_to_the_schedule(wishes, outside, inside):
    for is_open, expected in ((False, outside), (True, inside)):
        driven = Driven(SCHEDULED).post(machine.Begin(), machine.SetupDone(), machine.Started())
        driven.post(machine.ScheduleEdge(is_open=is_open), *wishes)
        assert driven.machine.state.paused == expected
        assert driven.machine.is_paused == expected.endswith("pause")
        driven.post(machine.ScheduleEdge(is_open=not is_open), machine.ScheduleEdge(is_open=is_open))
        assert driven.machine.state.paused == expected


def test_a_task_that_cannot_be_prepared_fails_with_the_reason():
    failure = events.setup_failure("artifact is not available in this version")

    driven = Driven().post(machine.Begin(), machine.SetupFailed(event=failure))

    assert driven.machine.state.failed
    assert "Setup Failure: artifact is not available in this version" in driven.messages


def test_a_task_found_again_keeps_its_start_and_restarts():
    state = TaskState(state=TASK_RUNNING, started_at=T0 - 5, restarts=3)
    restored = machine.restored_task(POLICY, state, 3, RestartWindow())

    step = machine.advance(restored, machine.Recovered(), now=T0, chance=0.0)

    assert step.machine.state == state and step.actions == (machine.WatchTask(run=3),)


def test_only_the_last_ten_events_are_kept():
    driven = running()
    for number in range(20):
        driven.post(machine.Note(event=events.driver_message(str(number))))

    assert [event.display_message for event in driven.machine.state.events] == [str(each) for each in range(10, 20)]


RUNS = st.integers(0, 3)
EVENTS = st.one_of(
    st.just(machine.Begin()),
    st.just(machine.SetupDone()),
    st.builds(machine.SetupFailed, event=st.just(events.setup_failure("x")), is_recoverable=st.booleans()),
    st.just(machine.Started()),
    st.builds(machine.StartFailed, reason=st.just("x"), is_recoverable=st.booleans()),
    st.builds(machine.Exited, run=RUNS, result=st.builds(ExitResult, exit_code=st.integers(0, 1))),
    st.builds(machine.Stopped, run=RUNS, error=st.sampled_from(["", "stuck"])),
    st.builds(machine.RestartDue, run=RUNS),
    st.just(machine.Kill()),
    st.builds(machine.AskRestart, reason=st.just("u"), from_start=st.booleans()),
    st.just(machine.Recovered()),
    st.just(machine.Lost()),
    st.just(machine.Pause()),
    st.just(machine.Resume()),
    st.just(machine.FollowSchedule()),
    st.builds(machine.ScheduleEdge, is_open=st.booleans()),
)


@settings(max_examples=cases(300), deadline=None)
@given(posted=st.lists(EVENTS, max_size=40))
def test_whatever_comes_a_killed_task_never_starts_and_starts_never_overlap(posted):
    driven = Driven(machine.TaskPolicy(restart=RestartPolicy(attempts=3, interval=seconds(600), mode="fail")))
    in_flight = False
    for event in posted:
        before = driven.machine
        count = len(driven.actions)
        driven.post(event)
        new = driven.actions[count:]
        starts = [action for action in new if isinstance(action, machine.StartTask)]
        assert not (starts and (in_flight or before.is_killed)), (event, before)
        if isinstance(event, machine.Started | machine.StartFailed) and before.phase == machine.STARTING:
            in_flight = False
        in_flight = in_flight or bool(starts)
        assert not (starts and before.is_paused), (event, before)
        assert driven.machine.state.restarts >= before.state.restarts
        assert (driven.machine.phase == machine.DEAD) == (driven.machine.state.state == TASK_DEAD)
        assert (driven.machine.state.state == TASK_RUNNING) == (
            driven.machine.phase in (machine.RUNNING, machine.STOPPING)
        )
        if before.phase == machine.DEAD and not (isinstance(event, machine.AskRestart) and event.from_start):
            assert driven.machine.phase == machine.DEAD
        assert len(driven.machine.state.events) <= events.EVENTS_MAX


@given(posted=st.lists(EVENTS, max_size=30))
def test_a_kill_always_ends_once_the_driver_has_answered(posted):
    driven = Driven().post(*posted).post(machine.Kill())

    for _ in range(4):
        run = driven.machine.run
        driven.post(
            machine.SetupDone(),
            machine.Started(),
            machine.Exited(run=run, result=ExitResult(exit_code=130)),
            machine.Stopped(run=run),
        )

    assert driven.machine.phase == machine.DEAD
