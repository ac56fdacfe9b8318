"""Counts the processor's instructions for a read with access control off and on: a figure that other work on the
machine does not change.

    python -m bench instructions [--policies 50] [--jobs 20] [--requests 480]

Rates on a shared machine differ by more than access control costs (`python -m bench acl` has them). Here valgrind
counts instructions, of which Python needs about as many for the same request each time. Each side has a process of its
own with one server; its connections are the server's own, but what would go over a socket stays in the process, so that
neither the kernel nor a client is counted. Every request is sent once before it is counted. Python's garbage collector
is off meanwhile, because a collection at random would be charged to one side.

Needs valgrind with callgrind_control.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.runtime.env import RealEnv
from yurt.server.config import AclConfig, ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog

from bench.acl import CASES, TEAM_POLICIES, TEAMS, message, registration, rules_of, team

CONNECTIONS: Final = 8
LABEL: Final = "read of "
"""callgrind_control would take a description that begins with a digit for the number of a process."""
SETTLE_S: Final = 2.0
"""What the server does after the last registration is over by then."""
SIDES: Final = ("off", "header", "one token", "a token each", "management")
WHAT: Final[Mapping[str, str]] = {
    "off": "without access control",
    "header": "the same, and a token is shown that nobody looks up",
    "one token": "a token with all policies on every connection",
    "a token each": f"tokens of {TEAM_POLICIES} policies, one on each connection",
    "management": "a management token",
}


class Options(argparse.Namespace):
    """The command line."""

    policies: int
    jobs: int
    requests: int
    side: str


class Transport(asyncio.Transport):
    """A transport that stores the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """An address of its own for the peer."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it."""
        self.written += data

    def is_closing(self) -> bool:
        """No."""
        return False

    def close(self) -> None:
        """Nothing to do."""


class Client:
    """Connections to a server in the same process."""

    def __init__(self, runner: web.AppRunner, app: web.Application) -> None:
        assert runner.server is not None
        self._server = runner.server
        self._connections = Connections(strangers=app[STRANGERS], options=HTTP_OPTIONS)
        self._opened: dict[int, tuple[ApiProtocol, Transport]] = {}

    async def ask(self, request: bytes, *, over: int = 0) -> bytes:
        """The body of the answer over the connection of this number; raises RuntimeError for a refusal."""
        if over not in self._opened:
            protocol = self._connections.make(self._server)
            protocol.connection_made(transport := Transport())
            self._opened[over] = protocol, transport
        protocol, transport = self._opened[over]
        transport.written = b""
        protocol.data_received(request)
        while not transport.written:  # noqa: ASYNC110 - an event to wait for would be counted too
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        head, _, body = transport.written.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(transport.written[:300].decode(errors="replace"))
        return body


async def secrets_of(client: Client, options: Options, root: str) -> Sequence[str]:
    """The secrets that the callers of a side show, with the policies and tokens made for them."""
    if options.side in ("management", "header"):
        return [root]
    for number in range(options.policies):
        policy = {"Name": f"policy-{number}", "Rules": rules_of(number)}
        await client.ask(message("PUT", f"/v1/acl/policy/policy-{number}", root, json.dumps(policy).encode()))

    async def token(numbers: range) -> str:
        made = {"Name": "bench", "Type": "client", "Policies": [f"policy-{number}" for number in numbers]}
        answer = await client.ask(message("PUT", "/v1/acl/token", root, json.dumps(made).encode()))
        return str(json.loads(answer)["SecretID"])

    if options.side == "one token":
        return [await token(range(options.policies))]
    starts = range(0, options.policies - TEAM_POLICIES + 1, TEAM_POLICIES)
    return [await token(range(start, start + TEAM_POLICIES)) for start in starts]


async def add_jobs(client: Client, options: Options, root: str) -> None:
    """The namespaces and the jobs that are read."""
    for number in range(TEAMS):
        body = json.dumps({"Name": team(number)}).encode()
        await client.ask(message("PUT", f"/v1/namespace/{team(number)}", root, body))
    for number in range(options.jobs):
        await client.ask(registration(f"job-{number}", number, root))
    await asyncio.sleep(SETTLE_S)


