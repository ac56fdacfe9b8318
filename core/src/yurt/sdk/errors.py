"""The closed set of failures that an operator, a peer or a plugin can cause; HTTP maps each of them once."""

from __future__ import annotations


class YurtError(Exception):
    """Base: the text is for the user and says what, why and how to fix it."""


class NotFound(YurtError):
    """The object does not exist (404)."""


class Invalid(YurtError):
    """The request is wrong (400)."""


class Conflict(YurtError):
    """The request contradicts the present state (409)."""


class PermissionDenied(YurtError):
    """The caller may not do this (403)."""


class Unavailable(YurtError):
    """It cannot be done now: no leader, no node, shutting down (503 inside, Nomad's 500 or 404 outside)."""


class DriverError(YurtError):
    """A driver or device plugin failed for good."""


class RecoverableError(DriverError):
    """A driver failed in a way that a retry may mend: the restart policy decides."""
