"""`yurt agent-info`: runtime statistics of the agent."""

from __future__ import annotations

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.tree import NOUNS


def run(call: Invocation) -> int:
    """The figures of the agent, section by section."""
    is_data = wants_data(call)
    answer: Json = call.api.get("/v1/agent/self") or {}
    if is_data:
        return show_data(call, answer)
    for section, figures in sorted((answer.get("stats") or {}).items()):
        call.screen.line(section)
        for key, value in sorted(figures.items()):
            call.screen.line(f"  {key} = {value}")
    return 0


COMMANDS = (CliCommand("agent-info", NOUNS["agent-info"], run, JSON_FLAGS),)
