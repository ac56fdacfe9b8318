"""Agents that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from yurt.client.secrets_dir import unmount_secrets
from yurt.testing.agent import Agent, running_agent


@pytest.fixture(scope="session", autouse=True)
def no_secrets_stay_mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unmount the secrets of tasks that tests let live on without their agent."""
    yield
    unmount_secrets(str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module")
def dev_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One `agent -dev` for the tests of a module."""
    with running_agent(tmp_path_factory.mktemp("dev")) as agent:
        yield agent
