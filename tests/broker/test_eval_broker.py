"""The evaluation broker: order, one per job, delays, delivery limit; and its invariants under random operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from yurt.broker import FAILED_QUEUE, Delivery, EvalBroker
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.structs.evaluation import Evaluation
from yurt.testing import factories

QUEUES = ("service", "batch")
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


def at(seconds: float) -> UnixNano:
    return UnixNano(factories.NOW + round(seconds * NANOSECONDS))


def run_line(broker: EvalBroker, held: dict[str, str], words: list[str], now: float) -> str:
    """One line of a script: what to do, and what the broker says to it."""
    match words:
        case ["enqueue", name, *options]:
            changes = dict(option.split("=") for option in options)
            wait_until = at(float(changes["until"])) if "until" in changes else 0
            evaluation = Evaluation(
                id=name,
                job_id=changes.get("job", "web"),
                type=changes.get("type", "service"),
                priority=int(changes.get("priority", "50")),
                create_index=int(changes.get("index", "1")),
                modify_index=int(changes.get("index", "1")),
                wait_until=wait_until,
            )
            broker.enqueue(evaluation, now=at(now))
            return broker.place(name)
        case ["dequeue", *queues]:
            found = broker.dequeue(queues or QUEUES, now=at(now), token=f"token-{now}")
            if found is None:
                return "nothing"
            held[found.evaluation.id] = found.token
            return found.evaluation.id
        case ["ack", name]:
            return str(broker.ack(name, held[name], now=at(now)))
        case ["nack", name]:
            return f"{broker.nack(name, held[name], now=at(now))} {broker.place(name)}"
        case ["requeue", name]:
            broker.requeue(Evaluation(id=name, job_id="web"), now=at(now))
            return broker.place(name)
        case ["place", name]:
            return broker.place(name) or "nowhere"
        case ["cancelable"]:
            return " ".join(sorted(e.id for e in broker.take_cancelable(100))) or "nothing"
        case _:
            raise AssertionError(words)


def transcript(script: str) -> str:
    """The script with the broker's present answers."""
    broker, held, now, lines = EvalBroker(), dict[str, str](), 0.0, []
    for line in script.splitlines():
        command = line.split("->")[0].strip()
        if not command or command.startswith("#"):
            lines.append(line)
        elif command.startswith("at "):
            now = float(command.removeprefix("at "))
            broker.advance(at(now))
            lines.append(command)
        else:
            lines.append(f"{command} -> {run_line(broker, held, command.split(), now)}")
        broker.check()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_broker_answers_as_the_script_says(path: Path) -> None:
    expected = path.read_text()
    assert transcript(expected) == expected


def test_the_nack_timer_gives_an_evaluation_of_a_silent_worker_to_another() -> None:
    broker = EvalBroker()
    broker.enqueue(Evaluation(id="a", job_id="web"), now=at(0))
    first = broker.dequeue(QUEUES, now=at(0), token="one")
    assert first is not None
    assert broker.next_deadline() == at(60)
    broker.advance(at(60))
    broker.advance(at(61))
    assert broker.dequeue(QUEUES, now=at(61), token="two") == Delivery(first.evaluation, "two")
    assert not broker.ack("a", "one", now=at(62))


def test_a_paused_nack_timer_does_not_fire() -> None:
    broker = EvalBroker()
    broker.enqueue(Evaluation(id="a", job_id="web"), now=at(0))
    broker.dequeue(QUEUES, now=at(0), token="one")
    assert broker.pause_nack("a", "one")
    broker.advance(at(1000))
    assert broker.place("a") == "outstanding"
    assert broker.resume_nack("a", "one", now=at(1000))
    broker.advance(at(1059))
    assert broker.place("a") == "outstanding"
    broker.advance(at(1060))
    assert broker.place("a") == "delayed"


def test_a_wait_counts_from_the_evaluations_creation() -> None:
    broker = EvalBroker()
    evaluation = replace(factories.evaluation(), wait=60 * NANOSECONDS, create_time=at(0))
    broker.enqueue(evaluation, now=at(50))
    assert broker.next_deadline() == at(60)


