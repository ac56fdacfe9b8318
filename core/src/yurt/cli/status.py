"""`yurt status`: whatever has this id."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import parse, without_effect

Json = dict[str, Any]

_COMMANDS = {
    "jobs": "yurt.cli.job.status",
    "allocs": "yurt.cli.alloc.status",
    "nodes": "yurt.cli.node.status",
    "evals": "yurt.cli.eval.status",
    "deployment": "yurt.cli.deployment.status",
    "namespaces": "yurt.cli.namespace.status",
    "node_pools": "yurt.cli.node.pool.info",
}


def run(call: Invocation) -> int:
    """Ask for everything with this prefix, and show the only one."""
    if not call.args:
        return _show(call, "jobs", "")
    prefix = call.args[0]
    answer: Json = call.api.put("/v1/search", {"Prefix": prefix, "Context": "all"}) or {}
    found = {kind: ids for kind, ids in (answer.get("Matches") or {}).items() if ids}
    exact = {kind: [prefix] for kind, ids in found.items() if prefix in ids}
    found = exact or found
    if not found:
        raise CliError(f'No matches found for id "{prefix}"')
    if sum(len(ids) for ids in found.values()) == 1:
        kind, ids = next(iter(found.items()))
        if kind not in _COMMANDS:
            raise CliError(f'"{ids[0]}" is one of {kind}; there is no command of this version that shows it')
        return _show(call, kind, ids[0])
    call.screen.line(f'Multiple matches found for id "{prefix}"')
    for kind in sorted(found):
        call.screen.title(f"{kind.capitalize()}:")
        call.screen.line(", ".join(found[kind]))
    return 1


def _show(call: Invocation, kind: str, identifier: str) -> int:
    command: Command = import_module(_COMMANDS[kind]).COMMAND
    flags, _ = parse(["-verbose"] if call.is_verbose and _knows_verbose(command) else [], command.all_flags)
    inner = Invocation(command, flags, [identifier] if identifier else [])
    inner.__dict__["api"] = call.api
    inner.__dict__["screen"] = call.screen
    return command.run(inner)


def _knows_verbose(command: Command) -> bool:
    return any(flag.name == "verbose" for flag in command.flags)


COMMAND = Command(
    "status",
    "Show the job, allocation, node, evaluation or deployment with this id; without an id list the jobs.",
    run,
    (VERBOSE, without_effect("ui")),
    (0, 1),
    "[<identifier>]",
    "at most one argument: <identifier>",
)
