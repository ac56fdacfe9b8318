"""Agents that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.testing.agent import Agent, running_agent
from yurt.testing.processes import processes_in
from yurt.testing.services.fork_server import fork_server

LEFT_LIMIT_S = 30.0
LONGEST = (
    "test_turning_on_tls", "test_install", "test_cluster_changes", "test_disconnects", "test_memory_pressure",
    "test_go_api_suite", "test_debian_package", "test_acl_faults", "test_far_clients", "test_isolated_tasks",
    "test_cluster_servers", "test_cluster_words", "test_concurrent_requests", "test_docs", "test_region_servers",
    "test_networks", "test_cluster_faults", "test_tls", "test_podman", "test_ui_pages", "test_ui_actions",
    "test_leaks", "test_key_encryption", "test_csi", "test_docker", "test_driver_kit", "test_site_tools",
    "test_devices", "test_go_library", "test_idle_devices", "test_acl_clients", "test_python_nomad_suite",
    "test_service_discovery", "test_workload_identity", "test_split_gpus", "test_reserved_cores", "test_host_volumes",
    "test_introduction",
)  # fmt: skip
"""The files that take longest come first, so that in the end no worker is alone with one of them."""

collect_ignore = ["site_tools"]
"""Its tests need the package installed: tests/plugins/test_howto_hooks.py runs them so."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; files stay whole, and the rest in the order of their names."""
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def no_secrets_stay_mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unmount the secrets of tasks that tests let live on without their agent."""
    yield
    unmount_secrets(str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session", autouse=True)
def commands_are_forks() -> Iterator[None]:
    """Agents and commands are forks of one process, which spares each of them the imports of an interpreter."""
    with fork_server():
        yield


@pytest.fixture(autouse=True)
def no_process_stays(tmp_path: Path) -> Iterator[None]:
    """What a test started in its folder has ended with it: agents, and the tasks that may outlive them."""
    yield
    _, left = psutil.wait_procs(processes_in(str(tmp_path)), timeout=LEFT_LIMIT_S)
    assert not left, f"processes left behind: {left}"


@pytest.fixture(scope="module")
def dev_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One `agent -dev` for the tests of a module."""
    with running_agent(tmp_path_factory.mktemp("dev")) as agent:
        yield agent
