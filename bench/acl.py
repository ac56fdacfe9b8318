"""Measures the cost of access control: HTTP reads and registrations with it off and on, in one run.

Two servers hold the same nodes and jobs; the one with access control also holds 1,000 policies. Blocks of requests go
to the one and the other in turn, so that what else the machine does meets both. Each figure is the median over the
rounds; the loss is the median of the rounds' ratios, once by the clock and once by the processor time of the server,
which other processes disturb less. Run it with `python -m bench acl`.
"""

from __future__ import annotations

import itertools
import json
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.server import BenchedServer, Connection, running, service_job

NODES, JOBS, TEAMS = 200, 1000, 10
POLICIES = 1000
TEAM_TOKENS, TEAM_POLICIES, MANY_POLICIES = 50, 10, 300
ROUNDS = 15
SENDERS = 8
TARGET = "5 %"


class Case(NamedTuple):
    """Requests of one kind: how many in a block, and the request of a number."""

    what: str
    block: int
    request: Callable[[int, str], bytes]
    is_write: bool = False


class Side(NamedTuple):
    """A server, and the secrets that its callers show in turn; the secret of a caller without one is ""."""

    server: BenchedServer
    secrets: tuple[str, ...] = ("",)


class Block(NamedTuple):
    """Seconds for one request: by the clock, and of the server's processor time."""

    wall_s: float
    cpu_s: float


class Pair(NamedTuple):
    """The same requests to both servers, one right after the other."""

    off: Block
    on: Block


