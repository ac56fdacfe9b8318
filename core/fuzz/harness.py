"""Coverage-guided fuzzing of what the agent reads from strangers, by atheris: `python core/fuzz/harness.py TARGET`.

A target is a function of bytes in a module of this folder. It does with its input what the agent does, and asserts what
the agent promises: only the package's own errors come out, and its invariants hold. The harness adds two promises of
its own: no input takes more than `CPU_LIMIT_S` of CPU time, and memory does not grow without bound (-rss_limit_mb).
`-max_cpu_time=60` ends after 60 s of CPU time; further arguments are libFuzzer's own, such as
-max_total_time=60 or a file with an input to try again. `campaign.py` runs all targets and keeps the ledger.

To add a target: a module here with `TARGETS` (name -> function) and `SEEDS` (name -> first inputs), and a line in
`TARGETS` below. `tests/test_fuzz.py` runs every target over its seeds without atheris; `make fuzz` runs them all.
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

CPU_LIMIT_S = 1.0
"""More is a hang. CPU time, because libFuzzer's -timeout counts the wall clock, which a loaded machine stretches."""
WALL_LIMIT_S = 1_800
"""Ends a hang in C code, which no signal handler of Python interrupts."""
FOLDER = Path(__file__).parent
FOUND = Path(tempfile.gettempdir(), "yurt-fuzz-found-")
"""The beginning of the names of files that hold an input that breaks something."""
DEFAULTS = (f"-artifact_prefix={FOUND}", "-max_len=16384", f"-timeout={WALL_LIMIT_S}", "-rss_limit_mb=4096")
MAX_CPU_TIME = "-max_cpu_time="
USAGE = "usage: harness.py --list | TARGET [libFuzzer arguments]; TARGET is one of "


class Target(NamedTuple):
    """The module of this folder that holds a target, and the packages whose branches guide the fuzzer."""

    module: str
    instrumented: tuple[str, ...]


TARGETS: dict[str, Target] = {
    "tar": Target("archives", ("yurt.client.artifacts", "yurt.client.archives")),
    "members": Target("archives", ("yurt.client.archives",)),
    "zip": Target("archives", ("yurt.client.artifacts", "zipfile")),
    "packed": Target("archives", ("yurt.client.artifacts",)),
    "body": Target("ports", ("yurt.api", "yurt.sdk")),
    "query": Target("ports", ("yurt.http.query", "yurt.api.times")),
    "filter": Target("ports", ("yurt.filters",)),
    "hosts": Target("ports", ("yurt.http.edge.hosts",)),
    "greeting": Target("ports", ("yurt.rpc",)),
    "messages": Target("ports", ("yurt.rpc",)),
    "cron": Target("schedules", ("yurt.rules.cron",)),
    "template_syntax": Target("templates", ("yurt.gotemplate",)),
    "template": Target("templates", ("yurt.gotemplate",)),
}


def load(name: str) -> tuple[Callable[[bytes], None], Iterable[bytes]]:
    """A target's function and its first inputs."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    module = importlib.import_module(TARGETS[name].module)
    functions: Mapping[str, Callable[[bytes], None]] = module.TARGETS
    seeds: Mapping[str, Iterable[bytes]] = module.SEEDS
    return functions[name], seeds[name]


def timed(target: Callable[[bytes], None], *, total_s: float = math.inf) -> Callable[[bytes], None]:
    """The target with a limit on its CPU time: after `total_s` for all inputs together it tells libFuzzer to end."""

    def end(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"one input takes more than {CPU_LIMIT_S:.1f} s of CPU time")

    signal.signal(signal.SIGPROF, end)

    def run(data: bytes) -> None:
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)  # of CPU time, as the check below
        try:
            target(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        ended = time.process_time()
        if ended - begun > CPU_LIMIT_S:
            raise TimeoutError(f"one input of {len(data)} bytes took {ended - begun:.1f} s of CPU time")
        if ended > total_s:
            os.kill(os.getpid(), signal.SIGUSR1)  # libFuzzer's graceful end, with its final figures

    return run


def main() -> None:
    """Fuzz one target until libFuzzer's own limits end it."""
    arguments = sys.argv[1:]
    if arguments == ["--list"]:
        print(*TARGETS, sep="\n")
        return
    if not arguments or arguments[0] not in TARGETS:
        sys.exit(USAGE + ", ".join(TARGETS))
    import atheris

    limits = [argument for argument in arguments if argument.startswith(MAX_CPU_TIME)]
    total_s = float(limits[-1].removeprefix(MAX_CPU_TIME)) if limits else math.inf
    arguments = [argument for argument in arguments if argument not in limits]
    with atheris.instrument_imports(include=list(TARGETS[arguments[0]].instrumented)):
        target, seeds = load(arguments[0])
    with tempfile.TemporaryDirectory(prefix="yurt-fuzz-") as corpus:
        for number, data in enumerate(seeds):
            Path(corpus, f"seed{number}").write_bytes(data)
        limited = timed(target, total_s=total_s)
        given = [argument for argument in arguments[1:] if not argument.startswith("-")]
        atheris.Setup([sys.argv[0], *DEFAULTS, *arguments[1:], *([] if given else [corpus])], limited)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
