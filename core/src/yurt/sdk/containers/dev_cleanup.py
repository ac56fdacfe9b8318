"""Removes the containers of a killed dev agent: a small program that outlives the agent.

Its standard input is a pipe whose other end only the agent has. When that closes without the word `keep`, the agent is
dead, and the program removes all containers with its label and the mounts made for them. The driver writes `keep` when
it closes and the containers shall stay. The program runs from this file, without site packages, and imports only the
standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from contextlib import suppress

KEEP = b"keep"
ROUNDS, ROUND_S = 60, 0.5
CALL_S = 30.0


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=CALL_S)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_S)
        self.sock.connect(self.path)


def call(path: str, method: str, target: str) -> bytes:
    """Send one request; returns the body of the answer."""
    connection = SocketConnection(path)
    try:
        connection.request(method, target)
        return connection.getresponse().read()
    finally:
        connection.close()


def sweep(path: str, prefix: str, label: str) -> bool:
    """Remove containers with the label; returns whether none is left."""
    filters = urllib.parse.quote(json.dumps({"label": [label]}))
    found = json.loads(call(path, "GET", f"{prefix}/containers/json?all=true&filters={filters}")) or []
    for each in found:
        call(path, "DELETE", f"{prefix}/containers/{each['Id']}?force=true&v=true")
    return not found


def main() -> None:
    """Wait for the agent's end, then clean up; retries for a while when the engine is away."""
    path, prefix, label, *unmount = sys.argv[1:]
    if sys.stdin.buffer.read() == KEEP:
        return
    subprocess.run(unmount, check=False)
    for _ in range(ROUNDS):
        with suppress(OSError, http.client.HTTPException, ValueError):
            if sweep(path, prefix, label):
                return
        time.sleep(ROUND_S)  # noqa: TID251 - a program without a loop


class DevCleanup:
    """Controls the cleanup program from the agent; `unmount` is the command that removes mounts made for containers.

    Its methods block, and may be called at once on several threads.
    """

    def __init__(self, socket_path: str, prefix: str, label: str, *, unmount: tuple[str, ...]) -> None:
        self.arguments = (socket_path, prefix, label, *unmount)
        self.process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._is_dismissed = False

    def start(self) -> None:
        """Start the program once, in a session of its own so that Ctrl-C does not end it; no effect after `dismiss`."""
        command = [sys.executable, "-I", "-S", "-E", os.path.abspath(__file__), *self.arguments]
        with self._turn:
            if self.process is None and not self._is_dismissed:
                self.process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def dismiss(self) -> None:
        """End the program without a cleanup: the driver's containers shall stay."""
        with self._turn:
            self._is_dismissed = True
            process, self.process = self.process, None
        if process is None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.write(KEEP)
            process.stdin.close()
        try:
            process.wait(CALL_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