def message(method: str, path: str, secret: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    token = f"X-Nomad-Token: {secret}\r\n" if secret else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def team(number: int) -> str:
    """The namespace of a job or policy."""
    return f"team-{number % TEAMS}"


def read(path: str) -> Callable[[int, str], bytes]:
    """A read; NUMBER and TEAM in the path are those of a job."""

    def made(number: int, secret: str) -> bytes:
        job = number % JOBS
        return message("GET", path.replace("NUMBER", str(job)).replace("TEAM", team(job)), secret)

    return made


def register(number: int, secret: str) -> bytes:
    """The registration of a job that no other block registers."""
    return registration(f"new-{number}", number, secret)


def registration(name: str, number: int, secret: str) -> bytes:
    """The registration of a job in its team's namespace."""
    job = {**service_job(name, 1, cpu=10, memory_mb=10), "Namespace": team(number)}
    return message("PUT", "/v1/jobs", secret, json.dumps({"Job": job}).encode())


CASES = (
    Case("one job", 400, read("/v1/job/job-NUMBER?namespace=TEAM")),
    Case("allocations of a job", 400, read("/v1/job/job-NUMBER/allocations?namespace=TEAM")),
    Case("100 jobs of a namespace", 60, read("/v1/jobs?namespace=TEAM")),
    Case("1,000 jobs of all namespaces", 8, read("/v1/jobs?namespace=*")),
    Case("200 nodes", 40, read("/v1/nodes")),
    Case("registrations, 8 at once", 64, register, is_write=True),
)
RULES = """
namespace "NAME" {
  policy       = "write"
  capabilities = ["alloc-node-exec"]

  variables {
    path "app-NUMBER/*" { capabilities = ["read", "write"] }
    path "shared/*"     { capabilities = ["list"] }
  }
}

namespace "other-NUMBER-*" { policy = "read" }

node { policy = "read" }

host_volume "data-NUMBER" { policy = "read" }
"""


def main() -> None:
    """Measure and print."""
    with running(NODES, "") as off, running(NODES, "", has_acl=True) as on:
        root = json.loads(ask(on, message("PUT", "/v1/acl/bootstrap", "")))["SecretID"]
        add_policies(on, root)
        sides = {
            f"{TEAM_TOKENS} tokens of {TEAM_POLICIES} policies": Side(on, team_secrets(on, root)),
            f"one token of {MANY_POLICIES} policies": Side(on, (new_token(on, root, range(MANY_POLICIES)),)),
            "management": Side(on, (root,)),
        }
        for side in (Side(off), Side(on, (root,))):
            add_jobs(side)
        print_results(list(measured(Side(off), sides)), list(sides))


def ask(server: BenchedServer, request: bytes) -> bytes:
    """The body of an answer; raises RuntimeError for a refusal."""
    with Connection(server.port) as connection:
        return checked(*connection.ask(request))


def checked(status: int, body: bytes) -> bytes:
    """The body of an answer of status 200."""
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {body.decode(errors='replace')[:200]}")
    return body


def add_policies(server: BenchedServer, root: str) -> None:
    """1,000 policies, a hundred about each namespace."""
    with Connection(server.port) as connection:
        for number in range(POLICIES):
            rules = RULES.replace("NAME", team(number)).replace("NUMBER", str(number))
            body = json.dumps({"Name": f"policy-{number}", "Rules": rules}).encode()
            checked(*connection.ask(message("PUT", f"/v1/acl/policy/policy-{number}", root, body)))


def team_secrets(server: BenchedServer, root: str) -> tuple[str, ...]:
    """Tokens whose policies are about all namespaces, no two with the same ones."""
    starts = range(0, TEAM_TOKENS * TEAM_POLICIES, TEAM_POLICIES)
    return tuple(new_token(server, root, range(start, start + TEAM_POLICIES)) for start in starts)


def new_token(server: BenchedServer, root: str, policies: Sequence[int]) -> str:
    """The secret of a token with these policies."""
    token = {"Name": "bench", "Type": "client", "Policies": [f"policy-{number}" for number in policies]}
    return str(json.loads(ask(server, message("PUT", "/v1/acl/token", root, json.dumps(token).encode())))["SecretID"])


def add_jobs(side: Side) -> None:
    """The namespaces and the jobs that are read."""
    secret = side.secrets[0]
    for number in range(TEAMS):
        body = json.dumps({"Name": team(number)}).encode()
        ask(side.server, message("PUT", f"/v1/namespace/{team(number)}", secret, body))
    send(side.server, [registration(f"job-{number}", number, secret) for number in range(JOBS)])
    side.server.wait_placed(JOBS)


def send(server: BenchedServer, requests: Sequence[bytes]) -> None:
    """Send requests over some connections at once."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    for request in requests:
        waiting.put(request)
    failures: list[str] = []

    def work() -> None:
        with Connection(server.port) as connection:
            while not failures:
                try:
                    checked(*connection.ask(waiting.get_nowait()))
                except queue.Empty:
                    return
                except RuntimeError as error:
                    failures.append(str(error))

    senders = [threading.Thread(target=work) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    if failures:
        raise RuntimeError(failures[0])


def measured(off: Side, sides: Mapping[str, Side]) -> Iterator[tuple[Case, dict[str, list[Pair]]]]:
    """For each case the pairs of blocks, by side, round after round."""
    for case in CASES:
        pairs: dict[str, list[Pair]] = {name: [] for name in sides}
        numbers = itertools.count()
        one_round = registered if case.is_write else alternated
        for turn, (name, side) in itertools.product(range(ROUNDS + 1), sides.items()):
            wanted = [next(numbers) for _ in range(case.block)]
            pair = one_round(case, off, side, wanted)
            if turn:  # The first round warms up.
                pairs[name].append(pair)
        yield case, pairs


def alternated(case: Case, off: Side, on: Side, numbers: Sequence[int]) -> Pair:
    """Reads over one connection, to the one server and the other in turn; the median of what each took."""
    took: list[list[float]] = [[], []]
    before = [side.server.figures()["cpu_ms"] for side in (off, on)]
    with Connection(off.server.port) as first, Connection(on.server.port) as second:
        for number in numbers:
            for at, (side, connection) in enumerate(((off, first), (on, second))):
                request = case.request(number, side.secrets[number % len(side.secrets)])
                begin = time.perf_counter()
                checked(*connection.ask(request))
                took[at].append(time.perf_counter() - begin)
    after = [side.server.figures()["cpu_ms"] for side in (off, on)]
    cpu_s = [(late - early) / 1000 / len(numbers) for early, late in zip(before, after, strict=True)]
    return Pair(*(Block(statistics.median(took[at]), cpu_s[at]) for at in (0, 1)))


def registered(case: Case, off: Side, on: Side, numbers: Sequence[int]) -> Pair:
    """Registrations over some connections, first to the one server, then to the other."""
    order = (off, on) if numbers[0] // len(numbers) % 2 else (on, off)
    blocks = {id(side): one_block(case, side, numbers) for side in order}
    return Pair(blocks[id(off)], blocks[id(on)])


def one_block(case: Case, side: Side, numbers: Sequence[int]) -> Block:
    """Register jobs; the processor time is that until all are placed."""
    requests = [case.request(number, side.secrets[number % len(side.secrets)]) for number in numbers]
    before = side.server.figures()
    begin = time.perf_counter()
    send(side.server, requests)
    took = time.perf_counter() - begin
    after = side.server.wait_placed(int(before["allocs"]) + len(numbers))
    return Block(took / len(numbers), (after["cpu_ms"] - before["cpu_ms"]) / 1000 / len(numbers))


def print_results(results: Sequence[tuple[Case, dict[str, list[Pair]]]], names: Sequence[str]) -> None:
    """One table for each kind of caller."""
    for name in names:
        print(f"access control, {POLICIES:,} policies, {name}; {ROUNDS} rounds in turn")
        line = "{:<30} {:>12} {:>12} {:>10} {:>10} {:>8}".format
        print(line("", "off, 1/s", "on, 1/s", "lost", "lost CPU", "target"))
        for case, pairs in results:
            off, on = [pair.off for pair in pairs[name]], [pair.on for pair in pairs[name]]
            rates = [1 / statistics.median(block.wall_s for block in side) for side in (off, on)]
            wall = statistics.median(1 - one.wall_s / other.wall_s for one, other in pairs[name])
            cpu = 1 - statistics.median(b.cpu_s for b in off) / statistics.median(b.cpu_s for b in on)
            print(line(case.what, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{wall:.1%}", f"{cpu:.1%}", TARGET))
        print()


if __name__ == "__main__":
    main()
