"""The child process that renders templates: `python -I -m yurt.client.templates.render_program`.

It reads requests from standard input and writes answers to standard output; a message is four bytes of length and
msgpack. The process ends with its agent, gains no rights, opens no files and has little memory. Each request may use
`SECONDS` of CPU time; one that uses more ends the process.
"""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
from typing import Final

import msgspec

from yurt.client.templates.render_pass import render
from yurt.client.templates.render_protocol import LENGTH, Rendered, RenderRequest

MEMORY_BYTES: Final = 1024 * 1024 * 1024
SECONDS: Final = 10.0
PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38


def main() -> None:
    """Answer requests until the input ends."""
    restrict()
    decoder, encoder = msgspec.msgpack.Decoder(RenderRequest), msgspec.msgpack.Encoder()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(LENGTH.size):
        request = decoder.decode(source.read(LENGTH.unpack(head)[0]))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            answer = render(request)
        except (MemoryError, RecursionError) as error:
            answer = Rendered(error=f"{request.name}: it takes too much memory or nesting ({type(error).__name__})")
        signal.setitimer(signal.ITIMER_PROF, 0)
        body = encoder.encode(answer)
        sink.write(LENGTH.pack(len(body)) + body)
        sink.flush()


def restrict() -> None:
    """Give up unneeded privileges."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, limit_value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(limit)
        most = limit_value if hard == resource.RLIM_INFINITY else min(limit_value, hard)
        resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    main()
