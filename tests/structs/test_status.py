"""The words of states: each belongs to one side of every question, and no other word gets into a row."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from yurt.sdk.value import Value
from yurt.structs import status
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.predicates import eval_type

SIDES = (
    (status.ClientStatus, status.CLIENT_TERMINAL, {"pending", "running", "unknown"}),
    (status.DesiredStatus, status.SERVER_TERMINAL, {"run"}),
    (status.EvalStatus, status.EVAL_TERMINAL, {"pending", "blocked"}),
    (status.DeploymentStatus, status.DEPLOYMENT_ACTIVE, {"failed", "successful", "cancelled"}),
    (status.NodeStatus, status.NODE_UNRESPONSIVE, {"initializing", "ready"}),
    (status.EvalType, frozenset(status.JOB_TYPES), {"_core"}),
)


@pytest.mark.parametrize(("words", "inside", "outside"), SIDES)
def test_a_set_and_the_rest_are_all_words(words: Any, inside: frozenset[str], outside: set[str]) -> None:
    assert inside | outside == set(get_args(words))
    assert not inside & outside


@pytest.mark.parametrize(("kind", "field"), [
    (Evaluation, "Status"), (Evaluation, "Type"), (Evaluation, "TriggeredBy"), (Allocation, "ClientStatus"),
    (Allocation, "DesiredStatus"), (TaskState, "State"), (Deployment, "Status"), (Node, "Status"),
    (Node, "SchedulingEligibility"),
])  # fmt: skip
def test_a_word_that_is_none_is_refused_where_rows_are_read(kind: type[Value], field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'odd'"):
        msgspec.convert({field: "odd"}, kind)


def test_what_a_client_reports_with_a_word_that_is_none_is_refused() -> None:
    told = msgspec.to_builtins(AllocUpdate(id="a", node_id="n", client_status="running"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({key: "odd" if value == "running" else value for key, value in told.items()}, AllocUpdate)


def test_read_words_are_the_same_object_so_that_comparing_them_is_cheap() -> None:
    one, two = (msgspec.msgpack.decode(msgspec.msgpack.encode({"Status": "ready"}), type=Node) for _ in range(2))
    assert one.status is two.status


@pytest.mark.parametrize(("given", "expected"), [("batch", "batch"), ("_core", "_core"), ("odd", "service")])
def test_the_evaluations_of_a_job_have_its_type(given: str, expected: str) -> None:
    assert eval_type(Job(type=given)) == expected
