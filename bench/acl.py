"""Measures the cost of access control: HTTP reads and registrations with it off and on, in one run.

    python -m bench acl [--runs 10] [--rounds 5]

Three servers hold the same nodes and jobs: one without access control, one with it and 1,000 policies, and one more
without it, the control. A rate is that of a busy server: a block of requests comes over many connections, each of which
sends its next request when all have their answers. Blocks of the two servers that are compared take turns, each server
first every other time, so that what else the machine does meets both. Each caller keeps connections of its own for a
whole case, as clients do, and the server without access control has as many, over which requests show no token. A table
of its own tells what a token costs there, where nobody looks it up.

The last column compares the time of single requests, sent to one server and then to the other. Between two requests
the other server fills the processor's caches, as other programs do on a machine that seldom gets a request.

The layout of a process's memory makes it up to a tenth faster or slower than an equal one for as long as it runs. So
each run starts new servers and yields one pair, the medians of its slices; the loss is the median of the runs' ratios,
with its quartiles: by the clock, and by the processor time of the server, which other processes disturb less. The
control's loss is the difference between equal servers: a smaller loss means nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import queue
import statistics
import threading
import time
import timeit
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

from yurt.access import Need, Scope, needs
from yurt.access.needs import Capability, VariableCapability
from yurt.acl import parse_policy
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.rights import AuthenticationLevel, Rights

from bench.server import BenchedServer, Connection, running, service_job
from bench.table import lost

NODES, JOBS, TEAMS = 200, 500, 10
POLICIES = 1000
TEAM_TOKENS, TEAM_POLICIES, MANY_POLICIES = 50, 10, 300
SENDERS = 8
CONNECTIONS = 16
"""Of the callers of a side that show the same token."""
ALONE = 4
"""The number of requests in a block for each one that is also sent alone."""
T = TypeVar("T")
TARGET = "5 %"
CONTROL: Final = "control: no access control either"
HEADER: Final = "a token shown to the control, which does not look it up"


class Case(NamedTuple):
    """Requests of one kind: how many in a block, how many before the first one, and the request of a number."""

    what: str
    block: int
    first: int
    """Requests before the measurement: every caller asks, and every object is asked for. Then caches are warm, as on a
    server that has run for a while.
    """
    request: Callable[[int, str], bytes]
    is_write: bool = False


class Side(NamedTuple):
    """A server, and the secrets that its callers show in turn; the secret of a caller without one is ""."""

    server: BenchedServer
    secrets: tuple[str, ...] = ("",)


class Sample(NamedTuple):
    """Seconds for one request: by the clock, and of the server's processor time."""

    wall_s: float
    cpu_s: float
    alone_s: float = math.nan
    """By the clock, where one request comes at a time and the servers take turns."""


class Slice(NamedTuple):
    """The same requests to two servers."""

    off: Sample
    on: Sample


class Options(argparse.Namespace):
    """The command line."""

    runs: int
    rounds: int


Slices = dict[tuple[str, str], list[Slice]]
"""By case and by the side that is compared: one of each run."""


