"""What all tests share: none is timed by hypothesis, since machines are noisy; folders have short names."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


class Loggers(dict[str, "logging.Logger | logging.PlaceHolder"]):
    """All loggers by name; whoever walks through them sees those of one moment.

    pytest does so before each test, when a thread that outlives a test may still import what makes further ones.
    """

    def values(self) -> list[logging.Logger | logging.PlaceHolder]:  # type: ignore[override]
        return list(super().values())


logging.root.manager.loggerDict = Loggers(logging.root.manager.loggerDict)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one test with a short name: a socket below it has 107 bytes for its path."""
    return tmp_path_factory.mktemp("t")
