"""What failures are to callers: those of the closed set, those of the machine, and defects."""

from __future__ import annotations

import errno
import os

import pytest
from yurt.http.app import INTERNAL
from yurt.http.errors import told_error
from yurt.sdk.errors import Conflict, DriverError
from yurt.server.server import Server
from yurt.testing.http_api import Api

NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/some/path")


@pytest.mark.parametrize(("error", "status", "wanted"), [
    (NO_FILES, 500, "The agent's machine is in trouble: Too many open files"),
    (TimeoutError(), 500, "It took too long: the agent's machine, or an engine on it, does not answer in time"),
    (ExceptionGroup("two", [Conflict("it still runs"), NO_FILES]), 409, "it still runs"),
    (ExceptionGroup("two", [Conflict("it still runs"), KeyError("x")]), 500, INTERNAL),
    (KeyError("x"), 500, INTERNAL),
])  # fmt: skip
async def test_trouble_of_the_machine_is_told_and_a_defect_is_logged(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, wanted: str
) -> None:
    def fails(server: Server) -> None:
        raise error

    monkeypatch.setattr(Server, "need_state", fails)
    answer = await api.get("/v1/jobs")
    assert (answer.status, answer.text) == (status, wanted)


def test_what_belongs_to_the_closed_set_stays_what_it_is() -> None:
    error = DriverError("no engine")
    assert told_error(error) is error
    assert told_error(ExceptionGroup("deep", [ExceptionGroup("deeper", [error])])) is error
    assert told_error(ValueError("ours")) is None
