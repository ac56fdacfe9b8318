"""The Unix sockets at which tasks reach the API of their agent (Nomad's task API), one for each task.

No browser and no other machine reaches such a socket, so neither TLS nor the check of host names applies; instead every
request shows a token (`yurt.http.task_api`). The client makes the sockets, since they lie in the tasks' directories.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from yurt.http.edge.client_errors import ClientErrorReporter
from yurt.http.edge.connections import BACKLOG, Connections
from yurt.http.edge.protocol import ApiProtocol


class TaskSockets:
    """Serves the API on the sockets of tasks, once the agent serves HTTP."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._make: Callable[[], Connections] = partial(Connections, is_task_api=True)
        self._open: dict[asyncio.AbstractServer, Connections] = {}

    def begin(
        self, runner: web.AppRunner, per_socket_max: int, strangers: ClientErrorReporter, options: Mapping[str, Any]
    ) -> None:
        """The agent serves HTTP. `per_socket_max`: connections of one task, 0 for any number."""
        self._runner = runner
        self._make = partial(Connections, per_socket_max, strangers=strangers, options=options, is_task_api=True)

    async def serve(self, listening: socket.socket) -> Callable[[], None]:
        """Accept connections at a bound socket; closing the result closes it and them."""
        assert self._runner is not None and self._runner.server is not None, "the agent serves HTTP before tasks start"
        connections = self._make()
        make = partial(connections.make, self._runner.server)
        server = await asyncio.get_running_loop().create_unix_server(make, sock=listening, backlog=BACKLOG)
        self._open[server] = connections
        return partial(self._close, server)

    def close(self) -> None:
        """Close when the agent ends; tasks continue, and find the next agent at the same path."""
        for server in tuple(self._open):
            self._close(server)

    def _close(self, server: asyncio.AbstractServer) -> None:
        connections = self._open.pop(server, None)
        if connections is not None:
            server.close()
            connections.end_all()


def is_task_api(request: web.BaseRequest) -> bool:
    """Whether a request arrived over the socket of a task."""
    protocol = request.protocol
    return isinstance(protocol, ApiProtocol) and protocol.is_task_api
