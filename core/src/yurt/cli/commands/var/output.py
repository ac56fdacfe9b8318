"""How a variable is printed: as a table, HCL, JSON or through a template."""

from __future__ import annotations

import sys
from typing import Any

from yurt.cli.commands.var.specification import as_hcl
from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import Flag, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import parsed, rendered
from yurt.cli.terminal.text import local_time

TEMPLATE: Flag = text("template", "The Go template for -out=go-template.")


def out_flag(forms: str, help_text: str, *, default: str = "") -> Flag:
    """`-out` with the formats of a command."""
    return text("out", f"How to print {help_text}: {forms}.", default=default)


def checked_form(call: Invocation, forms: tuple[str, ...], *, default: str) -> str:
    """The requested format; `-template` alone implies go-template."""
    form, template = call.flags.text("out"), call.flags.text("template")
    if not form:
        form = "go-template" if template else default
    if form not in forms:
        raise UsageError(f'Invalid value "{form}" for -out; it is one of {", ".join(forms)}')
    if form == "go-template" and not template:
        raise UsageError("A template must be supplied using '-template' when using go-template formatting")
    if template and form != "go-template":
        raise UsageError(f"The -template flag has no effect with -out={form}; use -out=go-template")
    if template:
        parsed(template)
    return form


def is_terminal() -> bool:
    """Standard output is a terminal."""
    return sys.stdout.isatty()


def show(call: Invocation, variable: Json, form: str) -> None:
    """Print one variable."""
    match form:
        case "none":
            return
        case "json":
            call.screen.json(variable)
        case "hcl":
            call.screen.line(as_hcl(variable))
        case "go-template":
            call.screen.line(rendered(call.flags.text("template"), variable))
        case _:
            _show_table(call, variable)


def _show_table(call: Invocation, variable: Json) -> None:
    rows: list[tuple[str, Any]] = [
        ("Namespace", variable["Namespace"]),
        ("Path", variable["Path"]),
        ("Create Time", local_time(variable.get("CreateTime") or 0)),
    ]
    if variable.get("CreateTime") != variable.get("ModifyTime"):
        rows.append(("Modify Time", local_time(variable.get("ModifyTime") or 0)))
    rows.append(("Check Index", variable.get("ModifyIndex", 0)))
    lock = variable.get("Lock")
    if lock:
        rows.append(("Lock TTL", lock.get("TTL", "")))
        rows.append(("Lock Delay", lock.get("LockDelay", "")))
    call.screen.pairs(rows)
    call.screen.title("Items")
    items = variable.get("Items") or {}
    call.screen.pairs([(key, items[key]) for key in sorted(items)])


def conflict_error(current: Json, checked: int, *, doing: str) -> CliError:
    """Why a change was refused: another version, or a lock of another caller."""
    path = current.get("Path", "")
    if current.get("Lock"):
        return CliError(f'Failed to {doing} variable "{path}": it is locked; only the holder of the lock may change it')
    index = current.get("ModifyIndex", 0)
    if not index:
        reason = f"Your provided check-index ({checked}) does not match: the variable does not exist."
    else:
        reason = (
            f"Your provided check-index ({checked}) does not match the server-side index ({index}).\n"
            f"The server-side item was last updated on {local_time(current.get('ModifyTime') or 0)}."
        )
    hint = "If you are sure you want to perform this operation, add the -force or -check-index=N flag."
    if doing == "purge":
        hint = f"If you are sure you want to perform this operation, use -check-index={index} or leave the flag out."
    return CliError(f'Failed to {doing} variable "{path}": Check-and-Set conflict\n\n{reason}\n{hint}')
