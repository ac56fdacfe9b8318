"""Decides how a task is notified of changed templates: a restart, or signals and scripts, each once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from yurt.sdk.value import Duration
from yurt.structs.task import ChangeScript, Template

RESTART, SIGNAL, SCRIPT, NOOP = "restart", "signal", "script", "noop"
DEFAULT_SIGNAL = "SIGHUP"
RESTART_REASON = "Template with change_mode restart re-rendered"


class ChangeActions(NamedTuple):
    """The notification of a task: a restart, or signals and scripts, after a delay of up to `splay`."""

    restart: bool = False
    signals: tuple[str, ...] = ()
    scripts: tuple[ChangeScript, ...] = ()
    splay: Duration = Duration(0)


def actions_for(changed: Iterable[Template]) -> ChangeActions:
    """The notification for templates that changed together; a restart replaces signals and scripts."""
    restart, splay = False, 0
    signals: dict[str, None] = {}
    scripts: dict[ChangeScript, None] = {}
    for template in changed:
        mode = template.change_mode or RESTART
        if mode == NOOP:
            continue
        splay = max(splay, template.splay)
        if mode == SIGNAL:
            signals[template.change_signal or DEFAULT_SIGNAL] = None
        elif mode == SCRIPT and template.change_script is not None:
            scripts[template.change_script] = None
        else:
            restart = True
    if restart:
        return ChangeActions(restart=True, splay=Duration(splay))
    return ChangeActions(signals=tuple(signals), scripts=tuple(scripts), splay=Duration(splay))


def first_scripts(templates: Iterable[Template]) -> tuple[ChangeScript, ...]:
    """The scripts that also run after the first rendering."""
    found = (each.change_script for each in templates if each.change_mode == SCRIPT)
    return tuple(script for script in found if script is not None and script.run_on_first_render)
