"""A replica to send commands to."""

from __future__ import annotations

import pytest
from yurt.testing.replica import Replica


@pytest.fixture
def replica() -> Replica:
    """The state before any command."""
    return Replica()
