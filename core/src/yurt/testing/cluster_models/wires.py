"""Two ends of a connection without a network: written messages arrive one turn of the loop later."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from yurt.rpc.peer import Peer, Served
from yurt.rpc.rate import Rate
from yurt.rpc.wire import WireReader


class MemoryWire:
    """One end; `other` is the far one. Messages wait until it is attached and reads."""

    def __init__(self) -> None:
        self.other: MemoryWire = self
        self.reader: WireReader | None = None
        self.reads = True
        self.is_closed = False
        self._waiting: deque[bytes] = deque()

    def attach(self, reader: WireReader) -> None:
        """Start reading."""
        self.reader = reader
        self._give()
        if self.is_closed:
            reader.lose()

    def write(self, message: bytes) -> None:
        """Send a message."""
        if not self.is_closed:
            asyncio.get_running_loop().call_soon(self.other.receive, message)

    def receive(self, message: bytes) -> None:
        """Receive a message from the far end, or one that a test makes up."""
        self._waiting.append(message)
        self._give()

    def read_on(self, reads: bool) -> None:
        """Pause or resume reading."""
        self.reads = reads
        self._give()

    def close(self) -> None:
        """Close both ends."""
        for end in (self, self.other):
            end.is_closed = True
            if end.reader is not None:
                end.reader.lose()

    def _give(self) -> None:
        while self._waiting and self.reader is not None and self.reads and not self.is_closed:
            self.reader.take(self._waiting.popleft())


def wire_pair() -> tuple[MemoryWire, MemoryWire]:
    """Both ends of a connection."""
    near, far = MemoryWire(), MemoryWire()
    near.other, far.other = far, near
    return near, far


@asynccontextmanager
async def joined_peers(
    near: Mapping[str, Served], far: Mapping[str, Served], *, rate: Rate | None = None
) -> AsyncIterator[tuple[Peer, Peer]]:
    """The dialling and the accepting peer during the block, each with the ports that it offers."""
    wires = wire_pair()
    peers = (
        Peer(wires[0], serves=near, is_dialler=True),
        Peer(wires[1], serves=far, is_dialler=False, rate=rate),
    )
    async with asyncio.TaskGroup() as group:
        for peer in peers:
            group.create_task(peer.run())
        try:
            yield peers
        finally:
            wires[0].close()
