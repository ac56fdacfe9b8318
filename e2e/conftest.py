"""Agents that tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent import Agent, running_agent  # noqa: E402


@pytest.fixture(scope="module")
def dev_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One `agent -dev` for the tests of a module."""
    with running_agent(tmp_path_factory.mktemp("dev")) as agent:
        yield agent
