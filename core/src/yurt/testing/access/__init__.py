"""Tests of access control: callers with tokens of their own."""

from yurt.testing.access.callers import READ_PROD, Callers, bootstrapped

__all__ = ["READ_PROD", "Callers", "bootstrapped"]
