"""The model of evaluations under a broker that is paused explains a server, and finds what no pause allows."""

from __future__ import annotations

import pytest
from yurt.testing.histories.checker import check
from yurt.testing.histories.clients import Clients, LoadShape
from yurt.testing.histories.evaluations import (
    BrokerKind,
    DeleteEvaluation,
    EvaluationBody,
    EvaluationModel,
    PauseBroker,
    ReadBroker,
    RegisterEvaluated,
)
from yurt.testing.histories.history import History, Operation, Reply, Request
from yurt.testing.histories.report import report_on
from yurt.testing.http_api import serving

Pair = tuple[Request, Reply]

MADE: Pair = (RegisterEvaluated("a"), Reply(200, 5, EvaluationBody("e")))
PAUSED: Pair = (PauseBroker(True), Reply(200, 6))
RESUMED: Pair = (PauseBroker(False), Reply(200, 7))
ENABLED = Reply(500, 0, "eval broker is enabled; eval broker must be paused to delete evals")
DELETED: Pair = (DeleteEvaluation("e"), Reply(200, 8))


def one_by_one(*pairs: Pair) -> History:
    return tuple(
        Operation(at, at, "x", request, at * 10, at * 10 + 5, answer) for at, (request, answer) in enumerate(pairs)
    )


@pytest.mark.parametrize(
    "history",
    [
        one_by_one(MADE, DELETED),
        one_by_one(MADE, PAUSED, RESUMED, DELETED),
        one_by_one(MADE, PAUSED, (DeleteEvaluation("e"), ENABLED)),
        one_by_one(MADE, RESUMED, (DeleteEvaluation("gone"), Reply(404, 0, "eval not found: gone"))),
        one_by_one(MADE, PAUSED, (ReadBroker(), Reply(200, 6, False))),
    ],
)
def test_an_answer_that_contradicts_the_pause_is_found(history: History) -> None:
    assert not check(EvaluationModel(owns_broker=True), history).is_linearizable


@pytest.mark.parametrize(
    "history",
    [
        one_by_one(MADE, PAUSED, DELETED, (DeleteEvaluation("e"), Reply(404, 0, "eval not found: e"))),
        one_by_one(MADE, (DeleteEvaluation("e"), ENABLED), PAUSED, DELETED),
        one_by_one(MADE, PAUSED, (DeleteEvaluation("e"), Reply(400, 0, "is not safe to delete")), RESUMED),
    ],
)
def test_answers_that_follow_the_pause_are_explained(history: History) -> None:
    assert check(EvaluationModel(owns_broker=True), history).is_linearizable


def test_a_pause_of_unknown_outcome_explains_a_deletion() -> None:
    unknown = Operation(9, 9, "x", PauseBroker(True), 6)
    history = one_by_one(MADE, DELETED)

    assert check(EvaluationModel(owns_broker=True), (*history, unknown)).is_linearizable


def test_where_others_pause_the_broker_any_deletion_may_be_refused_for_it() -> None:
    refused = (DeleteEvaluation("e"), ENABLED)

    assert check(EvaluationModel(), one_by_one(MADE, refused, DELETED)).is_linearizable


@pytest.mark.parametrize("shape", [LoadShape(1, 1, 150), LoadShape(1, 6, 40)])
async def test_the_model_explains_a_server(shape: LoadShape) -> None:
    async with serving() as api:
        address = str(api.client.make_url("")).rstrip("/")
        clients = Clients([address], [BrokerKind()], seed=11, shape=shape)
        await clients.run(150)

    report = report_on(clients.recorded)

    assert report.is_clean, report
    statuses = {name.rpartition(" ")[2] for name in clients.outcomes if "DeleteEvaluation" in name}
    assert "500" in statuses and statuses & {"200", "400"}, "some deletions were under a pause, some not"
