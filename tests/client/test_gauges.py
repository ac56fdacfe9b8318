"""The labels of a client's gauges."""

from __future__ import annotations

from typing import Any

from yurt.testing.fakes import FakeServerPort, eventually


async def test_gauges_have_the_status_that_the_servers_gave(run_client: Any, server: FakeServerPort) -> None:
    server.keep_initializing = True
    async with run_client(wait_ready=False) as client:
        await eventually(lambda: server.nodes)
        assert client.calls.figures.labels()["node_status"] == "initializing"

        server.keep_initializing = False

        await eventually(lambda: client.calls.figures.labels()["node_status"] == "ready")
