"""`yurt namespace inspect`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import parsed, rendered


def run(call: Invocation) -> int:
    """The namespace as the API gives it."""
    template = call.flags.text("t")
    if template:
        parsed(template)
    space = call.api.get(api_path("namespace", call.args[0]))
    if template:
        call.screen.line(rendered(template, space))
    else:
        call.screen.json(space)
    return 0


COMMAND = Command(
    "namespace inspect",
    "Print a namespace as JSON.",
    run,
    (text("t", "Format the answer with a Go template."),),
    (1, 1),
    "<namespace>",
    "one argument: <namespace>",
)
