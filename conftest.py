"""What all tests share: none is timed by hypothesis, since machines are noisy; folders have short names.

In CI hypothesis draws the same cases each time, and so half as many: what fails there was pushed. Nightly runs draw
new ones.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from yurt.testing.nightly import CI_SHARE, is_nightly

IN_CI = "CI" in os.environ and not is_nightly()

settings.register_profile(
    "untimed",
    max_examples=settings.default.max_examples // (CI_SHARE if IN_CI else 1),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IN_CI,
)
settings.load_profile("untimed")


class Loggers(dict[str, "logging.Logger | logging.PlaceHolder"]):
    """All loggers by name; whoever walks through them sees those of one moment.

    pytest does so before each test, when a thread that outlives a test may still import what makes further ones.
    """

    def values(self) -> list[logging.Logger | logging.PlaceHolder]:  # type: ignore[override]
        return list(super().values())


logging.root.manager.loggerDict = Loggers(logging.root.manager.loggerDict)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: some 100,000 objects are made that stay, and would be examined again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case with bytes by the bytes only where they are text: compressed data may hold the time, and each
    worker must collect the same names."""
    return "bytes" if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep how the run ended beside what failed in it: `make failed` may mend only a run that came to its end."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("yurt/ended", int(pytest.ExitCode.INTERRUPTED if session.shouldfail else exitstatus))


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one test with a short name: a socket below it has 107 bytes for its path."""
    return tmp_path_factory.mktemp("t")
