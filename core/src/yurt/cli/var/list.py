"""`yurt var list`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.paging import next_page, page_query
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import number, text
from yurt.cli.terminal.data import rendered
from yurt.cli.terminal.text import local_time
from yurt.cli.var.shown import TEMPLATE, checked_form, is_terminal, out_flag

Json = dict[str, Any]

FORMS = ("go-template", "json", "table", "terse")


def run(call: Invocation) -> int:
    """Metadata of the variables whose path begins with a prefix."""
    form = checked_form(call, FORMS, default="table" if is_terminal() else "terse")
    prefix = call.args[0] if call.args else ""
    answer = call.api.read("/v1/vars", {"prefix": prefix, **page_query(call)})
    rows: list[Json] = answer.data or []
    match form:
        case "json":
            call.screen.json(rows)
        case "go-template":
            call.screen.line(rendered(call.flags.text("template"), rows))
        case "terse":
            for row in rows:
                call.screen.line(row["Path"])
        case _:
            _show_table(call, rows)
    if answer.next_token:
        call.screen.error(next_page(call, answer.next_token))
    return 0


def _show_table(call: Invocation, rows: list[Json]) -> None:
    if not rows:
        call.screen.line("No variables found")
        return
    shown = [[row["Namespace"], row["Path"], local_time(row.get("ModifyTime") or 0)] for row in rows]
    call.screen.table("Namespace|Path|Last Updated", shown)


COMMAND = Command(
    "var list",
    "List variables, by a prefix of their paths.",
    run,
    (
        number("per-page", "How many to print; 0 prints all."),
        text("page-token", "Where the page begins."),
        text("filter", "Print those for which an expression holds."),
        out_flag("go-template, json, table or terse", "the list"),
        TEMPLATE,
    ),
    (0, 1),
    "[prefix]",
    "at most one argument: [prefix]",
    details="Without -out: a table on a terminal, else the paths alone.",
)
