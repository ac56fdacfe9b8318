"""`yurt status`: the object with an id, whatever its kind."""

from __future__ import annotations

from yurt.cli import tree
from yurt.cli.declaration import UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import parse
from yurt.cli.json_object import Json
from yurt.cli.tree import NOUNS

_COMMANDS = {
    "jobs": "job status",
    "allocs": "alloc status",
    "nodes": "node status",
    "evals": "eval status",
    "deployment": "deployment status",
    "namespaces": "namespace status",
    "node_pools": "node pool info",
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
    command = tree.command(_COMMANDS[kind])
    passed = [f"-{name}" for name in ("verbose", "ui") if call.flags.is_on(name) and _has_flag(command, name)]
    flags, _ = parse(passed, command.all_flags)
    inner = Invocation(command, flags, [identifier] if identifier else [])
    inner.__dict__["api"] = call.api
    inner.__dict__["screen"] = call.screen
    return command.run(inner)


def _has_flag(command: CliCommand, name: str) -> bool:
    return any(flag.name == name for flag in command.flags)


COMMANDS = (
    CliCommand(
        "status",
        NOUNS["status"],
        run,
        (VERBOSE, UI),
        (0, 1),
        "[<identifier>]",
        "at most one argument: <identifier>",
        details="The object is a job, an allocation, a node, an evaluation, a deployment, a namespace or a node pool.",
    ),
)
