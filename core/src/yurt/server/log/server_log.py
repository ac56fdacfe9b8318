"""One server's command log, with its writer, its replica of the state, readers and waiters."""

from __future__ import annotations

import msgspec

from yurt.server.log.event_buffer import EventBuffer
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.replica import Replica
from yurt.server.log.snapshots import Snapshotter
from yurt.server.log.state_loader import StateLoader
from yurt.state.watch import Watches
from yurt.storage.log import CommandLog


class ServerLog(msgspec.Struct, frozen=True):
    """The command log and the parts built on it, for the life of the server."""

    command_log: CommandLog
    writer: LogWriter
    replica: Replica
    watches: Watches
    events: EventBuffer
    snapshotter: Snapshotter
    loader: StateLoader
