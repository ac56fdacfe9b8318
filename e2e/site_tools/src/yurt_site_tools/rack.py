"""Where the machine stands: a fingerprint of the node, read from a file of the site."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import Unavailable
from yurt.sdk.fingerprints import NodeFingerprint
from yurt.sdk.plugin import PluginSkipped, plugin_function

LOOK_EVERY_S = 5.0


class Rack:
    """The lines `key=value` of a file, again after each change of them."""

    name = "rack"

    def __init__(self, file: Path) -> None:
        self.file = file

    async def fingerprint(self) -> AsyncIterator[Mapping[str, str]]:
        told: Mapping[str, str] | None = None
        while True:
            found = await asyncio.to_thread(self.read)
            if found != told:
                told = found
                yield found
            await asyncio.sleep(LOOK_EVERY_S)

    def read(self) -> Mapping[str, str]:
        try:
            lines = self.file.read_text().splitlines()
        except OSError as error:
            raise Unavailable(f"the place of this machine is not known: {error}") from None
        return {key.strip(): value.strip() for key, mark, value in (line.partition("=") for line in lines) if mark}

    async def close(self) -> None:
        """It holds nothing."""


@plugin_function
def yurt_fingerprints(context: PluginContext) -> list[NodeFingerprint]:
    file = context.config.get("file", "")
    if not file:
        raise PluginSkipped('no file is named: plugin "rack" { config { file = "/etc/rack" } }')
    return [Rack(Path(file))]
