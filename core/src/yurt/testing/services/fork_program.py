"""A `yurt` command in a fork of the fork server, for programs that start Yurt: `fork_program.py FD WORD...`.

FD is an inherited descriptor of the server's control socket. This process hands over its streams, environment and
working directory, passes signals on, and ends as the fork does. It imports little, so that its start is cheap.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the command; its exit code."""
    ours, theirs = socket.socketpair()
    # All commands share the control socket: a message is one byte with its descriptors, which nothing can divide.
    with theirs, socket.socket(fileno=os.dup(int(sys.argv[1]))) as control:
        socket.send_fds(control, [b"c"], [theirs.fileno(), 0, 1, 2])
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    ours.sendall(pickle.dumps((sys.argv[2:], os.getcwd(), dict(os.environ))))
    ours.shutdown(socket.SHUT_WR)
    with ours, ours.makefile() as lines:
        pid = int(lines.readline())

        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in SIGNALS:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        code = int(lines.readline())
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other action
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
