"""The closed set of failures that an operator, a peer or a plugin can cause.

Each failure has a text for people and three facts for programs: a reason, an HTTP status, and whether it is transient.
Nothing decides by the text: an agent compares reasons, RPC frames carry them (`yurt.rpc.frames`), and the HTTP API
sends them in the header `X-Yurt-Error`. A class stands for its most general reason; a more exact one is named where
the error is raised:

    raise Unavailable("No cluster leader", reason=Reason.NO_LEADER)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

ERROR_HEADER = "X-Yurt-Error"
"""The header of an HTTP answer that names the reason of its error."""
NO_ERROR = 400
"""HTTP statuses below this are not errors."""
STATUS_MAX = 599
DENIED: Final = "Permission denied"
"""The text for a caller without the right, wherever that is decided."""


class Reason(StrEnum):
    """A failure's code, exception class, HTTP status, whether it is transient, and its meaning.

    Transient: the same request may succeed later, and its caller has nothing to change. Whether a request that
    changes something may be sent again is another question: with "outcome-unknown" it may have been carried out.
    """

    kind: str
    """The name of the class in this module."""
    status: int
    is_transient: bool
    meaning: str

    def __new__(cls, code: str, kind: str, status: int, is_transient: bool, meaning: str) -> Reason:
        """A row of the table below."""
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.kind, reason.status, reason.is_transient, reason.meaning = kind, status, is_transient, meaning
        return reason

    # The most general reason of each class.
    FAILED = "failed", "YurtError", 500, False, "The request failed; the text says why."
    NOT_FOUND = "not-found", "NotFound", 404, False, "An object that the request names does not exist."
    INVALID = "invalid", "Invalid", 400, False, "The request is malformed or contradicts a rule."
    CONFLICT = "conflict", "Conflict", 409, False, "The request contradicts the present state."
    PERMISSION_DENIED = "permission-denied", "PermissionDenied", 403, False, "The caller may not do this."
    UNAVAILABLE = "unavailable", "Unavailable", 500, True, "It is not possible now, and may be later."
    DRIVER_FAILED = "driver-failed", "DriverError", 500, False, "A task driver or device plugin failed for good."
    DRIVER_RECOVERABLE = (
        "driver-recoverable", "RecoverableError", 500, True, "A task driver or device plugin failed; a retry may help.",
    )  # fmt: skip

    # Leadership and the command log.
    NO_LEADER = "no-leader", "Unavailable", 500, True, "No server leads; the request was not carried out."
    OUTCOME_UNKNOWN = (
        "outcome-unknown", "Unavailable", 500, True,
        "Leadership or the command log was lost meanwhile: the change may or may not have been made.",
    )  # fmt: skip
    SHUTTING_DOWN = "shutting-down", "Unavailable", 500, True, "The server is shutting down."
    LOG_BROKEN = (
        "log-broken", "Unavailable", 500, False, "The server's command log failed; its agent has to be restarted.",
    )  # fmt: skip
    STALE = (
        "stale", "Conflict", 409, True,
        "A row on which the change was decided has changed; decide again on the newer one.",
    )  # fmt: skip
    SCHEDULER_MISMATCH = (
        "scheduler-mismatch", "Conflict", 409, True, "The leader's scheduler is of another version than the caller's.",
    )  # fmt: skip

    UPGRADE_UNFINISHED = (
        "upgrade-unfinished", "Conflict", 409, False,
        "A server of the region runs an older version, which could not carry the change out.",
    )  # fmt: skip

    # Connections between agents.
    CONNECTION_LOST = (
        "connection-lost", "Unavailable", 500, True,
        "The connection to the other agent ended: the call may or may not have been carried out.",
    )  # fmt: skip
    NO_ANSWER = (
        "no-answer", "Unavailable", 500, True,
        "The other agent did not answer in time: the call may or may not have been carried out.",
    )  # fmt: skip
    OVERLOADED = (
        "overloaded", "Unavailable", 500, True,
        "A limit on concurrent work was reached; the request was not carried out.",
    )  # fmt: skip
    SECOND_AGENT = (
        "second-agent", "PermissionDenied", 403, False, "Another agent is active as the same node.",
    )  # fmt: skip

    # Nodes and allocations.
    NO_PATH_TO_NODE = "no-path-to-node", "Unavailable", 404, True, "The node is not connected to any server."
    UNKNOWN_NODE = "unknown-node", "NotFound", 404, False, "The agent asked does not know the node."
    UNKNOWN_ALLOCATION = (
        "unknown-allocation", "NotFound", 404, False,
        "The agent asked does not know the allocation, or does not run it.",
    )  # fmt: skip

    FILE_REFUSED = (
        "file-refused", "PermissionDenied", 403, False,
        "The file is a secret of its task, not the allocation's own, or not the agent's to read; no right changes it.",
    )  # fmt: skip

    # Jobs.
    JOB_CHANGED = (
        "job-changed", "Conflict", 409, False, "The job's modify index is not the one that the request demands.",
    )  # fmt: skip
    REGISTRATION_DISABLED = (
        "registration-disabled", "PermissionDenied", 403, False,
        "The scheduler configuration forbids to register, dispatch and scale jobs.",
    )  # fmt: skip

    EVAL_BROKER_ENABLED = (
        "eval-broker-enabled", "Conflict", 500, False,
        "Evaluations are deleted by hand only while the evaluation broker is paused.",
    )  # fmt: skip

    # Container engines.
    IN_USE = "in-use", "Conflict", 409, True, "The engine has another container of this name, or still uses the object."

    # The agent itself.
    UNHEALTHY = "unhealthy", "Unavailable", 429, True, "A server of the region is not healthy; the body says which."
    INTERNAL = "internal", "YurtError", 500, False, "A defect of Yurt; the agent's log says what went wrong."
    TIMED_OUT = "timed-out", "Unavailable", 500, True, "The agent's machine, or an engine on it, took too long."
    MACHINE_TROUBLE = (
        "machine-trouble", "Unavailable", 500, True,
        "The agent's machine lacks a resource, or one of its devices fails.",
    )  # fmt: skip
    NOT_OFFERED = "not-offered", "YurtError", 501, False, "This agent does not offer the route."
    BAD_METHOD = "bad-method", "Invalid", 405, False, "The route does not take this HTTP method."
    TOO_LARGE = "too-large", "Invalid", 413, False, "The request body exceeds the limit."


class YurtError(Exception):
    """Base class: the text tells the user what failed, why, and how to fix it.

    `status` and `is_transient` are those of the reason unless they are given.
    """

    reason: Reason = Reason.FAILED
    status: int = Reason.FAILED.status
    is_transient: bool = Reason.FAILED.is_transient

    def __init_subclass__(cls, *, reason: Reason | None = None) -> None:
        """`reason` is the default reason of the class's errors."""
        super().__init_subclass__()
        if reason is not None:
            cls.reason, cls.status, cls.is_transient = reason, reason.status, reason.is_transient

    def __init__(
        self, *text: object, reason: Reason | None = None, status: int | None = None, is_transient: bool | None = None
    ) -> None:
        super().__init__(*text)
        if reason is not None:
            self.reason, self.status, self.is_transient = reason, reason.status, reason.is_transient
        if status is not None:
            self.status = status
        if is_transient is not None:
            self.is_transient = is_transient


