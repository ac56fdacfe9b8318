"""Agents that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from yurt.testing.agent import Agent, running_agent


@pytest.fixture(scope="module")
def dev_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One `agent -dev` for the tests of a module."""
    with running_agent(tmp_path_factory.mktemp("dev")) as agent:
        yield agent
