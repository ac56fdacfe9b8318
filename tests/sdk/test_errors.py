"""Errors: what each class and reason stands for, and what those who raise and subclass them may rely on."""

from __future__ import annotations

import re

import pytest
from yurt.sdk import errors
from yurt.sdk.errors import DriverError, NotFound, Reason, RecoverableError, Unavailable, YurtError, reason_of

GENERAL = {
    "YurtError": Reason.FAILED, "NotFound": Reason.NOT_FOUND, "Invalid": Reason.INVALID, "Conflict": Reason.CONFLICT,
    "PermissionDenied": Reason.PERMISSION_DENIED, "Unavailable": Reason.UNAVAILABLE,
    "DriverError": Reason.DRIVER_FAILED, "RecoverableError": Reason.DRIVER_RECOVERABLE,
}  # fmt: skip


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_has_a_code_a_class_an_error_status_and_a_meaning(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value)
    assert issubclass(getattr(errors, reason.kind), YurtError)
    assert 400 <= reason.status < 600
    assert reason.meaning.endswith(".")
    assert reason_of(reason.value) is reason


@pytest.mark.parametrize(("kind", "reason"), GENERAL.items())
def test_a_class_stands_for_its_general_reason(kind: str, reason: Reason) -> None:
    error = getattr(errors, kind)("text")
    assert (error.reason, error.status, error.is_transient) == (reason, reason.status, reason.is_transient)
    assert reason.kind == kind


def test_every_class_has_a_general_reason() -> None:
    classes = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, YurtError)}
    assert classes == set(GENERAL)


def test_a_reason_brings_its_status_and_either_can_be_given() -> None:
    error = Unavailable("No path to node", reason=Reason.NO_PATH_TO_NODE)
    assert (error.status, error.is_transient) == (404, True)
    error = NotFound("no job", status=500, is_transient=True)
    assert (error.reason, error.status, error.is_transient) == (Reason.NOT_FOUND, 500, True)
    assert (NotFound.status, NotFound.is_transient) == (404, False), "the class stays as it is"


def test_plugins_raise_and_subclass_errors_as_before() -> None:
    class Full(RecoverableError):
        def __init__(self, size: int) -> None:
            super().__init__(f"{size} bytes are too much")
            self.size = size

    error = Full(7)
    assert str(error) == "7 bytes are too much" and isinstance(error, DriverError)
    assert (error.reason, error.is_transient) == (Reason.DRIVER_RECOVERABLE, True)
    assert str(DriverError()) == "" and DriverError("a", "b").args == ("a", "b")


def test_an_unknown_code_is_no_reason() -> None:
    assert reason_of("of-a-later-version") is None