class BrokerMachine(RuleBasedStateMachine):
    """Random operations of workers and leader; nothing is lost and no job is looked at twice (B2, B3)."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = EvalBroker()
        self.now = 0.0
        self.live: dict[str, Evaluation] = {}
        self.held: dict[str, str] = {}
        self.count = 0

    @rule(job=st.sampled_from("abc"), priority=st.sampled_from([10, 50]), delay=st.sampled_from([0, 0, 30]))
    def enqueue(self, job: str, priority: int, delay: int) -> None:
        self.count += 1
        evaluation = Evaluation(
            id=f"e{self.count}",
            job_id=job,
            namespace="x" if self.count % 2 else "y",
            priority=priority,
            create_index=self.count,
            modify_index=self.count,
            wait_until=at(self.now + delay) if delay else 0,
        )
        self.live[evaluation.id] = evaluation
        self.broker.enqueue(evaluation, now=at(self.now))

    @rule(queue=st.sampled_from([QUEUES, (FAILED_QUEUE,)]))
    def dequeue(self, queue: tuple[str, ...]) -> None:
        self.count += 1
        found = self.broker.dequeue(queue, now=at(self.now), token=f"t{self.count}")
        if found is not None:
            self.held[found.evaluation.id] = found.token

    @rule(data=st.data(), is_done=st.booleans())
    def answer(self, data: st.DataObject, is_done: bool) -> None:
        if not self.held:
            return
        eval_id = data.draw(st.sampled_from(sorted(self.held)))
        token = self.held.pop(eval_id)
        is_current = self.broker.token_of(eval_id) == token
        if is_done:
            assert self.broker.ack(eval_id, token, now=at(self.now)) == is_current
            if is_current:
                del self.live[eval_id]
        else:
            assert self.broker.nack(eval_id, token, now=at(self.now)) == is_current

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if self.live:
            evaluation = self.live[data.draw(st.sampled_from(sorted(self.live)))]
            if self.broker.place(evaluation.id) != "outstanding":
                self.broker.requeue(evaluation, now=at(self.now))

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        names = sorted(name for name in self.live if self.broker.place(name) != "outstanding")
        if names:
            eval_id = data.draw(st.sampled_from(names))
            self.broker.forget(eval_id)
            del self.live[eval_id]

    @rule(seconds=st.sampled_from([0.5, 1, 20, 60]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.broker.advance(at(self.now))

    @rule()
    def cancel(self) -> None:
        for evaluation in self.broker.take_cancelable(10):
            del self.live[evaluation.id]

    @invariant()
    def the_broker_checks_itself(self) -> None:
        self.broker.check()

    @invariant()
    def every_live_evaluation_is_in_one_place(self) -> None:
        places = {eval_id: self.broker.place(eval_id) for eval_id in self.live}
        assert all(places.values()), places
        stats = self.broker.stats()
        assert sum(stats) == len(self.live), (stats, places)

    @invariant()
    def one_evaluation_of_a_job_is_ready_or_held(self) -> None:
        jobs = [
            (e.namespace, e.job_id)
            for e in self.live.values()
            if self.broker.place(e.id) in ("ready", "outstanding", "failed")
        ]
        assert len(jobs) == len(set(jobs)), jobs

    @invariant()
    def what_waits_behind_nothing_is_ready(self) -> None:
        for evaluation in self.live.values():
            if self.broker.place(evaluation.id) == "pending":
                rivals = [
                    self.broker.place(e.id)
                    for e in self.live.values()
                    if (e.namespace, e.job_id) == (evaluation.namespace, evaluation.job_id) and e is not evaluation
                ]
                assert {"ready", "outstanding", "failed", "delayed"} & set(rivals), rivals


BrokerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_no_evaluation_is_lost_and_no_job_is_served_twice = BrokerMachine.TestCase


def test_the_check_finds_an_evaluation_in_two_places() -> None:
    broker = EvalBroker()
    broker.enqueue(Evaluation(id="a", job_id="web"), now=at(0))
    broker._cancelable["a"] = Evaluation(id="a", job_id="web")
    with pytest.raises(AssertionError, match="in two places"):
        broker.check()
