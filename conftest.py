"""What all tests share: none is timed by hypothesis, since machines are noisy; folders have short names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one test with a short name: a socket below it has 107 bytes for its path."""
    return tmp_path_factory.mktemp("t")
