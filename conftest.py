"""What all tests share: no test is timed, so hypothesis has no deadline; machines are shared and noisy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
