"""`-json` and `-t`: the answer of the API instead of a text."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError


def wants_data(call: Invocation) -> bool:
    """`-json` or `-t` was given; the latter is refused."""
    is_json, template = call.flags.is_on("json"), call.flags.text("t")
    if is_json and template:
        raise CliError("Both json and template formatting are not allowed")
    if template:
        raise CliError("-t (Go templates) is not available in this version; use -json and a tool such as jq")
    return is_json


def show_data(call: Invocation, value: Any) -> int:
    """The value as JSON; the exit code."""
    call.screen.json(value)
    return 0