class NotFound(YurtError, reason=Reason.NOT_FOUND):
    """The object does not exist."""


class Invalid(YurtError, reason=Reason.INVALID):
    """The request is wrong."""


class Conflict(YurtError, reason=Reason.CONFLICT):
    """The request contradicts the present state."""


class PermissionDenied(YurtError, reason=Reason.PERMISSION_DENIED):
    """The caller lacks the permission."""


class Unavailable(YurtError, reason=Reason.UNAVAILABLE):
    """The request cannot be served now: no leader, no node, shutting down (Nomad answers 500, not 503)."""


class DriverError(YurtError, reason=Reason.DRIVER_FAILED):
    """A driver or device plugin failed permanently."""


class RecoverableError(DriverError, reason=Reason.DRIVER_RECOVERABLE):
    """A driver failure that a retry may fix: the restart policy decides."""


_OF_CODE = {reason.value: reason for reason in Reason}
_OF_STATUS = {
    400: Reason.INVALID,
    403: Reason.PERMISSION_DENIED,
    404: Reason.NOT_FOUND,
    405: Reason.BAD_METHOD,
    408: Reason.TIMED_OUT,
    409: Reason.CONFLICT,
    413: Reason.TOO_LARGE,
    429: Reason.OVERLOADED,
    501: Reason.NOT_OFFERED,
}


def reason_of_status(status: int) -> Reason:
    """The reason for an HTTP answer without one."""
    return _OF_STATUS.get(status, Reason.FAILED)


def reason_of(code: str) -> Reason | None:
    """The reason of a code from another program; None for one that this version does not know."""
    return _OF_CODE.get(code)
