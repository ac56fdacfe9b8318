"""Helpers for tests of access control: callers with different tokens, and the measured access matrices."""

from yurt.testing.access.callers import READ_PROD, Callers, bootstrapped

__all__ = ["READ_PROD", "Callers", "bootstrapped"]
