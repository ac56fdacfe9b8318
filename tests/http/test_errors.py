"""What failures are to callers: those of the closed set, those of the machine, and defects."""

from __future__ import annotations

import errno
import os

import pytest
from yurt.http.app import INTERNAL
from yurt.http.errors import Refused, failed_call, public_error
from yurt.sdk.errors import Conflict, DriverError, Invalid, NotFound, Reason, Unavailable
from yurt.server.log.state_loader import StateLoader
from yurt.testing.http_api import Api, job_document

NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/some/path")
TOO_LONG = "It took too long: the agent's machine, or an engine on it, does not answer in time"


@pytest.mark.parametrize(("error", "status", "reason", "expected"), [
    (NO_FILES, 500, "machine-trouble", "The agent's machine is in trouble: Too many open files"),
    (TimeoutError(), 500, "timed-out", TOO_LONG),
    (ExceptionGroup("two", [Conflict("it still runs"), NO_FILES]), 409, "conflict", "it still runs"),
    (ExceptionGroup("two", [Conflict("it still runs"), KeyError("x")]), 500, "internal", INTERNAL),
    (KeyError("x"), 500, "internal", INTERNAL),
    (Unavailable("No path to node", reason=Reason.NO_PATH_TO_NODE), 404, "no-path-to-node", "No path to node"),
    (DriverError("it may not write: Permission denied"), 500, "driver-failed", "it may not write: Permission denied"),
    (Invalid("wrong", status=422), 422, "invalid", "wrong"),
])  # fmt: skip
async def test_trouble_of_the_machine_is_told_and_a_defect_is_logged(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str, expected: str
) -> None:
    def fails(loader: StateLoader) -> None:
        raise error

    monkeypatch.setattr(StateLoader, "need_state", fails)
    answer = await api.get("/v1/jobs")
    assert (answer.status, answer.headers["X-Yurt-Error"], answer.text) == (status, reason, expected)


def test_what_belongs_to_the_closed_set_stays_what_it_is() -> None:
    error = DriverError("no engine")
    assert public_error(error) is error
    assert public_error(ExceptionGroup("deep", [ExceptionGroup("deeper", [error])])) is error
    assert public_error(ValueError("ours")) is None


@pytest.mark.parametrize(("method", "path", "status", "reason"), [
    ("GET", "/v1/job/none", 404, "not-found"),
    ("GET", "/v1/nowhere", 404, "not-found"),
    ("DELETE", "/v1/jobs", 405, "bad-method"),
    ("GET", "/v1/jobs?index=x", 400, "invalid"),
    ("GET", "/v1/client/fs/ls/11111111-2222-3333-4444-555555555555", 404, "unknown-allocation"),
    ("GET", "/v1/client/stats?node_id=11111111-2222-3333-4444-555555555555", 404, "unknown-node"),
    ("GET", "/v1/sentinel/policies", 501, "not-offered"),
])  # fmt: skip
async def test_every_refusal_names_its_reason(api: Api, method: str, path: str, status: int, reason: str) -> None:
    answer = await api.call(method, path)
    assert (answer.status, answer.headers["X-Yurt-Error"]) == (status, reason), answer.text


async def test_a_conflict_that_nomad_answers_with_500_keeps_its_reason(api: Api) -> None:
    await api.register()
    changed = {"Job": job_document(), "EnforceIndex": True, "JobModifyIndex": 999}
    answer = await api.put("/v1/jobs", changed)
    assert (answer.status, answer.headers["X-Yurt-Error"]) == (500, "job-changed"), answer.text


async def test_an_answer_that_is_no_error_names_none(api: Api) -> None:
    assert "X-Yurt-Error" not in (await api.get("/v1/jobs")).headers


async def test_a_failed_call_keeps_the_reason() -> None:
    async def call() -> None:
        raise NotFound("Unknown node x", reason=Reason.UNKNOWN_NODE)

    with pytest.raises(Refused) as caught:
        await failed_call(call())
    assert (caught.value.status, caught.value.reason) == (500, Reason.UNKNOWN_NODE)
