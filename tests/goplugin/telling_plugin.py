"""A driver that tells what it was asked before a task starts, as a program: `python telling_plugin.py STATE_FOLDER`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator

from yurt.goplugin.serve import Offer, serve
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import TaskHandle, TaskRequest
from yurt.sdk.schema import schema_of
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver


class Teller(MockDriver):
    """Starts a task once it was heard."""

    def __init__(self) -> None:
        super().__init__(PluginOptions())
        self._asked: dict[str, asyncio.Future[TaskRequest]] = {}
        self._heard: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def progress(self, task_id: str) -> AsyncIterator[str]:
        asked = self._asked.setdefault(task_id, asyncio.get_running_loop().create_future())
        request = await asked
        resources, servers = request.resources, request.name_servers
        yield f"{resources.cpu_shares} of {resources.node_cpu_shares} MHz, asks {servers and servers.servers}"
        self._heard[task_id].set()
        await asyncio.Event().wait()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        asked = self._asked.setdefault(request.task_id, asyncio.get_running_loop().create_future())
        asked.set_result(request)
        await self._heard[request.task_id].wait()
        return await super().start_task(request)


if __name__ == "__main__":
    offer = Offer(
        name="teller", version="1", options=schema_of(PluginOptions), make=lambda _: Teller(), folder=sys.argv[1]
    )
    asyncio.run(serve(offer, RealEnv(), environment=os.environ, say=lambda line: print(line, flush=True)))
