"""The common end of commands that create an evaluation: follow it, or with -detach print its id."""

from __future__ import annotations

from collections.abc import Callable

from yurt.cli.declaration import Invocation


def follow_or_detach(
    call: Invocation, eval_id: str, *, detached: Callable[[], None] | None = None, waits: bool = False
) -> int:
    """With -detach print the evaluation's id, else monitor it; `waits`: until its tasks have ended."""
    if not eval_id:
        return 0
    if call.flags.is_on("detach"):
        if detached is not None:
            detached()
        else:
            call.screen.line(f"Evaluation ID: {eval_id}")
        return 0
    from yurt.cli.views.monitor import EvalMonitor

    return EvalMonitor(call, waits=waits).follow(eval_id)