async def serve(options: Options) -> None:
    """One side: sends the reads of each case, and has callgrind count them."""
    is_on = options.side not in ("off", "header")
    server = Server(ServerConfig(name="bench", acl=AclConfig(enabled=is_on)), env=RealEnv(), log=MemoryLog())
    ready = asyncio.Event()
    running = asyncio.create_task(server.run(ready=ready))
    await ready.wait()
    app = make_app(server.http, None, AgentInfo(name="bench"))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    client = Client(runner, app)
    root = "00000000-0000-0000-0000-000000000001" if options.side == "header" else ""
    if is_on:
        root = json.loads(await client.ask(message("PUT", "/v1/acl/bootstrap", "")))["SecretID"]
    secrets = [""] if options.side == "off" else await secrets_of(client, options, root)
    await add_jobs(client, options, root)
    connections = len(secrets) if len(secrets) > 1 else CONNECTIONS
    gc.collect()
    gc.disable()
    for case in CASES:
        if case.is_write:
            continue
        numbers = [number % options.jobs for number in range(options.requests)]
        requests = [case.request(number, secrets[at % len(secrets)]) for at, number in enumerate(numbers)]
        for is_counted in (False, True):
            control("-i", "on" if is_counted else "off")
            for at, request in enumerate(requests):
                await client.ask(request, over=at % connections)
        control("-d", f"{LABEL}{case.what}")
    await runner.cleanup()
    await server.stop()
    await running


def control(*words: str) -> None:
    """Tell callgrind, which runs this process, what to do."""
    subprocess.run(["callgrind_control", *words, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)


def need_callgrind(name: str) -> None:
    """End the benchmark of this name where valgrind is not installed."""
    if shutil.which("callgrind_control") is None:
        sys.exit(f"bench {name} needs valgrind and callgrind_control: install the package valgrind")


def run_counted(folder: str, *module: str, flags: Sequence[str] = ()) -> None:
    """Run a module with its arguments under callgrind, which writes `counts` into the folder, and `counts.N` for each
    dump; counting begins when the module says so. `flags` are callgrind's. Raises RuntimeError."""
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", *flags, f"--callgrind-out-file={folder}/counts",
        sys.executable, "-m", *module,
    ]  # fmt: skip
    done = subprocess.run(
        command, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def counted(options: Options, side: str) -> Mapping[str, int]:
    """Instructions for a request, by case."""
    with tempfile.TemporaryDirectory() as folder:
        run_counted(
            folder, "bench.instructions", "--side", side, "--policies", str(options.policies),
            "--jobs", str(options.jobs), "--requests", str(options.requests),
        )  # fmt: skip
        texts = [path.read_text() for path in Path(folder).glob("counts.*")]
    found = {}
    for text in texts:
        case, total = (
            re.search(rf"^desc: Trigger: .*?{LABEL}(.+)$", text, re.M),
            re.search(r"^totals: (\d+)", text, re.M),
        )
        if case is not None and total is not None:
            found[case[1].strip()] = int(total[1]) // options.requests
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench instructions")
    parser.add_argument("--policies", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--requests", type=int, default=480, help="of each kind (default 480)")
    parser.add_argument("--side", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(namespace=Options())
    if options.side:
        uvloop.run(serve(options))
        return
    need_callgrind("instructions")
    reads = [case.what for case in CASES if not case.is_write]
    line = "{:<16}".format
    print(line("instructions"), *(f"{what:>28}" for what in reads))
    without: Mapping[str, int] = {}
    for side in SIDES:
        found = counted(options, side)
        without = without or found
        cells = (f"{found[what]:,} ({found[what] / without[what] - 1:+.1%})" for what in reads)
        print(line(side), *(f"{cell:>28}" for cell in cells), f"  {WHAT[side]}", flush=True)


if __name__ == "__main__":
    main()
