"""`yurt operator metrics`."""

from __future__ import annotations

import json
from typing import Any

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data

PATH = "/v1/metrics"
PROMETHEUS = "prometheus"


def print_metrics(call: Invocation) -> int:
    """The agent's metrics as the API has them, or as Prometheus reads them."""
    is_data = wants_data(call)
    requested = call.flags.text("format")
    if requested not in ("", PROMETHEUS):
        raise CliError(f'-format is "{PROMETHEUS}" or nothing, not "{requested}"')
    if requested:
        answer = call.api.raw("GET", f"{PATH}?format={PROMETHEUS}")
        if answer.status != 200:
            raise CliError(answer.body.decode("utf-8", "replace").strip())
        call.screen.line(answer.body.decode("utf-8", "replace").rstrip("\n"))
        return 0
    found: Any = call.api.get(PATH)
    if is_data:
        return show_data(call, found)
    call.screen.line(json.dumps(found, indent=4 if call.flags.is_on("pretty") else None, sort_keys=True))
    return 0


COMMANDS = (
    CliCommand(
        "operator metrics",
        "Print the metrics of the agent",
        print_metrics,
        (
            switch("pretty", "Indent the JSON."),
            text("format", f'Nothing for JSON, or "{PROMETHEUS}"; -json and -t have no effect then.'),
            *JSON_FLAGS,
        ),
    ),
)