def message(method: str, path: str, secret: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire, with the headers that clients send."""
    token = f"X-Nomad-Token: {secret}\r\n" if secret else ""
    usual = "Host: 127.0.0.1\r\nUser-Agent: yurt-bench/1\r\nAccept: application/json\r\n"
    head = f"{method} {path} HTTP/1.1\r\n{usual}{token}Content-Length: {len(body)}\r\n\r\n"
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
    Case("one job", 480, JOBS, read("/v1/job/job-NUMBER?namespace=TEAM")),
    Case("allocations of a job", 480, JOBS, read("/v1/job/job-NUMBER/allocations?namespace=TEAM")),
    Case("50 jobs of a namespace", 160, TEAM_TOKENS, read("/v1/jobs?namespace=TEAM")),
    Case("500 jobs of all namespaces", 32, TEAM_TOKENS, read("/v1/jobs?namespace=*")),
    Case("200 nodes", 112, TEAM_TOKENS, read("/v1/nodes")),
    Case("registrations, 8 at once", 32, TEAM_TOKENS, register, is_write=True),
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

DECISIONS: Final[Mapping[str, tuple[Need, Scope]]] = {
    "a namespace by its name": (needs.namespace(Capability.READ_JOB), Scope(namespace="team-3")),
    "a namespace by a glob": (needs.namespace(Capability.READ_JOB), Scope(namespace="other-7-x")),
    "a namespace without a rule": (needs.namespace(Capability.READ_JOB), Scope(namespace="nothing")),
    "any namespace": (needs.namespace(Capability.READ_JOB), Scope()),
    "a variable": (needs.variable(VariableCapability.READ), Scope(namespace="team-3", variable="app-3/key")),
    "nodes": (needs.NODE_READ, Scope()),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench acl")
    parser.add_argument("--runs", type=int, default=10, help="with new servers (default 10)")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each case in a run (default 3)")
    options = parser.parse_args(namespace=Options())
    found: Slices = defaultdict(list)
    for _ in range(options.runs):
        with sides_running() as (off, others):
            for case, (name, side) in itertools.product(CASES, others.items()):
                found[case.what, name].append(middle_of(measured(case, off, side, options.rounds)))
    print_results(found)
    print_decisions()


@contextmanager
def sides_running() -> Iterator[tuple[Side, Mapping[str, Side]]]:
    """The side without access control, and those that are compared with it, by name."""
    with running(NODES, "") as off, running(NODES, "") as control, running(NODES, "", has_acl=True) as on:
        root = json.loads(ask(on, message("PUT", "/v1/acl/bootstrap", "")))["SecretID"]
        add_policies(on, root)
        sides = {
            CONTROL: Side(control),
            HEADER: Side(control, (root,)),
            f"{TEAM_TOKENS} tokens of {TEAM_POLICIES} policies": Side(on, team_secrets(on, root)),
            f"one token of {MANY_POLICIES} policies": Side(on, (new_token(on, root, range(MANY_POLICIES)),)),
            "management token": Side(on, (root,)),
        }
        for side in (Side(off), Side(control), Side(on, (root,))):
            add_jobs(side)
        yield Side(off), sides


def ask(server: BenchedServer, request: bytes) -> bytes:
    """The body of an answer; raises RuntimeError for a refusal."""
    with Connection(server.port) as connection:
        return checked(*connection.ask(request))


def checked(status: int, body: bytes) -> bytes:
    """The body of an answer of status 200."""
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {body.decode(errors='replace')[:200]}")
    return body


def rules_of(number: int) -> str:
    """The text of a policy."""
    return RULES.replace("NAME", team(number)).replace("NUMBER", str(number))


def add_policies(server: BenchedServer, root: str) -> None:
    """1,000 policies, a hundred about each namespace."""
    with Connection(server.port) as connection:
        for number in range(POLICIES):
            body = json.dumps({"Name": f"policy-{number}", "Rules": rules_of(number)}).encode()
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


numbers: Final = itertools.count()
"""Of requests: no two registrations of a run have the same name."""


def measured(case: Case, off: Side, on: Side, rounds: int) -> list[Slice]:
    """Slices of a case; the first one, which is as long as it takes to have asked for everything, does not count."""
    asked = [[next(numbers) for _ in range(size)] for size in (case.first, *[case.block] * rounds)]
    if case.is_write:
        return [registered(case, off, on, each) for each in asked][1:]
    callers = max(CONNECTIONS, len(off.secrets), len(on.secrets))
    with ExitStack() as stack:
        sides = [
            Connected(side, [stack.enter_context(Connection(side.server.port)) for _ in range(callers)])
            for side in (off, on)
        ]
        for side in sides:
            busy(case, side, asked[0])
        return [compared(case, sides, number, each) for number, each in enumerate(asked[1:])]


class Connected(NamedTuple):
    """A side, and the connections of its callers."""

    side: Side
    connections: Sequence[Connection]

    def request(self, case: Case, number: int) -> tuple[Connection, bytes]:
        """The request of a number, and the connection of its caller."""
        secrets = self.side.secrets
        return self.connections[number % len(self.connections)], case.request(number, secrets[number % len(secrets)])


def compared(case: Case, sides: Sequence[Connected], number: int, asked: Sequence[int]) -> Slice:
    """A block to each server, and then requests in turn."""
    in_order = sides if number % 2 else sides[::-1]
    blocks = {id(each.side): busy(case, each, asked) for each in in_order}
    alone = one_by_one(case, sides, asked[: len(asked) // ALONE])
    off, on = (blocks[id(each.side)]._replace(alone_s=took) for each, took in zip(sides, alone, strict=True))
    return Slice(off, on)


def busy(case: Case, to: Connected, asked: Sequence[int]) -> Sample:
    """Reads over all connections at once."""
    requests = [to.request(case, number) for number in asked]
    before_s, begin = to.side.server.cpu_s, time.perf_counter()
    for wave in waves(requests, len(to.connections)):
        for connection, request in wave:
            connection.send(request)
        for connection, _ in wave:
            checked(*connection.receive())
    took = time.perf_counter() - begin
    return Sample(took / len(asked), (to.side.server.cpu_s - before_s) / len(asked))


def waves(requests: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The requests in groups of `size`."""
    return (requests[at : at + size] for at in range(0, len(requests), size))


def one_by_one(case: Case, sides: Sequence[Connected], asked: Sequence[int]) -> Sequence[float]:
    """The median time of a read on each side, where each server gets a request in turn."""
    took: Sequence[list[float]] = [[] for _ in sides]
    for number in asked:
        in_turn = list(zip(sides, took, strict=True))
        for to, seconds in in_turn if number % 2 else in_turn[::-1]:
            connection, request = to.request(case, number)
            begin = time.perf_counter()
            checked(*connection.ask(request))
            seconds.append(time.perf_counter() - begin)
    return [statistics.median(each) for each in took]


def registered(case: Case, off: Side, on: Side, asked: Sequence[int]) -> Slice:
    """Registrations over some connections, to the one server and then to the other."""
    is_off_first = bool(asked[0] // len(asked) % 2)
    samples = {id(side): one_block(case, side, asked) for side in ((off, on) if is_off_first else (on, off))}
    return Slice(samples[id(off)], samples[id(on)])


def one_block(case: Case, side: Side, asked: Sequence[int]) -> Sample:
    """Register jobs; the processor time is that until all are placed."""
    requests = [case.request(number, side.secrets[number % len(side.secrets)]) for number in asked]
    placed, before_s = int(side.server.figures()["allocs"]), side.server.cpu_s
    begin = time.perf_counter()
    send(side.server, requests)
    took = time.perf_counter() - begin
    side.server.wait_placed(placed + len(asked))
    return Sample(took / len(asked), (side.server.cpu_s - before_s) / len(asked))


def middle_of(slices: Sequence[Slice]) -> Slice:
    """The medians of a run's slices."""

    def middle(samples: Sequence[Sample]) -> Sample:
        return Sample(*(statistics.median(each) for each in zip(*samples, strict=True)))

    return Slice(middle([each.off for each in slices]), middle([each.on for each in slices]))


def print_results(found: Slices) -> None:
    """One table for each side."""
    line = "{:<28} {:>8} {:>8}  {:>22}  {:>6}  {:>7} {:>7}  {:>22}  {:>22}".format
    for name in dict.fromkeys(name for _, name in found):
        count = max(len(slices) for (_, of), slices in found.items() if of == name)
        print(f"{name}; {POLICIES:,} policies, medians of {count} runs (quartiles)")
        print(line("", "off, 1/s", "on, 1/s", "rate lost", "target", "off, us", "on, us", "CPU lost", "alone: lost"))
        for case in CASES:
            slices = found[case.what, name]
            rates = [f"{1 / statistics.median(each[at].wall_s for each in slices):,.0f}" for at in (0, 1)]
            cpu_us = [f"{statistics.median(each[at].cpu_s for each in slices) * 1e6:,.0f}" for at in (0, 1)]
            wall, cpu, alone = (lost([(each.off[at], each.on[at]) for each in slices]) for at in (0, 1, 2))
            target = TARGET if name not in (CONTROL, HEADER) else ""
            print(line(case.what, *rates, wall, target, *cpu_us, cpu, "" if case.is_write else alone))
        print()


def print_decisions() -> None:
    """The time of one decision by compiled policies, the least of some runs: anything else is the machine's."""
    parsed = [parse_policy(f"policy-{number}", rules_of(number), filename="rules") for number in range(POLICIES)]
    counts = (TEAM_POLICIES, MANY_POLICIES, POLICIES)
    print("one decision, us (target 1)", *(f"{count:>8,} policies" for count in counts))
    rights = [Rights(AuthenticationLevel.KNOWN, CompiledPolicies(parsed[:count])) for count in counts]
    for what, (need, scope) in DECISIONS.items():
        figures = [min(timeit.repeat(partial(each.allows, need, scope), number=1000, repeat=20)) for each in rights]
        print(f"{what:<27}", *(f"{seconds * 1000:>17.2f}" for seconds in figures))


if __name__ == "__main__":
    main()
