"""Errors on their way between agents: nothing of them is lost, and nothing is believed that cannot be."""

from __future__ import annotations

import msgspec
import pytest
from yurt.rpc import frames
from yurt.rpc.frames import Failure
from yurt.rpc.proxy import NoAnswer
from yurt.sdk import errors
from yurt.sdk.errors import Conflict, DriverError, NotFound, Reason, Unavailable, YurtError


def travelled(error: YurtError) -> YurtError:
    """The error as the other end raises it."""
    (frame,) = frames.decode(frames.encode([frames.failure(1, error)]))
    assert isinstance(frame, Failure)
    return frames.raised(frame)


def facts(error: YurtError) -> tuple[str, Reason, int, bool]:
    return str(error), error.reason, error.status, error.is_transient


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_travels(reason: Reason) -> None:
    error: YurtError = getattr(errors, reason.kind)("some words", reason=reason)
    found = travelled(error)
    assert type(found) is type(error)
    assert facts(found) == facts(error)


def test_what_was_given_where_the_error_was_raised_travels_too() -> None:
    error = DriverError("it is full", status=409, is_transient=True)
    assert facts(travelled(error)) == ("it is full", Reason.DRIVER_FAILED, 409, True)


def test_a_class_of_one_module_travels_as_the_one_below_it() -> None:
    found = travelled(NoAnswer("too late"))
    assert type(found) is Unavailable, "this connection has answered: a call over it is not made again"
    assert found.reason is Reason.NO_ANSWER


def test_a_reason_of_a_later_version_falls_back_to_the_class_and_keeps_the_other_facts() -> None:
    found = frames.raised(Failure(1, "Conflict", "later", "split-brain", 423, True))
    assert type(found) is Conflict
    assert facts(found) == ("later", Reason.CONFLICT, 423, True)


def test_an_earlier_version_tells_the_class_alone() -> None:
    old = msgspec.msgpack.encode([[3, 1, "NotFound", "no such job"]])
    (frame,) = frames.decode(old)
    assert isinstance(frame, Failure)
    assert facts(frames.raised(frame)) == ("no such job", Reason.NOT_FOUND, 404, False)
    assert type(frames.raised(frame)) is NotFound


def test_an_earlier_version_reads_the_frames_of_this_one() -> None:
    class OldFailure(msgspec.Struct, array_like=True, tag=3):
        id: int
        kind: str
        text: str

    sent = frames.encode([frames.failure(1, Unavailable("No cluster leader", reason=Reason.NO_LEADER))])
    assert msgspec.msgpack.decode(sent, type=list[OldFailure]) == [OldFailure(1, "Unavailable", "No cluster leader")]


@pytest.mark.parametrize("status", [-1, 0, 101, 200, 399, 600, 2**40])
def test_a_status_that_is_none_of_an_error_is_not_believed(status: int) -> None:
    assert frames.raised(Failure(1, "NotFound", "x", "not-found", status, False)).status == 404


def test_a_class_that_is_not_known_is_a_failure_of_the_far_side() -> None:
    assert type(frames.raised(Failure(1, "ZeroDivisionError", "x"))) is Unavailable


def test_a_refused_greeting_keeps_the_reason() -> None:
    welcome = frames.refusal(Unavailable("too many", reason=Reason.OVERLOADED))
    assert (welcome.kind, welcome.problem, welcome.reason) == ("Unavailable", "too many", "overloaded")
    assert frames.error_of(welcome.kind, welcome.problem, welcome.reason).reason is Reason.OVERLOADED
