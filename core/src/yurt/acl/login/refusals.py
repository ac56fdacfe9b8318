"""The failures of a login: an invalid credential of the caller, or a configuration that cannot be applied."""

from __future__ import annotations

from yurt.sdk.errors import Invalid, PermissionDenied


def not_accepted(why: str) -> PermissionDenied:
    """The credential does not satisfy the login method."""
    return PermissionDenied(f"unable to validate provided token: {why}", status=401)


def misconfigured(why: str) -> Invalid:
    """The login method or a binding rule is misconfigured."""
    return Invalid(why, status=500)
