"""Tests of tasks in the network of their group."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from yurt.client.networks import namespaces
from yurt.sdk.value import replace
from yurt.testing.driver_suite.bench import DriverBench, DriverCases, eventually


class NetworkTests:
    """A task runs in the network that the client made for its group."""

    @pytest.fixture
    def namespace(self, tmp_path: Path) -> Iterator[Path]:
        """A network namespace with nothing but its loopback."""
        if sys.platform != "linux" or os.geteuid() != 0 or namespaces.obstacle():
            pytest.skip("network namespaces take root on Linux")
        path = tmp_path / "netns" / "group"
        namespaces.make_namespace(path)
        yield path
        namespaces.remove_namespace(path)
        namespaces.remove_folder(path.parent)

    async def test_a_task_runs_in_the_network_of_its_group(
        self, bench: DriverBench, cases: DriverCases, namespace: Path
    ) -> None:
        capabilities = bench.driver.capabilities
        if "group" not in capabilities.network_modes:
            pytest.skip("the driver's tasks do not join the networks of groups")
        if capabilities.must_create_network:
            pytest.skip("the driver joins only networks that it made itself")
        request = replace(bench.request(cases.joins or cases.runs), network_namespace=str(namespace))
        bench.started.append(request.task_id)
        handle = await bench.driver.start_task(request)
        if not handle.pid:
            pytest.skip("the driver does not tell the process of a task")
        expected = namespaces.identity(namespace)
        await eventually(
            "the task is in the network", lambda: namespaces.identity(f"/proc/{handle.pid}/ns/net") == expected
        )
