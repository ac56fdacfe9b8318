"""A driver that makes networks, served as a program of its own: `python network_plugin.py STATE_FOLDER`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from yurt.goplugin.serve import Offer, serve
from yurt.runtime.env import RealEnv
from yurt.sdk.schema import schema_of
from yurt.sdk.value import replace
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver


class NetworkMaker(MockDriver):
    """Notes the networks that it is asked for as files."""

    def __init__(self) -> None:
        super().__init__(PluginOptions())
        self.capabilities = replace(self.capabilities, must_create_network=True)

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        path = Path(sys.argv[1]) / f"network-{alloc_id}-{hostname}"
        path.touch()
        return str(path)

    async def destroy_network(self, alloc_id: str) -> None:
        for name in os.listdir(sys.argv[1]):
            if name.startswith(f"network-{alloc_id}-"):
                os.unlink(f"{sys.argv[1]}/{name}")


if __name__ == "__main__":
    offer = Offer(
        name="maker", version="1", options=schema_of(PluginOptions), make=lambda _: NetworkMaker(), folder=sys.argv[1]
    )
    asyncio.run(serve(offer, RealEnv(), environment=os.environ, say=lambda line: print(line, flush=True)))
