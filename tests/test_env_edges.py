"""What still takes clock, threads, network and processes from asyncio instead of `Env`: the numbers may only fall.

The simulator replaces the event loop (`yurt.testing.sim.loop`), so time-outs, threads and the loop's clock are virtual
with and without `Env`. Sockets and processes are not: code that opens them cannot run in a simulated cluster, and code
that takes all from `Env` says by its arguments what it depends on.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "core" / "src" / "yurt"
OF_ASYNCIO = {
    "timeout", "timeout_at", "wait_for", "to_thread", "open_connection", "open_unix_connection", "start_server",
    "start_unix_server", "create_subprocess_exec", "create_subprocess_shell",
}  # fmt: skip
OF_THE_LOOP = {
    "time", "call_later", "call_at", "run_in_executor", "create_connection", "create_server", "create_unix_connection",
    "create_unix_server", "subprocess_exec",
}  # fmt: skip
EDGES: dict[str, int] = {
    "agent": 16, "cli": 2, "client": 88, "executor": 22, "goplugin": 29, "http": 26, "rpc": 10, "sdk": 30, "server": 49,
    "storage": 22,
}  # fmt: skip
"""Packages with the number of uses that each may have at most. `runtime` holds `Env` itself."""
STALE = 10
"""When so many uses of a package are gone its number is to be lowered."""


def uses(tree: ast.AST) -> Iterator[str]:
    """Uses of asyncio's own; a pause of 0 seconds is a turn of the loop and no wait."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        is_wait = name == "sleep" and not (node.args and ast.unparse(node.args[0]) == "0")
        if owner == "asyncio" and (name in OF_ASYNCIO or is_wait):
            yield f"asyncio.{name}"
        elif name in OF_THE_LOOP and owner.removesuffix("()").endswith("loop"):
            yield f"loop.{name}"


def test_the_edges_around_env_only_shrink() -> None:
    count: Counter[str] = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0]
        if package not in ("testing", "runtime"):
            count[package] += sum(1 for _ in uses(ast.parse(path.read_text())))
    more = {package: number for package, number in count.items() if number > EDGES.get(package, 0)}
    assert not more, f"take time-outs, threads and waits from Env; at most {EDGES}, found {more}"
    fewer = {package: count[package] for package, number in EDGES.items() if count[package] <= number - STALE}
    assert not fewer, f"lower the numbers: {fewer}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("async with asyncio.timeout(3): pass", ["asyncio.timeout"]),
        ("await asyncio.to_thread(read)", ["asyncio.to_thread"]),
        ("await asyncio.sleep(0.1)", ["asyncio.sleep"]),
        ("await asyncio.sleep(0)", []),
        ("asyncio.get_running_loop().time()", ["loop.time"]),
        ("self._loop.call_later(1, end)", ["loop.call_later"]),
        ("async with self._env.timeout(3): pass", []),
        ("clock.time()", []),
    ],
)
def test_a_use_is_found(text: str, found: list[str]) -> None:
    body = "\n".join(f"    {line}" for line in text.splitlines())
    assert list(uses(ast.parse(f"async def f():\n{body}"))) == found
