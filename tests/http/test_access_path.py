"""No handler reaches the state or the server: it has a `Call` with a view and operations, and no other way.

`INSIDE` are the modules that make that way, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yurt.http

FOLDER = Path(yurt.http.__file__).parent
INSIDE = {
    "answers": "turns a view into the answer of a read, and waits for a change of it",
    "app": "composes the application; decides where a request is answered",
    "at_leader": "finds the server that leads",
    "audit": "a middleware: names the caller of a request that was refused before any route was asked",
    "call": "makes views and operations from the server",
    "connections": "its `server` is aiohttp's",
    "dispatcher": "makes the call",
    "forward": "passes requests on before any route is asked",
    "protocol": "its `writer` is aiohttp's",
    "regions": "decides which region answers",
    "task_api": "authenticates tasks before any route is asked",
    "task_sockets": "its `server` is aiohttp's",
}
MODULES = (
    "yurt.state",
    "yurt.fsm",
    "yurt.server.server",
    "yurt.server.log.log_writer",
    "yurt.server.log.replica",
    "yurt.structs.commands",
)
"""What no handler imports: the state, its tables, and the commands that change it."""
NAMES = ("server", "read_state", "changed_state", "known_state", "replica", "writer")
"""What no handler asks a call for."""


def findings(tree: ast.Module) -> Iterator[str]:
    """How a module goes past the access path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"imports {node.module}" for _ in range(is_forbidden(node.module or "")))
            yield from (f"imports {each.name}" for each in node.names if each.name in ("changed_state", "CONTEXT"))
        elif isinstance(node, ast.Import):
            yield from (f"imports {each.name}" for each in node.names if is_forbidden(each.name))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield f"reads .{node.attr}"


def is_forbidden(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in MODULES)


def found_in(name: str) -> list[str]:
    return sorted(set(findings(ast.parse(next(FOLDER.rglob(f"{name}.py")).read_text()))))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.rglob("*.py") if path.stem != "__init__")


def test_no_handler_goes_past_its_view_and_its_operations() -> None:
    found = {name: found_in(name) for name in names() if name not in INSIDE}
    assert not {name: each for name, each in found.items() if each}


def test_every_module_inside_exists_and_needs_its_place() -> None:
    assert set(INSIDE) <= set(names())
    assert not [name for name in INSIDE if not found_in(name)]


@pytest.mark.parametrize(
    "line",
    [
        "from yurt.state.store import Snapshot",
        "import yurt.state.persistent_table",
        "from yurt.server.server import Server",
        "from yurt.structs.commands import DeleteNamespaces",
        "from yurt.http.call import changed_state",
        "rows = call.server.state.jobs",
        "state = call.read_state()",
        "server = call.context.server",
    ],
)
def test_a_way_past_it_is_seen(line: str) -> None:
    assert list(findings(ast.parse(line)))
